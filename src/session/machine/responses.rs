//! The agent's side: from the prompt to the last sample.

use std::time::Duration;

use super::hearing::{TurnClock, ms};
use super::{Effect, Event, Machine, ResponseNumber, Timer};
use crate::audio::SPEAKING_RATE;
use crate::error::Private;
use crate::llm::{
    FinishReason, GenerationEvent, GenerationRequest, GenerationUsage, Message, Role, SamplingParams,
    ToolCall,
};
use crate::session::command::{InputItem, ResponseParams, ResponseScope, Tag};
use crate::session::event::{self, At, CancelReason, RejectionCode, ResponseStatus, Timeline, Usage};
use crate::session::history::{self, Span, Spoken};
use crate::session::ids::{CallId, ItemId, ResponseId};
use crate::session::item::{Item, ItemKind, ItemStatus, Part, Place};
use crate::session::playback::{self, AUDIBLE, Playback};
use crate::session::settings::{BadSetting, Modality, SessionKind, Settings, SettingsLimits};
use crate::tts::{SynthesisEvent, VoiceOptions};

/// Said to the model in place of words when nobody has spoken for the idle timeout.
const SPEAK_UP: &str =
    "The caller has been silent for a while. Ask in a few words whether they are still there.";
/// Times that a prompt is halved because the model cannot read it whole.
const SHORTER: u32 = 4;

/// How far a response is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Words of the prompt are still being recognised.
    Waiting,
    /// The model writes; the voice may already speak.
    Writing,
    /// The model has ended, the voice speaks.
    Speaking,
    /// `ResponseDone` was said.
    Over,
}

/// A response, until its sound has been played.
pub(super) struct Response {
    pub(super) number: ResponseNumber,
    id: ResponseId,
    scope: ResponseScope,
    pub(super) stage: Stage,
    /// As they were when it started.
    settings: Settings,
    metadata: Option<serde_json::Value>,
    /// The prompt, where it is not the history.
    input: Option<Vec<Item>>,
    /// Added to the prompt, not to the history.
    hint: Option<&'static str>,
    /// Items that are done.
    output: Vec<Item>,
    message: Option<OpenMessage>,
    /// The newest item that was spoken.
    spoken_item: Option<ItemId>,
    next_index: u32,
    finish: Option<FinishReason>,
    usage: Option<GenerationUsage>,
    playback: Playback,
    clock: TurnClock,
    timeline: Timeline,
    measured: bool,
    shorter: u32,
}

/// The message that is being written.
struct OpenMessage {
    at: At,
    spoken: Spoken,
}

impl Response {
    pub(super) fn generating(&self) -> bool {
        self.stage == Stage::Writing
    }

    pub(super) fn speaking(&self) -> bool {
        matches!(self.stage, Stage::Writing | Stage::Speaking) && self.settings.modality == Modality::Audio
    }

    fn in_conversation(&self) -> bool {
        self.scope == ResponseScope::Conversation
    }
}

impl Machine {
    /// The conversation's response that is not over.
    pub(super) fn active(&self) -> Option<ResponseNumber> {
        let active = self
            .responses
            .iter()
            .find(|response| response.in_conversation() && response.stage != Stage::Over);
        active.map(|response| response.number)
    }

    /// The client asks for a response.
    pub(super) fn create_response(&mut self, now: Duration, tag: Tag, params: ResponseParams) {
        let refusal = |code, message: &str| Some((code, message.to_owned(), None));
        let conversation = params.scope == ResponseScope::Conversation;
        let out_of_band =
            self.responses.iter().filter(|r| !r.in_conversation() && r.stage != Stage::Over).count();
        let refused = if self.settings.kind == SessionKind::Transcription {
            refusal(RejectionCode::InvalidValue, "a transcription session makes no responses")
        } else if self.draining {
            refusal(RejectionCode::Capacity, "the server is shutting down")
        } else if conversation && self.active().is_some() {
            let id = self
                .active()
                .and_then(|number| self.response(number))
                .map(|response| response.id.to_string());
            let message = format!(
                "Conversation already has an active response in progress: {}. Wait until the response is finished \
                 before creating a new one.",
                id.unwrap_or_default()
            );
            Some((RejectionCode::ActiveResponse, message, None))
        } else if !conversation && out_of_band >= self.limits.max_out_of_band {
            let message =
                format!("at most {} responses outside the conversation at once", self.limits.max_out_of_band);
            Some((RejectionCode::Capacity, message, None))
        } else {
            None
        };
        if let Some((code, message, param)) = refused {
            return self.reject(tag, code, message, param);
        }
        let limits =
            SettingsLimits { instructions: self.limits.max_instructions_chars, tools: self.limits.max_tools };
        let settings = match self.settings.patched(&params.overrides, limits) {
            Ok(settings) => settings,
            Err(BadSetting { param, message }) => {
                let param = param.replacen("session.", "response.", 1);
                return self.reject(tag, RejectionCode::InvalidValue, message, Some(&param));
            }
        };
        let input = match params.input.map(|input| self.resolve(input)).transpose() {
            Ok(input) => input,
            Err(id) => {
                let message = format!("there is no item '{id}' in the conversation");
                return self.reject(tag, RejectionCode::ItemNotFound, message, Some("response.input"));
            }
        };
        if conversation {
            self.unanswered = false;
            if input.is_none() {
                self.hearing.taken_up();
            }
        }
        let clock = self.hearing_clock.take().unwrap_or_else(|| TurnClock::typed(now));
        self.begin(
            now,
            Begin { scope: params.scope, settings, input, hint: None, metadata: params.metadata, clock },
        );
    }

    fn resolve(&self, input: Vec<InputItem>) -> Result<Vec<Item>, ItemId> {
        input
            .into_iter()
            .map(|item| match item {
                InputItem::Item(item) => Ok(item),
                InputItem::Reference(id) => self.history.get(&id).cloned().ok_or(id),
            })
            .collect()
    }

    /// Answers what the caller said.
    pub(super) fn answer(&mut self, now: Duration, clock: TurnClock) {
        self.unanswered = false;
        let settings = self.settings.clone();
        let scope = ResponseScope::Conversation;
        self.begin(now, Begin { scope, settings, input: None, hint: None, metadata: None, clock });
    }

    /// Speaks without having been spoken to.
    pub(super) fn speak_up(&mut self, now: Duration) {
        let settings = self.settings.clone();
        let (scope, clock) = (ResponseScope::Conversation, TurnClock::typed(now));
        self.begin(now, Begin { scope, settings, input: None, hint: Some(SPEAK_UP), metadata: None, clock });
    }

    fn begin(&mut self, now: Duration, begin: Begin) {
        self.effect(Effect::ClearTimer(Timer::Idle));
        // What was played to its end is of no more interest; what is still playing is kept for the heard position.
        self.responses.retain(|response| response.stage != Stage::Over || response.playback.is_playing(now));
        let number = self.next_response;
        self.next_response += 1;
        let id = self.new_response_id();
        self.responses.push(Response {
            number,
            id,
            scope: begin.scope,
            stage: Stage::Waiting,
            settings: begin.settings,
            metadata: begin.metadata,
            input: begin.input,
            hint: begin.hint,
            output: Vec::new(),
            message: None,
            spoken_item: None,
            next_index: 0,
            finish: None,
            usage: None,
            playback: Playback::default(),
            timeline: begin.clock.timeline(),
            clock: begin.clock,
            measured: false,
            shorter: 0,
        });
        let created = self.snapshot(number, ResponseStatus::InProgress);
        self.emit(Event::ResponseCreated(created));
        self.generate_waiting();
    }

    /// Starts the responses whose prompts are complete now.
    pub(super) fn generate_waiting(&mut self) {
        let ready = |response: &&Response| match &response.input {
            Some(items) => !items.iter().any(|item| self.unheard.contains(&item.id)),
            None => self.unheard.is_empty(),
        };
        let waiting = self.responses.iter().filter(|response| response.stage == Stage::Waiting);
        let ready: Vec<_> = waiting.filter(ready).map(|response| response.number).collect();
        for number in ready {
            self.generate(number);
        }
    }

    fn generate(&mut self, number: ResponseNumber) {
        let Some(index) = self.responses.iter().position(|response| response.number == number) else {
            return;
        };
        let limit = self.limits.max_prompt_chars >> self.responses[index].shorter;
        let response = &mut self.responses[index];
        response.stage = Stage::Writing;
        if response.in_conversation() && response.input.is_none() {
            // All that was said is in its prompt.
            self.unanswered = false;
        }
        // What was recognised since the response was asked for.
        for item in response.input.iter_mut().flatten() {
            if let Some(newer) = self.history.get(&item.id) {
                item.clone_from(newer);
            }
        }
        let instructions = &response.settings.instructions;
        let mut messages = match &response.input {
            Some(items) => history::prompt(items.iter(), instructions, limit),
            None => self.history.prompt(instructions, limit),
        };
        if let Some(hint) = response.hint {
            messages.push(Message::text(Role::System, hint));
        }
        let request = GenerationRequest {
            // A prompt of its own would push the conversation's out of the cache.
            cache_key: (response.in_conversation() && response.input.is_none()).then_some(self.cache_key),
            messages,
            tools: response.settings.tools.clone(),
            tool_choice: response.settings.tool_choice.clone(),
            params: SamplingParams {
                max_tokens: response.settings.max_output_tokens,
                temperature: response.settings.temperature,
                ..SamplingParams::default()
            },
        };
        self.effect(Effect::Generate(number, Box::new(request)));
    }

    /// The generation could not be started.
    pub(super) fn refused(&mut self, now: Duration, number: ResponseNumber, message: String, too_long: bool) {
        let Some(response) = self.response_mut(number) else { return };
        if too_long && response.shorter < SHORTER {
            response.shorter += 1;
            return self.generate(number);
        }
        let code = if too_long { "context_length_exceeded" } else { "server_error" };
        self.finish(now, number, ResponseStatus::Failed { code, message });
    }

    pub(super) fn generation(&mut self, now: Duration, number: ResponseNumber, event: GenerationEvent) {
        match event {
            GenerationEvent::Prefilled => {
                if let Some(response) = self.response_mut(number) {
                    let at = response.since(now);
                    response.timeline.prefill_ms.get_or_insert(at);
                }
            }
            GenerationEvent::Text { delta, tokens } => self.text(now, number, delta, tokens),
            GenerationEvent::ToolCall(call) => self.tool_call(number, call),
            GenerationEvent::Done { reason, usage } => self.written(now, number, reason, usage),
            GenerationEvent::Failed { message } => {
                self.finish(now, number, ResponseStatus::Failed { code: "server_error", message });
            }
        }
    }

    fn text(&mut self, now: Duration, number: ResponseNumber, delta: Private<String>, tokens: u32) {
        let Some(response) = self.response_mut(number) else { return };
        let at = response.since(now);
        response.timeline.first_block_ms.get_or_insert(at);
        if delta.expose().is_empty() {
            return;
        }
        if response.message.is_none() {
            self.open_message(number);
        }
        let Some(response) = self.response_mut(number) else { return };
        let modality = response.settings.modality;
        let Some(message) = &mut response.message else { return };
        message.spoken.text.push_str(delta.expose());
        let at = message.at.clone();
        self.emit(Event::TextDelta { at, modality, delta: delta.clone(), tokens });
        if modality == Modality::Audio {
            self.effect(Effect::Speak(number, delta.into_inner()));
        }
    }

    fn open_message(&mut self, number: ResponseNumber) {
        let id = self.new_item_id();
        let Some(response) = self.response_mut(number) else { return };
        let output_index = response.next_index;
        response.next_index += 1;
        let at = At { response: response.id.clone(), item: id.clone(), output_index, content_index: 0 };
        response.message = Some(OpenMessage { at: at.clone(), spoken: Spoken::default() });
        let (modality, conversation) = (response.settings.modality, response.in_conversation());
        let voice = VoiceOptions { voice: response.settings.voice.clone(), speed: response.settings.speed };
        if modality == Modality::Audio {
            response.spoken_item = Some(id.clone());
            self.effect(Effect::OpenSynthesis(number, voice));
        }
        let item = Item {
            id,
            status: ItemStatus::InProgress,
            kind: ItemKind::Message { role: Role::Assistant, parts: Vec::new() },
        };
        self.add_output(at.response.clone(), output_index, &item, conversation);
        if conversation && let Some(kept) = self.history.get_mut(&item.id) {
            kept.kind = message_kind(modality, String::new());
        }
        self.emit(Event::PartAdded { at, modality });
    }

    fn add_output(&mut self, response: ResponseId, output_index: u32, item: &Item, conversation: bool) {
        self.emit(Event::OutputItemAdded { response, output_index, item: item.clone() });
        if conversation {
            self.make_room();
            let previous =
                self.history.add(item.clone(), &Place::End).unwrap_or_else(|_| self.history.last());
            self.emit(Event::ItemAdded { item: item.clone(), previous });
        }
    }

    fn end_output(&mut self, number: ResponseNumber, output_index: u32, item: Item) {
        let Some(response) = self.response_mut(number) else { return };
        let (id, conversation) = (response.id.clone(), response.in_conversation());
        response.output.push(item.clone());
        if conversation {
            let previous = self.history.previous(&item.id);
            self.emit(Event::ItemDone { item: item.clone(), previous });
        }
        self.emit(Event::OutputItemDone { response: id, output_index, item });
    }

    fn tool_call(&mut self, number: ResponseNumber, call: ToolCall) {
        let id = self.new_item_id();
        let call_id = if call.id.is_empty() { self.new_call_id() } else { CallId(call.id) };
        let Some(response) = self.response_mut(number) else { return };
        let output_index = response.next_index;
        response.next_index += 1;
        let (response_id, conversation) = (response.id.clone(), response.in_conversation());
        let at = At { response: response_id.clone(), item: id.clone(), output_index, content_index: 0 };
        let item = |status, arguments: String| Item {
            id: id.clone(),
            status,
            kind: ItemKind::FunctionCall { name: call.name.clone(), call_id: call_id.clone(), arguments },
        };
        self.add_output(
            response_id,
            output_index,
            &item(ItemStatus::InProgress, String::new()),
            conversation,
        );
        self.emit(Event::ArgumentsDelta {
            at: at.clone(),
            call: call_id.clone(),
            delta: call.arguments.clone(),
        });
        self.emit(Event::ArgumentsDone {
            at,
            call: call_id.clone(),
            name: call.name.clone(),
            arguments: call.arguments.clone(),
        });
        let done = item(ItemStatus::Completed, call.arguments.clone());
        if let Some(kept) = self.history.get_mut(&id) {
            *kept = done.clone();
        }
        self.end_output(number, output_index, done);
    }

    /// The model has ended; the voice may go on.
    fn written(
        &mut self,
        now: Duration,
        number: ResponseNumber,
        reason: FinishReason,
        usage: GenerationUsage,
    ) {
        let Some(response) = self.response_mut(number) else { return };
        response.finish = Some(reason);
        response.usage = Some(usage);
        response.timeline.prompt_tokens = usage.prompt_tokens;
        response.timeline.cached_tokens = usage.cached_tokens;
        response.timeline.tokens = usage.completion_tokens;
        response.timeline.passes = usage.passes;
        if response.message.is_some() && response.settings.modality == Modality::Audio {
            response.stage = Stage::Speaking;
            self.effect(Effect::FinishSpeech(number));
        } else {
            let status = status_of(reason);
            self.finish(now, number, status);
        }
    }

    pub(super) fn synthesis(&mut self, now: Duration, number: ResponseNumber, event: SynthesisEvent) {
        match event {
            SynthesisEvent::Clause { .. } => {
                if let Some(response) = self.response_mut(number) {
                    let at = response.since(now);
                    response.timeline.first_clause_ms.get_or_insert(at);
                }
            }
            SynthesisEvent::Word { to, start, end, .. } => {
                if let Some(message) =
                    self.response_mut(number).and_then(|response| response.message.as_mut())
                {
                    message.spoken.spans.push(Span { to, start, end });
                }
            }
            SynthesisEvent::Audio { samples } => self.audio(now, number, samples),
            SynthesisEvent::Done => {
                let reason = self.response(number).and_then(|response| response.finish);
                // Without the model's end this is the voice's own mistake; the text that follows would be lost.
                let status = reason.map_or_else(
                    || ResponseStatus::Failed {
                        code: "server_error",
                        message: "the voice ended before the text".to_owned(),
                    },
                    status_of,
                );
                self.finish(now, number, status);
            }
            SynthesisEvent::Failed { message } => {
                self.finish(now, number, ResponseStatus::Failed { code: "server_error", message });
            }
        }
    }

    fn audio(&mut self, now: Duration, number: ResponseNumber, samples: Vec<f32>) {
        // The far end plays one after the other: an answer begins when the one before has ended.
        let busy = self.response(number).filter(|r| r.in_conversation()).map(|_| self.playing_until());
        let Some(response) = self.response_mut(number) else { return };
        let at = response.since(now);
        let first = response.timeline.first_audio_ms.is_none();
        let from = now.max(busy.unwrap_or_default());
        response.timeline.first_audio_ms.get_or_insert(at);
        if response.timeline.first_audible_ms.is_none()
            && let Some(offset) = samples.iter().position(|sample| sample.abs() > AUDIBLE)
        {
            let wait = playback::length(offset as u64) + from.saturating_sub(now);
            response.timeline.first_audible_ms = Some(at + ms(wait));
        }
        response.playback.push(from, &samples);
        let (until, conversation) = (response.playback.until(), response.in_conversation());
        let Some(message) = &mut response.message else { return };
        message.spoken.samples += samples.len() as u64;
        let at = message.at.clone();
        self.emit(Event::AudioDelta { at, samples });
        self.voice_used = true;
        if conversation {
            if first {
                self.agent_started();
            }
            self.effect(Effect::SetTimer(Timer::Played, until));
        }
    }

    /// Closes whatever is open and says the one last word of a response.
    fn finish(&mut self, now: Duration, number: ResponseNumber, status: ResponseStatus) {
        let whole = matches!(status, ResponseStatus::Completed | ResponseStatus::Incomplete);
        let Some(response) = self.response(number) else { return };
        let id = response.id.clone();
        self.effect(if whole { Effect::Close(number) } else { Effect::Stop(number, id) });
        let Some(response) = self.response_mut(number) else { return };
        response.stage = Stage::Over;
        if let Some(OpenMessage { at, mut spoken }) = response.message.take() {
            let (modality, conversation) = (response.settings.modality, response.in_conversation());
            let text = Private::new(spoken.text.clone());
            if modality == Modality::Audio {
                if !whole {
                    let (samples, source) = response.playback.heard(now);
                    spoken.cut(samples, source);
                }
                self.emit(Event::AudioDone { at: at.clone() });
            }
            self.emit(Event::TextDone { at: at.clone(), modality, text: text.clone() });
            self.emit(Event::PartDone { at: at.clone(), modality, text });
            let status = if status == ResponseStatus::Completed {
                ItemStatus::Completed
            } else {
                ItemStatus::Incomplete
            };
            let item =
                Item { id: at.item.clone(), status, kind: message_kind(modality, spoken.text.clone()) };
            if conversation {
                if let Some(kept) = self.history.get_mut(&at.item) {
                    *kept = item.clone();
                }
                if modality == Modality::Audio {
                    self.keep_spoken(&at.item, spoken);
                }
            }
            self.end_output(number, at.output_index, item);
        }
        let done = self.snapshot(number, status);
        self.emit(Event::ResponseDone(done));
        self.measure(number);
        if self.response(number).is_some_and(Response::in_conversation) {
            self.answer_if_due(now);
        }
        self.end_if_drained();
    }

    /// A spoken item is whole: a truncation that came while it was written still holds.
    fn keep_spoken(&mut self, id: &ItemId, mut spoken: Spoken) {
        if let Some((samples, source)) = self.history.spoken(id).and_then(|earlier| earlier.heard) {
            spoken.cut(samples, source);
        }
        self.history.set_spoken(id, spoken);
    }

    fn measure(&mut self, number: ResponseNumber) {
        let Some(response) = self.response_mut(number) else { return };
        if std::mem::replace(&mut response.measured, true) || !response.in_conversation() {
            return;
        }
        let (id, timeline) = (response.id.clone(), response.timeline.clone());
        self.effect(Effect::Record(timeline.clone()));
        self.emit(Event::TurnMeasured { response: id, timeline });
    }

    /// The client cancels.
    pub(super) fn cancel_response(&mut self, now: Duration, tag: Tag, id: Option<&ResponseId>) {
        let number = match id {
            None => self.active(),
            Some(id) => self
                .responses
                .iter()
                .find(|response| response.id == *id && response.stage != Stage::Over)
                .map(|response| response.number),
        };
        match number {
            Some(number) => {
                self.finish(now, number, ResponseStatus::Cancelled(CancelReason::ClientCancelled));
            }
            None => {
                let message = "Cancellation failed: no active response found";
                self.reject(tag, RejectionCode::ResponseCancelNotActive, message, None);
            }
        }
    }

    /// The caller has the floor: stops the conversation's response and whatever of it still sounds.
    pub(super) fn yield_floor(&mut self, now: Duration, reason: CancelReason) {
        let active = self.active();
        if let Some(number) = active {
            let silent = self.response(number).is_some_and(|response| response.playback.samples() == 0);
            // Nothing of it was heard: what the caller said before is still to be answered.
            let again = |response: &&Response| silent && response.input.is_none() && response.hint.is_none();
            if let Some(clock) = self.response(number).filter(again).map(|response| response.clock) {
                self.unanswered = true;
                self.hearing_clock = Some(clock);
            }
        }
        self.silence(now);
        if let Some(number) = active {
            self.finish(now, number, ResponseStatus::Cancelled(reason));
        }
        self.agent_stopped(now);
    }

    /// Drops the sound that is queued or playing; what was heard of it is noted.
    fn silence(&mut self, now: Duration) {
        let playing: Vec<_> = self
            .responses
            .iter()
            .filter(|response| response.in_conversation() && response.playback.is_playing(now))
            .map(|response| response.number)
            .collect();
        for number in playing {
            let Some(response) = self.response_mut(number) else { continue };
            response.playback.stop(now);
            let (samples, source) = response.playback.heard(now);
            let (id, item) = (response.id.clone(), response.spoken_item.clone());
            self.effect(Effect::Stop(number, id.clone()));
            self.emit(Event::OutputCleared { response: id });
            if let Some(item) = item {
                // `None` while it is still being written: `finish` cuts it.
                self.history.cut(&item, samples, source).unwrap_or_default();
            }
        }
        self.effect(Effect::ClearTimer(Timer::Played));
    }

    /// The client asks for silence.
    pub(super) fn clear_output(&mut self, now: Duration) {
        // Its streams are stopped, so it would never end by itself.
        let sounding = self.active().filter(|number| {
            self.response(*number).is_some_and(|response| response.playback.is_playing(now))
        });
        self.silence(now);
        if let Some(number) = sounding {
            self.finish(now, number, ResponseStatus::Cancelled(CancelReason::ClientCancelled));
        }
        self.agent_stopped(now);
    }

    /// The far end reports its playback position.
    pub(super) fn played(&mut self, id: &ResponseId, ms: u64) {
        if let Some(response) = self.responses.iter_mut().find(|response| response.id == *id) {
            response.playback.report(ms * u64::from(SPEAKING_RATE) / 1000);
        }
    }

    /// Notes when the agent has become silent.
    pub(super) fn settle_playback(&mut self, now: Duration) {
        let sounding = self.responses.iter().any(|response| {
            response.in_conversation()
                && (response.playback.is_playing(now)
                    || (response.stage != Stage::Over && response.playback.samples() > 0))
        });
        if !sounding && self.hearing.agent_speaks {
            self.agent_stopped(now);
            self.answer_if_due(now);
        }
    }

    /// When the last sound of the conversation will have been played.
    pub(super) fn playing_until(&self) -> Duration {
        let conversation = self.responses.iter().filter(|response| response.in_conversation());
        conversation.map(|response| response.playback.until()).max().unwrap_or_default()
    }

    /// Level of what is being played, dB of full scale.
    pub(super) fn playing_db(&mut self, now: Duration) -> f32 {
        let conversation = self.responses.iter_mut().filter(|response| response.in_conversation());
        conversation.map(|response| response.playback.level_db(now)).fold(-100.0, f32::max)
    }

    /// Cancels every response.
    pub(super) fn stop_all(&mut self, now: Duration) {
        let open: Vec<_> = self
            .responses
            .iter()
            .filter(|r| r.stage != Stage::Over)
            .map(|response| response.number)
            .collect();
        self.unanswered = false;
        for number in open {
            self.finish(now, number, ResponseStatus::Cancelled(CancelReason::ClientCancelled));
        }
    }

    /// Whether an item is being written.
    pub(super) fn is_open(&self, id: &ItemId) -> bool {
        self.responses.iter().any(|r| r.message.as_ref().is_some_and(|message| message.at.item == *id))
    }

    /// Audio of an item that is being written, samples.
    pub(super) fn open_samples(&self, id: &ItemId) -> Option<u64> {
        let messages = self.responses.iter().filter_map(|response| response.message.as_ref());
        messages.filter(|message| message.at.item == *id).map(|message| message.spoken.samples).next()
    }

    fn snapshot(&self, number: ResponseNumber, status: ResponseStatus) -> event::Response {
        let response = self.response(number).expect("a response is kept until it is over and played");
        let usage = (status != ResponseStatus::InProgress).then(|| {
            let usage = response.usage.unwrap_or_default();
            Usage {
                input_tokens: usage.prompt_tokens,
                cached_tokens: usage.cached_tokens,
                output_tokens: usage.completion_tokens,
            }
        });
        event::Response {
            id: response.id.clone(),
            status,
            output: response.output.clone(),
            conversation: response.in_conversation().then(|| self.conversation.clone()),
            modality: response.settings.modality,
            voice: response.settings.voice.clone(),
            max_output_tokens: response.settings.max_output_tokens,
            usage,
            metadata: response.metadata.clone(),
        }
    }
}

impl Response {
    /// Milliseconds since the caller's last sound.
    fn since(&self, now: Duration) -> f64 {
        ms(now.saturating_sub(self.clock.speech_end))
    }
}

/// What a response begins with.
struct Begin {
    scope: ResponseScope,
    settings: Settings,
    input: Option<Vec<Item>>,
    hint: Option<&'static str>,
    metadata: Option<serde_json::Value>,
    clock: TurnClock,
}

fn status_of(reason: FinishReason) -> ResponseStatus {
    match reason {
        FinishReason::Length => ResponseStatus::Incomplete,
        FinishReason::Stop | FinishReason::ToolCalls | FinishReason::Loop => ResponseStatus::Completed,
    }
}

fn message_kind(modality: Modality, text: String) -> ItemKind {
    let text = Private::new(text);
    let part = match modality {
        Modality::Audio => Part::OutputAudio { transcript: text },
        Modality::Text => Part::OutputText(text),
    };
    ItemKind::Message { role: Role::Assistant, parts: vec![part] }
}
