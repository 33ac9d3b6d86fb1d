//! The listening server, its keys and limits.

use serde::{Deserialize, Serialize};

/// The listening server, its keys and limits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Server {}
