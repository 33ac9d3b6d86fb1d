//! OpenAI's error object, shared by HTTP and Realtime.

use serde_json::{Value, json};

use crate::error::{Classify, Kind};

/// `error` as OpenAI words it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    /// Decides `type` and the HTTP status.
    pub kind: Kind,
    /// What programs switch on.
    pub code: Option<&'static str>,
    /// For people.
    pub message: String,
    /// Path of the offending field.
    pub param: Option<String>,
}

impl ApiError {
    /// A fault of the request.
    pub fn client(code: &'static str, message: impl Into<String>) -> Self {
        Self { kind: Kind::Client, code: Some(code), message: message.into(), param: None }
    }

    /// No room now.
    pub fn capacity(code: &'static str, message: impl Into<String>) -> Self {
        Self { kind: Kind::Capacity, code: Some(code), message: message.into(), param: None }
    }

    /// The same, naming the field.
    #[must_use]
    pub fn at(self, param: impl Into<String>) -> Self {
        Self { param: Some(param.into()), ..self }
    }

    /// From a module's error, its text only where its kind lets the client read it.
    pub fn from_module(error: &impl Classify) -> Self {
        Self { kind: error.kind(), code: None, message: error.public_message(), param: None }
    }

    /// The object that goes under `error`; every key is there, `null` where empty.
    pub fn object(&self) -> Value {
        json!({
            "type": self.kind.row().openai_type,
            "code": self.code,
            "message": self.message,
            "param": self.param,
        })
    }

    /// A whole HTTP body.
    pub fn body(&self) -> Value {
        json!({ "error": self.object() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_there() {
        let body = ApiError::client("invalid_value", "no").at("session.type").body();
        assert_eq!(
            body,
            json!({"error": {"type": "invalid_request_error", "code": "invalid_value", "message": "no", "param": "session.type"}})
        );
        assert!(ApiError::capacity("busy", "full").body()["error"]["param"].is_null());
    }
}
