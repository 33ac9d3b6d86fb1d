//! One conversation: limits and starting settings.

use serde::{Deserialize, Serialize};

/// One conversation: limits and starting settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Session {}
