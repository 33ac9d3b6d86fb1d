//! What integration tests share: where recordings and models lie.

use std::path::PathBuf;

/// Recordings that ship with the repository.
#[allow(dead_code, reason = "areas use it as they need")]
pub fn data_dir() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data")
}

/// The larger collection of recordings beside the checkout, when it is there.
#[allow(dead_code, reason = "areas use it as they need")]
pub fn speech_dir() -> Option<PathBuf> {
    let dir = std::env::var_os("VOLUBLE_SPEECH_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared/speech"), PathBuf::from);
    dir.is_dir().then_some(dir)
}
