use super::*;

const PACE: Pace = Pace { segment: 400, partial: Some(30), eager: true, partials_last: true };
const QUIET: Pace = Pace { segment: 400, partial: None, eager: false, partials_last: true };

fn sound(level: f32, frames: usize) -> Vec<f32> {
    vec![level; frames * FRAME]
}

fn speech(frames: usize) -> Vec<f32> {
    sound(0.1, frames)
}

fn silence(frames: usize) -> Vec<f32> {
    sound(0.001, frames)
}

fn heard(text: &str) -> Heard {
    Heard { text: text.to_owned(), language: Some("en"), no_speech: 0.1 }
}

fn said(pace: Pace, parts: &[Vec<f32>]) -> Utterance {
    let mut u = Utterance::new(pace);
    parts.iter().for_each(|p| u.push(p));
    u
}

fn at(frames: usize) -> u64 {
    (frames * FRAME) as u64
}

#[test]
fn a_flush_decodes_everything_so_far() {
    let mut u = said(QUIET, &[silence(10), speech(50)]);
    assert_eq!(u.due(), None, "nobody asked");
    u.flush(7, 0);
    let stretch = u.due().expect("the flush");
    assert_eq!(stretch, Stretch { why: Why::Final, from: 0, to: at(60) });
    assert_eq!(u.take(stretch).0.len(), 60 * FRAME);
    assert_eq!(u.settle(), None);
    u.heard(stretch, heard("hello"));
    let answer = u.settle().expect("all is known");
    assert_eq!((answer.marker, answer.heard.text.as_str(), answer.samples), (7, "hello", at(60)));
    assert_eq!(u.due(), None);
}

#[test]
fn silence_is_answered_without_decoding() {
    let mut u = said(QUIET, &[sound(0.0, 100)]);
    u.flush(1, 0);
    let answer = u.settle().expect("there is nothing to decode");
    assert_eq!((answer.heard.text.as_str(), answer.heard.no_speech), ("", 1.0));
}

#[test]
fn a_flush_of_nothing_is_answered() {
    let mut u = Utterance::new(QUIET);
    u.flush(1, 0);
    assert_eq!(u.settle().map(|a| a.samples), Some(0));
}

#[test]
fn the_newest_flush_wins_and_words_said_after_the_first_count() {
    let mut u = said(QUIET, &[silence(10), speech(50), silence(10)]);
    u.flush(1, 0);
    let first = u.due().expect("the flush");
    u.push(&speech(30));
    u.flush(2, 1);
    assert!(!u.still_wanted(first), "words came after it");
    let second = u.due().expect("the second flush");
    assert_eq!(second.to, at(100));
    u.heard(second, heard("hello there"));
    assert_eq!(u.settle().map(|a| a.marker), Some(2));
    assert_eq!(u.settle(), None, "the first is skipped");
}

#[test]
fn a_decoding_under_way_serves_a_flush_when_only_silence_was_added() {
    let mut u = said(PACE, &[silence(10), speech(50), silence(5)]);
    let early = u.due().expect("the voice fell quiet");
    assert_eq!((early.why, early.to), (Why::Early, at(65)));
    u.take(early);
    u.push(&silence(8));
    u.flush(3, 0);
    assert!(u.still_wanted(early));
    u.heard(early, heard("hello"));
    assert_eq!(u.settle().map(|a| (a.marker, a.samples)), Some((3, at(73))));
}

#[test]
fn a_partial_does_not_answer_for_words_it_has_not_heard() {
    let mut u = said(PACE, &[silence(10), speech(30)]);
    let partial = u.due().expect("the interval is over");
    u.take(partial);
    u.heard(partial, heard("hel"));
    u.push(&speech(20));
    u.flush(3, 0);
    assert_eq!(u.settle(), None);
    assert_eq!(u.due().map(|s| s.to), Some(at(60)));
}

#[test]
fn partials_come_at_their_interval_and_only_while_there_is_a_voice() {
    let mut u = said(PACE, &[silence(10), speech(19)]);
    assert_eq!(u.due(), None, "too early");
    u.push(&speech(1));
    let first = u.due().expect("the interval is over");
    u.take(first);
    assert_eq!(u.due(), None, "it was tried");
    u.push(&speech(29));
    assert_eq!(u.due(), None);
    u.push(&speech(1));
    assert!(u.due().is_some());
    u.heard(first, heard("hello"));
    assert_eq!(u.news(&heard("hello")).as_deref(), Some("hello"));
    assert_eq!(u.news(&heard("hello")), None, "once");
    let second = u.due().expect("still due");
    u.take(second);
    u.push(&silence(100));
    assert_eq!(u.due().map(|s| s.why), None, "nothing was said since");
    let small = Pace { partials_last: false, ..PACE };
    let mut u = said(small, &[silence(10), speech(30)]);
    let partial = u.due().expect("the interval is over");
    u.flush(1, 0);
    assert!(!u.still_wanted(partial), "the smaller model does not answer");
}

#[test]
fn a_long_turn_is_cut_at_its_pauses_and_nothing_is_lost() {
    let mut u = said(QUIET, &[silence(10), speech(420), silence(20), speech(100), silence(10)]);
    let segment = u.due().expect("a segment is finished");
    assert_eq!((segment.why, segment.from), (Why::Segment, 0));
    assert!(segment.to > at(430) && segment.to < at(450), "inside the pause");
    u.take(segment);
    u.heard(segment, heard("one"));
    assert_eq!(u.settle(), None);
    assert_eq!(u.due(), None);
    u.flush(1, 0);
    let tail = u.due().expect("the tail");
    assert_eq!((tail.from, tail.to), (segment.to, at(560)));
    assert_eq!(u.take(tail).0.len() as u64, tail.to - tail.from);
    u.heard(tail, heard("two"));
    let answer = u.settle().expect("all is known");
    assert_eq!((answer.heard.text.as_str(), answer.samples), ("one two", at(560)));
}

#[test]
fn a_flush_goes_through_the_segments_first() {
    let mut u = said(QUIET, &[silence(10), speech(420), silence(20), speech(100), silence(10)]);
    u.flush(1, 0);
    for text in ["one", "two"] {
        let stretch = u.due().expect("more to decode");
        assert_eq!(stretch.why, Why::Final);
        assert!(u.waiting().is_some());
        u.heard(stretch, heard(text));
        if let Some(answer) = u.settle() {
            assert_eq!((text, answer.heard.text.as_str()), ("two", "one two"));
            return;
        }
    }
    panic!("two stretches should have been enough");
}

#[test]
fn without_a_pause_the_window_is_cut_at_its_quietest_place() {
    let u = said(QUIET, &[speech(1000), sound(0.05, 6), speech(500)]);
    let segment = u.due().expect("the window is full");
    assert!(segment.to > at(1000) && segment.to < at(1006), "{}", segment.to / FRAME as u64);
}

#[test]
fn the_size_of_pushes_changes_nothing() {
    let whole = [silence(10), speech(430), silence(40), speech(450), silence(17), speech(900)].concat();
    let ends = |chunk: usize| {
        let mut u = Utterance::new(QUIET);
        whole.chunks(chunk).for_each(|c| u.push(c));
        u.cuts.iter().map(|c| c.end).collect::<Vec<_>>()
    };
    let expected = ends(whole.len());
    assert_eq!(expected.len(), 2);
    for chunk in [1, 7, 320, 512, 1600, 16_000] {
        assert_eq!(ends(chunk), expected, "pushed by {chunk}");
    }
}

#[test]
fn chinese_is_joined_without_spaces() {
    let mut u = said(QUIET, &[silence(10), speech(420), silence(20), speech(30)]);
    u.flush(1, 0);
    for text in ["你好", "世界"] {
        let stretch = u.due().expect("more to decode");
        u.heard(stretch, Heard { text: text.to_owned(), language: Some("zh"), no_speech: 0.0 });
        if let Some(answer) = u.settle() {
            assert_eq!(answer.heard.text, "你好世界");
        }
    }
    assert_eq!(u.language(), Some("zh"));
}
