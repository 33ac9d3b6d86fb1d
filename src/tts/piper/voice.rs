//! What a voice file says about itself, and phonemes to the model's ids.

use std::collections::HashMap;

use serde::Deserialize;
use unicode_normalization::UnicodeNormalization;

use crate::tts::TtsError;

/// `voice.onnx.json`: what is needed of it.
#[derive(Clone, Debug, Deserialize)]
pub struct VoiceFile {
    /// Sound.
    pub audio: Audio,
    /// Phonemes.
    pub espeak: EspeakVoice,
    /// How the model is run.
    #[serde(default)]
    pub inference: Inference,
    /// A phoneme (one code point) to its ids.
    pub phoneme_id_map: HashMap<String, Vec<i64>>,
    /// Speakers in the model.
    #[serde(default = "one")]
    pub num_speakers: i64,
}

/// The sound of a voice.
#[derive(Clone, Debug, Deserialize)]
pub struct Audio {
    /// Hz.
    pub sample_rate: u32,
}

/// The phonemizer's part.
#[derive(Clone, Debug, Deserialize)]
pub struct EspeakVoice {
    /// Name of espeak's voice (`en-us`).
    pub voice: String,
}

/// The three scales of VITS.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(default)]
pub struct Inference {
    /// Noise in the sound.
    pub noise_scale: f32,
    /// Length of everything; larger is slower.
    pub length_scale: f32,
    /// Noise in the lengths.
    pub noise_w: f32,
}

impl Default for Inference {
    fn default() -> Self {
        Self { noise_scale: 0.667, length_scale: 1.0, noise_w: 0.8 }
    }
}

fn one() -> i64 {
    1
}

/// A phoneme on its way into the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phoneme {
    /// The symbol; a mark of punctuation and a space are phonemes too.
    pub symbol: char,
    /// The word it belongs to; `None` for what lies between words.
    pub word: Option<usize>,
}

/// What goes into the model, and which phoneme each id is of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ids {
    /// The model's ids.
    pub ids: Vec<i64>,
    /// For each id, the phoneme it belongs to; `None` for begin and end.
    pub of: Vec<Option<usize>>,
}

impl VoiceFile {
    /// Reads the file's text.
    ///
    /// # Errors
    /// When it is no voice file, or lacks what Piper needs.
    pub fn parse(json: &str) -> Result<Self, TtsError> {
        let voice: Self =
            serde_json::from_str(json).map_err(|error| TtsError::Model(format!("voice file: {error}")))?;
        if let Some(symbol) =
            ["_", "^", "$", " "].iter().find(|symbol| !voice.phoneme_id_map.contains_key(**symbol))
        {
            return Err(TtsError::Model(format!("voice file: no id for the phoneme '{symbol}'")));
        }
        Ok(voice)
    }

    /// Piper's coding: begin, then each phoneme with a blank after it, then
    /// end. A symbol that the voice does not know is left out.
    pub fn ids(&self, phonemes: &[Phoneme]) -> Ids {
        let of = |symbol: &str| self.phoneme_id_map.get(symbol).map_or(&[][..], Vec::as_slice);
        let blank = of("_");
        let mut out = Ids::default();
        let mut add = |ids: &[i64], phoneme: Option<usize>| {
            out.ids.extend_from_slice(ids);
            out.of.extend(ids.iter().map(|_| phoneme));
        };
        add(of("^"), None);
        add(blank, None);
        let mut buffer = [0; 4];
        for (index, phoneme) in phonemes.iter().enumerate() {
            let ids = of(phoneme.symbol.encode_utf8(&mut buffer));
            if !ids.is_empty() {
                add(ids, Some(index));
                add(blank, Some(index));
            }
        }
        add(of("$"), None);
        out
    }
}

/// The symbols of an espeak answer as Piper learned them: decomposed, so that
/// a diacritic is a symbol of its own.
pub fn symbols(ipa: &str) -> impl Iterator<Item = char> + '_ {
    ipa.nfd()
}

#[cfg(test)]
mod tests {
    use super::*;

    const JSON: &str = r##"{"audio":{"sample_rate":22050},"espeak":{"voice":"en-us"},"inference":{"noise_scale":0.5,"length_scale":1,"noise_w":0.8},
        "phoneme_id_map":{"_":[0],"^":[1],"$":[2]," ":[3],"a":[14],"c":[16],"̧":[140],"b":[15,99]}}"##;

    #[test]
    fn phonemes_are_coded_with_blanks() {
        let voice = VoiceFile::parse(JSON).expect("it is a voice");
        let phonemes: Vec<Phoneme> = "a☃b".chars().map(|symbol| Phoneme { symbol, word: Some(0) }).collect();
        let ids = voice.ids(&phonemes);
        assert_eq!(ids.ids, [1, 0, 14, 0, 15, 99, 0, 2]);
        assert_eq!(ids.of, [None, None, Some(0), Some(0), Some(2), Some(2), Some(2), None]);
    }

    #[test]
    fn symbols_are_decomposed() {
        assert_eq!(symbols("ç").collect::<String>(), "c\u{327}");
    }

    #[test]
    fn what_is_missing_is_named() {
        let error =
            VoiceFile::parse(&JSON.replace("\"^\":[1],", "")).expect_err("it has no begin").to_string();
        assert!(error.contains("'^'"), "{error}");
        assert!(VoiceFile::parse("{}").is_err());
        assert!(VoiceFile::parse("not json").is_err());
    }
}
