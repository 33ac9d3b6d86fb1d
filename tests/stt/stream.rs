//! The contract of a recognition stream, kept by Whisper.

use voluble::config::stt::Stt;
use voluble::metrics::wer::word_errors;
use voluble::models::Store;
use voluble::stt::{RecognitionEvent, RecognitionOptions, Recognizer, SttError, Whisper};

use super::{load, next_final, open, options, recording, settings, transcribe, whisper};

#[test]
fn the_size_of_pushes_changes_nothing() {
    let audio = recording("testing-routine.wav").samples();
    let texts = [97, 512, 16_000].map(|chunk| {
        let (mut stream, mut events) = open(whisper(), &options(Some("en")));
        audio.chunks(chunk).for_each(|c| stream.push(c));
        stream.flush(1);
        next_final(&mut events).1.text.into_inner()
    });
    assert_eq!(texts[0], "This isn't part of your testing routine, is it?");
    assert!(texts.iter().all(|t| *t == texts[0]), "{texts:?}");
}

#[test]
fn flushes_are_answered_in_order_and_the_last_has_everything() {
    let recording = recording("large-hail.wav");
    let audio = recording.samples();
    let (mut stream, mut events) = open(whisper(), &options(Some("en")));
    let (first, rest) = audio.split_at(audio.len() / 2);
    stream.push(first);
    stream.flush(1);
    let (marker, half) = next_final(&mut events);
    assert_eq!((marker, half.samples), (1, first.len() as u64));
    stream.push(rest);
    stream.flush(2);
    stream.flush(3);
    let mut last = 1;
    while last != 3 {
        let (marker, transcript) = next_final(&mut events);
        assert!(marker > last, "{marker} after {last}");
        assert_eq!(transcript.samples, audio.len() as u64);
        let text = transcript.text.expose();
        assert_eq!(word_errors(&recording.transcript, text).errors, 0, "{text}");
        last = marker;
    }
}

#[test]
fn words_are_shown_while_they_are_said_and_the_final_corrects_them() {
    let recording = recording("schools-would-accept.wav");
    let audio = recording.samples();
    let wanted = RecognitionOptions { partials: true, ..options(Some("en")) };
    let (mut stream, mut events) = open(whisper(), &wanted);
    let (first, rest) = audio.split_at(audio.len() * 2 / 3);
    first.chunks(512).for_each(|c| stream.push(c));
    match events.blocking_recv().expect("the stream is open") {
        RecognitionEvent::Partial { text } => assert!(!text.expose().is_empty()),
        other => panic!("nobody asked for {other:?}"),
    }
    rest.chunks(512).for_each(|c| stream.push(c));
    stream.flush(1);
    let text = next_final(&mut events).1.text.into_inner();
    assert_eq!(word_errors(&recording.transcript, &text).errors, 0, "{text}");
}

#[test]
fn the_early_decoding_answers_the_flush() {
    let stt = load(&settings());
    let recording = recording("brooklyn-bridge.wav");
    let wanted = RecognitionOptions { partials: true, ..options(Some("en")) };
    let (mut stream, mut events) = open(&stt, &wanted);
    let mut audio = recording.samples();
    audio.resize(audio.len() + 4_800, 0.0);
    stream.push(&audio);
    // The partial is the early decoding: shown although its interval is not over.
    match events.blocking_recv().expect("the stream is open") {
        RecognitionEvent::Partial { text } => {
            let errors = word_errors(&recording.transcript, text.expose());
            assert_eq!(errors.errors, 0, "{}", text.expose());
        }
        other => panic!("nobody asked for {other:?}"),
    }
    stream.flush(1);
    let answer = events.try_recv().expect("it is answered inside the call");
    assert!(matches!(answer, RecognitionEvent::Final { marker: 1, .. }), "{answer:?}");
}

#[test]
fn a_dropped_stream_is_silent_and_others_go_on() {
    let audio = recording("large-hail.wav").samples();
    let (mut gone, mut silent) = open(whisper(), &options(Some("en")));
    gone.push(&audio);
    gone.flush(1);
    drop(gone);
    let text = transcribe(whisper(), &options(Some("en")), &recording("one-two-three.wav").samples());
    assert_eq!(word_errors("one two three", text.text.expose()).errors, 0);
    assert!(silent.blocking_recv().is_none(), "the dropped stream said something");
}

#[test]
fn unknown_languages_are_refused() {
    let (events, _rx) = tokio::sync::mpsc::channel(1);
    let refused = |stt: &Whisper, language: &str| matches!(stt.open(&options(Some(language)), events.clone()), Err(SttError::Language(l)) if l == language);
    for nonsense in ["xx", "", "klingon", "e\0n", "yue"] {
        assert!(refused(whisper(), nonsense), "{nonsense:?}");
    }
    assert!(!refused(whisper(), "en-US"));
    let english = load(&Stt { model: "whisper-tiny-en".to_owned(), ..settings() });
    assert!(refused(&english, "de"));
    assert!(!refused(&english, "en"));
    let german = Stt { model: "whisper-tiny-en".to_owned(), language: "de".to_owned(), ..settings() };
    assert!(matches!(Whisper::load(&german, &Store::default()), Err(SttError::Language(_))));
}

#[test]
fn a_missing_and_a_broken_model_are_one_clear_line() {
    let dir = tempfile::tempdir().expect("a temporary folder can be made");
    let broken = dir.path().join("ggml-broken.bin");
    std::fs::write(&broken, b"not a model at all").expect("the folder is writable");
    for (model, hint) in [
        ("whisper-giant".to_owned(), "voluble models pull whisper-giant"),
        (broken.display().to_string(), "ggml-broken.bin cannot be loaded"),
        (dir.path().join("none.bin").display().to_string(), "none.bin is missing"),
    ] {
        let settings = Stt { model, ..settings() };
        let error = Whisper::load(&settings, &Store::default()).expect_err(hint).to_string();
        assert!(error.contains(hint), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}
