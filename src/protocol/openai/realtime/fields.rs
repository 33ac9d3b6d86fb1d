//! Reading JSON objects field by field, with the faults that clients know.

use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use crate::protocol::openai::error::ApiError;

/// A fault of form: which field, which code.
pub type Fault = ApiError;

/// An object and its path in the message.
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    map: &'a Map<String, Value>,
    path: String,
}

impl<'a> Fields<'a> {
    /// The object at this path.
    ///
    /// # Errors
    /// `invalid_type` for anything but an object.
    pub fn new(value: &'a Value, path: impl Into<String>) -> Result<Self, Fault> {
        let path = path.into();
        match value {
            Value::Object(map) => Ok(Self { map, path }),
            other => Err(wrong_type(&path, "an object", other)),
        }
    }

    /// Path of a field.
    pub fn path(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// A field that is there, even as `null`.
    pub fn present(&self, key: &str) -> Option<&'a Value> {
        self.map.get(key)
    }

    /// A field that is there and not `null`.
    pub fn value(&self, key: &str) -> Option<&'a Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    /// A text, where given.
    pub fn string(&self, key: &str) -> Result<Option<&'a str>, Fault> {
        match self.value(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(wrong_type(&self.path(key), "a string", other)),
        }
    }

    /// A text that must be given.
    pub fn need_string(&self, key: &str) -> Result<&'a str, Fault> {
        self.string(key)?.ok_or_else(|| missing(&self.path(key)))
    }

    /// Yes or no, where given.
    pub fn boolean(&self, key: &str) -> Result<Option<bool>, Fault> {
        match self.value(key) {
            None => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(*value)),
            Some(other) => Err(wrong_type(&self.path(key), "a boolean", other)),
        }
    }

    /// A whole number, where given.
    pub fn integer(&self, key: &str, range: RangeInclusive<u32>) -> Result<Option<u32>, Fault> {
        let Some(value) = self.value(key) else { return Ok(None) };
        let path = self.path(key);
        let number = value
            .as_i64()
            .or_else(|| value.as_f64().filter(|n| n.fract() == 0.0).map(|n| n as i64))
            .ok_or_else(|| wrong_type(&path, "an integer", value))?;
        if number < i64::from(*range.start()) {
            return Err(below("integer_below_min_value", &path, range.start(), &number));
        }
        match u32::try_from(number) {
            Ok(number) if range.contains(&number) => Ok(Some(number)),
            _ => Err(above("integer_above_max_value", &path, range.end(), &number)),
        }
    }

    /// Milliseconds; fractions are cut and negative values are 0, as clients
    /// compute them from clocks.
    pub fn millis(&self, key: &str) -> Result<Option<u64>, Fault> {
        let Some(value) = self.value(key) else { return Ok(None) };
        let number = value.as_f64().ok_or_else(|| wrong_type(&self.path(key), "an integer", value))?;
        Ok(Some(number.max(0.0) as u64))
    }

    /// A number, where given.
    pub fn number(&self, key: &str, range: RangeInclusive<f64>) -> Result<Option<f64>, Fault> {
        let Some(value) = self.value(key) else { return Ok(None) };
        let path = self.path(key);
        let number = value.as_f64().ok_or_else(|| wrong_type(&path, "a decimal", value))?;
        if number < *range.start() {
            return Err(below("decimal_below_min_value", &path, range.start(), &number));
        }
        if number > *range.end() {
            return Err(above("decimal_above_max_value", &path, range.end(), &number));
        }
        Ok(Some(number))
    }

    /// An inner object, where given.
    pub fn object(&self, key: &str) -> Result<Option<Fields<'a>>, Fault> {
        self.value(key).map(|value| Fields::new(value, self.path(key))).transpose()
    }

    /// An inner object that must be given.
    pub fn need_object(&self, key: &str) -> Result<Fields<'a>, Fault> {
        self.object(key)?.ok_or_else(|| missing(&self.path(key)))
    }

    /// A list, where given.
    pub fn array(&self, key: &str) -> Result<Option<&'a [Value]>, Fault> {
        match self.value(key) {
            None => Ok(None),
            Some(Value::Array(items)) => Ok(Some(items)),
            Some(other) => Err(wrong_type(&self.path(key), "an array", other)),
        }
    }

    /// One of the named values, where given.
    pub fn choice<T: Clone>(&self, key: &str, choices: &[(&str, T)]) -> Result<Option<T>, Fault> {
        let Some(name) = self.string(key)? else { return Ok(None) };
        match choices.iter().find(|(known, _)| *known == name) {
            Some((_, value)) => Ok(Some(value.clone())),
            None => Err(unsupported(&self.path(key), name, choices.iter().map(|(known, _)| *known))),
        }
    }
}

/// A field that must be there is not.
pub fn missing(path: &str) -> Fault {
    Fault::client("missing_required_parameter", format!("Missing required parameter: '{path}'.")).at(path)
}

/// A value of the wrong type.
pub fn wrong_type(path: &str, wanted: &str, got: &Value) -> Fault {
    let got = match got {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(number) if number.is_f64() => "a decimal",
        Value::Number(_) => "an integer",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    };
    let message = if path.is_empty() {
        format!("Invalid type for the event: expected {wanted}, but got {got} instead.")
    } else {
        format!("Invalid type for '{path}': expected {wanted}, but got {got} instead.")
    };
    let fault = Fault::client("invalid_type", message);
    if path.is_empty() { fault } else { fault.at(path) }
}

/// A value that is none of the known ones.
pub fn unsupported<'n>(path: &str, got: &str, known: impl Iterator<Item = &'n str>) -> Fault {
    let known: Vec<String> = known.map(|name| format!("'{name}'")).collect();
    let shown: String = got.chars().take(64).collect();
    let message = format!("Invalid value: '{shown}'. Supported values are: {}.", known.join(", "));
    Fault::client("invalid_value", message).at(path)
}

/// Any other value that cannot be used; `why` is a whole sentence.
pub fn invalid(path: &str, why: &str) -> Fault {
    Fault::client("invalid_value", format!("Invalid '{path}'. {why}")).at(path)
}

fn below(
    code: &'static str,
    path: &str,
    least: &dyn std::fmt::Display,
    got: &dyn std::fmt::Display,
) -> Fault {
    let message = format!("Invalid '{path}': expected a value >= {least}, but got {got} instead.");
    Fault::client(code, message).at(path)
}

fn above(code: &'static str, path: &str, most: &dyn std::fmt::Display, got: &dyn std::fmt::Display) -> Fault {
    let message = format!("Invalid '{path}': expected a value <= {most}, but got {got} instead.");
    Fault::client(code, message).at(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn code<T: std::fmt::Debug>(result: Result<T, Fault>) -> (&'static str, String) {
        let fault = result.expect_err("a fault");
        (fault.code.expect("faults of form have a code"), fault.param.unwrap_or_default())
    }

    #[test]
    fn faults_name_the_field_and_the_reason() {
        let value = json!({"a": {"n": 5.5, "s": 7, "big": 1e12, "neg": -3, "who": "x"}});
        let root = Fields::new(&value, "").expect("an object");
        let a = root.need_object("a").expect("an object");
        assert_eq!(code(a.integer("n", 0..=9)), ("invalid_type", "a.n".into()));
        assert_eq!(code(a.string("s")), ("invalid_type", "a.s".into()));
        assert_eq!(code(a.integer("big", 0..=9)), ("integer_above_max_value", "a.big".into()));
        assert_eq!(code(a.integer("neg", 0..=9)), ("integer_below_min_value", "a.neg".into()));
        assert_eq!(code(a.number("n", 0.0..=1.0)), ("decimal_above_max_value", "a.n".into()));
        assert_eq!(code(a.choice("who", &[("y", 1)])), ("invalid_value", "a.who".into()));
        assert_eq!(code(a.need_string("gone")), ("missing_required_parameter", "a.gone".into()));
        assert_eq!(code(Fields::new(&json!([]), "")), ("invalid_type", String::new()));
    }

    #[test]
    fn milliseconds_forgive_what_clocks_give() {
        let value = json!({"a": 1520.7, "b": -1, "c": 3});
        let fields = Fields::new(&value, "").expect("an object");
        assert_eq!(fields.millis("a"), Ok(Some(1520)));
        assert_eq!(fields.millis("b"), Ok(Some(0)));
        assert_eq!(fields.millis("c"), Ok(Some(3)));
    }
}
