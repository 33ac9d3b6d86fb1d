//! The kinds of failure and the one table that says how each is shown.
//!
//! Every module has its own error enum beside its code; this module owns only
//! what they have in common: a [`Kind`] and what follows from it (status,
//! close code, wire type, log level, metric label, whether the client may read
//! the text). A new module error implements [`Classify`] and nothing else.

use std::fmt;

/// What sort of failure it is: decides status, close code, visibility, level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The request cannot be honoured as sent.
    Client,
    /// No room now; the same request may succeed later.
    Capacity,
    /// A model or a remote part failed.
    Upstream,
    /// Something took longer than its limit.
    Timeout,
    /// An assumption of ours broke.
    Bug,
}

/// One row of the table: how a [`Kind`] is shown to each audience.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// HTTP status code.
    pub status: u16,
    /// WebSocket close code (RFC 6455 section 7.4).
    pub close_code: u16,
    /// `error.type` in OpenAI's error object.
    pub openai_type: &'static str,
    /// Level at which it is logged.
    pub level: tracing::Level,
    /// Value of the `kind` label on error counters.
    pub label: &'static str,
    /// Whether the client may see the message text.
    pub visible: bool,
}

impl Kind {
    /// The table row of this kind.
    pub const fn row(self) -> Row {
        use tracing::Level;
        let (status, close_code, openai_type, level, label, visible) = match self {
            Self::Client => (400, 1008, "invalid_request_error", Level::DEBUG, "client", true),
            Self::Capacity => (429, 1013, "rate_limit_error", Level::INFO, "capacity", true),
            Self::Upstream => (502, 1011, "server_error", Level::WARN, "upstream", true),
            Self::Timeout => (504, 1011, "server_error", Level::WARN, "timeout", true),
            Self::Bug => (500, 1011, "server_error", Level::ERROR, "bug", false),
        };
        Row { status, close_code, openai_type, level, label, visible }
    }
}

/// A module error that knows its [`Kind`].
pub trait Classify: std::error::Error {
    /// The kind of this error.
    fn kind(&self) -> Kind;

    /// The text a client may read: the message, or a neutral line for a bug.
    fn public_message(&self) -> String {
        if self.kind().row().visible {
            self.to_string()
        } else {
            "internal error; the server's log has the details".to_owned()
        }
    }
}

/// Wraps what a caller said or who they are, so that no log line carries it.
///
/// `Debug` and `Display` print a placeholder; the value is reached only by
/// naming it ([`Private::expose`]).
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Private<T>(T);

impl<T> Private<T> {
    /// Wraps a value.
    pub const fn new(value: T) -> Self {
        Self(value)
    }

    /// The value itself. Not for logs.
    pub const fn expose(&self) -> &T {
        &self.0
    }

    /// Unwraps the value. Not for logs.
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T> fmt::Debug for Private<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<private>")
    }
}

impl<T> fmt::Display for Private<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<private>")
    }
}
