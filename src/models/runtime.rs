//! ONNX Runtime: one shared library, one environment for the whole process.
//!
//! The library is a file of the store, so nobody has to install it; a path in
//! `ORT_DYLIB_PATH` goes before it.

use std::path::PathBuf;
use std::sync::{Mutex, OnceLock};

use ort::environment::Environment;

use super::Store;
use crate::error::{Classify, Kind};

/// Why ONNX Runtime cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RuntimeError {
    /// The library's file is not there.
    #[error("ONNX Runtime is not at {0}: run `voluble models pull onnxruntime`")]
    Missing(PathBuf),
    /// The library does not load or does not start.
    #[error("ONNX Runtime at {path} does not start: {reason}")]
    Broken {
        /// The library.
        path: PathBuf,
        /// What the loader says.
        reason: String,
    },
}

impl Classify for RuntimeError {
    fn kind(&self) -> Kind {
        Kind::Upstream
    }
}

/// The process's ONNX Runtime environment, which sessions are built in. The
/// first call loads the library; later ones, whatever their store, get the same.
///
/// # Errors
/// When the library is missing or does not load. A later call tries again.
pub fn ensure_onnxruntime(store: &Store) -> Result<&'static Environment, RuntimeError> {
    static ENVIRONMENT: OnceLock<Environment> = OnceLock::new();
    static LOADING: Mutex<()> = Mutex::new(());
    if let Some(environment) = ENVIRONMENT.get() {
        return Ok(environment);
    }
    let _one_at_a_time = LOADING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(environment) = ENVIRONMENT.get() {
        return Ok(environment);
    }
    let path = std::env::var_os("ORT_DYLIB_PATH")
        .map_or_else(|| store.path("onnxruntime", "libonnxruntime.so"), PathBuf::from);
    if !path.is_file() {
        return Err(RuntimeError::Missing(path));
    }
    let broken = |reason: String| RuntimeError::Broken { path: path.clone(), reason };
    let environment = ort::init_from(&path)
        .map_err(|error| broken(error.to_string()))?
        .with_name("voluble")
        .with_telemetry(false)
        .build()
        .map_err(|error| broken(error.to_string()))?;
    Ok(ENVIRONMENT.get_or_init(|| environment))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_loads_once() {
        let store = Store::default();
        let first = ensure_onnxruntime(&store).expect("the store holds ONNX Runtime (voluble models pull)");
        // Loaded already, so another store makes no difference.
        let second = ensure_onnxruntime(&Store::at("/nonexistent")).expect("it is loaded");
        assert!(std::ptr::eq(first, second));
    }

    #[test]
    fn a_missing_library_names_the_remedy() {
        let error = RuntimeError::Missing(PathBuf::from("/nonexistent/libonnxruntime.so"));
        assert!(error.to_string().contains("voluble models pull onnxruntime"), "{error}");
    }
}
