//! Safetensors: the format of the drafters.

use std::path::{Path, PathBuf};

use memmap2::Mmap;
use safetensors::tensor::{Dtype, SafeTensors};
use voluble_kernels::cpu::Quant;

use super::gguf::Tensor;
use super::{fault, map};
use crate::engine::EngineError;

/// A mapped safetensors file.
pub struct Safe {
    path: PathBuf,
    map: Mmap,
}

impl Safe {
    /// Maps a file.
    ///
    /// # Errors
    /// [`EngineError::Weights`] when it cannot be read.
    pub fn open(path: &Path) -> Result<Self, EngineError> {
        Ok(Self { path: path.to_owned(), map: map(path)? })
    }

    /// A fault of this file.
    pub fn fault(&self, what: impl std::fmt::Display) -> EngineError {
        fault(&self.path, what)
    }

    /// The metadata text of this key.
    ///
    /// # Errors
    /// When the header cannot be read or has no such key.
    pub fn metadata(&self, key: &str) -> Result<String, EngineError> {
        let (_, header) = SafeTensors::read_metadata(&self.map)
            .map_err(|error| self.fault(format!("not a usable safetensors file: {error}")))?;
        header
            .metadata()
            .as_ref()
            .and_then(|map| map.get(key).cloned())
            .ok_or_else(|| self.fault(format!("no metadata key '{key}'")))
    }

    /// Its tensors.
    ///
    /// # Errors
    /// When the header or the sizes are wrong.
    pub fn tensors(&self) -> Result<Tensors<'_>, EngineError> {
        let tensors = SafeTensors::deserialize(&self.map)
            .map_err(|error| self.fault(format!("not a usable safetensors file: {error}")))?;
        Ok(Tensors { file: self, tensors })
    }
}

/// The tensors of a file.
pub struct Tensors<'a> {
    file: &'a Safe,
    tensors: SafeTensors<'a>,
}

impl<'a> Tensors<'a> {
    fn view(&self, name: &str) -> Result<safetensors::tensor::TensorView<'a>, EngineError> {
        self.tensors.tensor(name).map_err(|_| self.file.fault(format!("no tensor '{name}'")))
    }

    /// The matrix of this name, which must have this shape; a vector has one row.
    ///
    /// # Errors
    /// When it is missing, of another shape or no bf16, f16 or f32.
    pub fn matrix(&self, name: &str, rows: usize, columns: usize) -> Result<Tensor<'a>, EngineError> {
        let view = self.view(name)?;
        let wanted: &[usize] = if rows == 1 { &[columns] } else { &[rows, columns] };
        if view.shape() != wanted {
            let shape = view.shape();
            return Err(self.file.fault(format!("tensor '{name}' has shape {shape:?}, expected {wanted:?}")));
        }
        let quant = match view.dtype() {
            Dtype::BF16 => Quant::BF16,
            Dtype::F16 => Quant::F16,
            Dtype::F32 => Quant::F32,
            other => return Err(self.file.fault(format!("tensor '{name}' is {other:?}, expected numbers"))),
        };
        Ok(Tensor { quant, rows, columns, bytes: view.data() })
    }

    /// Rows of the matrix of this name.
    ///
    /// # Errors
    /// When it is missing or no matrix.
    pub fn rows(&self, name: &str) -> Result<usize, EngineError> {
        match self.view(name)?.shape() {
            [rows, _] => Ok(*rows),
            other => Err(self.file.fault(format!("tensor '{name}' has shape {other:?}, expected a matrix"))),
        }
    }

    /// A vector as numbers.
    ///
    /// # Errors
    /// As [`Tensors::matrix`].
    pub fn vector(&self, name: &str, len: usize) -> Result<Vec<f32>, EngineError> {
        let tensor = self.matrix(name, 1, len)?;
        let mut out = vec![0.0; len];
        tensor.row(0, &mut out);
        Ok(out)
    }

    /// Whole numbers that are not negative, any count.
    ///
    /// # Errors
    /// When it is missing, no i32 list or holds a negative number.
    pub fn ids(&self, name: &str) -> Result<Vec<u32>, EngineError> {
        let view = self.view(name)?;
        if view.dtype() != Dtype::I32 || view.shape().len() != 1 {
            return Err(self.file.fault(format!("tensor '{name}' is no list of i32")));
        }
        view.data()
            .chunks_exact(4)
            .map(|b| u32::try_from(i32::from_le_bytes([b[0], b[1], b[2], b[3]])))
            .collect::<Result<_, _>>()
            .map_err(|_| self.file.fault(format!("tensor '{name}' holds a negative id")))
    }
}
