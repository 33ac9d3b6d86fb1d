//! The language model and its prompt.

use serde::{Deserialize, Serialize};

/// The language model and its prompt.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Llm {}
