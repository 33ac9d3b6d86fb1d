//! Hearing: voice activity, end of turn, barge-in.

use serde::{Deserialize, Serialize};

/// Hearing: voice activity, end of turn, barge-in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Turn {
    /// Threads for one completion score (Smart Turn). 1..=64.
    pub completion_threads: usize,
}

impl Default for Turn {
    fn default() -> Self {
        Self { completion_threads: 1 }
    }
}
