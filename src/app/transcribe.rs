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
    format: Format,
    out: &mut Out<'_>,
) -> Result<(), Failure> {
    let samples = resample::convert(&recording.samples, recording.rate, HEARING_RATE)?;
    let transcript = recognise(recognizer, &samples).await?;
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

async fn recognise(recognizer: &dyn Recognizer, samples: &[f32]) -> Result<Transcript, Failure> {
    // No language named: the settings decide.
    let options = RecognitionOptions::default();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stt::scripted::{Line, Script, Scripted};

    fn recording() -> Recording {
        Recording { rate: 8_000, samples: vec![0.1; 8_000] }
    }

    async fn transcribe(line: Line, format: Format) -> Result<String, Failure> {
        let scripted = Scripted::new(Script { lines: vec![line], ..Script::default() });
        let mut bytes = Vec::new();
        let mut out = Out::to(&mut bytes);
        let result = run(&scripted, &recording(), format, &mut out).await;
        drop(out);
        result.map(|()| String::from_utf8(bytes).expect("text"))
    }

    #[tokio::test]
    async fn the_words_are_printed() {
        let text = transcribe(Line::new("go forward ten meters"), Format::Text).await.expect("heard");
        assert_eq!(text, "go forward ten meters\n");
        let json = transcribe(Line::new("say \"hi\""), Format::Json).await.expect("heard");
        let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(json["text"], "say \"hi\"");
        assert_eq!(json["language"], "en");
        assert_eq!(json["seconds"], 1.0, "at the rate at which it is heard");
    }

    #[tokio::test]
    async fn a_recogniser_that_fails_is_one_line() {
        let error = transcribe(Line::failing("out of memory"), Format::Text).await.expect_err("failed");
        assert_eq!(error.to_string(), "out of memory");
    }

    #[test]
    fn a_file_that_is_no_recording_is_named() {
        let error = read(Path::new("/nowhere/x.wav")).expect_err("not there");
        assert!(error.to_string().starts_with("/nowhere/x.wav: "), "{error}");
    }
}
