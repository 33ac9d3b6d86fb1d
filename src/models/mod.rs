//! Where weights come from and where they lie.
//!
//! Owns: the descriptors in the `models/` folder (compiled in), the store on
//! disk, fetching (`pull`), checking, unpacking and converting. Must not know:
//! what a model computes.
//!
//! Layout of the store: `<root>/<model name>/<file>`. The root is
//! `VOLUBLE_MODELS_DIR` when set, else `voluble/models` in the user's cache
//! folder.

use std::path::{Path, PathBuf};

pub mod convert;
pub mod runtime;

/// The folder that holds fetched models.
#[derive(Clone, Debug)]
pub struct Store {
    root: PathBuf,
}

impl Store {
    /// A store at this folder; it need not exist yet.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where a model's file lies, whether or not it is there.
    pub fn path(&self, model: &str, file: &str) -> PathBuf {
        self.root.join(model).join(file)
    }
}

impl Default for Store {
    fn default() -> Self {
        let cache = || {
            let home = std::env::var_os("HOME").map_or_else(|| PathBuf::from("."), PathBuf::from);
            std::env::var_os("XDG_CACHE_HOME").map_or_else(|| home.join(".cache"), PathBuf::from)
        };
        Self::at(
            std::env::var_os("VOLUBLE_MODELS_DIR")
                .map_or_else(|| cache().join("voluble").join("models"), PathBuf::from),
        )
    }
}
