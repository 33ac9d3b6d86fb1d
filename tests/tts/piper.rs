//! Piper through the synthesizer's seam and, for the times, through its thread's own.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::sync::mpsc;
use voluble::audio::SPEAKING_RATE;
use voluble::config::tts::Tts;
use voluble::models::Store;
use voluble::tts::feed::Clause;
use voluble::tts::piper::{Piper, Speakers};
use voluble::tts::worker::{Job, Speak, Spoken};
use voluble::tts::{SynthesisEvent, Synthesizer, VoiceOptions};

/// Loading takes a second: once for all tests.
fn piper() -> &'static Piper {
    static PIPER: OnceLock<Piper> = OnceLock::new();
    PIPER.get_or_init(|| {
        Piper::start(&Tts::default(), &Store::default())
            .unwrap_or_else(|error| panic!("{error} (fetch models with `voluble models pull`)"))
    })
}

fn speakers() -> MutexGuard<'static, Speakers> {
    static SPEAKERS: OnceLock<Mutex<Speakers>> = OnceLock::new();
    SPEAKERS
        .get_or_init(|| {
            // The same sound in every run: what is measured here must not depend on chance.
            let settings = Tts { variation: 0.0, ..Tts::default() };
            Mutex::new(
                Speakers::load(&settings, &Store::default())
                    .unwrap_or_else(|error| panic!("{error} (fetch models with `voluble models pull`)")),
            )
        })
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
}

fn say(text: &str, speed: f32, last: bool) -> Spoken {
    let clause = Clause { text: text.to_owned(), from: 0, in_code: false };
    let voice = VoiceOptions { speed, ..VoiceOptions::default() };
    speakers().speak(&Job { clause, voice, last }).expect("the voice works")
}

fn symbols(text: &str) -> String {
    say(text, 1.0, true).phonemes.iter().map(|phoneme| phoneme.symbol).collect()
}

async fn collect(mut events: mpsc::Receiver<SynthesisEvent>) -> Vec<SynthesisEvent> {
    let mut all = Vec::new();
    while let Some(event) = events.recv().await {
        let end = matches!(event, SynthesisEvent::Done | SynthesisEvent::Failed { .. });
        all.push(event);
        if end {
            break;
        }
    }
    all
}

fn sound(events: &[SynthesisEvent]) -> Vec<f32> {
    let mut all = Vec::new();
    for event in events {
        if let SynthesisEvent::Audio { samples } = event {
            all.extend_from_slice(samples);
        }
    }
    all
}

/// Root mean square of the samples at these places, cut to what is there.
fn level(samples: &[f32], from: usize, to: usize) -> f32 {
    let part = &samples[from.min(samples.len())..to.min(samples.len())];
    (part.iter().map(|sample| sample * sample).sum::<f32>() / part.len().max(1) as f32).sqrt()
}

fn ms(samples: u64) -> f64 {
    samples as f64 * 1_000.0 / f64::from(SPEAKING_RATE)
}

#[tokio::test]
async fn an_answer_is_spoken_word_by_word() {
    let text =
        "Sure, I can help you with that. The fee is $3.50, due Dec 1, in the office of Dr. Wu. 😀 Bye!";
    let (tx, rx) = mpsc::channel(8);
    let mut stream = piper().open(&VoiceOptions::default(), tx).expect("a stream is free");
    for delta in text.chars().collect::<Vec<_>>().chunks(3) {
        stream.feed(&delta.iter().collect::<String>());
    }
    stream.finish();
    let events = collect(rx).await;
    assert_eq!(events.last(), Some(&SynthesisEvent::Done));
    let samples = sound(&events);

    let (mut heard, mut at, mut clause_end, mut words) = (0u64, 0u64, 0, Vec::new());
    for event in &events {
        match event {
            SynthesisEvent::Clause { from, to } => {
                assert_eq!(*from, clause_end, "clauses are contiguous");
                clause_end = *to;
            }
            SynthesisEvent::Word { from, to, start, end } => {
                assert!(*start >= at && end > start, "words follow each other");
                assert!(*start >= heard, "a word comes before its sound");
                at = *end;
                words.push((*from, *to));
            }
            SynthesisEvent::Audio { samples } => {
                assert!(samples.len() <= SPEAKING_RATE as usize / 10);
                heard += samples.len() as u64;
            }
            SynthesisEvent::Done | SynthesisEvent::Failed { .. } => {}
        }
    }
    assert!(at <= heard, "the last word ends within the sound");
    let written: Vec<&str> = words.iter().filter_map(|(from, to)| text.get(*from..*to)).collect();
    for word in ["Sure", "help", "$3.50", "Dec 1", "in", "the", "of", "Dr.", "Wu"] {
        assert!(written.contains(&word), "{word} in {written:?}");
    }
    // Five seconds of words are neither two nor twelve.
    assert!((5.0..12.0).contains(&(samples.len() as f64 / f64::from(SPEAKING_RATE))), "{}", samples.len());
}

#[test]
fn sound_begins_at_once() {
    for text in ["Of course.", "She sells shells.", "How are you?", "Five hens, fat and happy.", "Mmm, yes."]
    {
        let spoken = say(text, 1.0, true);
        let peak = spoken.samples.iter().fold(0.0f32, |peak, sample| peak.max(sample.abs()));
        assert!(peak > 0.05 && peak <= 1.0, "{text}: peak {peak}");
        // Audible: -40 dB of full scale.
        let first = spoken.samples.iter().position(|sample| sample.abs() > 0.01).expect("it is audible");
        assert!(ms(first as u64) < 20.0, "{text}: silent for {:.1} ms", ms(first as u64));
    }
}

#[test]
fn the_network_tells_when_each_word_sounds() {
    let spoken = say("Stop, then go in the house, tick tock.", 1.0, true);
    assert!(spoken.exact, "the lengths are read from the network");
    assert_eq!(spoken.words.len(), 8);
    let mut end = 0;
    for word in &spoken.words {
        assert!(word.start >= end && word.end > word.start, "{:?}", spoken.words);
        end = word.end;
    }
    assert!(end <= spoken.samples.len() as u64);
    assert!(spoken.phonemes.is_sorted_by_key(|phoneme| phoneme.start));
    // Sound within words, and between the words at a comma a place far below it.
    let loud = |word: usize| {
        level(&spoken.samples, spoken.words[word].start as usize, spoken.words[word].end as usize)
    };
    for pair in [(0, 1), (5, 6)] {
        let gap = (spoken.words[pair.0].end as usize, spoken.words[pair.1].start as usize);
        let step = SPEAKING_RATE as usize / 100;
        let quietest = (gap.0.saturating_sub(step)..=gap.1)
            .step_by(step / 2)
            .map(|at| level(&spoken.samples, at, at + step))
            .fold(f32::MAX, f32::min);
        assert!(
            quietest < 0.2 * loud(pair.0).min(loud(pair.1)),
            "between words {pair:?}: {quietest}, words {} and {}",
            loud(pair.0),
            loud(pair.1)
        );
    }
}

/// A stop after a pause begins with a burst out of silence: it must lie where
/// the network says. Its own resolution is one frame, 11.6 ms.
#[test]
fn word_times_are_true_to_the_sound() {
    let spoken = say("Tar. Cat. Pan. Two. Day. Keep. Good. Tar.", 1.0, true);
    let millisecond = SPEAKING_RATE as usize / 1_000;
    let mut errors = Vec::new();
    for word in &spoken.words[1..] {
        let start = word.start as usize;
        let onset = (0..140)
            .map(|step| start - 70 * millisecond + step * millisecond)
            .find(|at| level(&spoken.samples, *at, at + 3 * millisecond) > 0.005)
            .expect("the word is heard");
        errors.push(ms(word.start) - ms(onset as u64));
    }
    let mean = errors.iter().map(|error| error.abs()).sum::<f64>() / errors.len() as f64;
    assert!(mean < 15.0 && errors.iter().all(|error| error.abs() <= 35.0), "{errors:.1?} ms");
}

#[test]
fn marks_reach_the_network() {
    let (statement, question) = (symbols("You are here."), symbols("You are here?"));
    assert!(statement.ends_with('.'), "{statement}");
    assert!(question.ends_with('?'), "{question}");
    assert_eq!(statement.trim_end_matches('.'), question.trim_end_matches('?'));
    let pause = symbols("Well, then");
    assert!(pause.contains(", "), "{pause}");
    assert!(!pause.ends_with(['.', ',']), "{pause}");
}

#[test]
fn speed_changes_the_length() {
    let text = "The quick brown fox jumps over the lazy dog.";
    let (slow, own, fast) = (say(text, 0.5, true), say(text, 1.0, true), say(text, 2.0, true));
    assert!(slow.samples.len() as f64 > own.samples.len() as f64 * 1.5);
    assert!((fast.samples.len() as f64) < own.samples.len() as f64 * 0.7);
    // A speed that makes no sense is brought inside.
    assert!(!say("Hello.", f32::NAN, true).samples.is_empty());
    assert!(!say("Hello.", 0.0, true).samples.is_empty());
}

#[test]
fn a_pause_follows_a_sentence_but_not_the_last() {
    let silence = |last: bool| {
        let spoken = say("Good morning.", 1.0, last);
        let end = spoken.samples.iter().rposition(|sample| sample.abs() > 0.01).expect("it is audible");
        ms((spoken.samples.len() - end) as u64)
    };
    let (middle, last) = (silence(false), silence(true));
    assert!((200.0..420.0).contains(&middle), "{middle:.0} ms");
    assert!(last < 150.0, "{last:.0} ms");
}

#[test]
fn what_cannot_be_said_is_no_sound() {
    for text in ["😀", "---", "```\ncode\n", "  ", "…", "🎉🎉!"] {
        assert_eq!(say(text, 1.0, true).samples.len(), 0, "{text:?}");
    }
}

#[tokio::test]
async fn streams_are_served_side_by_side_and_cancel_alone() {
    let text = "One two three four five six seven. Eight nine ten eleven twelve thirteen. Fourteen fifteen.";
    let mut running = Vec::new();
    for _ in 0..3 {
        let (tx, rx) = mpsc::channel(1_000);
        let mut stream = piper().open(&VoiceOptions::default(), tx).expect("a stream is free");
        stream.feed(text);
        stream.finish();
        running.push((stream, rx));
    }
    let (cancelled, mut silent) = running.pop().expect("three were opened");
    drop(cancelled);
    for (_, rx) in &mut running {
        let first = rx.recv().await.expect("it speaks");
        assert!(matches!(first, SynthesisEvent::Clause { from: 0, .. }));
    }
    for (stream, rx) in running {
        let events = collect(rx).await;
        assert_eq!(events.last(), Some(&SynthesisEvent::Done));
        assert!(sound(&events).len() > SPEAKING_RATE as usize * 3);
        drop(stream);
    }
    while let Some(event) = silent.recv().await {
        assert!(!matches!(event, SynthesisEvent::Done), "a dropped stream never ends well");
    }
}

#[test]
fn what_is_missing_is_said_with_its_remedy() {
    let absent = Store::at("/nonexistent");
    // ONNX Runtime may be loaded already by another test: then the voice is what is missing.
    let error = Piper::start(&Tts::default(), &absent).err().expect("nothing is there").to_string();
    assert!(error.contains("voluble models pull"), "{error}");
    let settings = Tts { espeak: "no-such-espeak".into(), ..Tts::default() };
    let error = Piper::start(&settings, &Store::default()).err().expect("no such program").to_string();
    assert!(error.contains("espeak-ng"), "{error}");
}
