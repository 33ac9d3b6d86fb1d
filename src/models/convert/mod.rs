//! Whisper weights from CTranslate2's binary to whisper.cpp's ggml file.
//!
//! Owns: both file formats and the mapping of names between them. Must not
//! know: where a file came from, or what the model computes.
//!
//! CTranslate2 stores one tensor for query, key and value; whisper.cpp wants
//! three. A key bias is dropped: Whisper has none (CTranslate2 writes zeros),
//! and a constant added to every key's score leaves the softmax as it was.

mod ct2;
mod ggml;
mod mel;

use std::fs;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::error::{Classify, Kind};
use ct2::Model;

/// Why a model file could not be converted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConvertError {
    /// Reading or writing failed (a full disk, a missing file).
    #[error("{}: {source}", path.display())]
    Io {
        /// The file at fault.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file ends inside a record.
    #[error("the model file is cut short: {0}")]
    Truncated(String),
    /// Not a file this converter knows.
    #[error("the model file is of an unknown kind: {0}")]
    Unknown(String),
    /// A tensor that every Whisper has is not in the file.
    #[error("the model file lacks the tensor '{0}'")]
    Missing(String),
    /// A tensor or the vocabulary has a size that does not fit the rest.
    #[error("the model file contradicts itself: {0}")]
    Shape(String),
}

impl Classify for ConvertError {
    fn kind(&self) -> Kind {
        Kind::Upstream
    }
}

/// Converts a CTranslate2 Whisper (`model.bin` and `vocabulary.txt`) to the
/// one ggml file that whisper.cpp loads, weights in f16.
///
/// `out` appears only when it is complete: the file is written beside it and
/// renamed.
///
/// # Errors
/// [`ConvertError`], one line that names the file or tensor at fault.
pub fn convert_ctranslate2(model_bin: &Path, vocabulary: &Path, out: &Path) -> Result<(), ConvertError> {
    let bytes = fs::read(model_bin).map_err(io_at(model_bin))?;
    let text = fs::read_to_string(vocabulary).map_err(io_at(vocabulary))?;
    let model = Model::parse(&bytes)?;
    let part = out.with_extension("part");
    let written = write_file(&model, &text, &part);
    if written.is_err() {
        // The error that matters is the one above; a leftover is overwritten by the next try.
        fs::remove_file(&part).ok();
    }
    written?;
    fs::rename(&part, out).map_err(io_at(out))
}

fn write_file(model: &Model<'_>, vocabulary: &str, part: &Path) -> Result<(), ConvertError> {
    let mut file = BufWriter::new(fs::File::create(part).map_err(io_at(part))?);
    ggml::write(model, vocabulary, &mut file, part)?;
    file.flush().map_err(io_at(part))?;
    file.into_inner().map_err(|e| io_at(part)(e.into_error()))?.sync_all().map_err(io_at(part))
}

fn io_at(path: &Path) -> impl Fn(std::io::Error) -> ConvertError + '_ {
    move |source| ConvertError::Io { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests;
