//! Random walks over every order of events; [`super::rig::View`] complains.

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::rig::{Rig, config, done, final_words, semantic, settings, text_event};
use voluble::error::Private;
use voluble::llm::{FinishReason, GenerationEvent, GenerationUsage, Role, ToolCall};
use voluble::session::command::{CommandKind, PlayedTo, ResponseParams, ResponseScope};
use voluble::session::event::EndReason;
use voluble::session::ids::ItemId;
use voluble::session::item::{Item, ItemKind, ItemStatus, Part, Place};
use voluble::session::machine::Input;
use voluble::session::settings::{Modality, SettingsPatch, TurnDetection};
use voluble::stt::RecognitionEvent;
use voluble::tts::SynthesisEvent;

const WALKS: u64 = 10_000;
const STEPS: usize = 60;

#[test]
fn ten_thousand_walks_keep_every_promise() {
    for seed in 0..WALKS {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| walk(seed))) {
            eprintln!("the walk with seed {seed} broke a promise");
            std::panic::resume_unwind(panic);
        }
    }
}

fn walk(seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut config = config();
    config.session.max_items = 12;
    config.session.max_out_of_band = 2;
    let mut start = settings();
    match rng.random_range(0..4) {
        0 => start.turn_detection = semantic(),
        1 => start.turn_detection = TurnDetection::Manual,
        _ => {}
    }
    if let TurnDetection::Silence { interrupt_response, create_response, idle_timeout_ms, .. } =
        &mut start.turn_detection
    {
        *interrupt_response = rng.random_bool(0.8);
        *create_response = rng.random_bool(0.9);
        *idle_timeout_ms = rng.random_bool(0.2).then_some(5_000);
    }
    if rng.random_bool(0.15) {
        start.modality = Modality::Text;
    }
    let mut rig = Rig::with(&config, start);
    for _ in 0..STEPS {
        step(&mut rig, &mut rng);
        if rig.view.ended {
            break;
        }
    }
    if !rig.view.ended {
        // After everything that was open has ended, the caller is heard again and gets an answer.
        recovers(&mut rig);
        rig.machine.end(rig.now, EndReason::Closed);
        rig.input(Input::Drain);
    }
    assert!(rig.view.ended, "the end is said");
    assert!(
        rig.world.recognitions.is_empty() && rig.world.generations.is_empty() && rig.world.voices.is_empty()
    );
}

/// The machine is listening again, whatever happened before.
fn recovers(rig: &mut Rig) {
    if !matches!(
        rig.machine.settings().turn_detection,
        TurnDetection::Silence { create_response: true, interrupt_response: true, .. }
    ) {
        return;
    }
    rig.silence(3_000);
    rig.words("something");
    for _ in 0..3 {
        while let Some(number) = rig.world.generations.keys().max().copied() {
            rig.input(Input::Generation(number, done()));
            if rig.world.voices.contains_key(&number) {
                rig.input(Input::Synthesis(number, SynthesisEvent::Done));
            }
            if rig.world.generations.contains_key(&number) && !rig.world.voices.contains_key(&number) {
                break;
            }
        }
        rig.silence(3_000);
        rig.words("something");
    }
    rig.pass(60_000);
    rig.silence(1_000);
    // A server that was shutting down has said good-bye by now.
    if rig.view.ended {
        return;
    }
    let before = rig.view.done.len() + rig.view.open.len();
    rig.speak(800);
    rig.silence(1_000);
    rig.words("can you hear me");
    let after = rig.view.done.len() + rig.view.open.len();
    assert!(rig.view.ended || after > before, "a turn after all that was not answered");
}

fn step(rig: &mut Rig, rng: &mut StdRng) {
    match rng.random_range(0..100) {
        0..=17 => rig.hear(rng.random_range(1..25), 0.95, -20.0),
        18..=35 => rig.hear(rng.random_range(1..30), 0.02, -70.0),
        36..=38 => rig.hear(rng.random_range(1..6), 0.5, -50.0),
        39..=41 => rig.pass(rng.random_range(1..4_000)),
        42..=49 => recognised(rig, rng),
        50..=63 => generated(rig, rng),
        64..=75 => spoken(rig, rng),
        76..=78 => {
            if let Some(asked) = rig.world.completions.pop() {
                rig.input(Input::Completion { asked, probability: rng.random_range(0.0..1.0) });
            }
        }
        79 => rig.command(CommandKind::CommitAudio),
        80 => rig.command(CommandKind::ClearAudio),
        81..=84 => {
            let scope =
                if rng.random_bool(0.3) { ResponseScope::OutOfBand } else { ResponseScope::Conversation };
            rig.command(CommandKind::CreateResponse(ResponseParams { scope, ..ResponseParams::default() }));
        }
        85..=86 => {
            let id = rig.view.open.keys().min().cloned().filter(|_| rng.random_bool(0.5));
            rig.command(CommandKind::CancelResponse(id));
        }
        87..=90 => items(rig, rng),
        91 => rig.command(CommandKind::ClearOutput),
        92 => {
            if let Some(id) = rig.view.open.keys().chain(rig.view.done.keys()).min().cloned() {
                rig.command(CommandKind::Played(id, PlayedTo { ms: rng.random_range(0..5_000) }));
            }
        }
        93..=96 => configure(rig, rng),
        97..=98 => stale(rig, rng),
        _ => {
            if rng.random_bool(0.1) {
                rig.input(Input::Drain);
            }
        }
    }
}

fn recognised(rig: &mut Rig, rng: &mut StdRng) {
    let mut open: Vec<_> = rig.world.recognitions.iter().map(|(stream, marker)| (*stream, *marker)).collect();
    open.sort_unstable();
    let Some((stream, marker)) = open.choose(rng).copied() else { return };
    let words =
        ["", "hello", "what is the capital of france", "yes", "five five"].choose(rng).expect("not empty");
    let event = match (rng.random_range(0..10), marker) {
        (0..=2, _) | (_, None) => RecognitionEvent::Partial { text: Private::new((*words).to_owned()) },
        (3, marker) => RecognitionEvent::Failed { marker, message: "broken".into() },
        (4, Some(marker)) => final_words(marker.saturating_sub(1), words),
        (_, Some(marker)) => final_words(marker, words),
    };
    rig.input(Input::Recognition(stream, event));
}

fn generated(rig: &mut Rig, rng: &mut StdRng) {
    let mut open: Vec<_> = rig.world.generations.keys().copied().collect();
    open.sort_unstable();
    let Some(number) = open.choose(rng).copied() else { return };
    let event = match rng.random_range(0..20) {
        0..=1 => GenerationEvent::Prefilled,
        2..=10 => text_event(["Paris", " is", " the capital.", " "].choose(rng).expect("not empty")),
        11 => GenerationEvent::ToolCall(ToolCall {
            id: String::new(),
            name: "f".into(),
            arguments: "{}".into(),
        }),
        12 => GenerationEvent::Failed { message: "broken".into() },
        13 => {
            let too_long = rng.random_bool(0.5);
            return rig.input(Input::GenerationRefused {
                response: number,
                message: "busy".into(),
                too_long,
            });
        }
        14 => GenerationEvent::Done { reason: FinishReason::Length, usage: GenerationUsage::default() },
        _ => done(),
    };
    rig.input(Input::Generation(number, event));
}

fn spoken(rig: &mut Rig, rng: &mut StdRng) {
    let mut open: Vec<_> =
        rig.world.voices.iter().map(|(n, (text, finished))| (*n, text.len(), *finished)).collect();
    open.sort_unstable();
    let Some((number, length, finished)) = open.choose(rng).copied() else { return };
    let event = match rng.random_range(0..10) {
        0 => SynthesisEvent::Clause { from: 0, to: length },
        1..=2 => SynthesisEvent::Word { from: 0, to: length, start: 0, end: 4_000 },
        3..=6 => SynthesisEvent::Audio { samples: vec![0.2; rng.random_range(1..9_600)] },
        7 => SynthesisEvent::Failed { message: "broken".into() },
        _ if finished => SynthesisEvent::Done,
        _ => return,
    };
    rig.input(Input::Synthesis(number, event));
}

fn items(rig: &mut Rig, rng: &mut StdRng) {
    let mut known: Vec<ItemId> = rig.view.items.iter().cloned().collect();
    known.sort_unstable();
    known.push(ItemId::from("nobody"));
    let id = known.choose(rng).expect("not empty").clone();
    match rng.random_range(0..6) {
        0 => rig.command(CommandKind::RetrieveItem(id)),
        1 => rig.command(CommandKind::DeleteItem(id)),
        2..=3 => rig.command(CommandKind::TruncateItem {
            item: id,
            content_index: u32::from(rng.random_bool(0.1)),
            audio_end_ms: rng.random_range(0..3_000),
        }),
        _ => {
            let place = match rng.random_range(0..3) {
                0 => Place::Root,
                1 => Place::After(id),
                _ => Place::End,
            };
            let named = if rng.random_bool(0.2) { known[0].clone() } else { ItemId(String::new()) };
            let parts = vec![Part::InputText(Private::new("typed".into()))];
            let kind = ItemKind::Message { role: Role::User, parts };
            rig.command(CommandKind::CreateItem {
                item: Item { id: named, status: ItemStatus::Completed, kind },
                place,
            });
        }
    }
}

fn configure(rig: &mut Rig, rng: &mut StdRng) {
    let mut patch = SettingsPatch::default();
    match rng.random_range(0..6) {
        0 => patch.turn_detection = Some(TurnDetection::Manual),
        1 => patch.turn_detection = Some(semantic()),
        2 => patch.turn_detection = Some(settings().turn_detection),
        3 => patch.modality = Some(if rng.random_bool(0.3) { Modality::Text } else { Modality::Audio }),
        4 => patch.voice = Some("other".into()),
        _ => patch.speed = Some(9.0),
    }
    rig.command(CommandKind::Configure(patch));
}

/// What a stream says that was given up long ago.
fn stale(rig: &mut Rig, rng: &mut StdRng) {
    if let Some(stream) =
        rig.world.old_streams.choose(rng).copied().filter(|s| !rig.world.recognitions.contains_key(s))
    {
        let before = rig.events.len();
        rig.input(Input::Recognition(stream, final_words(9, "late words")));
        assert_eq!(rig.events.len(), before, "a late transcript did something");
    }
    if let Some(number) = rig.world.old_responses.choose(rng).copied()
        && !rig.world.generations.contains_key(&number)
        && !rig.world.voices.contains_key(&number)
    {
        let before = rig.events.len();
        rig.input(Input::Generation(number, text_event("late")));
        rig.input(Input::Generation(number, done()));
        rig.input(Input::Synthesis(number, SynthesisEvent::Audio { samples: vec![0.1; 10] }));
        rig.input(Input::Synthesis(number, SynthesisEvent::Done));
        assert_eq!(rig.events.len(), before, "a late answer did something");
    }
}
