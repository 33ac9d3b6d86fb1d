//! Hearing: voice activity, end of turn, barge-in.

use serde::{Deserialize, Serialize};

/// Hearing: voice activity, end of turn, barge-in.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Turn {}
