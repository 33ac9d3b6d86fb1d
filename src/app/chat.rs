//! `voluble chat`: the language model in a terminal, text only.
//!
//! Answers go to stdout as they are written; prompts and figures to stderr, so
//! that `echo question | voluble chat > answer` holds the answer alone.

use std::io::BufRead;
use std::time::Instant;

use tokio::sync::mpsc;

use super::failure::Failure;
use super::output::Out;
use crate::llm::{
    FinishReason, GenerationEvent, GenerationRequest, GenerationUsage, Generator, Message, Role,
    SamplingParams, ToolChoice,
};

/// One conversation with one caller: one cache.
const CACHE_KEY: u64 = 1;

/// How to talk.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// What the model is told before the conversation.
    pub instructions: String,
    /// Sampling and length.
    pub params: SamplingParams,
    /// Show a prompt sign: a person types.
    pub interactive: bool,
}

/// Answers line after line until the input ends. The conversation's history is kept.
///
/// # Errors
/// When the model refuses or fails; a conversation that has grown too long is
/// one of these.
pub async fn run(
    generator: &dyn Generator,
    options: &Options,
    input: &mut dyn BufRead,
    out: &mut Out<'_>,
) -> Result<(), Failure> {
    let mut messages = Vec::new();
    if !options.instructions.is_empty() {
        messages.push(Message::text(Role::System, &options.instructions));
    }
    if options.interactive {
        eprintln!("{}; end with Ctrl-D", generator.model());
    }
    loop {
        if options.interactive {
            eprint!("> ");
        }
        let mut line = String::new();
        let read = input.read_line(&mut line).map_err(|error| Failure::Failed(format!("stdin: {error}")))?;
        if read == 0 {
            return Ok(());
        }
        if line.trim().is_empty() {
            continue;
        }
        messages.push(Message::text(Role::User, line.trim()));
        let answer = answer(generator, options, messages.clone(), out).await?;
        messages.push(Message::text(Role::Assistant, answer));
    }
}

async fn answer(
    generator: &dyn Generator,
    options: &Options,
    messages: Vec<Message>,
    out: &mut Out<'_>,
) -> Result<String, Failure> {
    let (events, mut written) = mpsc::channel(256);
    let request = GenerationRequest {
        cache_key: Some(CACHE_KEY),
        messages,
        tools: Vec::new(),
        tool_choice: ToolChoice::None,
        params: options.params.clone(),
    };
    let asked = Instant::now();
    let mut first = None;
    let mut answer = String::new();
    let _generation = generator.start(request, events)?;
    while let Some(event) = written.recv().await {
        match event {
            GenerationEvent::Prefilled | GenerationEvent::ToolCall(_) => {}
            GenerationEvent::Text { delta, .. } => {
                first.get_or_insert_with(Instant::now);
                answer.push_str(delta.expose());
                out.text(delta.expose())?;
                out.flush()?;
            }
            GenerationEvent::Done { reason, usage } => {
                out.line("")?;
                out.flush()?;
                let begun = first.unwrap_or_else(Instant::now);
                eprintln!(
                    "{}",
                    figures(
                        &usage,
                        reason,
                        begun.duration_since(asked).as_secs_f64(),
                        begun.elapsed().as_secs_f64()
                    )
                );
                return Ok(answer);
            }
            GenerationEvent::Failed { message } => return Err(Failure::Failed(message)),
        }
    }
    Err(Failure::Failed("the language model ended without an answer".to_owned()))
}

/// `[12 tokens, 40.0 tokens/s, 2.4 tokens a pass, first after 310 ms, prompt 56 (40 cached)]`
fn figures(usage: &GenerationUsage, reason: FinishReason, wait: f64, writing: f64) -> String {
    let tokens = f64::from(usage.completion_tokens);
    let mut text = format!(
        "[{} tokens, {:.1} tokens/s, {:.1} tokens a pass, first after {:.0} ms, prompt {} ({} cached)",
        usage.completion_tokens,
        tokens / writing.max(1e-3),
        tokens / f64::from(usage.passes.max(1)),
        wait * 1e3,
        usage.prompt_tokens,
        usage.cached_tokens,
    );
    match reason {
        FinishReason::Stop | FinishReason::ToolCalls => {}
        FinishReason::Length => text.push_str(", cut at the token limit"),
        FinishReason::Loop => text.push_str(", ended by the loop guard"),
    }
    text.push(']');
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llm::scripted::{Reply, Scripted};

    async fn talk(scripted: &Scripted, input: &str) -> (Result<(), Failure>, String) {
        let options = Options { instructions: "Be brief.".to_owned(), ..Options::default() };
        let mut bytes = Vec::new();
        let mut out = Out::to(&mut bytes);
        let result = run(scripted, &options, &mut input.as_bytes(), &mut out).await;
        drop(out);
        (result, String::from_utf8(bytes).expect("text"))
    }

    #[tokio::test]
    async fn each_line_is_answered_with_all_that_went_before() {
        let scripted = Scripted::new([Reply::text("Hello there."), Reply::text("It is Paris.")]);
        let (result, said) = talk(&scripted, "Hi\n\n  \nWhat is the capital of France?").await;
        result.expect("answered");
        assert_eq!(said, "Hello there.\nIt is Paris.\n");
        let asked = scripted.asked();
        assert_eq!(asked.len(), 2, "empty lines ask nothing");
        let told: Vec<_> = asked[1]
            .request
            .messages
            .iter()
            .map(|message| (message.role, message.text.expose().as_str()))
            .collect();
        assert_eq!(
            told,
            [
                (Role::System, "Be brief."),
                (Role::User, "Hi"),
                (Role::Assistant, "Hello there."),
                (Role::User, "What is the capital of France?"),
            ]
        );
        assert_eq!(asked[0].request.cache_key, asked[1].request.cache_key);
    }

    #[tokio::test]
    async fn a_model_that_fails_ends_the_chat() {
        let scripted = Scripted::new([Reply::failing("Half an", "out of memory")]);
        let (result, said) = talk(&scripted, "Hi\nthere\n").await;
        assert_eq!(result.expect_err("failed").to_string(), "out of memory");
        assert_eq!(said, "Half an");
        let (result, _) = talk(&Scripted::new([Reply::Busy]), "Hi\n").await;
        assert_eq!(result.expect_err("failed").to_string(), "the language model is busy");
    }

    #[test]
    fn figures_are_one_line() {
        let usage =
            GenerationUsage { prompt_tokens: 56, cached_tokens: 40, completion_tokens: 12, passes: 5 };
        assert_eq!(
            figures(&usage, FinishReason::Length, 0.31, 0.3),
            "[12 tokens, 40.0 tokens/s, 2.4 tokens a pass, first after 310 ms, prompt 56 (40 cached), cut at the token limit]"
        );
        assert!(figures(&GenerationUsage::default(), FinishReason::Stop, 0.0, 0.0).contains("0.0 tokens/s"));
    }
}
