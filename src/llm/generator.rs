//! The [`Generator`] over the engine: prompt, tokens, text.
//!
//! Threads: [`TextGenerator::start`] makes the prompt on the caller's thread
//! (about a millisecond for each thousand tokens) and hands it to the engine;
//! one small task per answer turns the engine's blocks into events. Dropping
//! the [`Generation`] ends that task, which drops the engine's stream, which
//! cancels the sequence within one pass.

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::prompt::Prompter;
use super::tokenizer::Tokenizer;
use super::tools::Detector;
use super::vocabulary::Vocabulary;
use super::writer::{Form, Writer};
use super::{
    Generation, GenerationEvent, GenerationRequest, Generator, LlmError, Message, Role, SamplingParams, Tool,
    ToolChoice,
};
use crate::config::llm::Llm;
use crate::engine::{DecodeParams, Engine, EngineError, Request, TokenStream};

/// What decodes tokens: the engine, or a script in its place.
pub trait Decoder: Send + Sync + 'static {
    /// Starts a sequence; never blocks.
    ///
    /// # Errors
    /// What the engine refuses.
    fn submit(&self, request: Request) -> Result<TokenStream, EngineError>;

    /// Reads a prompt that others will share the beginning of; a hint.
    fn prime(&self, prompt: Vec<u32>);

    /// Frees the cache kept under this key.
    fn forget(&self, cache_key: u64);

    /// Longest sequence it can hold, in tokens.
    fn context(&self) -> usize;
}

impl Decoder for Engine {
    fn submit(&self, request: Request) -> Result<TokenStream, EngineError> {
        Engine::submit(self, request)
    }

    fn prime(&self, prompt: Vec<u32>) {
        // A hint: an engine that has no room reads the prompt when it is asked to go on with it.
        let _refused = Engine::prime(self, prompt);
    }

    fn forget(&self, cache_key: u64) {
        Engine::forget(self, cache_key);
    }

    fn context(&self) -> usize {
        self.info().context
    }
}

/// A chat model over a decoder.
pub struct TextGenerator<D> {
    decoder: D,
    tokenizer: Arc<Tokenizer>,
    prompter: Prompter,
    settings: Llm,
    /// Most tokens of prompt and answer together.
    limit: usize,
}

struct Running(AbortHandle);

impl<D: Decoder> TextGenerator<D> {
    /// Puts the text side of a model file before a decoder of the same file.
    ///
    /// # Errors
    /// [`LlmError::Model`] for a tokenizer or template that is not known.
    pub fn new(vocabulary: &Vocabulary, decoder: D, settings: Llm) -> Result<Self, LlmError> {
        let tokenizer = Arc::new(Tokenizer::new(vocabulary)?);
        let prompter = Prompter::new(vocabulary, Arc::clone(&tokenizer))?;
        let limit = settings.context_tokens.min(vocabulary.context).min(decoder.context());
        Ok(Self { decoder, tokenizer, prompter, settings, limit })
    }

    /// The prompt, without the oldest messages where it would be too long.
    fn fit(&self, messages: &[Message], tools: &[Tool], room: usize) -> Result<Vec<u32>, LlmError> {
        let ids = self.prompter.ids(messages, tools)?;
        if ids.len() <= room {
            return Ok(ids);
        }
        let too_long = LlmError::TooLong { tokens: ids.len(), limit: room };
        if !self.settings.truncate {
            return Err(too_long);
        }
        let head = messages.iter().take_while(|message| message.role == Role::System).count();
        // What is left out grows in steps of a quarter of the room, so that the turns
        // that follow leave out the same and find their cache again.
        let step = (room / 4).max(1);
        let mut goal = (ids.len() - room).div_ceil(step) * step;
        let mut start = head;
        let mut dropped = 0;
        loop {
            while dropped < goal && start + 1 < messages.len() {
                dropped += self.cost(&messages[start]);
                start += 1;
            }
            // An answer of a tool says nothing without its call.
            while start + 1 < messages.len() && messages[start].role == Role::Tool {
                dropped += self.cost(&messages[start]);
                start += 1;
            }
            let kept: Vec<Message> = messages[..head].iter().chain(&messages[start..]).cloned().collect();
            let ids = self.prompter.ids(&kept, tools)?;
            if ids.len() <= room {
                return Ok(ids);
            }
            if start + 1 >= messages.len() {
                return Err(too_long);
            }
            goal += step;
        }
    }

    /// About the tokens of a message.
    fn cost(&self, message: &Message) -> usize {
        let calls = message.tool_calls.iter().map(|call| call.name.len() / 4 + call.arguments.len() / 3 + 16);
        self.tokenizer.encode(message.text.expose()).len() + calls.sum::<usize>() + 5
    }
}

impl<D: Decoder> Generator for TextGenerator<D> {
    fn start(
        &self,
        request: GenerationRequest,
        events: mpsc::Sender<GenerationEvent>,
    ) -> Result<Box<dyn Generation>, LlmError> {
        check(&request.params)?;
        let runtime = Handle::try_current()
            .map_err(|_| LlmError::Model("an answer can only be started inside the runtime".to_owned()))?;
        let prefill = forced(&request.tool_choice, &request.tools)?;
        // A model that is shown tools calls them; one that must not is not shown any.
        let tools = if request.tool_choice == ToolChoice::None { &[] } else { request.tools.as_slice() };
        let wanted = request.params.max_tokens.unwrap_or(self.settings.max_tokens);
        let prefill_ids = self.tokenizer.encode_marked(&prefill);
        let reserve = (wanted as usize).min(self.limit / 4).max(1) + prefill_ids.len();
        let mut prompt = self.fit(&request.messages, tools, self.limit.saturating_sub(reserve))?;
        prompt.extend(prefill_ids);
        let left = u32::try_from(self.limit - prompt.len()).unwrap_or(u32::MAX);
        let form = Form {
            stops: request.params.stop.clone(),
            max_repeats: self.settings.max_repeats,
            detector: Detector::new(tools, call_id),
            prefill,
            prompt_tokens: u32::try_from(prompt.len()).unwrap_or(u32::MAX),
        };
        let writer = Writer::new(Arc::clone(&self.tokenizer), form);
        let params = DecodeParams {
            max_tokens: wanted.min(left),
            temperature: request.params.temperature,
            top_p: request.params.top_p,
            seed: request.params.seed,
            stop: self.tokenizer.stops().to_vec(),
            draft: true,
        };
        let stream = self.decoder.submit(Request { prompt, params, cache_key: request.cache_key }).map_err(
            |error| match error {
                EngineError::Busy(_) => LlmError::Busy,
                EngineError::TooLong { tokens, limit } => LlmError::TooLong { tokens, limit },
                EngineError::Invalid(reason) => LlmError::Invalid(reason),
                other => LlmError::Model(other.to_string()),
            },
        )?;
        Ok(Box::new(Running(runtime.spawn(write(writer, stream, events)).abort_handle())))
    }

    fn prime(&self, messages: &[Message], tools: &[Tool]) {
        // The head of the assistant's turn at the end is not shared; a few tokens read in vain.
        // What cannot be rendered is reported when the answer is asked for.
        if let Ok(prompt) = self.prompter.ids(messages, tools)
            && prompt.len() < self.limit
        {
            self.decoder.prime(prompt);
        }
    }

    fn forget(&self, cache_key: u64) {
        self.decoder.forget(cache_key);
    }

    fn model(&self) -> &str {
        &self.settings.model
    }
}

impl Generation for Running {}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Moves one answer. The engine's channel holds a whole answer, so waiting for
/// the listener here never holds up the engine.
async fn write(mut writer: Writer, mut stream: TokenStream, events: mpsc::Sender<GenerationEvent>) {
    while !writer.ended() {
        let out = match stream.events.recv().await {
            Some(event) => writer.on(event),
            None => writer.lost(),
        };
        for event in out {
            if events.send(event).await.is_err() {
                return;
            }
        }
    }
}

fn check(params: &SamplingParams) -> Result<(), LlmError> {
    if !(0.0..=2.0).contains(&params.temperature) {
        return Err(LlmError::Invalid(format!(
            "temperature must be from 0 to 2, not {}",
            params.temperature
        )));
    }
    if !(params.top_p > 0.0 && params.top_p <= 1.0) {
        return Err(LlmError::Invalid(format!("top_p must be above 0 and at most 1, not {}", params.top_p)));
    }
    if params.max_tokens == Some(0) {
        return Err(LlmError::Invalid("max_tokens must be at least 1".to_owned()));
    }
    Ok(())
}

/// The beginning of a call that the model must go on with.
fn forced(choice: &ToolChoice, tools: &[Tool]) -> Result<String, LlmError> {
    let name = match choice {
        ToolChoice::Auto | ToolChoice::None => return Ok(String::new()),
        ToolChoice::Required => match tools {
            [] => {
                let reason = "a tool call is required, but there are no tools";
                return Err(LlmError::Invalid(reason.to_owned()));
            }
            [only] => &only.name,
            _ => return Ok("<tool_call>\n{\"name\": \"".to_owned()),
        },
        ToolChoice::Named(name) => {
            if !tools.iter().any(|tool| tool.name == *name) {
                return Err(LlmError::Invalid(format!(
                    "the tool '{name}' that is to be called does not exist"
                )));
            }
            name
        }
    };
    // No space at the end: the models know it as part of the token that opens the object.
    Ok(format!("<tool_call>\n{{\"name\": {}, \"arguments\":", serde_json::Value::from(name.as_str())))
}

fn call_id() -> String {
    format!("call_{:024x}", rand::random::<u128>() >> 32)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::super::vocabulary::TokenKind;
    use super::super::{FinishReason, Role, ToolCall};
    use super::*;
    use crate::engine::{DecodeStats, StopReason, TokenEvent};

    /// A token for each printable ASCII byte and the break, then the marks of ChatML.
    fn vocabulary() -> Vocabulary {
        let mut tokens: Vec<String> = (33..127_u8).map(|byte| char::from(byte).to_string()).collect();
        tokens.extend(["\u{120}", "\u{10a}"].map(str::to_owned));
        let mut kinds = vec![TokenKind::Normal; tokens.len()];
        tokens.extend(["<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>"].map(str::to_owned));
        kinds.extend([TokenKind::Control, TokenKind::Control, TokenKind::Marker, TokenKind::Marker]);
        Vocabulary {
            name: "tiny".to_owned(),
            pre: "smollm".to_owned(),
            tokens,
            kinds,
            merges: Vec::new(),
            ends: Vec::new(),
            bos: None,
            chat_template: None,
            context: 2_000,
        }
    }

    /// Answers with these events and keeps what it was asked.
    #[derive(Default)]
    struct Script {
        events: Mutex<Vec<TokenEvent>>,
        asked: Mutex<Vec<Request>>,
        senders: Mutex<Vec<mpsc::Sender<TokenEvent>>>,
        /// Whether the channel stays open after the events.
        open: bool,
    }

    impl Decoder for Arc<Script> {
        fn submit(&self, request: Request) -> Result<TokenStream, EngineError> {
            let (tx, events) = mpsc::channel(100);
            for event in self.events.lock().expect("no panic under it").iter() {
                tx.try_send(event.clone()).expect("room for the script");
            }
            self.asked.lock().expect("no panic under it").push(request);
            if self.open {
                self.senders.lock().expect("no panic under it").push(tx);
            }
            Ok(TokenStream { events })
        }

        fn prime(&self, _: Vec<u32>) {}

        fn forget(&self, _: u64) {}

        fn context(&self) -> usize {
            1_000
        }
    }

    fn block(text: &str) -> TokenEvent {
        let tokenizer = Tokenizer::new(&vocabulary()).expect("a tokenizer");
        TokenEvent::Block(tokenizer.encode_marked(text))
    }

    fn done(reason: StopReason) -> TokenEvent {
        TokenEvent::Done {
            reason,
            stats: DecodeStats { cached_tokens: 5, tokens: 9, ..DecodeStats::default() },
        }
    }

    fn request(choice: ToolChoice, tools: &[&str]) -> GenerationRequest {
        let tool = |name: &&str| Tool {
            name: (*name).to_owned(),
            description: None,
            parameters: serde_json::json!({}),
        };
        GenerationRequest {
            cache_key: Some(1),
            messages: vec![Message::text(Role::System, "s"), Message::text(Role::User, "u")],
            tools: tools.iter().map(tool).collect(),
            tool_choice: choice,
            params: SamplingParams::default(),
        }
    }

    fn generator(script: &Arc<Script>) -> TextGenerator<Arc<Script>> {
        TextGenerator::new(&vocabulary(), Arc::clone(script), Llm::default()).expect("a generator")
    }

    fn script(events: Vec<TokenEvent>) -> Arc<Script> {
        Arc::new(Script { events: Mutex::new(events), ..Script::default() })
    }

    async fn run(events: Vec<TokenEvent>, request: GenerationRequest) -> Vec<GenerationEvent> {
        let (tx, mut rx) = mpsc::channel(1);
        let _running = generator(&script(events)).start(request, tx).expect("started");
        let mut out = Vec::new();
        while let Some(event) = rx.recv().await {
            out.push(event);
        }
        out
    }

    fn text(events: &[GenerationEvent]) -> String {
        let deltas = events.iter().filter_map(|event| match event {
            GenerationEvent::Text { delta, .. } => Some(delta.expose().as_str()),
            _ => None,
        });
        deltas.collect()
    }

    #[tokio::test]
    async fn blocks_become_text() {
        let events = vec![TokenEvent::Prefilled, block("Hi "), block("there."), done(StopReason::Stop)];
        let out = run(events, request(ToolChoice::Auto, &[])).await;
        assert_eq!(out[0], GenerationEvent::Prefilled);
        assert!(matches!(&out[1], GenerationEvent::Text { delta, tokens: 3 } if delta.expose() == "Hi "));
        assert_eq!(text(&out), "Hi there.");
        let Some(GenerationEvent::Done { reason: FinishReason::Stop, usage }) = out.last() else {
            panic!("{out:?}");
        };
        assert_eq!((usage.cached_tokens, usage.completion_tokens), (5, 9));
    }

    #[tokio::test]
    async fn calls_are_found_and_forced() {
        let call = block("<tool_call>{\"name\": \"look\", \"arguments\": {\"a\": 1}}</tool_call>");
        let out = run(vec![call, done(StopReason::Stop)], request(ToolChoice::Auto, &["look"])).await;
        assert!(
            matches!(&out[0], GenerationEvent::ToolCall(call) if call.arguments == "{\"a\":1}"),
            "{out:?}"
        );
        assert!(matches!(out[1], GenerationEvent::Done { reason: FinishReason::ToolCalls, .. }));

        // The head of a forced call is in the prompt; what follows the call is not waited for.
        let script = Arc::new(Script {
            open: true,
            events: Mutex::new(vec![block(" {}} more")]),
            ..Script::default()
        });
        let (tx, mut rx) = mpsc::channel(10);
        let _running = generator(&script)
            .start(request(ToolChoice::Named("look".to_owned()), &["look", "other"]), tx)
            .expect("started");
        assert!(
            matches!(rx.recv().await, Some(GenerationEvent::ToolCall(ToolCall { name, .. })) if name == "look")
        );
        assert!(matches!(
            rx.recv().await,
            Some(GenerationEvent::Done { reason: FinishReason::ToolCalls, .. })
        ));
        assert_eq!(rx.recv().await, None);
        let tokenizer = Tokenizer::new(&vocabulary()).expect("a tokenizer");
        let head = tokenizer.encode_marked("<tool_call>\n{\"name\": \"look\", \"arguments\":");
        assert!(script.asked.lock().expect("no panic under it")[0].prompt.ends_with(&head));
    }

    #[tokio::test]
    async fn what_cannot_be_forced_is_refused() {
        let (tx, _rx) = mpsc::channel(1);
        let generator = generator(&script(Vec::new()));
        for bad in [request(ToolChoice::Required, &[]), request(ToolChoice::Named("x".to_owned()), &["look"])]
        {
            assert!(matches!(generator.start(bad, tx.clone()), Err(LlmError::Invalid(_))));
        }
        let mut hot = request(ToolChoice::Auto, &[]);
        hot.params.temperature = f32::NAN;
        assert!(matches!(generator.start(hot, tx), Err(LlmError::Invalid(_))));
    }

    #[tokio::test]
    async fn a_call_that_cannot_be_read_fails_and_a_cut_one_says_so() {
        let broken =
            run(vec![block("<tool_call>{}"), done(StopReason::Stop)], request(ToolChoice::Auto, &["look"]));
        assert!(matches!(broken.await.last(), Some(GenerationEvent::Failed { .. })));
        let cut = block("<tool_call>{\"name\": \"lo");
        let cut = run(vec![cut, done(StopReason::Length)], request(ToolChoice::Auto, &["look"])).await;
        let message = "the token limit cut a tool call short".to_owned();
        assert_eq!(cut.last(), Some(&GenerationEvent::Failed { message }));
        let lost = run(vec![block("Hi")], request(ToolChoice::Auto, &[])).await;
        assert!(matches!(lost.last(), Some(GenerationEvent::Failed { .. })));
    }

    #[tokio::test]
    async fn loops_and_stop_strings_end_the_answer() {
        let babble = block("I can help you. I can help you. I can help you. I can");
        let out = run(vec![babble, done(StopReason::Length)], request(ToolChoice::Auto, &[])).await;
        assert!(matches!(out.last(), Some(GenerationEvent::Done { reason: FinishReason::Loop, .. })));
        let mut stopped = request(ToolChoice::Auto, &[]);
        stopped.params.stop = vec!["END".to_owned()];
        let out = run(vec![block("well EN"), block("D and"), done(StopReason::Length)], stopped).await;
        assert_eq!(text(&out), "well ");
        assert!(matches!(out.last(), Some(GenerationEvent::Done { reason: FinishReason::Stop, .. })));
    }

    #[tokio::test]
    async fn drop_cancels() {
        let script =
            Arc::new(Script { open: true, events: Mutex::new(vec![block("Hi")]), ..Script::default() });
        let (tx, mut rx) = mpsc::channel(10);
        let running = generator(&script).start(request(ToolChoice::Auto, &[]), tx).expect("started");
        assert!(matches!(rx.recv().await, Some(GenerationEvent::Text { .. })));
        drop(running);
        assert_eq!(rx.recv().await, None);
        let sender = script.senders.lock().expect("no panic under it").pop().expect("one sequence");
        // The engine sees that nobody listens.
        sender.closed().await;
    }

    #[tokio::test]
    async fn a_long_conversation_loses_its_oldest_turns_and_keeps_its_prefix() {
        let script = script(Vec::new());
        let generator = generator(&script);
        let (tx, _rx) = mpsc::channel(10);
        let mut request = request(ToolChoice::Auto, &[]);
        for turn in 0..40 {
            request.messages.push(Message::text(Role::Assistant, format!("answer number {turn}")));
            request.messages.push(Message::text(Role::User, format!("question number {turn}")));
            drop(generator.start(request.clone(), tx.clone()).expect("started"));
        }
        let prompts: Vec<Vec<u32>> = script
            .asked
            .lock()
            .expect("no panic under it")
            .iter()
            .map(|asked| asked.prompt.clone())
            .collect();
        assert!(prompts.iter().all(|prompt| prompt.len() <= 1_000 - 250));
        let kept = prompts.windows(2).filter(|pair| pair[1].starts_with(&pair[0])).count();
        assert!(kept >= 30, "{kept} of 39 prompts go on where the one before ended");
        let mut huge = request.clone();
        huge.messages.push(Message::text(Role::User, "x".repeat(2_000)));
        assert!(matches!(generator.start(huge, tx), Err(LlmError::TooLong { .. })));
    }
}
