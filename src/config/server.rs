//! The listening server, its keys and limits.

use serde::{Deserialize, Serialize};

use super::{Invalid, Section};

/// The listening server, its keys and limits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Server {
    /// Address to listen on; `0.0.0.0` or `::` for every interface.
    pub host: String,
    /// TCP port, 0..=65535; 0 takes a free one and prints it.
    pub port: u16,
    /// Keys that callers may present; empty: no key is asked for.
    pub api_keys: Vec<String>,
    /// How long running conversations may go on after a stop signal, milliseconds.
    pub drain_ms: u64,
}

impl Default for Server {
    fn default() -> Self {
        Self { host: "127.0.0.1".to_owned(), port: 8080, api_keys: Vec::new(), drain_ms: 10_000 }
    }
}

impl Section for Server {
    fn validate(&self) -> Result<(), Invalid> {
        if self.host.trim().is_empty() {
            return Err(Invalid::new("host", "must be an address, such as 127.0.0.1"));
        }
        if self.api_keys.iter().any(|key| key.trim().is_empty()) {
            return Err(Invalid::new("api_keys", "must not hold an empty key"));
        }
        Ok(())
    }
}
