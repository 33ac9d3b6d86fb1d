//! `voluble say`: text as speech, into a WAV file.

use std::fs;
use std::io::{self, Read};
use std::path::Path;

use tokio::sync::mpsc;

use super::failure::Failure;
use super::output::Out;
use crate::audio::SPEAKING_RATE;
use crate::audio::codec::wav;
use crate::tts::{SynthesisEvent, Synthesizer, VoiceOptions};

/// The text of the command line; `-` is all of stdin.
///
/// # Errors
/// When stdin cannot be read as text, or there is nothing to say.
pub fn read(text: &str) -> Result<String, Failure> {
    let mut read = text.to_owned();
    if text == "-" {
        read.clear();
        io::stdin()
            .lock()
            .read_to_string(&mut read)
            .map_err(|error| Failure::Failed(format!("stdin: {error}")))?;
    }
    if read.trim().is_empty() {
        return Err(Failure::Usage("nothing to say: the text is empty".to_owned()));
    }
    Ok(read)
}

/// Speaks into a file; `-` is stdout.
///
/// # Errors
/// When the synthesizer refuses or fails, or the file cannot be written.
pub async fn run(
    synthesizer: &dyn Synthesizer,
    text: &str,
    voice: &VoiceOptions,
    file: &Path,
    out: &mut Out<'_>,
) -> Result<(), Failure> {
    let voices = synthesizer.voices();
    if voice.voice != VoiceOptions::default().voice && !voices.contains(&voice.voice) {
        return Err(Failure::Usage(format!(
            "no voice is called '{}'; there are: {}",
            voice.voice,
            voices.join(", ")
        )));
    }
    let samples = speak(synthesizer, text, voice).await?;
    let bytes = wav::encode(SPEAKING_RATE, &samples)?;
    if file == Path::new("-") {
        return out.bytes(&bytes);
    }
    fs::write(file, bytes).map_err(|error| Failure::writing(&file.display().to_string(), &error))
}

async fn speak(synthesizer: &dyn Synthesizer, text: &str, voice: &VoiceOptions) -> Result<Vec<f32>, Failure> {
    let (events, mut spoken) = mpsc::channel(64);
    let mut stream = synthesizer.open(voice, events)?;
    stream.feed(text);
    stream.finish();
    let mut all = Vec::new();
    while let Some(event) = spoken.recv().await {
        match event {
            SynthesisEvent::Audio { samples } => all.extend(samples),
            SynthesisEvent::Done => return Ok(all),
            SynthesisEvent::Failed { message } => return Err(Failure::Failed(message)),
            SynthesisEvent::Clause { .. } | SynthesisEvent::Word { .. } => {}
        }
    }
    Err(Failure::Failed("the synthesizer ended without an answer".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tts::scripted::{Script, Scripted};

    #[tokio::test]
    async fn a_text_becomes_a_file() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("out.wav");
        let scripted = Scripted::default();
        let mut out = Out::to(Vec::new());
        run(&scripted, "One two. Three.", &VoiceOptions::default(), &file, &mut out).await.expect("spoken");
        let recording = wav::read(&file).expect("a WAV file");
        assert_eq!(recording.rate, SPEAKING_RATE);
        assert!(recording.samples.len() >= 3 * Script::default().samples_per_word);
        assert_eq!(scripted.asked()[0].text, "One two. Three.");
    }

    #[tokio::test]
    async fn stdout_takes_the_file_too() {
        let mut bytes = Vec::new();
        let mut out = Out::to(&mut bytes);
        let voice = VoiceOptions::default();
        run(&Scripted::default(), "One.", &voice, Path::new("-"), &mut out).await.expect("spoken");
        drop(out);
        assert!(!wav::decode(bytes).expect("a WAV file").samples.is_empty());
    }

    #[tokio::test]
    async fn faults_are_one_line() {
        let mut out = Out::to(Vec::new());
        let failing = Scripted::new(Script { fail_on: Some("bad".to_owned()), ..Script::default() });
        let voice = VoiceOptions::default();
        let file = Path::new("/nowhere/out.wav");
        assert!(run(&failing, "a bad word", &voice, file, &mut out).await.is_err());
        let error =
            run(&Scripted::default(), "One.", &voice, file, &mut out).await.expect_err("no such folder");
        assert!(error.to_string().starts_with("/nowhere/out.wav: "), "{error}");
        let voice = VoiceOptions { voice: "bob".to_owned(), speed: 1.0 };
        let error =
            run(&Scripted::default(), "One.", &voice, file, &mut out).await.expect_err("no such voice");
        assert!(error.to_string().starts_with("no voice is called 'bob'; there are: "), "{error}");
        assert_eq!(error.exit_code(), 2);
        assert_eq!(read("  ").expect_err("nothing to say").exit_code(), 2);
    }
}
