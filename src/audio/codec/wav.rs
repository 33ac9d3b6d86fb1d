//! WAV files: any common form in, 16-bit mono out.
//!
//! Reads 8, 16, 24 and 32-bit integers and 32-bit floats, any number of
//! channels (averaged to one). A data chunk that claims more than there is, as
//! programs write that stream to a pipe, is read to its real end.

use std::fs;
use std::io::Cursor;
use std::path::Path;

use hound::{SampleFormat, WavReader, WavSpec, WavWriter};

use super::pcm;
use crate::error::{Classify, Kind};

/// A mono recording.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recording {
    /// Samples per second.
    pub rate: u32,
    /// In -1.0..=1.0.
    pub samples: Vec<f32>,
}

/// Why a file cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WavError {
    /// The file system said no.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: String,
        /// Its reason.
        source: std::io::Error,
    },
    /// The bytes are no WAV, or a kind that is not read.
    #[error("not a readable WAV file: {reason}")]
    Format {
        /// What is wrong with them.
        reason: String,
    },
}

impl Classify for WavError {
    fn kind(&self) -> Kind {
        Kind::Client
    }
}

impl From<hound::Error> for WavError {
    fn from(error: hound::Error) -> Self {
        let reason = match error {
            hound::Error::Unsupported => {
                "its encoding is not read; use 8, 16, 24 or 32-bit integer or 32-bit float PCM".to_owned()
            }
            other => other.to_string(),
        };
        Self::Format { reason }
    }
}

/// Reads a file.
///
/// # Errors
/// When the file cannot be read or is no WAV of a known form.
pub fn read(path: &Path) -> Result<Recording, WavError> {
    let bytes =
        fs::read(path).map_err(|source| WavError::File { path: path.display().to_string(), source })?;
    decode(bytes)
}

/// Reads a WAV from memory.
///
/// # Errors
/// When the bytes are no WAV of a known form.
pub fn decode(mut bytes: Vec<u8>) -> Result<Recording, WavError> {
    clamp_data_chunk(&mut bytes);
    let mut reader = WavReader::new(Cursor::new(bytes))?;
    let spec = reader.spec();
    if spec.sample_rate == 0 {
        return Err(WavError::Format { reason: "its sample rate is 0".to_owned() });
    }
    let scale = 1.0 / (1u64 << (spec.bits_per_sample.clamp(1, 32) - 1)) as f32;
    let interleaved: Vec<f32> = match spec.sample_format {
        SampleFormat::Float => reader.samples::<f32>().collect::<Result<_, _>>()?,
        SampleFormat::Int => {
            reader.samples::<i32>().map(|s| s.map(|s| s as f32 * scale)).collect::<Result<_, _>>()?
        }
    };
    if let Some(at) = interleaved.iter().position(|sample| !sample.is_finite()) {
        return Err(WavError::Format { reason: format!("sample {at} is not a number") });
    }
    let channels = usize::from(spec.channels);
    let samples = if channels == 1 {
        interleaved
    } else {
        interleaved.chunks_exact(channels).map(|frame| frame.iter().sum::<f32>() / channels as f32).collect()
    };
    Ok(Recording { rate: spec.sample_rate, samples })
}

/// A 16-bit mono WAV in memory.
///
/// # Errors
/// When there are more than 2^31 samples, which the format cannot say.
pub fn encode(rate: u32, samples: &[f32]) -> Result<Vec<u8>, WavError> {
    let mut out = Cursor::new(Vec::with_capacity(44 + samples.len() * pcm::BYTES));
    let mut writer = WavWriter::new(&mut out, spec(rate))?;
    for &sample in samples {
        writer.write_sample(pcm::to_i16(sample))?;
    }
    writer.finalize()?;
    Ok(out.into_inner())
}

/// Writes a 16-bit mono WAV file.
///
/// # Errors
/// As [`encode`], or when the file cannot be written.
pub fn write(path: &Path, rate: u32, samples: &[f32]) -> Result<(), WavError> {
    let bytes = encode(rate, samples)?;
    fs::write(path, bytes).map_err(|source| WavError::File { path: path.display().to_string(), source })
}

fn spec(rate: u32) -> WavSpec {
    WavSpec { channels: 1, sample_rate: rate, bits_per_sample: 16, sample_format: SampleFormat::Int }
}

/// Makes the data chunk's length agree with the bytes that are there (whole frames of them).
fn clamp_data_chunk(bytes: &mut [u8]) {
    let word = |at: usize| {
        bytes.get(at..at + 4).map(|four| u32::from_le_bytes([four[0], four[1], four[2], four[3]]) as usize)
    };
    let mut at = 12;
    let mut frame = 1;
    while let Some(length) = word(at + 4) {
        match &bytes[at..at + 4] {
            b"fmt " => {
                if let Some(align) = bytes.get(at + 20..at + 22) {
                    frame = usize::from(u16::from_le_bytes([align[0], align[1]])).max(1);
                }
            }
            b"data" => {
                let here = bytes.len() - (at + 8);
                if length > here {
                    let whole = (here - here % frame) as u32;
                    bytes[at + 4..at + 8].copy_from_slice(&whole.to_le_bytes());
                }
                return;
            }
            _ => {}
        }
        // Chunks are padded to an even length.
        at += 8 + length + length % 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(
        channels: u16,
        bits: u16,
        format: SampleFormat,
        write: impl Fn(&mut WavWriter<&mut Cursor<Vec<u8>>>),
    ) -> Vec<u8> {
        let mut out = Cursor::new(Vec::new());
        let spec = WavSpec { channels, sample_rate: 16_000, bits_per_sample: bits, sample_format: format };
        let mut writer = WavWriter::new(&mut out, spec).expect("memory takes a header");
        write(&mut writer);
        writer.finalize().expect("memory takes a header");
        out.into_inner()
    }

    #[test]
    fn every_width_reads_the_same() {
        let wanted = [0.0, 0.5, -0.5, -1.0];
        for bits in [8u16, 16, 24, 32] {
            let bytes = file(1, bits, SampleFormat::Int, |writer| {
                for value in wanted {
                    let full = (1i64 << (bits - 1)) as f32;
                    writer.write_sample((value * full) as i32).expect("memory takes a sample");
                }
            });
            let recording = decode(bytes).expect("a plain file");
            assert_eq!(recording, Recording { rate: 16_000, samples: wanted.to_vec() }, "{bits} bit");
        }
        let bytes = file(1, 32, SampleFormat::Float, |writer| {
            for value in wanted {
                writer.write_sample(value).expect("memory takes a sample");
            }
        });
        assert_eq!(decode(bytes).expect("a plain file").samples, wanted);
    }

    #[test]
    fn stereo_is_averaged() {
        let bytes = file(2, 16, SampleFormat::Int, |writer| {
            for value in [16_384i16, 0, -16_384, 16_384] {
                writer.write_sample(value).expect("memory takes a sample");
            }
        });
        assert_eq!(decode(bytes).expect("a plain file").samples, [0.25, 0.0]);
    }

    #[test]
    fn what_is_written_is_read() {
        let samples: Vec<f32> = (0..100).map(|i| i as f32 / 128.0 - 0.4).collect();
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("x.wav");
        write(&path, 8_000, &samples).expect("the folder is writable");
        let back = read(&path).expect("just written");
        assert_eq!(back.rate, 8_000);
        assert!(back.samples.iter().zip(&samples).all(|(a, b)| (a - b).abs() <= 0.5 / 32768.0));
    }

    #[test]
    fn a_streamed_or_cut_file_is_read_to_its_end() {
        let mut bytes = encode(16_000, &[0.25; 10]).expect("small");
        bytes[40..44].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(decode(bytes.clone()).expect("a streamed file").samples, [0.25; 10]);
        bytes.truncate(44 + 7);
        assert_eq!(decode(bytes).expect("a cut file").samples, [0.25; 3]);
    }

    #[test]
    fn bad_files_are_refused_in_words() {
        for (bytes, word) in [
            (Vec::new(), "WAV"),
            (b"OggS and so on, certainly no RIFF".to_vec(), "RIFF"),
            (b"RIFF\x24\0\0\0WAVEfmt \x10\0\0\0\x07\0\x01\0\x40\x1f\0\0\x40\x1f\0\0\x01\0\x08\0data\0\0\0\0".to_vec(), "encoding"),
        ] {
            let error = decode(bytes).expect_err("not a WAV").to_string();
            assert!(error.contains(word), "{error}");
        }
        let nan = file(1, 32, SampleFormat::Float, |writer| {
            writer.write_sample(f32::NAN).expect("memory takes a sample");
        });
        assert!(decode(nan).expect_err("NaN is no sample").to_string().contains("not a number"));
        let missing = read(Path::new("/nonexistent.wav")).expect_err("no such file").to_string();
        assert!(missing.contains("/nonexistent.wav"), "{missing}");
    }

    #[test]
    fn any_bytes_are_survived() {
        let good = encode(16_000, &[0.25; 10]).expect("small");
        for cut in 0..good.len() {
            let _: Result<Recording, WavError> = decode(good[..cut].to_vec());
            for flip in [0x01, 0x80, 0xFF] {
                let mut bad = good.clone();
                bad[cut] ^= flip;
                let _: Result<Recording, WavError> = decode(bad);
            }
        }
    }
}
