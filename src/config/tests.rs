//! The mechanism, tried on the sections `server` and `models`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::raw::{self, Entry, Origin};
use super::resolve::{Resolved, Schema, Sources, is_secret};
use super::{Config, ConfigError};

fn from_file(text: &str) -> Result<Resolved, ConfigError> {
    let schema = Schema::default();
    let entries = raw::from_file(Path::new("voluble.toml"), text, &schema)?;
    Resolved::from_entries(&schema, entries)
}

fn from_environment(variables: &[(&str, &str)]) -> Result<Resolved, ConfigError> {
    let schema = Schema::default();
    let variables = variables.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    let entries = raw::from_environment(variables, &schema)?;
    Resolved::from_entries(&schema, entries)
}

fn from_flags(flags: &[&str]) -> Result<Resolved, ConfigError> {
    let entries = flags.iter().map(|text| Entry::assignment(text)).collect::<Result<_, _>>()?;
    Resolved::from_entries(&Schema::default(), entries)
}

fn fault(result: Result<Resolved, ConfigError>) -> String {
    let text = result.expect_err("it is refused").to_string();
    assert!(!text.contains('\n'), "one line: {text}");
    text
}

#[test]
fn without_sources_the_defaults_hold() {
    let resolved = Resolved::from_entries(&Schema::default(), Vec::new()).expect("the defaults are valid");
    assert_eq!(resolved.config, Config::default());
    assert_eq!(*resolved.origin("server.port"), Origin::Default);
}

#[test]
fn flag_beats_environment_beats_file_beats_default() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("settings.toml");
    std::fs::write(&file, "[server]\nhost = \"10.0.0.1\"\nport = 1001\nsend_queue = 7\n").expect("written");
    let sources = Sources {
        file: Some(file.clone()),
        environment: vec![
            ("VOLUBLE_SERVER_PORT".into(), "1002".into()),
            ("VOLUBLE_SERVER_HOST".into(), "10.0.0.2".into()),
            ("HOME".into(), "/nowhere".into()),
        ],
        flags: vec![
            Entry::assignment("server.port=1003").expect("an assignment"),
            Entry::flag("--port", "server.port", "1004"),
        ],
    };
    let resolved = Resolved::load(&sources).expect("valid");
    assert_eq!(resolved.config.server.port, 1004);
    assert_eq!(resolved.config.server.host, "10.0.0.2");
    assert_eq!(resolved.config.server.send_queue, 7);
    assert_eq!(resolved.config.models.retries, Config::default().models.retries);
    assert_eq!(*resolved.origin("server.port"), Origin::Flag("--port".to_owned()));
    assert_eq!(*resolved.origin("server.host"), Origin::Environment("VOLUBLE_SERVER_HOST".to_owned()));
    assert_eq!(*resolved.origin("server.send_queue"), Origin::File { path: file, line: 4 });
}

#[test]
fn a_named_file_must_be_there() {
    let sources = Sources { file: Some(PathBuf::from("/nowhere/voluble.toml")), ..Sources::default() };
    let text = fault(Resolved::load(&sources));
    assert!(text.starts_with("/nowhere/voluble.toml: "), "{text}");
}

#[test]
fn an_unknown_setting_names_the_nearest() {
    assert_eq!(
        fault(from_file("[server]\nhost = \"::1\"\nprot = 1\n")),
        "voluble.toml:3: unknown setting 'server.prot'; the nearest known one is 'server.port'"
    );
    assert_eq!(
        fault(from_file("[sever]\nport = 1\n")),
        "voluble.toml:1: unknown setting 'sever'; the nearest known one is 'server'"
    );
    assert_eq!(
        fault(from_environment(&[("VOLUBLE_SERVER_PROT", "1")])),
        "environment VOLUBLE_SERVER_PROT: unknown setting 'VOLUBLE_SERVER_PROT'; the nearest known one is 'VOLUBLE_SERVER_PORT'"
    );
    assert_eq!(
        fault(from_flags(&["port=1"])),
        "flag --set port: unknown setting 'port'; the nearest known one is 'server.port'"
    );
}

#[test]
fn a_wrong_type_names_origin_and_setting() {
    assert_eq!(
        fault(from_file("[server]\nport = \"high\"\n")),
        "voluble.toml:2: server.port: invalid type: string \"high\", expected u16"
    );
    assert_eq!(
        fault(from_environment(&[("VOLUBLE_SERVER_PORT", "70000")])),
        "environment VOLUBLE_SERVER_PORT: server.port: invalid value: integer `70000`, expected u16"
    );
    assert_eq!(
        fault(from_flags(&["server.port=-1"])),
        "flag --set server.port: server.port: invalid value: integer `-1`, expected u16"
    );
    let section = fault(from_file("server = 3\n"));
    assert_eq!(section, "voluble.toml:1: server: is a section; write [server] and its settings below it");
    assert!(fault(from_file("[server]\nport = 1979-05-27\n")).contains("a date is no value"));
    assert!(fault(from_file("[server]\nport = inf\n")).contains("not finite"));
}

#[test]
fn a_range_names_the_origin_of_the_value() {
    assert_eq!(
        fault(from_environment(&[("VOLUBLE_MODELS_RETRIES", "21")])),
        "environment VOLUBLE_MODELS_RETRIES: models.retries: must be within 1..=20"
    );
    assert_eq!(
        fault(from_file("\n[server]\nhost = \" \"\n")),
        "voluble.toml:3: server.host: must be an address, such as 127.0.0.1"
    );
}

#[test]
fn broken_toml_names_the_line() {
    let text = fault(from_file("[server]\nport = \n"));
    assert!(text.starts_with("voluble.toml:2: "), "{text}");
}

#[test]
fn an_assignment_needs_an_equals_sign() {
    let error = from_flags(&["server.port"]).expect_err("refused");
    assert!(error.is_usage());
    assert_eq!(
        error.to_string(),
        "--set server.port: expected section.key=value, such as --set server.port=9000"
    );
    assert!(from_flags(&["server.port=x"]).expect_err("refused").is_usage());
    assert!(!from_file("x = 1").expect_err("refused").is_usage());
}

#[test]
fn texts_become_what_the_setting_is() {
    let config = from_environment(&[
        ("VOLUBLE_SERVER_API_KEYS", "one, two"),
        ("VOLUBLE_MODELS_DIR", "/srv/models"),
        ("VOLUBLE_MODELS_PIP", "python3 -m pip"),
    ])
    .expect("valid")
    .config;
    assert_eq!(config.server.api_keys, ["one", "two"]);
    assert_eq!(config.models.dir.as_deref(), Some(Path::new("/srv/models")));
    assert_eq!(config.models.pip.as_deref(), Some("python3 -m pip"));

    let config =
        from_flags(&["server.api_keys=[\"a,b\"]", "models.pip=7", "models.dir="]).expect("valid").config;
    assert_eq!(config.server.api_keys, ["a,b"]);
    assert_eq!(config.models.pip.as_deref(), Some("7"), "a text that looks like a number is a text here");
    assert_eq!(config.models.dir, None);
}

#[test]
fn our_other_variables_are_no_settings() {
    let resolved =
        from_environment(&[("VOLUBLE_LOG", "debug"), ("VOLUBLE_SPEECH_DIR", "/x")]).expect("valid");
    assert_eq!(resolved.config, Config::default());
}

#[test]
fn the_table_shows_every_setting_and_hides_secrets() {
    let resolved = from_flags(&["server.api_keys=very-secret", "server.port=9000"]).expect("valid");
    let rows = resolved.rows();
    let row = |key: &str| rows.iter().find(|row| row.key == key).expect("a row").clone();
    assert_eq!(row("server.api_keys").value, "(hidden)");
    assert_eq!(row("server.port").value, "9000");
    assert_eq!(row("server.port").origin, "flag --set server.port");
    assert_eq!(row("server.host").origin, "default");
    assert_eq!(row("models.dir").value, "(unset)");
    assert_eq!(rows.len(), Schema::default().keys().count());
    assert!(!format!("{rows:?}").contains("very-secret"));
}

#[test]
fn a_secret_is_not_shown_in_a_fault() {
    let text = fault(from_file("[server]\napi_keys = \"very-secret\"\n"));
    assert!(!text.contains("very-secret"), "{text}");
    assert!(is_secret("server.api_keys") && is_secret("llm.api_key"));
    assert!(!is_secret("llm.max_tokens"));
}

#[test]
fn no_two_settings_share_a_variable() {
    let schema = Schema::default();
    let mut names: Vec<_> = schema.keys().map(raw::variable).collect();
    let all = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), all);
}
