//! `.ci/setup`, with stand-ins for the programs it looks for and for `apt-get`.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const RUN: [&str; 5] = ["cmake", "g++", "make", "pkg-config", "espeak-ng"];
const TEST: [&str; 3] = ["node", "npm", "chromium"];

/// A folder that is the whole `PATH`.
struct Machine(tempfile::TempDir);

impl Machine {
    /// Has nothing but the shell, a user and `apt-get`, which logs its arguments.
    fn bare(user: u32) -> Self {
        let machine = Self(tempfile::tempdir().expect("a temporary folder"));
        for tool in ["bash", "env", "tail", "mktemp", "rm"] {
            let real =
                ["/bin", "/usr/bin"].iter().map(|dir| Path::new(dir).join(tool)).find(|path| path.exists());
            symlink(real.expect("a basic tool"), machine.path(tool)).expect("linked");
        }
        machine.add("id", &format!("echo {user}"));
        machine.add("apt-get", &format!("echo \"apt-get $*\" >> '{}'", machine.path("log").display()));
        machine
    }

    /// Has all that `programs` name, Python with pip and venv, and cargo.
    fn with(user: u32, programs: &[&str]) -> Self {
        let machine = Self::bare(user);
        for program in programs.iter().chain(&["python3", "cargo"]) {
            machine.add(program, "exit 0");
        }
        machine
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn add(&self, name: &str, body: &str) {
        let path = self.path(name);
        fs::write(&path, format!("#!/bin/bash\n{body}\n")).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("made executable");
    }

    fn setup(&self, want: &str) -> Output {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join(".ci/setup");
        let mut command = Command::new(self.path("bash"));
        command.arg(script).arg(want).env_clear().env("PATH", self.0.path()).env("HOME", self.0.path());
        command.output().expect("it runs")
    }

    /// What `apt-get` was asked, line by line.
    fn asked(&self) -> Vec<String> {
        fs::read_to_string(self.path("log")).unwrap_or_default().lines().map(str::to_owned).collect()
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn when_all_is_there_nothing_is_installed() {
    let all: Vec<_> = RUN.into_iter().chain(TEST).collect();
    for (programs, want) in [(&RUN[..], "run"), (&all[..], "test")] {
        let machine = Machine::with(0, programs);
        let output = machine.setup(want);
        assert!(output.status.success(), "{}", said(&output));
        assert!(output.stdout.is_empty() && output.stderr.is_empty());
        assert!(machine.asked().is_empty(), "not even an update");
    }
}

#[test]
fn root_gets_what_is_missing_installed_and_told() {
    let machine = Machine::with(0, &["make", "pkg-config", "g++"]);
    let output = machine.setup("run");
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "setup: installing cmake espeak-ng\n");
    assert_eq!(
        machine.asked(),
        ["apt-get update", "apt-get install -y --no-install-recommends cmake espeak-ng"]
    );
}

#[test]
fn tests_need_more() {
    let machine = Machine::with(0, &RUN);
    assert!(machine.setup("test").status.success());
    assert_eq!(machine.asked()[1], "apt-get install -y --no-install-recommends nodejs npm chromium");
}

#[test]
fn another_user_is_given_the_command() {
    let machine = Machine::with(1000, &["make", "cmake", "pkg-config", "g++"]);
    let output = machine.setup("run");
    assert_eq!(output.status.code(), Some(1));
    assert!(
        said(&output).contains(
            "\n    sudo apt-get update && sudo apt-get install -y --no-install-recommends espeak-ng\n"
        ),
        "{}",
        said(&output)
    );
    assert!(machine.asked().is_empty());
}

#[test]
fn a_failed_install_says_why() {
    let machine = Machine::with(0, &["make"]);
    machine.add("apt-get", "echo 'E: You have no space left' >&2; exit 100");
    let output = machine.setup("run");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        said(&output),
        "E: You have no space left\nsetup: 'apt-get update' failed (see above); check the network and the disk and run this again\n"
    );
}

#[test]
fn without_cargo_it_says_where_rust_is() {
    let machine = Machine::with(0, &RUN);
    fs::remove_file(machine.path("cargo")).expect("removed");
    let output = machine.setup("run");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        said(&output),
        "setup: cargo is missing; install Rust 1.95 or newer (https://rustup.rs) and run this again\n"
    );
    fs::create_dir_all(machine.path(".cargo/bin")).expect("made");
    fs::rename(machine.path("make"), machine.path(".cargo/bin/cargo")).expect("moved");
    machine.add("make", "exit 0");
    assert!(machine.setup("run").status.success(), "rustup's own folder counts");
}
