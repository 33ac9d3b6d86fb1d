//! Answers of the real models through the whole text side.

use tokio::sync::mpsc;
use voluble::config;
use voluble::engine::{Engine, Weights};
use voluble::llm::generator::TextGenerator;
use voluble::llm::{
    FinishReason, GenerationEvent, GenerationRequest, GenerationUsage, Generator, Message, Role,
    SamplingParams, Tool, ToolCall, ToolChoice,
};
use voluble::models::Store;

use super::{Model, qwen, smol};

fn generator(model: &Model, name: &str) -> TextGenerator<Engine> {
    let weights = Weights { base: Store::default().path(name, "model.gguf"), drafter: None };
    let engine = Engine::load(&weights, &config::engine::Engine::default()).expect("the model loads");
    TextGenerator::new(&model.vocabulary, engine, config::llm::Llm::default())
        .expect("its text side is known")
}

struct Answer {
    text: String,
    calls: Vec<ToolCall>,
    reason: FinishReason,
    usage: GenerationUsage,
}

fn ask(generator: &dyn Generator, request: GenerationRequest) -> Answer {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        let (tx, mut rx) = mpsc::channel(16);
        let _running = generator.start(request, tx).expect("started");
        let (mut text, mut calls) = (String::new(), Vec::new());
        loop {
            match rx.recv().await.expect("an end before the end") {
                GenerationEvent::Prefilled => {}
                GenerationEvent::Text { delta, .. } => text.push_str(delta.expose()),
                GenerationEvent::ToolCall(call) => calls.push(call),
                GenerationEvent::Done { reason, usage } => return Answer { text, calls, reason, usage },
                GenerationEvent::Failed { message } => panic!("{message}"),
            }
        }
    })
}

fn request(messages: &[Message]) -> GenerationRequest {
    GenerationRequest {
        cache_key: Some(1),
        messages: messages.to_vec(),
        tools: Vec::new(),
        tool_choice: ToolChoice::Auto,
        params: SamplingParams { max_tokens: Some(48), ..SamplingParams::default() },
    }
}

#[test]
fn the_next_turn_finds_the_last_one_in_the_cache() {
    let generator = generator(smol(), "smollm2-135m-instruct");
    let mut messages = vec![
        Message::text(Role::System, "You are a helpful assistant. Answer in one short sentence."),
        Message::text(Role::User, "What color is the sky on a clear day?"),
    ];
    let first = ask(&generator, request(&messages));
    assert!(first.text.to_lowercase().contains("blue"), "{}", first.text);
    assert_eq!(first.usage.cached_tokens, 0);
    messages.push(Message::text(Role::Assistant, first.text));
    messages.push(Message::text(Role::User, "And at night?"));
    let second = ask(&generator, request(&messages));
    assert!(second.usage.cached_tokens >= first.usage.prompt_tokens, "{:?}", second.usage);
    generator.forget(1);
}

#[test]
fn a_tool_is_called_when_it_helps_and_when_it_must() {
    let generator = generator(qwen(), "qwen2.5-coder-0.5b-instruct");
    let weather = Tool {
        name: "get_weather".to_owned(),
        description: Some("Get the current weather of a city".to_owned()),
        parameters: serde_json::json!({
            "type": "object",
            "properties": { "city": { "type": "string" } },
            "required": ["city"],
        }),
    };
    let messages = [
        Message::text(Role::System, "You are a helpful voice assistant."),
        Message::text(Role::User, "What is the weather in Paris right now?"),
    ];
    let city = |answer: &Answer| {
        let [call] = &answer.calls[..] else { panic!("one call, not {:?} {:?}", answer.calls, answer.text) };
        assert_eq!((call.name.as_str(), answer.reason), ("get_weather", FinishReason::ToolCalls));
        let arguments: serde_json::Value = serde_json::from_str(&call.arguments).expect("JSON");
        arguments["city"].as_str().expect("a city").to_owned()
    };
    for choice in [ToolChoice::Auto, ToolChoice::Named("get_weather".to_owned())] {
        let asked =
            GenerationRequest { tools: vec![weather.clone()], tool_choice: choice, ..request(&messages) };
        assert!(city(&ask(&generator, asked)).contains("Paris"));
    }
    let none = GenerationRequest {
        tools: vec![weather],
        tool_choice: ToolChoice::None,
        ..request(&[Message::text(Role::User, "What is the capital of France?")])
    };
    let answer = ask(&generator, none);
    assert!(answer.calls.is_empty() && answer.text.contains("Paris"), "{}", answer.text);
}
