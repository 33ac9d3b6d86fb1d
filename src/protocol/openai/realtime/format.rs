//! Audio formats of the wire and the streams that convert them.

use base64::Engine as _;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use base64::engine::{DecodePaddingMode, general_purpose::STANDARD};
use serde_json::{Value, json};

use super::fields::{Fault, Fields, invalid, unsupported, wrong_type};
use crate::audio::codec::{g711, pcm};
use crate::audio::resample::Resampler;
use crate::audio::{HEARING_RATE, SPEAKING_RATE};

/// Most audio of one append, in bytes after base64: the documented limit of the API.
pub const MAX_APPEND: usize = 15 * 1024 * 1024;

/// Rates of `audio/pcm` that are taken, in Hz; the first is the API's own.
const PCM_RATES: [u32; 4] = [24_000, 8_000, 16_000, 48_000];

/// Padding may be left out.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// How audio is written on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// 16-bit little-endian, mono, at this rate in Hz.
    Pcm(u32),
    /// One byte a sample at 8 kHz.
    G711(g711::Law),
}

impl Default for Format {
    fn default() -> Self {
        Self::Pcm(PCM_RATES[0])
    }
}

impl Format {
    /// Samples a second.
    pub fn rate(self) -> u32 {
        match self {
            Self::Pcm(rate) => rate,
            Self::G711(_) => g711::RATE,
        }
    }

    /// As the session object shows it.
    pub fn object(self) -> Value {
        match self {
            Self::Pcm(rate) => json!({"type": "audio/pcm", "rate": rate}),
            Self::G711(g711::Law::Mu) => json!({"type": "audio/pcmu"}),
            Self::G711(g711::Law::A) => json!({"type": "audio/pcma"}),
        }
    }

    /// Reads `{"type": "audio/pcm", "rate": 24000}`, or the beta's bare name.
    pub fn read(value: &Value, path: &str) -> Result<Self, Fault> {
        match value {
            Value::String(name) => Self::named(name, path),
            Value::Object(_) => {
                let fields = Fields::new(value, path)?;
                let format = Self::named(fields.need_string("type")?, &fields.path("type"))?;
                let Some(rate) = fields.integer("rate", 1..=u32::MAX)? else { return Ok(format) };
                match format {
                    Self::Pcm(_) if PCM_RATES.contains(&rate) => Ok(Self::Pcm(rate)),
                    Self::G711(_) if rate == g711::RATE => Ok(format),
                    Self::Pcm(_) => Err(invalid(
                        &fields.path("rate"),
                        "Supported rates are 8000, 16000, 24000 and 48000.",
                    )),
                    Self::G711(_) => Err(invalid(&fields.path("rate"), "G.711 has 8000 samples a second.")),
                }
            }
            other => Err(wrong_type(path, "an object", other)),
        }
    }

    fn named(name: &str, path: &str) -> Result<Self, Fault> {
        match name {
            "audio/pcm" | "pcm16" => Ok(Self::default()),
            "audio/pcmu" | "g711_ulaw" => Ok(Self::G711(g711::Law::Mu)),
            "audio/pcma" | "g711_alaw" => Ok(Self::G711(g711::Law::A)),
            _ => Err(unsupported(path, name, ["audio/pcm", "audio/pcmu", "audio/pcma"].into_iter())),
        }
    }

    fn bytes(self, samples: &[f32]) -> Vec<u8> {
        match self {
            Self::Pcm(_) => pcm::encode(samples),
            Self::G711(law) => law.encode(samples),
        }
    }
}

/// The bytes of a base64 field.
pub fn from_base64(text: &str, path: &str) -> Result<Vec<u8>, Fault> {
    // Looked at before decoding: four characters are three bytes.
    if text.len() / 4 * 3 > MAX_APPEND + 3 {
        return Err(too_much(path));
    }
    let bytes = BASE64.decode(text).map_err(|_| invalid(path, "Expected base64-encoded audio bytes."))?;
    if bytes.len() > MAX_APPEND { Err(too_much(path)) } else { Ok(bytes) }
}

fn too_much(path: &str) -> Fault {
    invalid(path, "One event may carry at most 15 MiB of audio.")
}

/// A whole recording in a message: bytes to [`HEARING_RATE`].
pub fn whole(format: Format, bytes: &[u8]) -> Vec<f32> {
    let mut stream = InputStream::new(format);
    let mut samples = stream.push(bytes);
    samples.extend(stream.flush());
    samples
}

/// A whole recording for a message: samples at [`HEARING_RATE`] to base64.
pub fn heard_to_base64(format: Format, samples: &[f32]) -> String {
    let mut converter = resampler(HEARING_RATE, format.rate());
    let mut converted = converter.push(samples);
    converted.extend(converter.flush());
    STANDARD.encode(format.bytes(&converted))
}

/// The caller's audio as it comes in: wire bytes to samples at [`HEARING_RATE`].
#[derive(Debug)]
pub struct InputStream {
    format: Format,
    halves: pcm::Decoder,
    resampler: Resampler,
}

impl InputStream {
    /// A stream at its start.
    pub fn new(format: Format) -> Self {
        Self { format, halves: pcm::Decoder::new(), resampler: resampler(format.rate(), HEARING_RATE) }
    }

    /// The format it reads.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Takes the next bytes; they may end inside a sample.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<f32> {
        let samples = match self.format {
            Format::Pcm(_) => self.halves.push(bytes),
            Format::G711(law) => law.decode(bytes),
        };
        self.resampler.push(&samples)
    }

    /// Ends the stream: the samples held back by the filter. Ready for a new one.
    pub fn flush(&mut self) -> Vec<f32> {
        self.halves.reset();
        self.resampler.flush()
    }
}

/// An answer's audio as it goes out: samples at [`SPEAKING_RATE`] to base64.
#[derive(Debug)]
pub struct OutputStream {
    format: Format,
    resampler: Resampler,
}

impl OutputStream {
    /// A stream at its start.
    pub fn new(format: Format) -> Self {
        Self { format, resampler: resampler(SPEAKING_RATE, format.rate()) }
    }

    /// The next samples; `None` while the filter holds all of them.
    pub fn push(&mut self, samples: &[f32]) -> Option<String> {
        self.text(|stream| stream.push(samples))
    }

    /// What the filter still holds.
    pub fn finish(&mut self) -> Option<String> {
        self.text(Resampler::flush)
    }

    fn text(&mut self, make: impl FnOnce(&mut Resampler) -> Vec<f32>) -> Option<String> {
        let samples = make(&mut self.resampler);
        (!samples.is_empty()).then(|| STANDARD.encode(self.format.bytes(&samples)))
    }
}

fn resampler(from: u32, to: u32) -> Resampler {
    Resampler::new(from, to).expect("every rate a format can have is one the resampler takes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_read_as_clients_write_them() {
        for (value, format) in [
            (json!({"type": "audio/pcm", "rate": 24000}), Format::Pcm(24_000)),
            (json!({"type": "audio/pcm"}), Format::Pcm(24_000)),
            (json!({"type": "audio/pcm", "rate": 16000}), Format::Pcm(16_000)),
            (json!({"type": "audio/pcmu"}), Format::G711(g711::Law::Mu)),
            (json!({"type": "audio/pcma", "rate": 8000}), Format::G711(g711::Law::A)),
            (json!("pcm16"), Format::Pcm(24_000)),
            (json!("g711_ulaw"), Format::G711(g711::Law::Mu)),
        ] {
            assert_eq!(Format::read(&value, "f"), Ok(format), "{value}");
        }
        for value in [json!({"type": "audio/opus"}), json!({"type": "audio/pcm", "rate": 44100}), json!(7)] {
            assert!(Format::read(&value, "f").is_err(), "{value}");
        }
    }

    #[test]
    fn a_sample_may_be_cut_between_two_appends() {
        let bytes = pcm::encode(&[0.25, -0.5, 0.125]);
        let mut stream = InputStream::new(Format::Pcm(16_000));
        let mut samples = stream.push(&bytes[..3]);
        samples.extend(stream.push(&bytes[3..]));
        assert_eq!(samples, [0.25, -0.5, 0.125]);
    }

    #[test]
    fn every_format_keeps_the_length() {
        for format in
            [Format::Pcm(8_000), Format::Pcm(24_000), Format::Pcm(48_000), Format::G711(g711::Law::Mu)]
        {
            let second = vec![0.0; format.rate() as usize];
            let mut stream = InputStream::new(format);
            let mut samples = stream.push(&format.bytes(&second));
            samples.extend(stream.flush());
            assert_eq!(samples.len(), HEARING_RATE as usize, "{format:?}");

            let mut stream = OutputStream::new(format);
            let mut bytes = Vec::new();
            for text in
                [stream.push(&vec![0.0; SPEAKING_RATE as usize]), stream.finish()].into_iter().flatten()
            {
                bytes.extend(STANDARD.decode(text).expect("base64 of ours"));
            }
            assert_eq!(bytes.len(), format.bytes(&second).len(), "{format:?}");
        }
    }

    #[test]
    fn base64_is_checked_and_limited() {
        assert_eq!(from_base64("AAA=", "audio"), Ok(vec![0, 0]));
        assert_eq!(from_base64("AAA", "audio"), Ok(vec![0, 0]));
        assert_eq!(from_base64("A*A=", "audio").expect_err("no base64").code, Some("invalid_value"));
        let large = "A".repeat(MAX_APPEND / 3 * 4 + 8);
        assert!(from_base64(&large, "audio").expect_err("too large").message.contains("15 MiB"));
    }
}
