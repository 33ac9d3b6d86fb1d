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
    /// Without keys, whether callers from other machines are let in too.
    pub open_to_network: bool,
    /// Without keys, the host names (besides addresses and `localhost`) that a request may name;
    /// others are refused, as a foreign page could have pointed its own name at this machine.
    pub allowed_hosts: Vec<String>,
    /// Without keys, the pages (`https://example.org`) that may connect besides our own; `*` for all.
    pub allowed_origins: Vec<String>,
    /// Largest message taken from a client, bytes, 1024 or more.
    pub max_message_bytes: usize,
    /// A client that is silent is pinged this often, milliseconds.
    pub ping_ms: u64,
    /// A client that answers no ping for this long is gone, milliseconds; longer than `ping_ms`.
    pub idle_ms: u64,
    /// A client that does not read for this long is closed, milliseconds.
    pub write_timeout_ms: u64,
    /// Messages that wait for a slow client, 1 or more.
    pub send_queue: usize,
    /// Ephemeral client secrets that may be alive at a time.
    pub max_client_secrets: usize,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            host: "127.0.0.1".to_owned(),
            port: 8080,
            api_keys: Vec::new(),
            open_to_network: false,
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            max_message_bytes: 16 * 1024 * 1024,
            ping_ms: 20_000,
            idle_ms: 60_000,
            write_timeout_ms: 10_000,
            send_queue: 64,
            max_client_secrets: 10_000,
        }
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
        if self.max_message_bytes < 1024 {
            return Err(Invalid::new("max_message_bytes", "must be at least 1024"));
        }
        if self.ping_ms == 0 || self.idle_ms <= self.ping_ms {
            return Err(Invalid::new("idle_ms", "must be longer than ping_ms, and ping_ms above 0"));
        }
        if self.write_timeout_ms == 0 {
            return Err(Invalid::new("write_timeout_ms", "must be above 0"));
        }
        if self.send_queue == 0 {
            return Err(Invalid::new("send_queue", "must be at least 1"));
        }
        Ok(())
    }
}
