//! GGUF: one file with metadata and tensors.
//!
//! Specification: ggml's `docs/gguf.md`; the header is parsed by candle.

use std::io::Cursor;
use std::path::{Path, PathBuf};

use candle_core::quantized::GgmlDType;
use candle_core::quantized::gguf_file::{Content, Value};
use memmap2::Mmap;
use voluble_kernels::cpu::Quant;

use super::{fault, map};
use crate::engine::EngineError;

/// A mapped GGUF file.
pub struct Gguf {
    path: PathBuf,
    map: Mmap,
    content: Content,
}

/// A tensor in the file: `[rows][columns]`, a vector having one row.
#[derive(Clone, Copy)]
pub struct Tensor<'a> {
    /// How its numbers are stored.
    pub quant: Quant,
    /// Rows.
    pub rows: usize,
    /// Numbers of a row.
    pub columns: usize,
    /// Its bytes.
    pub bytes: &'a [u8],
}

impl Tensor<'_> {
    /// Reads one row.
    ///
    /// # Panics
    /// When the row does not exist or `out` is not `columns` long.
    pub fn row(&self, row: usize, out: &mut [f32]) {
        assert!(row < self.rows && out.len() == self.columns);
        let bytes = self.bytes.len() / self.rows;
        self.quant.dequantize(&self.bytes[row * bytes..][..bytes], out);
    }
}

impl Gguf {
    /// Maps a file and reads its header.
    ///
    /// # Errors
    /// [`EngineError::Weights`] when it cannot be read or is no GGUF file.
    pub fn open(path: &Path) -> Result<Self, EngineError> {
        let map = map(path)?;
        let content = Content::read(&mut Cursor::new(&map[..])).map_err(|error| {
            let cause = error.to_string();
            fault(path, format!("not a usable GGUF file: {}", cause.lines().next().unwrap_or_default()))
        })?;
        Ok(Self { path: path.to_owned(), map, content })
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A fault of this file.
    pub fn fault(&self, what: impl std::fmt::Display) -> EngineError {
        fault(&self.path, what)
    }

    fn value(&self, key: &str) -> Result<&Value, EngineError> {
        self.content.metadata.get(key).ok_or_else(|| self.fault(format!("no metadata key '{key}'")))
    }

    /// A text of the metadata.
    ///
    /// # Errors
    /// When it is missing or no text.
    pub fn text(&self, key: &str) -> Result<&str, EngineError> {
        match self.value(key)? {
            Value::String(text) => Ok(text),
            _ => Err(self.fault(format!("metadata key '{key}' is no text"))),
        }
    }

    /// A whole number of the metadata.
    ///
    /// # Errors
    /// When it is missing or no whole number.
    pub fn number(&self, key: &str) -> Result<usize, EngineError> {
        let wide = match self.value(key)? {
            Value::U8(v) => Some(u64::from(*v)),
            Value::U16(v) => Some(u64::from(*v)),
            Value::U32(v) => Some(u64::from(*v)),
            Value::U64(v) => Some(*v),
            Value::I32(v) => u64::try_from(*v).ok(),
            Value::I64(v) => u64::try_from(*v).ok(),
            _ => None,
        };
        wide.and_then(|wide| usize::try_from(wide).ok())
            .ok_or_else(|| self.fault(format!("metadata key '{key}' is no whole number")))
    }

    /// A real number of the metadata.
    ///
    /// # Errors
    /// When it is missing or no real number.
    pub fn real(&self, key: &str) -> Result<f32, EngineError> {
        match self.value(key)? {
            Value::F32(v) => Ok(*v),
            Value::F64(v) => Ok(*v as f32),
            _ => Err(self.fault(format!("metadata key '{key}' is no real number"))),
        }
    }

    /// Length of a list of the metadata.
    ///
    /// # Errors
    /// When it is missing or no list.
    pub fn array_len(&self, key: &str) -> Result<usize, EngineError> {
        match self.value(key)? {
            Value::Array(list) => Ok(list.len()),
            _ => Err(self.fault(format!("metadata key '{key}' is no list"))),
        }
    }

    /// Whether the metadata has this key.
    pub fn has(&self, key: &str) -> bool {
        self.content.metadata.contains_key(key)
    }

    /// Whether there is a tensor of this name.
    pub fn has_tensor(&self, name: &str) -> bool {
        self.content.tensor_infos.contains_key(name)
    }

    /// The tensor of this name, which must have this shape.
    ///
    /// # Errors
    /// When it is missing, of another shape, of an unknown format, or its
    /// bytes are not all in the file.
    pub fn tensor(&self, name: &str, rows: usize, columns: usize) -> Result<Tensor<'_>, EngineError> {
        let info =
            self.content.tensor_infos.get(name).ok_or_else(|| self.fault(format!("no tensor '{name}'")))?;
        let dims = info.shape.dims();
        let wanted: &[usize] = if rows == 1 { &[columns] } else { &[rows, columns] };
        if dims != wanted {
            return Err(self.fault(format!("tensor '{name}' has shape {dims:?}, expected {wanted:?}")));
        }
        let quant = match info.ggml_dtype {
            GgmlDType::F32 => Quant::F32,
            GgmlDType::F16 => Quant::F16,
            GgmlDType::BF16 => Quant::BF16,
            GgmlDType::Q4_0 => Quant::Q4_0,
            GgmlDType::Q4_1 => Quant::Q4_1,
            GgmlDType::Q5_0 => Quant::Q5_0,
            GgmlDType::Q5_1 => Quant::Q5_1,
            GgmlDType::Q8_0 => Quant::Q8_0,
            GgmlDType::Q4K => Quant::Q4K,
            GgmlDType::Q5K => Quant::Q5K,
            GgmlDType::Q6K => Quant::Q6K,
            other => {
                return Err(
                    self.fault(format!("tensor '{name}' is stored as {other:?}, which is not supported"))
                );
            }
        };
        let row_bytes = quant.row_bytes(columns).ok_or_else(|| {
            self.fault(format!("tensor '{name}': {columns} columns do not fill blocks of {quant:?}"))
        })?;
        let start = self.content.tensor_data_offset.saturating_add(info.offset);
        let bytes = usize::try_from(start)
            .ok()
            .and_then(|start| Some(start..start.checked_add(rows.checked_mul(row_bytes)?)?))
            .and_then(|range| self.map.get(range))
            .ok_or_else(|| {
                let len = self.map.len();
                self.fault(format!(
                    "tensor '{name}' reaches past the end of the file ({len} bytes): truncated"
                ))
            })?;
        Ok(Tensor { quant, rows, columns, bytes })
    }

    /// A vector as numbers.
    ///
    /// # Errors
    /// As [`Gguf::tensor`].
    pub fn vector(&self, name: &str, len: usize) -> Result<Vec<f32>, EngineError> {
        let tensor = self.tensor(name, 1, len)?;
        let mut out = vec![0.0; len];
        tensor.row(0, &mut out);
        Ok(out)
    }
}
