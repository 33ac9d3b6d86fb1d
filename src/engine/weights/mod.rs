//! Reading weight files.
//!
//! Files are mapped, not read: tensors are packed for the kernels from the
//! mapped pages once, at load, and only embeddings are read from them later.
//! Every fault is one line that names the file and the key.

pub mod gguf;
pub mod safetensors;

use std::fs::File;
use std::path::Path;

use memmap2::Mmap;

use super::EngineError;

pub(crate) fn fault(path: &Path, what: impl std::fmt::Display) -> EngineError {
    EngineError::Weights(format!("{}: {what}", path.display()))
}

fn map(path: &Path) -> Result<Mmap, EngineError> {
    let file = File::open(path).map_err(|error| fault(path, error))?;
    // SAFETY: the map is read-only. Changing a weight file while the program
    // runs is outside its contract, as it is for every program that maps its data.
    unsafe { Mmap::map(&file) }.map_err(|error| fault(path, error))
}
