//! Situations that once went wrong, or would if two things met at the wrong moment.

use super::rig::{Rig, final_words, name, settings};
use voluble::error::Private;
use voluble::llm::Role;
use voluble::session::command::{CommandKind, InputItem, ResponseParams, ResponseScope};
use voluble::session::event::{CancelReason, EndReason, Event, RejectionCode, ResponseStatus};
use voluble::session::item::{Item, ItemKind, ItemStatus, Part, Place};
use voluble::session::machine::Input;
use voluble::session::settings::{SettingsPatch, TurnDetection};
use voluble::stt::RecognitionEvent;

const LONG: &str = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen";

fn detection(idle: Option<u32>, interrupts: bool) -> TurnDetection {
    TurnDetection::Silence {
        threshold: 0.5,
        prefix_padding_ms: 300,
        silence_duration_ms: 500,
        idle_timeout_ms: idle,
        create_response: true,
        interrupt_response: interrupts,
    }
}

fn configure(turn_detection: TurnDetection) -> CommandKind {
    CommandKind::Configure(SettingsPatch { turn_detection: Some(turn_detection), ..SettingsPatch::default() })
}

fn typed(id: &str) -> CommandKind {
    let parts = vec![Part::InputText(Private::new("typed".into()))];
    let kind = ItemKind::Message { role: Role::User, parts };
    CommandKind::CreateItem {
        item: Item { id: id.into(), status: ItemStatus::Completed, kind },
        place: Place::End,
    }
}

/// The last thing that the prompt says the agent said.
fn said_last(rig: &Rig) -> String {
    let prompt = rig.prompt();
    prompt.into_iter().rfind(|(role, _)| *role == Role::Assistant).expect("the agent has spoken").1
}

fn committed_audio(events: &[Event]) -> Vec<(usize, usize)> {
    let audio = events.iter().filter_map(|event| match event {
        Event::ItemAdded { item: Item { kind: ItemKind::Message { parts, .. }, .. }, .. } => match &parts[..]
        {
            [Part::InputAudio { audio, .. }] => {
                Some((audio[0] as usize, audio[audio.len() - 1] as usize + 1))
            }
            _ => None,
        },
        _ => None,
    });
    audio.collect()
}

#[test]
fn an_end_while_draining_is_said_once() {
    let mut rig = Rig::new(settings());
    rig.turn("hello");
    rig.input(Input::Drain);
    rig.machine.end(rig.now, EndReason::Expired);
    rig.input(Input::Drain);
    let ends: Vec<_> = rig.take().into_iter().filter(|event| matches!(event, Event::Ended { .. })).collect();
    assert_eq!(ends, [Event::Ended { reason: EndReason::Expired }]);
}

#[test]
fn clearing_the_output_ends_the_answer_that_sounds() {
    let mut rig = Rig::new(settings());
    rig.turn("count");
    rig.write("one two three");
    rig.voice();
    rig.take();
    rig.command(CommandKind::ClearOutput);
    let events = rig.take();
    let Some(Event::ResponseDone(response)) = events.iter().find(|event| name(event) == "response_done")
    else {
        panic!("its streams are stopped, so it must be over: {events:?}")
    };
    assert_eq!(response.status, ResponseStatus::Cancelled(CancelReason::ClientCancelled));
    rig.respond();
    assert_eq!(rig.view.open.len(), 1);
}

#[test]
fn an_answer_asked_for_while_its_words_are_recognised_is_the_only_one() {
    let mut rig = Rig::new(settings());
    rig.speak(800);
    rig.silence(700);
    rig.respond();
    rig.words("what is the time");
    assert_eq!(rig.prompt().last().map(|(_, text)| text.clone()), Some("what is the time".to_owned()));
    rig.answer("Noon.");
    rig.silence(2_000);
    assert_eq!((rig.view.done.len(), rig.view.open.len()), (1, 0));
}

#[test]
fn words_that_join_a_waiting_prompt_are_not_answered_again() {
    let mut rig = Rig::new({
        let mut settings = settings();
        settings.turn_detection = detection(None, false);
        settings
    });
    rig.speak(800);
    rig.silence(700);
    rig.respond();
    rig.speak(800);
    rig.silence(700);
    assert_eq!(rig.world.generations.len(), 0, "two transcripts are missing");
    rig.words("both of them");
    assert_eq!(rig.prompt().len(), 3);
    rig.answer("Yes.");
    rig.silence(2_000);
    assert_eq!((rig.view.done.len(), rig.view.open.len()), (1, 0));
}

#[test]
fn a_change_of_detection_keeps_the_turn_under_way() {
    let mut rig = Rig::new(settings());
    rig.speak(800);
    let before = rig.take().iter().map(name).filter(|name| *name == "speech_started").count();
    rig.command(configure(detection(Some(9_000), true)));
    rig.speak(400);
    rig.silence(700);
    let events = rig.take();
    let after = events.iter().filter(|event| name(event) == "speech_started").count();
    assert_eq!((before, after), (1, 0));
    let (start, end) = committed_audio(&events)[0];
    assert!(start == 0 && end >= 16 * 1_200, "all of it was committed: {start}..{end}");
    rig.command(configure(TurnDetection::Manual));
    rig.speak(320);
    rig.command(CommandKind::CommitAudio);
    assert!(rig.names().contains(&"committed"));
}

#[test]
fn speech_under_the_agents_is_announced_when_it_may_no_longer_interrupt() {
    let mut rig = Rig::new(settings());
    rig.turn("count");
    rig.answer(LONG);
    rig.silence(320);
    rig.take();
    rig.hear(6, 0.95, -20.0);
    assert!(rig.names().is_empty(), "held back");
    rig.command(configure(detection(None, false)));
    assert!(rig.names().contains(&"speech_started"));
    rig.speak(500);
    rig.silence(700);
    rig.words("not a word is lost");
    assert_eq!(rig.prompt().last().map(|(_, text)| text.clone()), Some("not a word is lost".to_owned()));
}

#[test]
fn a_broken_recogniser_does_not_keep_the_caller_waiting() {
    let mut rig = Rig::new(settings());
    rig.speak(800);
    let stream = *rig.world.recognitions.keys().next().expect("a stream is open");
    rig.input(Input::Recognition(stream, RecognitionEvent::Failed { marker: None, message: "busy".into() }));
    rig.silence(700);
    assert!(rig.names().contains(&"transcript_failed"), "at once, not after the time limit");
}

#[test]
fn a_flush_that_failed_is_asked_again_at_the_end() {
    let mut rig = Rig::new(settings());
    rig.speak(800);
    rig.silence(200);
    let (stream, marker) =
        rig.world.recognitions.iter().map(|(s, m)| (*s, *m)).next().expect("a stream is open");
    let failed = RecognitionEvent::Failed { marker, message: "hiccup".into() };
    rig.input(Input::Recognition(stream, failed));
    rig.silence(500);
    assert_ne!(rig.world.recognitions[&stream], marker);
    rig.words("hello");
    assert_eq!(rig.view.open.len(), 1);
}

#[test]
fn audio_after_the_deciding_frame_belongs_to_the_next_turn() {
    let mut rig = Rig::new(settings());
    rig.speak(800);
    let begun = rig.heard;
    let frames = 40;
    let samples = (begun..begun + frames * 512).map(|at| at as f32).collect();
    rig.command(CommandKind::AppendAudio(samples));
    for frame in 1..=frames {
        // Silence that ends the first turn, then speech.
        let (voice, level_db) = if frame <= 18 { (0.0, -70.0) } else { (0.95, -20.0) };
        rig.input(Input::Frame { end: begun + frame * 512, voice, level_db });
    }
    rig.heard = begun + frames * 512;
    rig.silence(700);
    let audio = committed_audio(&rig.take());
    assert_eq!(audio[0].1, (begun + 16 * 512) as usize, "up to the frame that decided");
    assert_eq!(audio[1].0, audio[0].1, "the second turn's pre-roll is whole");
}

#[test]
fn the_far_end_knows_better_than_the_clock_what_was_heard() {
    let mut rig = Rig::new(settings());
    rig.turn("count");
    rig.answer(LONG);
    rig.silence(320);
    rig.speak(700);
    let item = rig.view.items.iter().max().expect("items are there").clone();
    rig.command(CommandKind::TruncateItem { item, content_index: 0, audio_end_ms: 1_000 });
    rig.silence(700);
    rig.words("stop");
    assert_eq!(said_last(&rig), "one two three four five six seven eight nine ten");
}

#[test]
fn a_second_answer_is_heard_after_the_first() {
    let mut rig = Rig::new(settings());
    rig.turn("count");
    rig.answer(LONG);
    rig.respond();
    rig.answer("alpha beta gamma delta epsilon");
    rig.silence(1_504);
    rig.speak(700);
    rig.silence(700);
    rig.words("stop");
    let said = said_last(&rig);
    assert!(said.starts_with("alpha") && !said.contains("epsilon"), "{said:?}");
}

#[test]
fn the_id_of_an_open_turn_is_taken() {
    let mut rig = Rig::new(settings());
    rig.speak(800);
    let id = rig.take().into_iter().find_map(|event| match event {
        Event::SpeechStarted { item, .. } => Some(item),
        _ => None,
    });
    rig.command(typed(id.expect("a turn began").as_str()));
    let Some(Event::Rejected(rejection)) = rig.take().pop() else { panic!("the id is in use") };
    assert_eq!(rejection.code, RejectionCode::DuplicateItem);
    // And an id that would come next is stepped over.
    rig.command(typed("item_t000002"));
    rig.command(typed("item_t000003"));
    rig.silence(700);
    rig.words("hello");
    rig.answer("Hi.");
    assert_eq!(rig.view.done.len(), 1);
}

#[test]
fn an_echo_until_the_agents_last_word_is_no_turn() {
    let mut rig = Rig::new(settings());
    rig.turn("count");
    rig.answer(LONG);
    rig.take();
    // 0.1 of full scale is -20 dB; it comes back 15 dB lower and sounds like a voice.
    rig.hear(50, 0.95, -35.0);
    assert!(rig.world.recognitions.is_empty(), "what was held back is given up");
    assert!(rig.names().is_empty());
    rig.silence(640);
    rig.turn("and now me");
    assert_eq!(rig.view.open.len(), 1);
}

#[test]
fn a_caller_who_begins_just_before_the_agent_ends_loses_no_word() {
    let mut rig = Rig::new(settings());
    rig.turn("count");
    rig.answer(LONG);
    // The echo comes back 15 dB lower, and the caller is no louder.
    rig.hear(41, 0.02, -35.0);
    rig.take();
    let began = rig.heard / 16;
    rig.hear(30, 0.95, -35.0);
    let at = rig.take().into_iter().find_map(|event| match event {
        Event::SpeechStarted { at_ms, .. } => Some(at_ms),
        _ => None,
    });
    assert_eq!(at, Some(began - 300), "from before the first word");
    rig.silence(700);
    rig.words("yes please");
    assert_eq!(rig.view.open.len(), 1);
}

#[test]
fn an_echo_does_not_stop_the_idle_timer() {
    let mut settings = settings();
    settings.turn_detection = detection(Some(5_000), true);
    let mut rig = Rig::new(settings);
    rig.turn("count");
    rig.answer(LONG);
    rig.hear(10, 0.02, -35.0);
    rig.hear(8, 0.95, -35.0);
    rig.silence(1_500);
    rig.take();
    rig.silence(6_000);
    assert!(rig.names().contains(&"idle_timeout"));
}

#[test]
fn an_answer_beside_does_not_wait_for_words_it_does_not_use() {
    let mut rig = Rig::new(settings());
    rig.command(typed("one"));
    rig.speak(800);
    rig.silence(700);
    let scope = ResponseScope::OutOfBand;
    let input = Some(vec![InputItem::Reference("one".into())]);
    rig.command(CommandKind::CreateResponse(ResponseParams { scope, input, ..ResponseParams::default() }));
    assert_eq!(rig.world.generations.len(), 1);
    // One that refers to the words waits for them.
    let item = rig.view.items.iter().find(|id| id.as_str() != "one").expect("the turn's item").clone();
    let input = Some(vec![InputItem::Reference(item)]);
    let scope = ResponseScope::OutOfBand;
    rig.command(CommandKind::CreateResponse(ResponseParams { scope, input, ..ResponseParams::default() }));
    assert_eq!(rig.world.generations.len(), 1);
    let stream = *rig.world.recognitions.keys().next().expect("a stream is open");
    let marker = rig.world.recognitions[&stream].expect("it was flushed");
    rig.input(Input::Recognition(stream, final_words(marker, "spoken words")));
    let heard = rig
        .world
        .generations
        .values()
        .filter(|request| request.messages.iter().any(|message| message.text.expose() == "spoken words"));
    assert_eq!(heard.count(), 2, "the answer to the turn, and the one beside");
}
