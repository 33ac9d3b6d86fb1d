//! What was derived: defaults, file, environment and flags laid over each
//! other, each value checked on its own so that a fault names its origin.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::raw::{self, Entry, Origin, Typed};
use super::{Config, ConfigError};

/// The settings file that is read when it is there and none is named.
pub const DEFAULT_FILE: &str = "voluble.toml";

/// What a secret is shown as.
const HIDDEN: &str = "(hidden)";

/// Every known setting with its default, in the order of declaration.
#[derive(Clone, Debug)]
pub struct Schema {
    tree: Value,
    leaves: Vec<(String, Value)>,
}

impl Default for Schema {
    fn default() -> Self {
        let tree = serde_json::to_value(Config::default()).expect("the defaults are plain data");
        let mut leaves = Vec::new();
        flatten(&tree, "", &mut leaves);
        Self { tree, leaves }
    }
}

impl Schema {
    /// The known settings.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.leaves.iter().map(|(key, _)| key.as_str())
    }

    /// The default of a setting; `Null` for an unset option.
    pub fn default_of(&self, key: &str) -> Option<&Value> {
        self.leaves.iter().find(|(known, _)| known == key).map(|(_, value)| value)
    }

    /// Whether this names a section (a table) rather than a value.
    pub fn is_section(&self, key: &str) -> bool {
        self.default_of(key).is_none() && pointer(&self.tree, key).is_some_and(Value::is_object)
    }

    /// The error for a setting that is not known.
    pub fn unknown(&self, key: &str, origin: Origin) -> ConfigError {
        let last = |key: &str| key.rsplit('.').next().unwrap_or_default().to_owned();
        // A key typed without its section is as good a hint as a misspelt one.
        let likeness = |known: &str| {
            strsim::jaro_winkler(key, known).max(0.98 * strsim::jaro_winkler(&last(key), &last(known)))
        };
        let sections = self.tree.as_object().into_iter().flat_map(|map| map.keys().map(String::as_str));
        let known = self.keys().chain(sections.filter(|_| !key.contains('.')));
        let nearest = known.max_by(|a, b| likeness(a).total_cmp(&likeness(b))).map(str::to_owned);
        ConfigError::Unknown { origin, key: key.to_owned(), nearest }
    }
}

fn flatten(value: &Value, above: &str, into: &mut Vec<(String, Value)>) {
    match value {
        // An empty map below a section is a value (a map that starts empty).
        Value::Object(map) if !map.is_empty() || !above.contains('.') => {
            for (name, inner) in map {
                let key = if above.is_empty() { name.clone() } else { format!("{above}.{name}") };
                flatten(inner, &key, into);
            }
        }
        leaf => into.push((above.to_owned(), leaf.clone())),
    }
}

fn pointer<'a>(tree: &'a Value, key: &str) -> Option<&'a Value> {
    tree.pointer(&format!("/{}", key.replace('.', "/")))
}

/// Where to read settings from.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The file that was named; `None`: [`DEFAULT_FILE`] if it is there.
    pub file: Option<PathBuf>,
    /// The environment.
    pub environment: Vec<(OsString, OsString)>,
    /// The flags, the last of a setting counts.
    pub flags: Vec<Entry>,
}

/// The settings and where each came from.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// The settings.
    pub config: Config,
    origins: BTreeMap<String, Origin>,
}

/// One line of the table that `check-config` prints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// `section.key`
    pub key: String,
    /// The value as TOML writes it; `(unset)`; a placeholder for a secret.
    pub value: String,
    /// Where it came from.
    pub origin: String,
}

impl Resolved {
    /// Reads all sources and lays them over each other.
    ///
    /// # Errors
    /// [`ConfigError`], one line naming the origin.
    pub fn load(sources: &Sources) -> Result<Self, ConfigError> {
        let schema = Schema::default();
        let mut entries = match &sources.file {
            Some(path) => read(path, &schema)?,
            None => match read(Path::new(DEFAULT_FILE), &schema) {
                Err(ConfigError::Read { source, .. }) if source.kind() == ErrorKind::NotFound => Vec::new(),
                other => other?,
            },
        };
        entries.extend(raw::from_environment(sources.environment.iter().cloned(), &schema)?);
        entries.extend(sources.flags.iter().cloned());
        Self::from_entries(&schema, entries)
    }

    /// Lays entries over the defaults, later over earlier.
    ///
    /// # Errors
    /// [`ConfigError::Unknown`] and [`ConfigError::Value`].
    pub fn from_entries(schema: &Schema, entries: Vec<Entry>) -> Result<Self, ConfigError> {
        let mut tree = schema.tree.clone();
        let mut origins = BTreeMap::new();
        for entry in entries {
            let Some(default) = schema.default_of(&entry.key) else {
                return Err(schema.unknown(&entry.key, entry.origin));
            };
            let value = accepted(schema, &entry, default)?;
            place(&mut tree, &entry.key, value);
            origins.insert(entry.key, entry.origin);
        }
        let config: Config = serde_json::from_value(tree).map_err(|error| ConfigError::Value {
            origin: Origin::Default,
            key: "settings".to_owned(),
            reason: error.to_string(),
        })?;
        config.validate().map_err(|fault| ConfigError::Value {
            origin: origins.get(&fault.key).cloned().unwrap_or(Origin::Default),
            key: fault.key,
            reason: fault.reason,
        })?;
        Ok(Self { config, origins })
    }

    /// Where a setting came from.
    pub fn origin(&self, key: &str) -> &Origin {
        self.origins.get(key).unwrap_or(&Origin::Default)
    }

    /// Every setting with its value and origin; secrets are hidden.
    pub fn rows(&self) -> Vec<Row> {
        let tree = serde_json::to_value(&self.config).expect("settings are plain data");
        Schema::default()
            .keys()
            .map(|key| Row {
                key: key.to_owned(),
                value: shown(key, pointer(&tree, key).unwrap_or(&Value::Null)),
                origin: self.origin(key).to_string(),
            })
            .collect()
    }
}

/// Whether a setting's value must not be shown: its last word says so.
pub fn is_secret(key: &str) -> bool {
    let last = key.rsplit(['.', '_']).next().unwrap_or_default();
    ["key", "keys", "secret", "secrets", "password", "token"].contains(&last)
}

fn shown(key: &str, value: &Value) -> String {
    match value {
        Value::Null => "(unset)".to_owned(),
        Value::Array(items) if items.is_empty() => "[]".to_owned(),
        Value::String(text) if text.is_empty() => "\"\"".to_owned(),
        _ if is_secret(key) => HIDDEN.to_owned(),
        Value::Number(number) => short(number),
        other => other.to_string(),
    }
}

/// An `f32` setting widened to `f64` shows digits nobody typed (0.3 -> 0.30000001192092896).
fn short(number: &serde_json::Number) -> String {
    match number.as_f64() {
        Some(wide) if number.is_f64() => {
            let narrow = wide as f32;
            if f64::from(narrow) == wide { narrow.to_string() } else { wide.to_string() }
        }
        _ => number.to_string(),
    }
}

fn read(path: &Path, schema: &Schema) -> Result<Vec<Entry>, ConfigError> {
    let text =
        fs::read_to_string(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
    raw::from_file(path, &text, schema)
}

/// The typed value of an entry, proved to fit its setting.
fn accepted(schema: &Schema, entry: &Entry, default: &Value) -> Result<Value, ConfigError> {
    let candidates = match &entry.value {
        Typed::Value(value) => vec![value.clone()],
        Typed::Text(text) => readings(text, default),
    };
    let mut fault = String::new();
    for candidate in candidates {
        let mut tree = schema.tree.clone();
        place(&mut tree, &entry.key, candidate.clone());
        match serde_json::from_value::<Config>(tree) {
            Ok(_) => return Ok(candidate),
            Err(error) if fault.is_empty() => fault = error.to_string(),
            Err(_) => {}
        }
    }
    if is_secret(&entry.key) {
        fault = "the value is of the wrong type".to_owned();
    }
    Err(ConfigError::Value { origin: entry.origin.clone(), key: entry.key.clone(), reason: fault })
}

/// What a text may mean for a setting with this default, likeliest first.
fn readings(text: &str, default: &Value) -> Vec<Value> {
    let plain = Value::from(text);
    let literal = || {
        let number = text.parse::<i64>().map(Value::from).or_else(|_| text.parse::<u64>().map(Value::from));
        number.ok().or_else(|| text.parse::<f64>().ok().and_then(raw::finite))
    };
    let boolean = || match text {
        "true" | "on" | "yes" | "1" => Some(Value::from(true)),
        "false" | "off" | "no" | "0" => Some(Value::from(false)),
        _ => None,
    };
    match default {
        Value::String(_) => vec![plain],
        // An option with a default of its own: empty unsets it.
        Value::Bool(_) | Value::Number(_) if text.is_empty() => vec![Value::Null],
        Value::Bool(_) => vec![boolean().unwrap_or(plain)],
        Value::Number(_) => vec![literal().unwrap_or(plain)],
        Value::Array(_) | Value::Object(_) => vec![inline(text).unwrap_or_else(|| list(text))],
        // An option: nothing says of what, so each reading is tried.
        Value::Null if text.is_empty() => vec![Value::Null],
        Value::Null => {
            let typed = [literal(), boolean(), inline(text)].into_iter().flatten();
            let mut all: Vec<Value> = typed.collect();
            all.push(plain);
            all.push(list(text));
            all
        }
    }
}

/// A TOML array or inline table.
fn inline(text: &str) -> Option<Value> {
    if !text.starts_with(['[', '{']) {
        return None;
    }
    let table: toml::Table = format!("value = {text}").parse().ok()?;
    serde_json::to_value(table.get("value")?).ok()
}

/// `a, b` as a list of texts.
fn list(text: &str) -> Value {
    text.split(',').map(str::trim).filter(|item| !item.is_empty()).map(Value::from).collect()
}

fn place(tree: &mut Value, key: &str, value: Value) {
    let path = format!("/{}", key.replace('.', "/"));
    *tree.pointer_mut(&path).expect("the key was found in the schema") = value;
}
