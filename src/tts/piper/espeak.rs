//! Words to phonemes: the `espeak-ng` program as a child that stays.
//!
//! The program is run, not linked: it is GPL and keeps global state, and a
//! child that hangs or dies takes nothing down with it. It reads a line at a
//! time and writes the phonemes of each clause that it finds as a line; how
//! many there will be is not known, so each question is followed by a line of
//! phonemes that no language has, and the answer ends where that comes back.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use crate::tts::TtsError;

/// Phonemes, spelled as espeak spells them, that end an answer.
const END: &str = "[[tSqtSqtSq]]";

/// A running phonemizer for one language.
#[derive(Debug)]
pub struct Espeak {
    program: PathBuf,
    voice: String,
    timeout: Duration,
    child: Option<Running>,
}

#[derive(Debug)]
struct Running {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
    /// How [`END`] comes back.
    end: String,
}

impl Espeak {
    /// Starts the program for a language (`en-us`).
    ///
    /// # Errors
    /// When the program is missing or does not know the language.
    pub fn start(program: &Path, voice: &str, timeout: Duration) -> Result<Self, TtsError> {
        let mut espeak = Self { program: program.to_owned(), voice: voice.to_owned(), timeout, child: None };
        espeak.child = Some(espeak.spawn()?);
        Ok(espeak)
    }

    /// The phonemes of each text (IPA, words with spaces between), one answer
    /// a text. What the program could take for markup or for two lines is
    /// taken out. A program that died or hangs is started again, once.
    ///
    /// # Errors
    /// When it fails twice.
    pub fn phonemes(&mut self, texts: &[&str]) -> Result<Vec<String>, TtsError> {
        match self.ask(texts) {
            Ok(answers) => Ok(answers),
            Err(first) => {
                tracing::warn!(error = %first, "espeak-ng is started again");
                self.child = None;
                self.ask(texts)
            }
        }
    }

    /// Ends the program; the next question starts a new one.
    pub fn reset(&mut self) {
        self.child = None;
    }

    fn ask(&mut self, texts: &[&str]) -> Result<Vec<String>, TtsError> {
        let mut running = match self.child.take() {
            Some(running) => running,
            None => self.spawn()?,
        };
        let answers = running.ask(texts, self.timeout)?;
        // Kept only after a whole answer: a half one would be read as the next.
        self.child = Some(running);
        Ok(answers)
    }

    fn spawn(&self) -> Result<Running, TtsError> {
        // `stdbuf`: into a pipe the C library would hold lines back until 4 kB are full.
        let mut child = Command::new("stdbuf")
            .arg("-oL")
            .arg(&self.program)
            .args(["-q", "--ipa", "-b", "1", "-v", &self.voice])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| TtsError::Model(format!("cannot run stdbuf (package coreutils): {error}")))?;
        let input = child.stdin.take().expect("it was asked for");
        let output = child.stdout.take().expect("it was asked for");
        let (tx, lines) = channel();
        std::thread::Builder::new()
            .name("espeak-lines".to_owned())
            .spawn(move || {
                for line in BufReader::new(output).lines() {
                    let Ok(line) = line else { break };
                    if tx.send(line).is_err() {
                        break;
                    }
                }
            })
            .map_err(|error| TtsError::Model(format!("cannot start a thread: {error}")))?;
        let mut running = Running { child, input, lines, end: String::new() };
        // The first answer waits for the program and its data to be read from disk.
        match running.start(self.timeout.max(Duration::from_secs(5))) {
            Ok(()) => Ok(running),
            Err(error) => Err(self.explain(&error)),
        }
    }

    /// Why the program does not start, in one line with the remedy.
    fn explain(&self, error: &TtsError) -> TtsError {
        let program = self.program.display();
        match Command::new(&self.program).arg("--version").stdin(Stdio::null()).output() {
            Err(missing) => {
                TtsError::Model(format!("cannot run {program} ({missing}): install the package espeak-ng"))
            }
            Ok(_) => TtsError::Model(format!(
                "{program} does not start for language '{}' ({error}): install the package espeak-ng-data or name another language",
                self.voice
            )),
        }
    }
}

impl Running {
    /// Learns how the end mark comes back.
    fn start(&mut self, timeout: Duration) -> Result<(), TtsError> {
        self.write(&format!("{END}\n"))?;
        self.end = self.line(timeout)?;
        Ok(())
    }

    fn ask(&mut self, texts: &[&str], timeout: Duration) -> Result<Vec<String>, TtsError> {
        let mut answers = Vec::with_capacity(texts.len());
        // Few at a time, so that neither pipe can fill while nobody reads.
        for texts in texts.chunks(16) {
            let question: String = texts.iter().map(|text| format!("{}\n{END}\n", plain(text))).collect();
            self.write(&question)?;
            for _ in texts {
                let mut answer = String::new();
                loop {
                    let line = self.line(timeout)?;
                    if line == self.end {
                        break;
                    }
                    if !answer.is_empty() && !line.is_empty() {
                        answer.push(' ');
                    }
                    answer.push_str(&line);
                }
                answers.push(without_language_marks(&answer));
            }
        }
        Ok(answers)
    }

    fn write(&mut self, text: &str) -> Result<(), TtsError> {
        self.input
            .write_all(text.as_bytes())
            .and_then(|()| self.input.flush())
            .map_err(|error| TtsError::Model(format!("espeak-ng ended: {error}")))
    }

    fn line(&self, timeout: Duration) -> Result<String, TtsError> {
        self.lines.recv_timeout(timeout).map_err(|error| {
            TtsError::Model(match error {
                RecvTimeoutError::Timeout => {
                    format!("espeak-ng did not answer within {} ms", timeout.as_millis())
                }
                RecvTimeoutError::Disconnected => "espeak-ng ended".to_owned(),
            })
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself; either way it is gone afterwards.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One line without what espeak takes for a phoneme spelling, a voice tag or
/// the end of a clause.
fn plain(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '[' | ']' | '<' | '>' | '{' | '}' => ' ',
            c if c.is_control() => ' ',
            c => c,
        })
        .collect()
}

/// Takes out `(en)` and the like, which mark where espeak changes the language.
fn without_language_marks(phonemes: &str) -> String {
    let mut out = String::with_capacity(phonemes.len());
    let mut depth = 0usize;
    for c in phonemes.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            c if depth == 0 => out.push(c),
            _ => {}
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn english() -> Espeak {
        Espeak::start(Path::new("espeak-ng"), "en-us", Duration::from_secs(10))
            .expect("the package espeak-ng is installed")
    }

    #[test]
    fn words_become_phonemes() {
        let answers = english().phonemes(&["hello there", "", "in the house", "a. b? c"]).expect("it runs");
        assert_eq!(answers[0], "həlˈoʊ ðˈɛɹ");
        assert_eq!(answers[1], "");
        // Function words are drawn together.
        assert_eq!(answers[2], "ɪnðə hˈaʊs");
        assert_eq!(answers[3].split(' ').count(), 3, "{answers:?}");
    }

    #[test]
    fn nothing_puts_questions_and_answers_out_of_step() {
        let mut espeak = english();
        let long = "word ".repeat(600);
        for odd in ["\n\n", "...", "[[tSqtSqtSq]]", "<b>", "😀", "你好", "(", "\u{0}", "'", &long] {
            let answers = espeak.phonemes(&[odd, "house"]).expect("it runs");
            assert_eq!(answers[1], "hˈaʊs", "after {odd:?}");
        }
        let many = vec!["house"; 100];
        assert_eq!(espeak.phonemes(&many).expect("it runs"), vec!["hˈaʊs"; 100]);
    }

    #[test]
    fn a_dead_program_is_started_again() {
        let mut espeak = english();
        espeak.child.as_mut().expect("it runs").child.kill().expect("it runs");
        assert_eq!(espeak.phonemes(&["house"]).expect("it is started again"), ["hˈaʊs"]);
    }

    #[test]
    fn a_missing_program_names_the_package() {
        let error = Espeak::start(Path::new("no-such-espeak"), "en-us", Duration::from_secs(10))
            .expect_err("there is no such program")
            .to_string();
        assert!(error.contains("package espeak-ng") && !error.contains('\n'), "{error}");
    }

    #[test]
    fn an_unknown_language_is_said() {
        let error = Espeak::start(Path::new("espeak-ng"), "xx-none", Duration::from_secs(10))
            .expect_err("there is no such language")
            .to_string();
        assert!(error.contains("xx-none"), "{error}");
    }

    #[test]
    fn language_marks_are_no_phonemes() {
        assert_eq!(without_language_marks("(en)ʃˈʊɹ(de) ja"), "ʃˈʊɹ ja");
    }
}
