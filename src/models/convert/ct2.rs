//! Reading CTranslate2's binary model, version 6.
//!
//! Little endian: `u32` version, string spec name, `u32` spec revision, `u32`
//! count, then per variable: string name, `u8` rank, `u32` per dimension, `u8`
//! type, `u32` byte count, bytes; at the end `u32` count of aliases. A string
//! is a `u16` length and its bytes, the closing zero included.
//! (`ctranslate2/specs/model_spec.py`, `_serialize`.)

use std::collections::HashMap;

use super::ConvertError;

/// The only version of the container that is read.
const VERSION: u32 = 6;
/// The spec name of every Whisper.
const SPEC: &str = "WhisperSpec";

/// How a variable's numbers are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dtype {
    F32,
    I8,
    I16,
    I32,
    F16,
    Bf16,
}

impl Dtype {
    fn from_id(id: u8) -> Option<Self> {
        Some(match id {
            0 => Self::F32,
            1 => Self::I8,
            2 => Self::I16,
            3 => Self::I32,
            4 => Self::F16,
            5 => Self::Bf16,
            _ => return None,
        })
    }

    const fn bytes(self) -> usize {
        match self {
            Self::I8 => 1,
            Self::I16 | Self::F16 | Self::Bf16 => 2,
            Self::F32 | Self::I32 => 4,
        }
    }
}

/// One stored variable, its bytes still in the file.
#[derive(Debug)]
pub(super) struct Variable<'a> {
    pub shape: Vec<usize>,
    dtype: Dtype,
    bytes: &'a [u8],
}

impl Variable<'_> {
    /// The numbers as f32.
    pub(super) fn floats(&self, name: &str) -> Result<Vec<f32>, ConvertError> {
        let pairs = || self.bytes.chunks_exact(2).map(|b| [b[0], b[1]]);
        match self.dtype {
            Dtype::F32 => {
                Ok(self.bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
            }
            Dtype::F16 => Ok(pairs().map(|b| half::f16::from_le_bytes(b).to_f32()).collect()),
            Dtype::Bf16 => Ok(pairs().map(|b| half::bf16::from_le_bytes(b).to_f32()).collect()),
            other => Err(ConvertError::Unknown(format!(
                "'{name}' is stored as {other:?}; only float weights (f16, bf16, f32) can be converted"
            ))),
        }
    }

    /// The value of a scalar.
    fn integer(&self) -> Option<i64> {
        match (self.dtype, self.bytes) {
            (Dtype::I8, &[a]) => Some(i64::from(i8::from_le_bytes([a]))),
            (Dtype::I16, &[a, b]) => Some(i64::from(i16::from_le_bytes([a, b]))),
            (Dtype::I32, &[a, b, c, d]) => Some(i64::from(i32::from_le_bytes([a, b, c, d]))),
            _ => None,
        }
    }
}

/// A parsed file.
#[derive(Debug)]
pub(super) struct Model<'a> {
    variables: HashMap<String, Variable<'a>>,
}

impl<'a> Model<'a> {
    /// Reads the whole table of variables.
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, ConvertError> {
        let mut r = Reader { bytes, at: 0 };
        let version = r.u32("the version")?;
        if version != VERSION {
            return Err(ConvertError::Unknown(format!(
                "CTranslate2 binary version {version}, expected {VERSION}"
            )));
        }
        let spec = r.string("the spec name")?;
        if spec != SPEC {
            return Err(ConvertError::Unknown(format!("spec '{spec}', expected '{SPEC}'")));
        }
        r.u32("the spec revision")?;
        let count = r.u32("the number of variables")?;
        let mut variables = HashMap::new();
        for index in 0..count {
            let name = r.string(&format!("the name of variable {index} of {count}"))?;
            let variable = r.variable(&name)?;
            variables.insert(name, variable);
        }
        // Aliases (the tied output projection) follow; whisper.cpp ties it by itself.
        r.u32("the number of aliases")?;
        Ok(Self { variables })
    }

    /// A variable that must be there.
    pub(super) fn get(&self, name: &str) -> Result<&Variable<'a>, ConvertError> {
        self.variables.get(name).ok_or_else(|| ConvertError::Missing(name.to_owned()))
    }

    /// A positive scalar that must be there.
    pub(super) fn count(&self, name: &str) -> Result<usize, ConvertError> {
        self.get(name)?
            .integer()
            .and_then(|n| usize::try_from(n).ok())
            .filter(|&n| n > 0)
            .ok_or_else(|| ConvertError::Shape(format!("'{name}' is not a positive number")))
    }

    /// How many layers `side` (`encoder`, `decoder`) has.
    pub(super) fn layers(&self, side: &str) -> usize {
        (0..)
            .take_while(|i| {
                self.variables.contains_key(&format!("{side}/layer_{i}/self_attention/linear_0/weight"))
            })
            .count()
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, n: usize, what: &str) -> Result<&'a [u8], ConvertError> {
        let end = self.at.checked_add(n).filter(|&end| end <= self.bytes.len()).ok_or_else(|| {
            ConvertError::Truncated(format!(
                "{what} needs {n} bytes at offset {}, the file has {}",
                self.at,
                self.bytes.len()
            ))
        })?;
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], ConvertError> {
        let taken = self.take(N, what)?;
        Ok(taken.try_into().expect("take returns as many bytes as asked for"))
    }

    fn u32(&mut self, what: &str) -> Result<u32, ConvertError> {
        self.array(what).map(u32::from_le_bytes)
    }

    fn string(&mut self, what: &str) -> Result<String, ConvertError> {
        let len = u16::from_le_bytes(self.array(what)?);
        let raw = self.take(usize::from(len), what)?;
        let raw = raw.strip_suffix(&[0]).unwrap_or(raw);
        String::from_utf8(raw.to_vec())
            .map_err(|_| ConvertError::Unknown(format!("{what} is not text (not a CTranslate2 model?)")))
    }

    fn variable(&mut self, name: &str) -> Result<Variable<'a>, ConvertError> {
        let [rank] = self.array(name)?;
        let shape = (0..rank).map(|_| self.u32(name).map(|d| d as usize)).collect::<Result<Vec<_>, _>>()?;
        let [id] = self.array(name)?;
        let dtype = Dtype::from_id(id)
            .ok_or_else(|| ConvertError::Unknown(format!("'{name}' is stored as type {id}")))?;
        let stored = self.u32(name)? as usize;
        let wanted = shape.iter().try_fold(dtype.bytes(), |n, &d| n.checked_mul(d));
        if wanted != Some(stored) {
            return Err(ConvertError::Shape(format!("'{name}' of shape {shape:?} takes {stored} bytes")));
        }
        Ok(Variable { shape, dtype, bytes: self.take(stored, name)? })
    }
}
