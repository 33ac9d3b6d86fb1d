//! The diffusion engine.

use serde::{Deserialize, Serialize};

/// The diffusion engine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Engine {}
