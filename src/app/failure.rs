//! How a command fails: one line for stderr and an exit code.

use std::io;

use crate::config::ConfigError;
use crate::error::Classify;

/// Exit code of a command that was called wrongly.
pub const USAGE: u8 = 2;

/// Why a command did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// It was called wrongly.
    #[error("{0}")]
    Usage(String),
    /// It failed.
    #[error("{0}")]
    Failed(String),
    /// Whoever read our output went away; not a failure.
    #[error("nobody reads the output any more")]
    ReaderGone,
}

impl Failure {
    /// The process's exit code.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => USAGE,
            Self::Failed(_) => 1,
            Self::ReaderGone => 0,
        }
    }

    /// A failed write of `what`.
    pub fn writing(what: &str, error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self::ReaderGone
        } else {
            Self::Failed(format!("{what}: {error}"))
        }
    }

    /// Settings that cannot be used: wrong flags are wrong use.
    pub fn settings(error: &ConfigError) -> Self {
        if error.is_usage() { Self::Usage(error.to_string()) } else { Self::Failed(error.to_string()) }
    }
}

impl<E: Classify> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Failed(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_tell_wrong_use_from_failure() {
        assert_eq!(Failure::Usage(String::new()).exit_code(), 2);
        assert_eq!(Failure::Failed(String::new()).exit_code(), 1);
        let gone = io::Error::from(io::ErrorKind::BrokenPipe);
        assert_eq!(Failure::writing("stdout", &gone).exit_code(), 0);
        let full = io::Error::from(io::ErrorKind::StorageFull);
        assert_eq!(Failure::writing("out.wav", &full).exit_code(), 1);
    }
}
