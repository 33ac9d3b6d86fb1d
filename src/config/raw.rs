//! What was typed: entries from the file, the environment and the flags, each
//! with its origin. Nothing is merged here.

use std::fmt;
use std::path::{Path, PathBuf};

use serde_json::Value;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::ConfigError;
use super::resolve::Schema;

/// Every environment variable of ours begins so.
pub const PREFIX: &str = "VOLUBLE_";

/// Variables with our prefix that are no settings: those that stand for a flag
/// of a command, and what the Makefile and the tests hand to each other.
const NOT_SETTINGS: &[&str] =
    &["VOLUBLE_CONFIG", "VOLUBLE_LOG", "VOLUBLE_BENCH_KEY", "VOLUBLE_CACHE", "VOLUBLE_SPEECH_DIR"];

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Built in.
    Default,
    /// A line of the settings file, from 1.
    File {
        /// The file.
        path: PathBuf,
        /// The line.
        line: usize,
    },
    /// An environment variable.
    Environment(String),
    /// A flag of the command line (`--port`, `--set server.port`).
    Flag(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Environment(name) => write!(f, "environment {name}"),
            Self::Flag(name) => write!(f, "flag {name}"),
        }
    }
}

/// A value as it was typed.
#[derive(Clone, Debug, PartialEq)]
pub enum Typed {
    /// With a type, from the file.
    Value(Value),
    /// As text, from the environment or a flag; its type follows from the setting.
    Text(String),
}

/// One value that someone typed.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The setting, `section.key`.
    pub key: String,
    /// The value.
    pub value: Typed,
    /// Where it was typed.
    pub origin: Origin,
}

impl Entry {
    /// From a named flag (`--port 9000` for `server.port`).
    pub fn flag(flag: &str, key: &str, text: impl Into<String>) -> Self {
        Self { key: key.to_owned(), value: Typed::Text(text.into()), origin: Origin::Flag(flag.to_owned()) }
    }

    /// From `--set section.key=value`.
    ///
    /// # Errors
    /// [`ConfigError::Assignment`] without an equals sign.
    pub fn assignment(text: &str) -> Result<Self, ConfigError> {
        let (key, value) = text.split_once('=').ok_or_else(|| ConfigError::Assignment(text.to_owned()))?;
        let key = key.trim();
        Ok(Self {
            key: key.to_owned(),
            value: Typed::Text(value.trim().to_owned()),
            origin: Origin::Flag(format!("--set {key}")),
        })
    }
}

/// Entries of a settings file.
///
/// # Errors
/// [`ConfigError::Syntax`] and [`ConfigError::Unknown`] with their line,
/// [`ConfigError::Value`] where a section is given a plain value.
pub fn from_file(path: &Path, text: &str, schema: &Schema) -> Result<Vec<Entry>, ConfigError> {
    let file = File { path, text, schema };
    let table = DeTable::parse(text).map_err(|error| ConfigError::Syntax {
        path: path.to_owned(),
        line: file.line(error.span().map_or(0, |span| span.start)),
        reason: error.message().lines().collect::<Vec<_>>().join(", "),
    })?;
    let mut entries = Vec::new();
    file.flatten(table.get_ref(), "", &mut entries)?;
    Ok(entries)
}

struct File<'a> {
    path: &'a Path,
    text: &'a str,
    schema: &'a Schema,
}

impl File<'_> {
    fn line(&self, offset: usize) -> usize {
        self.text.as_bytes()[..offset.min(self.text.len())].iter().filter(|byte| **byte == b'\n').count() + 1
    }

    fn flatten(&self, table: &DeTable<'_>, above: &str, into: &mut Vec<Entry>) -> Result<(), ConfigError> {
        for (name, value) in table {
            let key = if above.is_empty() {
                name.get_ref().to_string()
            } else {
                format!("{above}.{}", name.get_ref())
            };
            let origin = Origin::File { path: self.path.to_owned(), line: self.line(name.span().start) };
            if self.schema.is_section(&key) {
                let DeValue::Table(inner) = value.get_ref() else {
                    let reason = format!("is a section; write [{key}] and its settings below it");
                    return Err(ConfigError::Value { origin, key, reason });
                };
                self.flatten(inner, &key, into)?;
            } else if self.schema.default_of(&key).is_some() {
                let value = Typed::Value(self.json(value, &key, &origin)?);
                into.push(Entry { key, value, origin });
            } else {
                return Err(self.schema.unknown(&key, origin));
            }
        }
        Ok(())
    }

    fn json(&self, value: &Spanned<DeValue<'_>>, key: &str, origin: &Origin) -> Result<Value, ConfigError> {
        let fault =
            |reason: String| ConfigError::Value { origin: origin.clone(), key: key.to_owned(), reason };
        Ok(match value.get_ref() {
            DeValue::String(text) => Value::from(text.as_ref()),
            DeValue::Boolean(value) => Value::from(*value),
            DeValue::Integer(digits) => {
                let number = i64::from_str_radix(digits.as_str(), digits.radix());
                Value::from(number.map_err(|_| fault(format!("{} does not fit 64 bits", digits.as_str())))?)
            }
            DeValue::Float(digits) => {
                let number: f64 = digits
                    .as_str()
                    .parse()
                    .map_err(|_| fault(format!("{} is no number", digits.as_str())))?;
                finite(number).ok_or_else(|| fault(format!("{} is not finite", digits.as_str())))?
            }
            DeValue::Datetime(_) => {
                return Err(fault("a date is no value for it; put it in quotes".to_owned()));
            }
            DeValue::Array(items) => {
                items.iter().map(|item| self.json(item, key, origin)).collect::<Result<_, _>>()?
            }
            DeValue::Table(table) => Value::Object(
                table
                    .iter()
                    .map(|(name, item)| Ok((name.get_ref().to_string(), self.json(item, key, origin)?)))
                    .collect::<Result<_, _>>()?,
            ),
        })
    }
}

/// Entries of the environment: every variable that begins with [`PREFIX`].
///
/// # Errors
/// [`ConfigError::Unknown`] for one that names no setting,
/// [`ConfigError::Value`] for one that is no text.
pub fn from_environment(
    variables: impl IntoIterator<Item = (std::ffi::OsString, std::ffi::OsString)>,
    schema: &Schema,
) -> Result<Vec<Entry>, ConfigError> {
    let mut entries = Vec::new();
    for (name, value) in variables {
        let Some(name) = name.to_str().filter(|name| name.starts_with(PREFIX)) else { continue };
        if NOT_SETTINGS.contains(&name) {
            continue;
        }
        let origin = Origin::Environment(name.to_owned());
        let Some(key) = schema.keys().find(|key| variable(key) == name) else {
            let error =
                match schema.unknown(&name[PREFIX.len()..].to_lowercase().replacen('_', ".", 1), origin) {
                    ConfigError::Unknown { origin, nearest, .. } => ConfigError::Unknown {
                        origin,
                        key: name.to_owned(),
                        nearest: nearest.map(|key| variable(&key)),
                    },
                    other => other,
                };
            return Err(error);
        };
        let Some(text) = value.to_str() else {
            return Err(ConfigError::Value {
                origin,
                key: key.to_owned(),
                reason: "is not valid UTF-8".to_owned(),
            });
        };
        entries.push(Entry { key: key.to_owned(), value: Typed::Text(text.to_owned()), origin });
    }
    Ok(entries)
}

/// The environment variable of a setting: `server.port` is `VOLUBLE_SERVER_PORT`.
pub fn variable(key: &str) -> String {
    format!("{PREFIX}{}", key.replace('.', "_").to_uppercase())
}

/// A JSON number, `None` for infinities and NaN.
pub(super) fn finite(number: f64) -> Option<Value> {
    serde_json::Number::from_f64(number).map(Value::Number)
}
