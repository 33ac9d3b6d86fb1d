//! `voluble transcribe`: the words of a recording.

use std::io::{self, Read};
use std::path::Path;

use tokio::sync::mpsc;

use super::failure::Failure;
use super::output::Out;
use crate::audio::codec::wav::{self, Recording};
use crate::audio::{HEARING_RATE, resample};
use crate::stt::{RecognitionEvent, RecognitionOptions, Recognizer, Transcript};

/// How the words are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// The words.
    #[default]
    Text,
    /// One JSON object: text, language, seconds, no_speech.
    Json,
}

/// Reads a WAV file; `-` is stdin.
///
/// # Errors
/// When it cannot be read or is no WAV file.
pub fn read(file: &Path) -> Result<Recording, Failure> {
    if file != Path::new("-") {
        return Ok(wav::read(file)?);
    }
    let mut bytes = Vec::new();
    io::stdin().lock().read_to_end(&mut bytes).map_err(|error| Failure::Failed(format!("stdin: {error}")))?;
    Ok(wav::decode(bytes)?)
}

/// Prints what is said in a recording.
///
/// # Errors
/// When the recogniser refuses or fails.
pub async fn run(
    recognizer: &dyn Recognizer,
    recording: &Recording,
    language: Option<&str>,
    format: Format,
    out: &mut Out<'_>,
) -> Result<(), Failure> {
    let samples = resample::convert(&recording.samples, recording.rate, HEARING_RATE)?;
    let transcript = recognise(recognizer, &samples, language).await?;
    match format {
        Format::Text => out.line(transcript.text.expose().trim()),
        Format::Json => out.line(
            &serde_json::json!({
                "text": transcript.text.expose().trim(),
                "language": transcript.language,
                "seconds": samples.len() as f64 / f64::from(HEARING_RATE),
                "no_speech": transcript.no_speech,
            })
            .to_string(),
        ),
    }
}

async fn recognise(
    recognizer: &dyn Recognizer,
    samples: &[f32],
    language: Option<&str>,
) -> Result<Transcript, Failure> {
    let options = RecognitionOptions {
        language: language.filter(|language| *language != "auto").map(str::to_owned),
        prompt: None,
        partials: false,
    };
    let (events, mut heard) = mpsc::channel(16);
    let mut stream = recognizer.open(&options, events)?;
    stream.push(samples);
    stream.flush(0);
    while let Some(event) = heard.recv().await {
        match event {
            RecognitionEvent::Final { transcript, .. } => return Ok(transcript),
            RecognitionEvent::Failed { message, .. } => return Err(Failure::Failed(message)),
            RecognitionEvent::Partial { .. } => {}
        }
    }
    Err(Failure::Failed("the recogniser ended without an answer".to_owned()))
}
