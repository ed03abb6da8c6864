//! Objects with known members.

/// Makes a structure from its members, with the reader and the schema that belong to it.
macro_rules! object {
    ($(#[$about:meta])* $name:ident {
        $( $(#[doc = $doc:literal])+ $kind:ident $field:ident = $key:literal: $form:ty ),+ $(,)?
    }) => {
        $(#[$about])*
        #[derive(Debug)]
        struct $name {
            $( $(#[doc = $doc])+ $field: $crate::form::object!(@type $kind $form) ),+
        }

        impl $crate::form::Form for $name {
            fn read(value: &::serde_json::Value, reader: &mut $crate::form::Reader) -> Option<Self> {
                let members = reader.object(value, &[$($key),+])?;
                $( let $field = reader.$kind::<$form>(members, $key); )+
                Some(Self { $($field: $field?),+ })
            }

            fn schema() -> ::serde_json::Value {
                let mut properties = ::serde_json::Map::new();
                $(
                    let mut member = <$form as $crate::form::Form>::schema();
                    let doc: &[&str] = &[$($doc),+];
                    member["description"] = ::serde_json::json!(doc.concat().trim());
                    properties.insert($key.to_owned(), member);
                )+
                let required = [$( $crate::form::object!(@required $kind $key) ),+];
                let required: Vec<&str> = required.into_iter().flatten().collect();
                let mut schema = ::serde_json::json!({
                    "type": "object",
                    "properties": properties,
                    "additionalProperties": false,
                });
                if !required.is_empty() {
                    schema["required"] = ::serde_json::json!(required);
                }
                schema
            }
        }
    };
    (@type required $form:ty) => { $form };
    (@type optional $form:ty) => { Option<$form> };
    (@required required $key:literal) => { Some($key) };
    (@required optional $key:literal) => { None::<&str> };
}

pub(crate) use object;
