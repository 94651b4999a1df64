//! gRPC held against REST: every route is a method, every parameter and every member a field with a fitting type, and nothing more.

use std::collections::{BTreeMap, BTreeSet};

use prost::Message as _;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorSet};
use punctual_server::{Endpoint, METHODS, TABLE, document};
use serde_json::Value;

/// Routes that are no methods, and what gRPC has instead.
const ELSEWHERE: [(&str, &str); 4] = [
    ("GET /livez", "health"),
    ("GET /readyz", "health"),
    ("GET /v1/openapi.json", "reflection"),
    ("GET /metrics", "nothing: Prometheus does not ask by gRPC"),
];

/// Fields of requests that are headers in REST, or say which fields a patch is about.
const CONDITIONS: [&str; 3] = ["if_version", "if_absent", "update_mask"];

/// Types that are written in another way, or by conversions that have tests of their own.
const OTHERWISE: [&str; 3] = ["Problem", "Parts", "ResultError"];

fn route(method: &Endpoint) -> &'static Endpoint {
    let is_it = |route: &&Endpoint| method.rest.split_once(' ') == Some((route.method, route.path));
    TABLE.iter().find(is_it).unwrap_or_else(|| panic!("{} is no route: {}", method.path, method.rest))
}

#[test]
fn every_route_is_a_method_with_the_same_role() {
    let lines = TABLE.iter().map(|route| format!("{} {}", route.method, route.path));
    let is_elsewhere = |line: &String| ELSEWHERE.iter().any(|(known, _)| known == line);
    let mut routes: Vec<String> = lines.filter(|line| !is_elsewhere(line)).collect();
    let mut named: Vec<&str> =
        METHODS.iter().map(|method| method.rest).filter(|rest| !rest.is_empty()).collect();
    routes.sort();
    named.sort_unstable();
    assert_eq!(routes, named);
    for method in METHODS.iter().filter(|method| !method.rest.is_empty()) {
        let route = route(method);
        let (ours, theirs) = ((method.needs, method.is_for_all), (route.needs, route.is_for_all));
        assert_eq!(ours, theirs, "{}", method.path);
    }
}

/// The proto files and the OpenAPI document.
struct Both {
    messages: BTreeMap<String, DescriptorProto>,
    /// Request and answer of each method, by its path.
    methods: BTreeMap<String, (String, String)>,
    document: Value,
    /// Types that were compared.
    seen: BTreeSet<(String, String)>,
}

impl Both {
    fn read() -> Self {
        let files = FileDescriptorSet::decode(punctual_rpc::FILE_DESCRIPTOR_SET).unwrap();
        let (mut messages, mut methods) = (BTreeMap::new(), BTreeMap::new());
        for file in files.file.iter().filter(|file| file.package() == "punctual.v1") {
            for message in &file.message_type {
                messages.insert(format!(".punctual.v1.{}", message.name()), message.clone());
            }
            for service in &file.service {
                for method in &service.method {
                    let path = format!("/punctual.v1.{}/{}", service.name(), method.name());
                    methods.insert(path, (method.input_type().into(), method.output_type().into()));
                }
            }
        }
        let document = serde_json::from_str(&document()).unwrap();
        Both { messages, methods, document, seen: BTreeSet::new() }
    }

    fn fields(&self, message: &str) -> BTreeMap<String, FieldDescriptorProto> {
        let message = self.messages.get(message).unwrap_or_else(|| panic!("no message {message}"));
        message.field.iter().map(|field| (field.name().to_string(), field.clone())).collect()
    }

    /// The members of a type, and whether each is always there.
    fn members(&self, schema: &Value) -> BTreeMap<String, (Value, bool)> {
        let schema = match schema["$ref"].as_str() {
            Some(_) => &self.document["components"]["schemas"][named(schema).unwrap()],
            None => schema,
        };
        let mut members = BTreeMap::new();
        for part in schema["allOf"].as_array().into_iter().flatten() {
            members.extend(self.members(part));
        }
        let is_required = |name: &String| {
            schema["required"].as_array().into_iter().flatten().any(|required| required == name.as_str())
        };
        for (name, member) in schema["properties"].as_object().into_iter().flatten() {
            members.insert(name.clone(), (member.clone(), is_required(name)));
        }
        members
    }

    /// A type and its message: the same names, and what is behind them.
    fn compare(&mut self, schema: &Value, message: &str) {
        let schema_name = named(schema).unwrap_or_default();
        if OTHERWISE.contains(&schema_name) || !self.seen.insert((schema_name.into(), message.into())) {
            return;
        }
        let mut members = self.members(schema);
        if message.ends_with(".CompleteAttemptResponse") {
            members.remove("problem"); // Of many results each may have one; one alone is refused.
        }
        let fields = self.fields(message);
        let (ours, theirs): (Vec<_>, Vec<_>) = (fields.keys().collect(), members.keys().collect());
        assert_eq!(ours, theirs, "{message} and {schema_name}");
        for (name, (member, is_required)) in &members {
            self.fits(member, *is_required, &fields[name], &format!("{message}.{name}"));
        }
    }

    /// A member and its field.
    fn fits(&mut self, member: &Value, is_required: bool, field: &FieldDescriptorProto, at: &str) {
        let (kind, is_list) = (field.r#type(), field.label() == Label::Repeated);
        if let Some(name) = named(member) {
            match name {
                "Duration" => assert_eq!(field.type_name(), ".google.protobuf.Duration", "{at}"),
                // On the clock of the schedule it may be no instant.
                "Time" if at.starts_with(".punctual.v1.Schedule.") => assert_eq!(kind, Type::String, "{at}"),
                "Time" => assert_eq!(field.type_name(), ".google.protobuf.Timestamp", "{at}"),
                "Payload" if at.ends_with(".EditJobsRequest.patch") => {
                    assert_eq!(field.type_name(), ".punctual.v1.JobSpec", "{at}");
                }
                "Payload" | "Status" => assert_eq!(kind, Type::String, "{at}"),
                "Headers" => assert!(is_list && kind == Type::Message, "{at}"),
                // The document has one name for two types: what a target has, and who pulls.
                "Worker" if at == ".punctual.v1.Target.worker" => {
                    assert_eq!(field.type_name(), ".punctual.v1.WorkerTarget", "{at}");
                }
                _ => {
                    assert_eq!(kind, Type::Message, "{at}");
                    self.compare(&member_type(member), field.type_name());
                }
            }
            return;
        }
        let types: Vec<&str> = match &member["type"] {
            Value::String(one) => vec![one.as_str()],
            several => several.as_array().into_iter().flatten().filter_map(Value::as_str).collect(),
        };
        let is_nullable = types.contains(&"null");
        match types.iter().find(|one| **one != "null").copied().unwrap_or_default() {
            "array" => {
                assert!(is_list, "{at}");
                let one = FieldDescriptorProto { label: None, ..field.clone() };
                return self.fits(&member["items"], true, &one, at);
            }
            "object" => return assert!(is_list && kind == Type::Message, "{at}"),
            "string" if member["format"] == "date-time" => {
                return assert_eq!(field.type_name(), ".google.protobuf.Timestamp", "{at}");
            }
            "string" => assert_eq!(kind, Type::String, "{at}"),
            "boolean" => assert_eq!(kind, Type::Bool, "{at}"),
            "number" => assert_eq!(kind, Type::Double, "{at}"),
            "integer" => {
                let whole = [Type::Int32, Type::Int64, Type::Uint32, Type::Uint64];
                assert!(whole.contains(&kind), "{at} is {kind:?}");
            }
            other => panic!("{at}: a type `{other}`"),
        }
        assert!(!is_list, "{at}");
        let may_lack = field.proto3_optional == Some(true);
        assert_eq!(may_lack, is_nullable || !is_required, "{at} may be left out, or not");
    }

    /// What a method takes: the path, the query, conditions, and the body as a field or as fields.
    fn compare_request(&mut self, route: &Endpoint, message: &str) {
        let operation = self.document["paths"][route.path][route.method.to_lowercase()].clone();
        let mut fields = self.fields(message);
        for param in operation["parameters"].as_array().into_iter().flatten() {
            if param["in"] != "header" {
                let name = param["name"].as_str().unwrap();
                assert!(fields.remove(name).is_some(), "{message} has no {name}");
            }
        }
        fields.retain(|name, _| !CONDITIONS.contains(&name.as_str()));
        let content = operation["requestBody"]["content"].as_object();
        let Some(body) = content.and_then(|content| content.values().next()) else {
            assert!(fields.is_empty(), "{message} has more than its route: {fields:?}");
            return;
        };
        let schema = match &body["schema"]["items"] {
            Value::Null => body["schema"].clone(),
            items => items.clone(),
        };
        let members = self.members(&schema);
        if fields.keys().eq(members.keys()) {
            for (name, (member, is_required)) in &members {
                self.fits(member, *is_required, &fields[name], &format!("{message}.{name}"));
            }
            return;
        }
        let names: Vec<&String> = fields.keys().collect();
        assert_eq!(names.len(), 1, "{message}: {names:?} are neither the body nor its members");
        let field = fields.into_values().next().unwrap();
        self.compare(&schema, field.type_name());
    }

    /// What a method gives: the one answer that there is, or each in a field of its own.
    fn compare_answer(&mut self, route: &Endpoint, message: &str) {
        let responses = self.document["paths"][route.path][route.method.to_lowercase()]["responses"].clone();
        let mut schemas: Vec<Value> = Vec::new();
        for (status, response) in responses.as_object().unwrap() {
            let content = response["content"].as_object().and_then(|content| content.values().next());
            let Some(schema) = content.map(|content| content["schema"].clone()) else { continue };
            if status != "default" && !schemas.contains(&schema) {
                schemas.push(schema);
            }
        }
        match schemas.as_slice() {
            [] => assert!(self.fields(message).is_empty(), "{message} has what its route has not"),
            [one] => self.compare(one, message),
            several => {
                let fields = self.fields(message);
                assert_eq!(fields.len(), several.len(), "{message}");
                for schema in several {
                    let names: Vec<String> = self.members(schema).into_keys().collect();
                    let mut fields = fields.values();
                    let is_it = |field: &&FieldDescriptorProto| {
                        self.fields(field.type_name()).keys().eq(names.iter())
                    };
                    let field = fields.find(is_it).unwrap_or_else(|| panic!("{message} has no {schema}"));
                    self.compare(schema, field.type_name());
                }
            }
        }
    }
}

/// The name of a type, if it has one; also of one that may be left out.
fn named(schema: &Value) -> Option<&str> {
    let schema = match schema["$ref"].is_string() {
        true => schema,
        false => schema["oneOf"].as_array()?.iter().find(|one| one["$ref"].is_string())?,
    };
    schema["$ref"].as_str()?.strip_prefix("#/components/schemas/")
}

/// A type by its name alone.
fn member_type(member: &Value) -> Value {
    let name = named(member).unwrap_or_default();
    serde_json::json!({ "$ref": format!("#/components/schemas/{name}") })
}

#[test]
fn every_member_is_a_field_and_every_field_a_member() {
    let mut both = Both::read();
    for method in METHODS.iter().filter(|method| !method.rest.is_empty()) {
        // What workers say and hear has written conversions, and is more than REST has.
        if method.path.starts_with("/punctual.v1.Workers/") {
            continue;
        }
        let route = route(method);
        let (request, answer) = both.methods[method.path].clone();
        both.compare_request(route, &request);
        if answer != ".punctual.v1.ImportLine" {
            both.compare_answer(route, &answer);
        }
    }
    assert!(both.seen.len() > 60, "only {} types were compared", both.seen.len());
}
