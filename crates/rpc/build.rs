//! Compiles the proto files in Rust alone, so that there is no `protoc` to install.
//!
//! Messages have the names of REST, so that they are given its JSON here: serde is derived for them, and what is written differently in
//! JSON than in a message is named by its kind, for `src/json.rs` to do.

use std::path::PathBuf;

use prost::Message as _;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorSet};
use tonic_prost_build::Builder;

/// Everything; what these import is among them.
const FILES: [&str; 17] = [
    "punctual/v1/alerts.proto",
    "punctual/v1/batches.proto",
    "punctual/v1/breakers.proto",
    "punctual/v1/calendars.proto",
    "punctual/v1/dead_letters.proto",
    "punctual/v1/job.proto",
    "punctual/v1/jobs.proto",
    "punctual/v1/keys.proto",
    "punctual/v1/limits.proto",
    "punctual/v1/nodes.proto",
    "punctual/v1/operation.proto",
    "punctual/v1/operations.proto",
    "punctual/v1/queues.proto",
    "punctual/v1/run.proto",
    "punctual/v1/runs.proto",
    "punctual/v1/tenants.proto",
    "punctual/v1/workers.proto",
];

const PACKAGE: &str = "punctual.v1";

/// What other files use of the workers'. The rest of theirs is no JSON of REST: it has written conversions.
const OF_WORKERS: [&str; 3] = ["Progress", "ResultError", "Worker"];

/// Texts that are JSON, wherever they are.
const JSON: [&str; 2] = ["payload", "checkpoint"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let files = protox::compile(FILES, ["proto"])?;
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    // What reflection answers from.
    std::fs::write(out.join("descriptors.bin"), files.encode_to_vec())?;
    // Maps in order: the same message is the same text, by which a repeated request is known.
    let builder = tonic_prost_build::configure().build_transport(false).btree_map(".punctual.v1");
    as_json(builder, &files).compile_fds(files)?;
    Ok(())
}

fn as_json(mut builder: Builder, files: &FileDescriptorSet) -> Builder {
    for file in files.file.iter().filter(|file| file.package() == PACKAGE) {
        let is_of_workers = file.name().ends_with("/workers.proto");
        for message in &file.message_type {
            if is_of_workers && !OF_WORKERS.contains(&message.name()) {
                continue;
            }
            let path = format!(".{PACKAGE}.{}", message.name());
            let derived = "#[derive(::serde::Serialize, ::serde::Deserialize)]\n#[serde(default)]";
            builder = builder.type_attribute(&path, derived);
            for field in &message.field {
                let attributes = attributes(message, field);
                if !attributes.is_empty() {
                    let attribute = format!("#[serde({})]", attributes.join(", "));
                    builder = builder.field_attribute(format!("{path}.{}", field.name()), attribute);
                }
            }
        }
    }
    builder
}

/// How a field differs from what is derived.
fn attributes(message: &DescriptorProto, field: &FieldDescriptorProto) -> Vec<String> {
    let is_list = field.label() == Label::Repeated;
    let is_entry = |entry: &DescriptorProto| {
        field.type_name() == format!(".{PACKAGE}.{}.{}", message.name(), entry.name())
    };
    let is_map = message.nested_type.iter().any(is_entry);
    let is_json = JSON.contains(&field.name()) || (message.name(), field.name()) == ("Operation", "patch");
    let kind = match (field.type_name(), is_list) {
        (".google.protobuf.Timestamp", false) => Some("timestamp"),
        (".google.protobuf.Duration", false) => Some("duration"),
        (".google.protobuf.Duration", true) => Some("durations"),
        (".google.protobuf.FieldMask", false) => Some("mask"),
        (".punctual.v1.Problem", false) => Some("problem"),
        (".punctual.v1.Parts", false) => Some("parts"),
        _ if is_json => Some("text"),
        _ => None,
    };
    // What is not set is not written: absent in both.
    let skipped = match (is_map, is_list, field.r#type()) {
        (true, ..) => Some("::std::collections::BTreeMap::is_empty"),
        (_, true, _) => Some("Vec::is_empty"),
        (.., Type::Message) => Some("Option::is_none"),
        _ if field.proto3_optional == Some(true) => Some("Option::is_none"),
        (.., Type::String) => Some("String::is_empty"),
        _ => None,
    };
    let kind = kind.map(|kind| format!("with = \"crate::json::{kind}\""));
    kind.into_iter().chain(skipped.map(|empty| format!("skip_serializing_if = \"{empty}\""))).collect()
}
