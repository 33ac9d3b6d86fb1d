//! One situation a test: what is said, in which order, and what is remembered.

use super::rig::{Rig, done, final_words, semantic, settings, text_event};
use voluble::error::Private;
use voluble::llm::{GenerationEvent, Role, ToolCall};
use voluble::session::command::{CommandKind, InputItem, PlayedTo, ResponseParams, ResponseScope};
use voluble::session::event::{CancelReason, EndReason, Event, RejectionCode, ResponseStatus};
use voluble::session::ids::{CallId, ItemId};
use voluble::session::item::{Item, ItemKind, ItemStatus, Part, Place};
use voluble::session::machine::Input;
use voluble::session::settings::{Modality, SessionKind, SettingsPatch, TurnDetection};
use voluble::stt::RecognitionEvent;
use voluble::tts::SynthesisEvent;

fn said(role: Role, text: &str) -> (Role, String) {
    (role, text.to_owned())
}

fn typed(id: &str, text: &str) -> CommandKind {
    let parts = vec![Part::InputText(Private::new(text.into()))];
    let kind = ItemKind::Message { role: Role::User, parts };
    CommandKind::CreateItem {
        item: Item { id: id.into(), status: ItemStatus::Completed, kind },
        place: Place::End,
    }
}

fn manual() -> Rig {
    let mut settings = settings();
    settings.turn_detection = TurnDetection::Manual;
    Rig::new(settings)
}

fn statuses(events: &[Event]) -> Vec<ResponseStatus> {
    let done = events.iter().filter_map(|event| match event {
        Event::ResponseDone(response) => Some(response.status.clone()),
        _ => None,
    });
    done.collect()
}

#[test]
fn a_voice_turn_comes_in_the_documented_order() {
    let mut rig = Rig::new(settings());
    rig.turn("What is the capital of France?");
    rig.answer("Paris it is.");
    let names: Vec<_> = rig.names().into_iter().filter(|name| *name != "audio").collect();
    assert_eq!(
        names,
        [
            "started",
            "speech_started",
            "speech_stopped",
            "committed",
            "item_added",
            "item_done",
            "transcript",
            "response_created",
            "output_added",
            "item_added",
            "part_added",
            "text",
            "audio_done",
            "text_done",
            "part_done",
            "item_done",
            "output_done",
            "response_done",
            "measured",
        ]
    );
    let prompt_before = rig.view.done.len();
    assert_eq!(prompt_before, 1);
}

#[test]
fn words_that_come_before_the_final_decision_are_used_at_once() {
    let mut rig = Rig::new(settings());
    rig.speak(800);
    rig.silence(300);
    rig.words("hello there");
    assert!(rig.world.generations.is_empty(), "nothing is released before the turn is final");
    rig.silence(400);
    assert_eq!(rig.prompt()[1], said(Role::User, "hello there"));
}

#[test]
fn words_before_a_retraction_are_not_used() {
    let mut rig = Rig::new(settings());
    rig.speak(800);
    rig.silence(300);
    rig.words("hello");
    rig.speak(500);
    rig.silence(700);
    assert!(rig.world.generations.is_empty(), "the old words cover only the beginning");
    rig.words("hello my friend");
    assert_eq!(rig.prompt()[1], said(Role::User, "hello my friend"));
}

#[test]
fn noise_gets_no_answer_and_the_caller_is_heard_afterwards() {
    let mut rig = Rig::new(settings());
    rig.turn("");
    assert!(rig.world.generations.is_empty());
    rig.turn("and now");
    assert_eq!(rig.view.open.len(), 1);
}

#[test]
fn a_late_transcript_starts_no_second_answer() {
    let mut rig = Rig::new(settings());
    rig.turn("hello");
    rig.answer("Hi.");
    for stream in rig.world.old_streams.clone() {
        rig.input(Input::Recognition(stream, final_words(1, "hello")));
        rig.input(Input::Recognition(stream, final_words(2, "hello again")));
    }
    assert_eq!((rig.view.done.len(), rig.view.open.len()), (1, 0));
}

#[test]
fn a_transcript_that_never_comes_ends_the_turn_and_the_next_one_is_heard() {
    let mut rig = Rig::new(settings());
    rig.speak(800);
    rig.silence(700);
    rig.pass(60_000);
    assert!(rig.names().contains(&"transcript_failed"));
    rig.silence(500);
    rig.turn("still there?");
    assert_eq!(rig.view.open.len(), 1);
}

#[test]
fn a_barge_in_cancels_closes_everything_and_keeps_only_what_was_heard() {
    let mut rig = Rig::new(settings());
    rig.turn("tell me a story");
    rig.write("once upon a time there was a king who lived far away");
    rig.written();
    let number = *rig.world.voices.keys().next().expect("a voice is open");
    let text = rig.world.voices[&number].0.clone();
    let mut from = 0;
    for (index, word) in text.split(' ').enumerate() {
        let (start, end) = (index as u64 * 7200, (index as u64 + 1) * 7200);
        rig.input(Input::Synthesis(number, SynthesisEvent::Word { from, to: from + word.len(), start, end }));
        from += word.len() + 1;
        rig.input(Input::Synthesis(number, SynthesisEvent::Audio { samples: vec![0.1; 7200] }));
    }
    rig.take();
    rig.silence(1_000);
    rig.speak(700);
    let events = rig.take();
    assert_eq!(statuses(&events), [ResponseStatus::Cancelled(CancelReason::TurnDetected)]);
    let names: Vec<_> = events.iter().map(super::rig::name).collect();
    let at = |name: &str| {
        names.iter().position(|other| *other == name).unwrap_or_else(|| panic!("{name}: {names:?}"))
    };
    assert!(at("speech_started") < at("output_cleared") && at("output_cleared") < at("response_done"));
    assert!(rig.world.voices.is_empty() && rig.world.generations.is_empty());
    rig.silence(700);
    rig.words("stop");
    let prompt = rig.prompt();
    let (_, heard) = prompt.iter().find(|(role, _)| *role == Role::Assistant).expect("something was heard");
    assert!(text.starts_with(heard.as_str()) && heard.len() < text.len() / 2 && heard.len() > 5, "{heard:?}");
    assert_eq!(prompt.last(), Some(&said(Role::User, "stop")));
}

#[test]
fn playback_after_the_response_is_done_can_still_be_interrupted() {
    let mut rig = Rig::new(settings());
    rig.turn("count");
    rig.answer("one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen");
    assert_eq!(rig.view.open.len(), 0);
    rig.take();
    rig.silence(320);
    rig.speak(700);
    let names = rig.names();
    assert!(names.contains(&"output_cleared") && names.contains(&"speech_started"), "{names:?}");
    rig.silence(700);
    rig.words("enough");
    let (_, heard) = rig.prompt()[2].clone();
    assert!(heard.starts_with("one two") && heard.split(' ').count() < 12, "{heard}");
}

#[test]
fn a_listeners_sign_does_not_take_the_floor() {
    let mut rig = Rig::new(settings());
    rig.turn("count");
    rig.answer("one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen");
    rig.take();
    rig.silence(320);
    rig.hear(6, 0.95, -20.0);
    rig.silence(700);
    let names = rig.names();
    assert!(!names.contains(&"speech_started") && !names.contains(&"output_cleared"), "{names:?}");
}

#[test]
fn the_agents_own_echo_does_not_interrupt_it() {
    let mut rig = Rig::new(settings());
    rig.turn("count");
    rig.answer("one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen");
    rig.take();
    // 0.1 full scale is -20 dB; the echo comes back at -35 dB and sounds like a voice.
    rig.hear(40, 0.95, -35.0);
    let names = rig.names();
    assert!(!names.contains(&"output_cleared"), "{names:?}");
}

#[test]
fn an_answer_that_was_not_heard_is_given_again_when_the_interruption_was_nothing() {
    let mut rig = Rig::new(settings());
    rig.turn("what is the time");
    assert_eq!(rig.view.open.len(), 1);
    rig.turn("");
    assert_eq!(rig.prompt().last(), Some(&said(Role::User, "what is the time")));
    assert_eq!((rig.view.open.len(), rig.view.done.len()), (1, 1));
}

#[test]
fn two_pieces_of_speech_before_an_answer_get_one_answer() {
    let mut rig = Rig::new(settings());
    rig.turn("my name is Ann");
    rig.turn("what is my name");
    assert_eq!(rig.view.open.len(), 1);
    let users: Vec<_> = rig.prompt().into_iter().filter(|(role, _)| *role == Role::User).collect();
    assert_eq!(users, [said(Role::User, "my name is Ann"), said(Role::User, "what is my name")]);
}

#[test]
fn a_client_truncates_to_the_word() {
    let mut rig = Rig::new(settings());
    rig.turn("count");
    rig.answer("one two three four five six");
    let item = rig.view.items.iter().max().expect("items are there").clone();
    rig.command(CommandKind::TruncateItem { item: item.clone(), content_index: 0, audio_end_ms: 290 });
    assert!(rig.names().contains(&"item_truncated"));
    rig.command(CommandKind::TruncateItem { item, content_index: 0, audio_end_ms: 99_999 });
    let truncated = rig.take().into_iter().find_map(|event| match event {
        Event::ItemTruncated { audio_end_ms, .. } => Some(audio_end_ms),
        _ => None,
    });
    assert_eq!(truncated, Some(600), "more than there is, is all there is");
    rig.respond();
    assert_eq!(rig.prompt()[2], said(Role::Assistant, "one two three"));
}

#[test]
fn a_report_of_playback_counts_more_than_the_clock() {
    let mut rig = Rig::new(settings());
    rig.turn("count");
    rig.answer("one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen");
    let id = rig.view.done.keys().next().expect("a response").clone();
    rig.silence(320);
    rig.command(CommandKind::Played(id, PlayedTo { ms: 200 }));
    rig.speak(700);
    rig.silence(700);
    rig.words("stop");
    assert_eq!(rig.prompt()[2], said(Role::Assistant, "one two"));
}

#[test]
fn by_hand_the_client_commits_and_asks() {
    let mut rig = manual();
    rig.speak(640);
    assert!(rig.world.recognitions.is_empty());
    rig.command(CommandKind::CommitAudio);
    rig.respond();
    assert!(rig.world.generations.is_empty(), "the answer waits for the words");
    rig.words("hello");
    assert_eq!(rig.prompt()[1], said(Role::User, "hello"));
    rig.command(CommandKind::CommitAudio);
    let codes: Vec<_> = rig
        .take()
        .into_iter()
        .filter_map(|event| match event {
            Event::Rejected(rejection) => Some((rejection.code, rejection.tag)),
            _ => None,
        })
        .collect();
    assert_eq!(codes, [(RejectionCode::CommitEmpty, Some("tag".to_owned()))]);
}

#[test]
fn a_typed_turn_is_answered_in_text() {
    let mut rig = manual();
    rig.command(CommandKind::Configure(SettingsPatch {
        modality: Some(Modality::Text),
        ..SettingsPatch::default()
    }));
    rig.command(typed("mine", "hi"));
    rig.respond();
    rig.write("Hello.");
    rig.written();
    let names = rig.names();
    assert!(
        names.ends_with(&[
            "text",
            "text_done",
            "part_done",
            "item_done",
            "output_done",
            "response_done",
            "measured"
        ]),
        "{names:?}"
    );
    assert!(!names.contains(&"audio_done"));
    rig.command(typed("mine", "again"));
    assert_eq!(rig.names(), ["rejected"], "an id is given once");
}

#[test]
fn a_function_is_called_and_its_result_joins_the_prompt() {
    let mut rig = manual();
    rig.command(typed("", "what is the weather"));
    rig.respond();
    let number = rig.generation();
    let call =
        ToolCall { id: "call_1".into(), name: "weather".into(), arguments: r#"{"city":"Bonn"}"#.into() };
    rig.input(Input::Generation(number, GenerationEvent::ToolCall(call)));
    rig.input(Input::Generation(number, done()));
    let names = rig.names();
    assert!(
        names.ends_with(&[
            "output_added",
            "item_added",
            "arguments",
            "arguments_done",
            "item_done",
            "output_done",
            "response_done",
            "measured"
        ]),
        "{names:?}"
    );
    let kind = ItemKind::FunctionCallOutput {
        call_id: CallId::from("call_1"),
        output: Private::new("sunny".into()),
    };
    let item = Item { id: "".into(), status: ItemStatus::Completed, kind };
    rig.command(CommandKind::CreateItem { item, place: Place::End });
    rig.respond();
    let roles: Vec<_> = rig.prompt().into_iter().map(|(role, _)| role).collect();
    assert_eq!(roles, [Role::System, Role::User, Role::Assistant, Role::Tool]);
}

#[test]
fn out_of_band_answers_run_beside_and_leave_no_trace() {
    let mut rig = manual();
    rig.command(typed("one", "hi"));
    rig.respond();
    rig.take();
    let params = ResponseParams {
        scope: ResponseScope::OutOfBand,
        input: Some(vec![InputItem::Reference(ItemId::from("one"))]),
        metadata: Some(serde_json::json!({"topic": "mood"})),
        overrides: SettingsPatch { modality: Some(Modality::Text), ..SettingsPatch::default() },
    };
    rig.command(CommandKind::CreateResponse(params.clone()));
    rig.write("friendly");
    rig.written();
    let events = rig.take();
    assert!(!events.iter().any(|event| matches!(event, Event::ItemAdded { .. } | Event::ItemDone { .. })));
    let Some(Event::ResponseDone(response)) = events.last() else { panic!("{events:?}") };
    assert_eq!(response.conversation, None);
    assert_eq!(response.metadata, params.metadata);
    assert_eq!(response.output.len(), 1);
    let missing = ResponseParams { input: Some(vec![InputItem::Reference("x".into())]), ..params };
    rig.command(CommandKind::CreateResponse(missing));
    assert_eq!(rig.names(), ["rejected"]);
}

#[test]
fn only_one_answer_in_the_conversation_at_a_time() {
    let mut rig = manual();
    rig.command(typed("", "hi"));
    rig.respond();
    rig.take();
    rig.respond();
    let Some(Event::Rejected(rejection)) = rig.take().pop() else { panic!("refused") };
    assert_eq!(rejection.code, RejectionCode::ActiveResponse);
    rig.command(CommandKind::CancelResponse(None));
    rig.command(CommandKind::CancelResponse(None));
    let Some(Event::Rejected(rejection)) = rig.take().pop() else { panic!("nothing to cancel") };
    assert_eq!(rejection.code, RejectionCode::ResponseCancelNotActive);
}

#[test]
fn an_answer_keeps_the_settings_it_started_with() {
    let mut rig = manual();
    rig.command(typed("", "hi"));
    rig.respond();
    let modality = Some(Modality::Text);
    rig.command(CommandKind::Configure(SettingsPatch { modality, ..SettingsPatch::default() }));
    rig.answer("Hello.");
    assert!(rig.names().contains(&"audio_done"));
}

#[test]
fn the_voice_is_locked_once_it_was_heard() {
    let mut rig = manual();
    let other =
        || CommandKind::Configure(SettingsPatch { voice: Some("x".into()), ..SettingsPatch::default() });
    rig.command(other());
    assert_eq!(rig.names().last(), Some(&"configured"));
    rig.command(typed("", "hi"));
    rig.respond();
    rig.answer("Hello.");
    rig.take();
    let voice = Some("y".into());
    rig.command(CommandKind::Configure(SettingsPatch { voice, ..SettingsPatch::default() }));
    assert_eq!(rig.names(), ["rejected"]);
}

#[test]
fn silence_for_too_long_makes_the_agent_speak_up() {
    let mut settings = settings();
    if let TurnDetection::Silence { idle_timeout_ms, .. } = &mut settings.turn_detection {
        *idle_timeout_ms = Some(5_000);
    }
    let mut rig = Rig::new(settings);
    rig.turn("hello");
    rig.answer("Hi.");
    rig.take();
    rig.silence(4_000);
    assert!(!rig.names().contains(&"idle_timeout"));
    rig.silence(2_000);
    let names = rig.names();
    let order = ["idle_timeout", "committed", "item_added", "item_done", "response_created"];
    let found: Vec<_> = names.iter().filter(|name| order.contains(name)).copied().collect();
    assert_eq!(found, order);
}

#[test]
fn a_transcription_session_only_transcribes() {
    let mut settings = settings();
    settings.kind = SessionKind::Transcription;
    let mut rig = Rig::new(settings);
    rig.turn("hello");
    assert!(rig.names().contains(&"transcript"));
    assert!(rig.view.open.is_empty());
    rig.respond();
    assert_eq!(rig.names(), ["rejected"]);
}

#[test]
fn a_prompt_that_is_too_long_is_shortened_and_only_then_fails() {
    let mut rig = manual();
    rig.command(typed("", &"word ".repeat(2_000)));
    rig.respond();
    let number = rig.generation();
    for _ in 0..4 {
        rig.input(Input::GenerationRefused { response: number, message: "too long".into(), too_long: true });
        assert_eq!(rig.view.open.len(), 1);
    }
    rig.input(Input::GenerationRefused { response: number, message: "too long".into(), too_long: true });
    let events = rig.take();
    assert!(matches!(
        statuses(&events)[..],
        [ResponseStatus::Failed { code: "context_length_exceeded", .. }]
    ));
}

#[test]
fn a_broken_voice_fails_the_answer_and_the_next_turn_works() {
    let mut rig = Rig::new(settings());
    rig.turn("hello");
    rig.write("Hi");
    let number = rig.generation();
    rig.input(Input::Synthesis(number, SynthesisEvent::Failed { message: "no voice".into() }));
    let events = rig.take();
    assert!(
        matches!(&statuses(&events)[..], [ResponseStatus::Failed { message, .. }] if message == "no voice")
    );
    rig.turn("again");
    assert_eq!(rig.view.open.len(), 1);
}

#[test]
fn a_recogniser_that_cannot_be_opened_ends_the_turn_honestly() {
    let mut rig = Rig::new(settings());
    rig.speak(800);
    let stream = *rig.world.recognitions.keys().next().expect("a stream is open");
    rig.input(Input::Recognition(stream, RecognitionEvent::Failed { marker: None, message: "busy".into() }));
    rig.silence(700);
    assert!(rig.names().contains(&"transcript_failed"));
}

#[test]
fn a_complete_sounding_turn_ends_sooner_than_an_open_one() {
    let ends_after = |probability: f32| {
        let mut settings = settings();
        settings.turn_detection = semantic();
        let mut rig = Rig::new(settings);
        rig.speak(800);
        for frames in 1..200 {
            rig.silence(32);
            for asked in std::mem::take(&mut rig.world.completions) {
                rig.input(Input::Completion { asked, probability });
            }
            if rig.names().contains(&"speech_stopped") {
                return frames;
            }
        }
        panic!("the turn never ended");
    };
    assert!(ends_after(0.95) * 32 < 400);
    assert!(ends_after(0.05) > ends_after(0.95) * 2);
}

#[test]
fn deleting_and_retrieving() {
    let mut rig = manual();
    rig.command(typed("a", "hi"));
    rig.command(CommandKind::RetrieveItem("a".into()));
    rig.command(CommandKind::DeleteItem("a".into()));
    rig.command(CommandKind::RetrieveItem("a".into()));
    assert!(rig.names().ends_with(&["item_retrieved", "item_deleted", "rejected"]));
    rig.respond();
    rig.write("Hm");
    let open = rig.view.items.iter().next().expect("the answer is an item").clone();
    rig.take();
    rig.command(CommandKind::DeleteItem(open));
    assert_eq!(rig.names(), ["rejected"], "what is being written cannot be deleted");
}

#[test]
fn draining_lets_the_answer_end_and_starts_none() {
    let mut rig = Rig::new(settings());
    rig.turn("hello");
    rig.write("Hi.");
    rig.input(Input::Drain);
    assert!(!rig.view.ended);
    rig.written();
    rig.voice();
    assert!(matches!(rig.take().last(), Some(Event::Ended { reason: EndReason::Draining })));
    let mut idle = Rig::new(settings());
    idle.input(Input::Drain);
    assert!(idle.view.ended);
}

#[test]
fn too_much_audio_by_hand_is_refused_and_nothing_is_lost() {
    let mut rig = manual();
    // Each sample names its position, so that the rig sees what is lost.
    rig.command(CommandKind::AppendAudio((0..16_000 * 60).map(|at| at as f32).collect()));
    rig.command(CommandKind::AppendAudio(vec![0.0; 16_000]));
    assert_eq!(rig.names().last(), Some(&"rejected"));
    rig.command(CommandKind::CommitAudio);
    let audio = rig.take().into_iter().find_map(|event| match event {
        Event::ItemAdded { item: Item { kind: ItemKind::Message { parts, .. }, .. }, .. } => {
            match &parts[0] {
                Part::InputAudio { audio, .. } => Some(audio.len()),
                _ => None,
            }
        }
        _ => None,
    });
    assert_eq!(audio, Some(16_000 * 60));
}

#[test]
fn text_after_a_truncation_stays_unheard() {
    let mut rig = Rig::new(settings());
    rig.turn("count");
    rig.write("one two three");
    rig.voice();
    let item = rig.view.items.iter().max().expect("items are there").clone();
    rig.command(CommandKind::TruncateItem { item, content_index: 0, audio_end_ms: 190 });
    let number = rig.generation();
    rig.input(Input::Generation(number, text_event(" four five")));
    rig.written();
    rig.input(Input::Synthesis(number, SynthesisEvent::Done));
    rig.respond();
    assert_eq!(rig.prompt()[2], said(Role::Assistant, "one two"));
}
