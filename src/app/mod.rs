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

use cli::{BenchCommand, Cli, Command, TurnFlags};
use failure::Failure;
use output::Out;

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
        Command::CheckConfig(_) => check_config::run(&settings, &mut out)?,
        Command::Models(command) => models::run(command, &settings.config, &mut out)?,
        Command::Bench(BenchCommand::Turn(flags)) => measure(flags)?,
    }
    out.flush()
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
