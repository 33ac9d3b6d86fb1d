//! The composition root: the only place that names concrete implementations.
//!
//! Owns: the command line ([`cli`]), how a command fails ([`failure`]) and
//! prints ([`output`]), the commands themselves, and building the parts that a
//! command needs. Holds no logic of a conversation, a protocol or a model.
//!
//! Exit codes: 0 done, 1 failed, 2 wrongly called. A reader of our output that
//! goes away (`voluble models list | head -1`) is no failure.

pub mod auth;
pub mod bench;
mod call;
pub mod chat;
pub mod check_config;
pub mod cli;
pub mod door;
pub mod failure;
mod health;
pub mod models;
pub mod output;
pub mod page;
pub mod parts;
pub mod pump;
mod routes;
pub mod say;
pub mod secrets;
pub mod serve;
pub mod server;
pub mod transcribe;

use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::process::ExitCode;

use clap::Parser;
use tracing_subscriber::EnvFilter;

use cli::{BenchCommand, ChatFlags, Cli, Command, SayFlags, TranscribeFlags, TurnFlags};
use failure::Failure;
use output::Out;

use crate::config::Config;
use crate::llm::SamplingParams;
use crate::models::Store;
use crate::tts::VoiceOptions;

/// Runs the command that these arguments name; the first is the program's name.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            // Help that nobody reads to its end is no failure either.
            error.print().ok();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(failure::USAGE));
        }
    };
    let result = start_logging(&cli).and_then(|()| dispatch(&cli));
    match result {
        Ok(()) | Err(Failure::ReaderGone) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("voluble: {failure}");
            ExitCode::from(failure.exit_code())
        }
    }
}

fn dispatch(cli: &Cli) -> Result<(), Failure> {
    let settings = cli.settings()?;
    let mut out = Out::stdout();
    match &cli.command {
        Command::Serve(_) => serve::run(settings.config, &mut out)?,
        Command::Transcribe(flags) => transcribe_file(flags, &settings.config, &mut out)?,
        Command::Say(flags) => say_text(flags, &settings.config, &mut out)?,
        Command::Chat(flags) => chat_here(flags, &settings.config, &mut out)?,
        Command::CheckConfig(_) => check_config::run(&settings, &mut out)?,
        Command::Models(command) => models::run(command, &settings.config, &mut out)?,
        Command::Bench(BenchCommand::Turn(flags)) => measure(flags)?,
    }
    out.flush()
}

fn transcribe_file(flags: &TranscribeFlags, config: &Config, out: &mut Out<'_>) -> Result<(), Failure> {
    let recording = transcribe::read(&flags.file)?;
    let runtime = runtime()?;
    let _within = runtime.enter();
    let recognizer = parts::recognizer(config, &Store::from_config(&config.models))?;
    let format = if flags.json { transcribe::Format::Json } else { transcribe::Format::Text };
    runtime.block_on(transcribe::run(&*recognizer, &recording, format, out))
}

fn say_text(flags: &SayFlags, config: &Config, out: &mut Out<'_>) -> Result<(), Failure> {
    let text = say::read(&flags.text)?;
    let default = VoiceOptions::default();
    let voice = VoiceOptions { voice: flags.voice.clone().unwrap_or(default.voice), speed: flags.speed };
    let runtime = runtime()?;
    let _within = runtime.enter();
    let synthesizer = parts::synthesizer(config, &Store::from_config(&config.models))?;
    runtime.block_on(say::run(&*synthesizer, &text, &voice, &flags.output, out))
}

fn chat_here(flags: &ChatFlags, config: &Config, out: &mut Out<'_>) -> Result<(), Failure> {
    let instructions = flags.instructions.as_ref().unwrap_or(&config.session.instructions);
    let options = chat::Options {
        instructions: instructions.clone(),
        params: SamplingParams { temperature: flags.temperature, ..SamplingParams::default() },
        interactive: io::stdin().is_terminal(),
    };
    let runtime = runtime()?;
    let _within = runtime.enter();
    let generator = parts::generator(config, &Store::from_config(&config.models))?;
    runtime.block_on(chat::run(&*generator, &options, &mut io::stdin().lock(), out))
}

fn measure(flags: &TurnFlags) -> Result<(), Failure> {
    let options = bench::Options {
        url: flags.url.clone(),
        dir: flags.dir.clone(),
        callers: flags.callers as usize,
        only: flags.only.clone(),
        repeat: flags.repeat as usize,
        json: flags.json.clone(),
        turn_detection: flags.turn_detection.clone(),
        key: flags.key.clone(),
    };
    match runtime()?.block_on(bench::turn(&options)) {
        Ok(_) => Ok(()),
        Err(bench::BenchError::Output { path, source }) => {
            Err(Failure::writing(&path.display().to_string(), &source))
        }
        Err(error) => Err(Failure::Failed(error.to_string())),
    }
}

/// Log lines go to stderr, so that stdout is the command's result alone.
fn start_logging(cli: &Cli) -> Result<(), Failure> {
    let filter = EnvFilter::try_new(cli.log_filter())
        .map_err(|error| Failure::Usage(format!("--log {}: {error}", cli.log_filter())))?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal());
    // A second start (tests run several commands in one process) keeps the first one's filter.
    if cli.log_json {
        builder.json().try_init().ok()
    } else {
        builder.try_init().ok()
    };
    Ok(())
}

/// The runtime of a command.
fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::Failed(format!("cannot start worker threads: {error}")))
}
