//! Dates and times of day.

use super::number::{cardinal, ordinal, year};
use super::word::ends_sentence;
use super::{Text, Token};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// Reads a date or time that begins here; gives the place after it.
pub fn read(text: &Text, at: usize, out: &mut Vec<Token>) -> Option<usize> {
    let c = text.char(at);
    if matches!(c, '-' | '–') && text.char(at + 1).is_ascii_digit() {
        // "9am-5pm"
        let clock = matches!(text.before(at), 'm' | 'M' | '.') || text.before(at).is_ascii_digit();
        if clock && time(text, at + 1).is_some() {
            out.push(text.word(at, at + 1, "to"));
            return Some(at + 1);
        }
        return None;
    }
    if !text.begins(at) {
        return None;
    }
    let (end, spoken) = if c.is_ascii_digit() {
        time(text, at)
            .or_else(|| iso(text, at))
            .or_else(|| slashes(text, at))
            .or_else(|| day_first(text, at))?
    } else {
        month_first(text, at)?
    };
    out.push(text.word(at, end, spoken));
    ends_sentence(text, end, out);
    Some(end)
}

fn small(text: &Text, at: usize, most: usize) -> Option<(u64, usize)> {
    let (digits, end) = text.digits(at);
    (1..=most).contains(&digits.len()).then(|| digits.parse().ok().map(|value| (value, end))).flatten()
}

/// "3:45 pm", "15:30", "3pm".
fn time(text: &Text, at: usize) -> Option<(usize, String)> {
    let (hour, after) = small(text, at, 2)?;
    if hour > 24 {
        return None;
    }
    let mut end = after;
    let mut minute = None;
    let mut second = None;
    if text.char(after) == ':' {
        let (value, next) =
            small(text, after + 1, 2).filter(|(value, next)| *value < 60 && next - after == 3)?;
        minute = Some(value);
        end = next;
        if text.char(end) == ':' {
            let (value, next) =
                small(text, end + 1, 2).filter(|(value, next)| *value < 60 && next - end == 3)?;
            second = Some(value);
            end = next;
        }
    }
    let half = half(text, text.skip_spaces(end)).filter(|_| (1..=12).contains(&hour) || minute.is_some());
    if minute.is_none() && half.is_none() {
        return None;
    }
    if half.is_none() && (!text.ends(end) || text.char(end) == '.' && text.char(end + 1).is_ascii_digit()) {
        return None;
    }
    let mut words = vec![cardinal(hour)];
    match minute {
        None => {}
        Some(0) if second.is_none() && half.is_none() => {
            words.push(if (1..=12).contains(&hour) { "o'clock" } else { "hundred" }.to_owned());
        }
        Some(0) if second.is_none() => {}
        Some(minute) => words.push(minutes(minute)),
    }
    words.extend(second.map(minutes));
    if let Some((letter, after)) = half {
        words.push(format!("{letter}.M"));
        end = after;
    }
    Some((end, words.join(" ")))
}

fn minutes(value: u64) -> String {
    match value {
        0 => "zero".to_owned(),
        1..10 => format!("oh {}", cardinal(value)),
        _ => cardinal(value),
    }
}

/// `am`, `p.m.` and the like: its first letter and the place after it.
fn half(text: &Text, at: usize) -> Option<(char, usize)> {
    let letter = match text.char(at) {
        'a' | 'A' => 'A',
        'p' | 'P' => 'P',
        _ => return None,
    };
    let dotted = text.char(at + 1) == '.';
    let m = at + 1 + usize::from(dotted);
    if !matches!(text.char(m), 'm' | 'M') || !text.ends(m + 1) {
        return None;
    }
    let end = m + 1;
    Some((letter, end + usize::from(dotted && text.char(end) == '.')))
}

/// "2026-12-01".
fn iso(text: &Text, at: usize) -> Option<(usize, String)> {
    let (digits, after) = text.digits(at);
    if digits.len() != 4 || text.char(after) != '-' {
        return None;
    }
    let (month, next) = small(text, after + 1, 2).filter(|(_, next)| next - after == 3)?;
    if text.char(next) != '-' {
        return None;
    }
    let (day, end) = small(text, next + 1, 2).filter(|(_, end)| end - next == 3)?;
    Some((end, date(month, day, digits.parse().ok(), text.ends(end))?))
}

/// "12/01/2026".
fn slashes(text: &Text, at: usize) -> Option<(usize, String)> {
    let (month, after) = small(text, at, 2)?;
    if text.char(after) != '/' {
        return None;
    }
    let (day, next) = small(text, after + 1, 2)?;
    if text.char(next) != '/' {
        return None;
    }
    let (digits, end) = text.digits(next + 1);
    let written: u64 = digits.parse().ok()?;
    let full = match digits.len() {
        4 => written,
        2 if written < 70 => 2_000 + written,
        2 => 1_900 + written,
        _ => return None,
    };
    // The other way round where only that makes sense.
    let (month, day) = if month > 12 { (day, month) } else { (month, day) };
    Some((end, date(month, day, Some(full), text.ends(end))?))
}

fn date(month: u64, day: u64, of: Option<u64>, ends: bool) -> Option<String> {
    let name = MONTHS.get(usize::try_from(month).ok()?.checked_sub(1)?)?;
    if !(1..=31).contains(&day) || !ends {
        return None;
    }
    Some(match of {
        Some(of) => format!("{name} {} {}", ordinal(day), year(of)),
        None => format!("{name} {}", ordinal(day)),
    })
}

/// The month named here and the place after its name and full stop.
fn month(text: &Text, at: usize) -> Option<(u64, usize)> {
    if !text.char(at).is_uppercase() {
        return None;
    }
    let (name, end) = text.letters(at);
    let index = MONTHS.iter().position(|month| {
        *month == name || name.len() >= 3 && month.starts_with(&name) && (name.len() == 3 || name == "Sept")
    })?;
    let dot = MONTHS[index] != name && text.char(end) == '.';
    Some((index as u64 + 1, end + usize::from(dot)))
}

/// "Dec 1, 2026", "March 5th", "May 2026".
fn month_first(text: &Text, at: usize) -> Option<(usize, String)> {
    let (month, after) = month(text, at)?;
    let start = text.skip_spaces(after);
    if start == after {
        return None;
    }
    let (digits, next) = text.digits(start);
    let value: u64 = digits.parse().ok()?;
    if digits.len() == 4 {
        let name = MONTHS[month as usize - 1];
        return text.ends(next).then(|| (next, format!("{name} {}", year(value))));
    }
    if digits.len() > 2 {
        return None;
    }
    let mut end = suffix(text, next);
    let mut spoken = date(month, value, None, text.ends(end) && text.char(end) != ':')?;
    if matches!(text.char(end), '-' | '–')
        && let Some((last, after)) = small(text, end + 1, 2)
        && (value + 1..=31).contains(&last)
    {
        end = suffix(text, after);
        spoken = format!("{spoken} to {}", ordinal(last));
    }
    let comma = end + usize::from(text.char(end) == ',');
    let (digits, last) = text.digits(text.skip_spaces(comma));
    if digits.len() == 4 && text.ends(last) && last > end + 4 {
        return Some((last, format!("{spoken} {}", year(digits.parse().ok()?))));
    }
    Some((end, spoken))
}

/// "1 Dec 2026", "25th December".
fn day_first(text: &Text, at: usize) -> Option<(usize, String)> {
    let (day, next) = small(text, at, 2)?;
    let after = suffix(text, next);
    let start = text.skip_spaces(after);
    if start == after {
        return None;
    }
    let (month, end) = month(text, start)?;
    // "2 May I go" is no date, but "may" alone is also a name and a verb: the year or the rest decides.
    let (digits, last) = text.digits(text.skip_spaces(end));
    if digits.len() == 4 && text.ends(last) && last > end + 4 {
        return Some((last, date(month, day, digits.parse().ok(), true)?));
    }
    Some((end, date(month, day, None, text.ends(end))?))
}

/// The place after `st`, `nd`, `rd`, `th`.
fn suffix(text: &Text, at: usize) -> usize {
    let found = ["st", "nd", "rd", "th"].iter().any(|suffix| text.is_here(at, suffix)) && text.ends(at + 2);
    at + if found { 2 } else { 0 }
}
