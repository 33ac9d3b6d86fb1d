//! Speech synthesis.

use serde::{Deserialize, Serialize};

/// Speech synthesis.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tts {}
