//! Speech recognition.

use serde::{Deserialize, Serialize};

/// Speech recognition.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Stt {}
