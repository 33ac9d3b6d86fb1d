//! `voluble models list|show|pull`.

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::sync::Mutex;

use indicatif::{ProgressBar, ProgressStyle};

use super::cli::ModelsCommand;
use super::failure::Failure;
use super::output::Out;
use crate::config::Config;
use crate::models::descriptor::{self, Descriptor};
use crate::models::{FileState, Progress, Puller, Store, megabytes};

/// Runs one of the commands.
///
/// # Errors
/// One line with the remedy.
pub fn run(command: &ModelsCommand, config: &Config, out: &mut Out<'_>) -> Result<(), Failure> {
    let store = Store::from_config(&config.models);
    match command {
        ModelsCommand::List => list(&store, out),
        ModelsCommand::Show { name } => show(descriptor::find(name)?, &store, out),
        ModelsCommand::Pull { names } => {
            let models = descriptor::select(names)?;
            let bars = Bars::default();
            let made = Puller::new(&store, &config.models, &bars, shipped()).pull(&models)?;
            match made {
                0 => out.line(&format!("all {} models are in {}", models.len(), store.root().display())),
                _ => out.line(&format!("fetched {made} files into {}", store.root().display())),
            }
        }
    }
}

fn list(store: &Store, out: &mut Out<'_>) -> Result<(), Failure> {
    let rows: Vec<[String; 6]> = descriptor::all()
        .iter()
        .map(|model| {
            [
                model.name.clone(),
                model.role.clone(),
                state(model, store).to_owned(),
                megabytes(model.bytes()),
                if model.default { "yes" } else { "no" }.to_owned(),
                model.licence.clone(),
            ]
        })
        .collect();
    out.table(["NAME", "ROLE", "STATE", "SIZE", "DEFAULT", "LICENCE"], &rows)
}

/// A model is as well off as its worst file.
fn state(model: &Descriptor, store: &Store) -> &'static str {
    let states: Vec<_> = model.files.iter().map(|file| store.state(model, file)).collect();
    if states.is_empty() {
        "not for this processor"
    } else if states.iter().all(|state| *state == FileState::Present) {
        "present"
    } else if states.iter().all(|state| *state == FileState::Missing) {
        "missing"
    } else if states.contains(&FileState::Missing) {
        "incomplete"
    } else if states.contains(&FileState::Different) {
        "damaged"
    } else {
        "present, unchecked"
    }
}

fn show(model: &Descriptor, store: &Store, out: &mut Out<'_>) -> Result<(), Failure> {
    out.line(&format!("{}: {}", model.name, model.about))?;
    out.line(&format!("role:     {}", model.role))?;
    out.line(&format!("licence:  {}", model.licence))?;
    out.line(&format!("state:    {}", state(model, store)))?;
    out.line(&format!("folder:   {}", store.root().join(&model.name).display()))?;
    if let Some(drafter) = &model.drafter {
        out.line(&format!("drafter:  {drafter}"))?;
    }
    if let Some(base) = &model.base {
        out.line(&format!("base:     {base}"))?;
    }
    for (fact, value) in &model.facts {
        out.line(&format!("{fact}: {value}"))?;
    }
    for file in &model.files {
        out.line(&format!("file {} ({})", file.name, megabytes(file.bytes)))?;
        if let Some(sha256) = &file.sha256 {
            out.line(&format!("  sha256 {sha256}"))?;
        }
        for input in &file.inputs {
            out.line(&format!("  converted from {} sha256 {}", input.name, input.sha256))?;
        }
        if let Some(shipped) = &file.shipped {
            out.line(&format!("  ships with Voluble as models/{shipped}"))?;
        }
    }
    for package in &model.packages {
        out.line(&format!("package {} ({})", package.requirement(), megabytes(package.bytes)))?;
        out.line(&format!("  sha256 {}", package.sha256))?;
    }
    Ok(())
}

/// Where files that ship with the sources are looked for: beside the working
/// folder, in an installed tree, in the checkout that the program was built from.
fn shipped() -> Vec<PathBuf> {
    let installed = std::env::current_exe()
        .ok()
        .and_then(|exe| Some(exe.parent()?.parent()?.join("share/voluble/models")));
    let mut folders = vec![PathBuf::from("models")];
    folders.extend(installed);
    folders.push(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("models"));
    folders
}

/// Bars on a terminal, plain lines elsewhere. Both on stderr.
#[derive(Default)]
struct Bars(Mutex<Option<ProgressBar>>);

impl Bars {
    fn current(&self) -> std::sync::MutexGuard<'_, Option<ProgressBar>> {
        // A bar has no state that a panic could break.
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Progress for Bars {
    fn begin(&self, step: &str, bytes: u64) {
        if !io::stderr().is_terminal() {
            eprintln!("{step} ({})", megabytes(bytes));
            return;
        }
        let style = ProgressStyle::with_template(
            "{msg:44!} [{bar:24}] {bytes:>11} of {total_bytes:<11} {bytes_per_sec:>13} {eta:>4}",
        )
        .expect("the template is well formed")
        .progress_chars("=> ");
        *self.current() = Some(ProgressBar::new(bytes).with_style(style).with_message(step.to_owned()));
    }

    fn at(&self, bytes: u64) {
        if let Some(bar) = &*self.current() {
            bar.set_position(bytes);
        }
    }

    fn end(&self) {
        if let Some(bar) = self.current().take() {
            bar.finish_and_clear();
        }
    }

    fn say(&self, line: &str) {
        eprintln!("{line}");
    }
}
