//! Objects that users send, declared once: the struct, how serde writes it, its schema and how it is read with every
//! wrong member named.

/// Declares objects whose members are all optional. `null` is the same as leaving a member out.
macro_rules! object {
    ($(
        $(#[$meta:meta])*
        pub struct $name:ident {
            $($(#[$field_meta:meta])* pub $field:ident: $type:ty,)*
        }
    )*) => {$(
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
        pub struct $name {
            $(
                $(#[$field_meta])*
                #[serde(default, skip_serializing_if = "Option::is_none")]
                pub $field: Option<$type>,
            )*
        }

        impl $name {
            /// The members, by name.
            pub const MEMBERS: &'static [&'static str] = &[$(crate::object::plain(stringify!($field)),)*];

            /// Reads the members, except those the caller wants to pass over.
            #[allow(unused_mut, unused_variables, reason = "an object may have no members")]
            pub(crate) fn read_except(
                text: &str,
                skip: &[&str],
                at: &crate::read::At<'_>,
                errors: &mut crate::read::Errors,
            ) -> Option<Self> {
                let mut read = Self::default();
                for (member, value) in crate::read::members(text, at, errors)? {
                    let member: &str = &member;
                    $(
                        if member == const { crate::object::plain(stringify!($field)) } {
                            let here = at.member(member);
                            if read.$field.is_some() {
                                errors.add(&here, "duplicate_field", format!("`{member}` is there twice"));
                            } else if value != "null" {
                                read.$field = crate::read::Read::read(value, &here, errors);
                            }
                            continue;
                        }
                    )*
                    if !skip.contains(&member) {
                        crate::read::unknown(at, member, Self::MEMBERS, errors);
                    }
                }
                Some(read)
            }
        }

        impl crate::read::Read for $name {
            fn read(
                text: &str,
                at: &crate::read::At<'_>,
                errors: &mut crate::read::Errors,
            ) -> Option<Self> {
                Self::read_except(text, &[], at, errors)
            }
        }
    )*};
}

/// A field's name as it is on the wire: `type`, not `r#type`.
pub(crate) const fn plain(name: &'static str) -> &'static str {
    match name.as_bytes() {
        [b'r', b'#', ..] => name.split_at(2).1,
        _ => name,
    }
}
