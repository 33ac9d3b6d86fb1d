//! What is heard in the recordings.

use voluble::metrics::wer::{WordErrors, word_errors};
use voluble::models::Store;

use super::{options, recording, recordings, transcribe, whisper};

/// Word errors and text of one recording.
fn hear(file: &str, language: Option<&str>) -> (WordErrors, String, Option<String>) {
    let recording = recording(file);
    let transcript = transcribe(whisper(), &options(language), &recording.samples());
    let text = transcript.text.into_inner();
    (word_errors(&recording.transcript, &text), text, transcript.language)
}

#[test]
fn english_is_heard_right() {
    // One recording is so quiet that recognisers waver on it: it must be heard, not heard right.
    let english =
        recordings().into_iter().filter(|r| r.language == "en" && !r.file.starts_with("not-so-sure"));
    let mut total = WordErrors::default();
    for r in english {
        let (errors, text, language) = hear(&r.file, Some("en"));
        assert_eq!(language.as_deref(), Some("en"));
        assert!(errors.rate() <= 0.34, "{}: {errors:?} {text}", r.file);
        total.errors += errors.errors;
        total.words += errors.words;
    }
    assert!(total.words > 90, "{total:?}");
    assert!(total.rate() <= 0.1, "{total:?}");
}

#[test]
fn languages_are_detected() {
    for (file, language, limit) in [
        ("large-hail.wav", "en", 0.0),
        ("not-so-sure.wav", "en", 0.34),
        ("de-augen-aufschlug-8k.wav", "de", 0.1),
        // One word to the measure, which knows no Chinese: that it is Chinese must do.
        ("zh-fangdichan.wav", "zh", 1.0),
    ] {
        let (errors, text, detected) = hear(file, Some("auto"));
        assert_eq!(detected.as_deref(), Some(language), "{file}: {text}");
        assert!(errors.rate() <= limit, "{file}: {errors:?} {text}");
    }
}

#[test]
fn noise_and_silence_say_nothing() {
    let stt = whisper();
    let said = |audio: &[f32]| transcribe(stt, &options(None), audio).text.into_inner();
    assert_eq!(said(&[]), "");
    assert_eq!(said(&vec![0.0; 48_000]), "");
    for noise in recordings().iter().filter(|r| r.kind == "noise") {
        let samples = noise.samples();
        assert_eq!(said(&samples), "", "{}", noise.file);
        for (start, seconds) in [(0.5, 0.7), (4.0, 1.5), (5.0, 3.0)] {
            let at = |s: f32| (s * 16_000.0) as usize;
            let piece = &samples[at(start)..at(start + seconds)];
            assert_eq!(said(piece), "", "{} from {start} s for {seconds} s", noise.file);
        }
    }
}

#[test]
fn what_is_said_for_more_than_thirty_seconds_is_heard_whole() {
    let mut audio = Vec::new();
    let mut transcript = String::new();
    for file in [
        "large-hail.wav",
        "buy-a-chromecast-8k.wav",
        "schools-would-accept.wav",
        "testing-routine.wav",
        "go-somewhere.wav",
        "lot-of-writing.wav",
        "brooklyn-bridge.wav",
        "isolated-tornadoes-pause.wav",
    ] {
        let r = recording(file);
        audio.extend(r.samples());
        transcript = transcript + " " + &r.transcript;
    }
    assert!(audio.len() > 31 * 16_000, "{}", audio.len());
    let heard = transcribe(whisper(), &options(Some("en")), &audio);
    assert_eq!(heard.samples, audio.len() as u64);
    let text = heard.text.into_inner();
    let errors = word_errors(&transcript, &text);
    assert!(errors.rate() <= 0.08, "{errors:?} {text}");
}

#[test]
fn the_converted_models_are_whole() {
    let store = Store::default();
    for (model, file, bytes, vocabulary) in [
        ("whisper-base", "ggml-base.bin", 147_951_465, 51_865_u32),
        ("whisper-tiny-en", "ggml-tiny.en.bin", 77_704_715, 51_864),
    ] {
        let path = store.path(model, file);
        let found = std::fs::read(&path)
            .unwrap_or_else(|e| panic!("{}: {e}; `voluble models pull {model}` fetches it", path.display()));
        assert_eq!(found.len(), bytes, "{model}");
        assert_eq!(found[..4], 0x6767_6d6c_u32.to_le_bytes(), "{model}");
        assert_eq!(found[4..8], vocabulary.to_le_bytes(), "{model}");
    }
}
