//! The folder that holds fetched models, and what is known to be right in it.
//!
//! Hashing half a gigabyte takes seconds, so a file that was checked leaves a
//! stamp (size, time of change, sha256); as long as size and time agree, the
//! stamp is believed.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};

use super::descriptor::{self, Descriptor, File};
use super::{ModelsError, wheel};

/// The folder that holds fetched models.
#[derive(Clone, Debug)]
pub struct Store {
    root: PathBuf,
}

/// The files of a language model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LanguageModel {
    /// The model itself, a GGUF file.
    pub base: PathBuf,
    /// The drafter made for it, where there is one.
    pub drafter: Option<PathBuf>,
}

/// The files of the language model that the settings name: a model of the
/// store, with its drafter, or the path of a GGUF file, without one.
///
/// # Errors
/// [`ModelsError::UnknownModel`] and [`ModelsError::Missing`], saying how to fetch it.
pub fn language_model(store: &Store, name: &str) -> Result<LanguageModel, ModelsError> {
    let path = Path::new(name);
    if name.contains('/') || path.extension().is_some_and(|extension| extension == "gguf") {
        if let Err(source) = fs::metadata(path) {
            return Err(ModelsError::io(path, 0, source));
        }
        return Ok(LanguageModel { base: path.to_owned(), drafter: None });
    }
    // A folder that someone laid into the store needs no descriptor.
    let base = store.path(name, "model.gguf");
    let known = descriptor::find(name);
    if !base.is_file() {
        return Err(known.map_or_else(
            |error| error,
            |model| ModelsError::Missing { model: model.name.clone(), path: base },
        ));
    }
    let drafter = match known.ok().and_then(|model| model.drafter.as_deref()) {
        Some(drafter) => {
            let drafter = descriptor::find(drafter)?;
            drafter.files.first().map(|file| store.require(&drafter.name, &file.name)).transpose()?
        }
        None => None,
    };
    Ok(LanguageModel { base, drafter })
}

/// How a file of a model stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileState {
    /// There, and known to be right.
    Present,
    /// There in the right size; nobody has checked its bytes.
    Unchecked,
    /// There, but not what the descriptor says.
    Different,
    /// Not there.
    Missing,
}

/// What was checked of a model's files, by name.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Stamps(BTreeMap<String, Stamp>);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Stamp {
    bytes: u64,
    /// Time of the last change, nanoseconds since 1970, as text: JSON numbers are too small.
    modified: String,
    sha256: String,
    /// For a converted file: the checksums of what it was made from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    from: Vec<String>,
}

const STAMPS: &str = ".checked.json";

impl Store {
    /// A store at this folder; it need not exist yet.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The store that the settings name.
    pub fn from_config(config: &crate::config::models::Models) -> Self {
        config.dir.as_ref().map_or_else(Self::default, Self::at)
    }

    /// The folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where a model's file lies, whether or not it is there.
    pub fn path(&self, model: &str, file: &str) -> PathBuf {
        self.root.join(model).join(file)
    }

    /// Where a model's file lies, if it is there.
    ///
    /// # Errors
    /// [`ModelsError::Missing`], saying how to fetch it.
    pub fn require(&self, model: &str, file: &str) -> Result<PathBuf, ModelsError> {
        let path = self.path(model, file);
        if path.is_file() { Ok(path) } else { Err(ModelsError::Missing { model: model.to_owned(), path }) }
    }

    /// How a file stands, without reading its bytes.
    pub fn state(&self, model: &Descriptor, file: &File) -> FileState {
        let path = self.path(&model.name, &file.name);
        let Ok(data) = fs::metadata(&path) else { return FileState::Missing };
        if data.len() != file.bytes {
            return FileState::Different;
        }
        match self.stamps(&model.name).0.get(&file.name) {
            Some(stamp) if stamp.bytes == data.len() && stamp.modified == modified(&data) => {
                if is_right(file, stamp) { FileState::Present } else { FileState::Different }
            }
            _ => FileState::Unchecked,
        }
    }

    /// How a file stands, reading its bytes where nothing else tells, and
    /// remembering the result.
    ///
    /// # Errors
    /// When the file cannot be read or the stamp not be written.
    pub fn check(&self, model: &Descriptor, file: &File) -> Result<FileState, ModelsError> {
        let state = self.state(model, file);
        if state != FileState::Unchecked {
            return Ok(state);
        }
        // Of a converted file only its making says that it is right.
        let Some(expected) = &file.sha256 else { return Ok(FileState::Different) };
        let path = self.path(&model.name, &file.name);
        let found = wheel::sha256_file(&path, &mut |_| {})?;
        if found != *expected {
            return Ok(FileState::Different);
        }
        self.stamp(model, file, found)?;
        Ok(FileState::Present)
    }

    /// Remembers that a file was checked.
    pub(super) fn stamp(&self, model: &Descriptor, file: &File, sha256: String) -> Result<(), ModelsError> {
        let path = self.path(&model.name, &file.name);
        let data = fs::metadata(&path).map_err(|source| ModelsError::io(&path, 0, source))?;
        let mut stamps = self.stamps(&model.name);
        let from = file.inputs.iter().map(|input| input.sha256.clone()).collect();
        let stamp = Stamp { bytes: data.len(), modified: modified(&data), sha256, from };
        stamps.0.insert(file.name.clone(), stamp);
        let to = self.path(&model.name, STAMPS);
        let part = to.with_extension("json.part");
        let text = serde_json::to_string_pretty(&stamps).expect("stamps are plain data");
        fs::write(&part, text).map_err(|source| ModelsError::io(&part, 0, source))?;
        fs::rename(&part, &to).map_err(|source| ModelsError::io(&to, 0, source))
    }

    fn stamps(&self, model: &str) -> Stamps {
        // A stamp file that is missing or damaged costs a check of the bytes, nothing else.
        fs::read(self.path(model, STAMPS))
            .ok()
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .unwrap_or_default()
    }

    /// Takes the store for writing; waits for another process that has it.
    pub(super) fn lock(&self, waiting: &mut dyn FnMut()) -> Result<fs::File, ModelsError> {
        let fault = |path: &Path| {
            let path = path.to_owned();
            move |source: io::Error| ModelsError::io(&path, 0, source)
        };
        fs::create_dir_all(&self.root).map_err(fault(&self.root))?;
        let path = self.root.join(".lock");
        let file = fs::OpenOptions::new().create(true).append(true).open(&path).map_err(fault(&path))?;
        if file.try_lock().is_err() {
            waiting();
            file.lock().map_err(fault(&path))?;
        }
        Ok(file)
    }
}

impl Default for Store {
    fn default() -> Self {
        let cache = || {
            let home = std::env::var_os("HOME").map_or_else(|| PathBuf::from("."), PathBuf::from);
            std::env::var_os("XDG_CACHE_HOME")
                .filter(|dir| !dir.is_empty())
                .map_or_else(|| home.join(".cache"), PathBuf::from)
        };
        Self::at(
            std::env::var_os("VOLUBLE_MODELS_DIR")
                .filter(|dir| !dir.is_empty())
                .map_or_else(|| cache().join("voluble").join("models"), PathBuf::from),
        )
    }
}

fn is_right(file: &File, stamp: &Stamp) -> bool {
    file.sha256.as_ref().is_none_or(|expected| *expected == stamp.sha256)
        && file.inputs.iter().map(|input| &input.sha256).eq(&stamp.from)
}

fn modified(data: &fs::Metadata) -> String {
    // A file system without times of change gives a constant: then the size must do.
    let since = data.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    since.map_or_else(String::new, |since| since.as_nanos().to_string())
}
