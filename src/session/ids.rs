//! Identifiers of a conversation's parts.
//!
//! Opaque strings with the prefix clients expect (`item_`, `resp_`, ...). Made by
//! the session machine from a counter and the session's random tag, so that
//! tests see the same ids for the same inputs; a client may also name its own
//! items.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub String);

        impl $name {
            /// The id as sent.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<&str> for $name {
            fn from(value: &str) -> Self {
                Self(value.to_owned())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

id!(
    /// A session (`sess_...`).
    SessionId
);
id!(
    /// A conversation (`conv_...`).
    ConversationId
);
id!(
    /// A conversation item (`item_...`, or the client's own).
    ItemId
);
id!(
    /// A response (`resp_...`).
    ResponseId
);
id!(
    /// A function call (`call_...`).
    CallId
);
