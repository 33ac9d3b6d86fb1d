//! What the operator may set: a tree of sections, each with its defaults.
//!
//! Owns: reading the file, the environment and the flags ([`raw`]), laying
//! them over each other and checking the result ([`resolve`]). Must not know:
//! what a setting is used for. A section lives in the file of its own name and
//! owns its defaults and the meaning, unit and range of each value.
//!
//! Precedence: flag, environment (`VOLUBLE_<SECTION>_<KEY>`), file, default.
//! Every failure is one line that names where the value came from.
//!
//! The known settings are read off [`Config::default`] as serde writes it, so
//! a new field needs no entry anywhere else. Fields are plain values, options,
//! lists, or nested sections; a map starts empty.

use serde::{Deserialize, Serialize};

pub mod engine;
pub mod llm;
pub mod models;
pub mod raw;
pub mod resolve;
pub mod server;
pub mod session;
pub mod stt;
pub mod tts;
pub mod turn;

pub use raw::{Entry, Origin, Typed};
pub use resolve::{Resolved, Row, Sources};

/// Everything that can be set, resolved.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The listening server.
    pub server: server::Server,
    /// One conversation.
    pub session: session::Session,
    /// Hearing.
    pub turn: turn::Turn,
    /// Speech recognition.
    pub stt: stt::Stt,
    /// The language model and its prompt.
    pub llm: llm::Llm,
    /// The diffusion engine.
    pub engine: engine::Engine,
    /// Speech synthesis.
    pub tts: tts::Tts,
    /// Where models lie and how they are fetched.
    pub models: models::Models,
}

/// A section that checks what its types cannot say.
pub trait Section {
    /// Checks ranges and what belongs together.
    ///
    /// # Errors
    /// [`Invalid`], naming the key within the section.
    fn validate(&self) -> Result<(), Invalid> {
        Ok(())
    }
}

/// A value outside its range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    /// The key, within its section until [`Config::validate`] completes it.
    pub key: String,
    /// What it should be; goes after the key in one sentence ("must be at least 1").
    pub reason: String,
}

impl Invalid {
    /// A fault of this key.
    pub fn new(key: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { key: key.into(), reason: reason.into() }
    }
}

impl Config {
    /// Checks every section.
    ///
    /// # Errors
    /// The first [`Invalid`], its key complete (`server.port`).
    pub fn validate(&self) -> Result<(), Invalid> {
        let sections: [(&str, &dyn Section); 8] = [
            ("server", &self.server),
            ("session", &self.session),
            ("turn", &self.turn),
            ("stt", &self.stt),
            ("llm", &self.llm),
            ("engine", &self.engine),
            ("tts", &self.tts),
            ("models", &self.models),
        ];
        for (name, section) in sections {
            section.validate().map_err(|fault| Invalid { key: format!("{name}.{}", fault.key), ..fault })?;
        }
        Ok(())
    }
}

/// Why the settings cannot be used. One line each.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// No setting of this name.
    #[error("{origin}: unknown setting '{key}'{}", nearest_hint(nearest.as_deref()))]
    Unknown {
        /// Where it was typed.
        origin: Origin,
        /// What was typed.
        key: String,
        /// The known setting that looks most like it.
        nearest: Option<String>,
    },
    /// Not a value this setting takes.
    #[error("{origin}: {key}: {reason}")]
    Value {
        /// Where it was typed.
        origin: Origin,
        /// The setting.
        key: String,
        /// What is wrong.
        reason: String,
    },
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: std::path::PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is not TOML.
    #[error("{}:{line}: {reason}", path.display())]
    Syntax {
        /// The file.
        path: std::path::PathBuf,
        /// Line, from 1.
        line: usize,
        /// What is wrong.
        reason: String,
    },
    /// `--set` without an equals sign.
    #[error("--set {0}: expected section.key=value, such as --set server.port=9000")]
    Assignment(String),
}

impl ConfigError {
    /// Whether it was the command line itself that was wrong (exit code 2).
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Assignment(_) => true,
            Self::Unknown { origin, .. } | Self::Value { origin, .. } => matches!(origin, Origin::Flag(_)),
            Self::Read { .. } | Self::Syntax { .. } => false,
        }
    }
}

impl crate::error::Classify for ConfigError {
    fn kind(&self) -> crate::error::Kind {
        crate::error::Kind::Client
    }
}

fn nearest_hint(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |known| format!("; the nearest known one is '{known}'"))
}

#[cfg(test)]
mod tests;
