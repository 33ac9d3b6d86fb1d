//! Figures: plain numbers, money, percentages, ordinals, fractions, ranges, units.

use super::number::{cardinal, decade, decimal, fraction, one_by_one, ordinal, whole, year};
use super::{Text, Token};

/// A unit as written, its name for one, its name for more, and whether it must touch its number.
type Unit = (&'static str, &'static str, &'static str, bool);

const UNITS: &[Unit] = &[
    ("km/h", "kilometer per hour", "kilometers per hour", false),
    ("kph", "kilometer per hour", "kilometers per hour", false),
    ("mph", "mile per hour", "miles per hour", false),
    ("m/s", "meter per second", "meters per second", false),
    ("mm", "millimeter", "millimeters", false),
    ("cm", "centimeter", "centimeters", false),
    ("km", "kilometer", "kilometers", false),
    ("m²", "square meter", "square meters", false),
    ("m", "meter", "meters", false),
    ("mi", "mile", "miles", false),
    ("ft", "foot", "feet", false),
    ("yd", "yard", "yards", false),
    ("in", "inch", "inches", true),
    ("sq ft", "square foot", "square feet", false),
    ("mg", "milligram", "milligrams", false),
    ("kg", "kilogram", "kilograms", false),
    ("g", "gram", "grams", false),
    ("lb", "pound", "pounds", false),
    ("lbs", "pound", "pounds", false),
    ("oz", "ounce", "ounces", false),
    ("ml", "milliliter", "milliliters", false),
    ("mL", "milliliter", "milliliters", false),
    ("l", "liter", "liters", true),
    ("L", "liter", "liters", false),
    ("°C", "degree Celsius", "degrees Celsius", false),
    ("°F", "degree Fahrenheit", "degrees Fahrenheit", false),
    ("°", "degree", "degrees", true),
    ("KB", "kilobyte", "kilobytes", false),
    ("kB", "kilobyte", "kilobytes", false),
    ("MB", "megabyte", "megabytes", false),
    ("GB", "gigabyte", "gigabytes", false),
    ("TB", "terabyte", "terabytes", false),
    ("Mbps", "megabit per second", "megabits per second", false),
    ("Gbps", "gigabit per second", "gigabits per second", false),
    ("Hz", "hertz", "hertz", false),
    ("kHz", "kilohertz", "kilohertz", false),
    ("MHz", "megahertz", "megahertz", false),
    ("GHz", "gigahertz", "gigahertz", false),
    ("W", "watt", "watts", false),
    ("kW", "kilowatt", "kilowatts", false),
    ("kWh", "kilowatt hour", "kilowatt hours", false),
    ("V", "volt", "volts", false),
    ("mAh", "milliamp hour", "milliamp hours", false),
    ("ms", "millisecond", "milliseconds", false),
    ("s", "second", "seconds", true),
    ("sec", "second", "seconds", false),
    ("min", "minute", "minutes", false),
    ("mins", "minute", "minutes", false),
    ("h", "hour", "hours", true),
    ("hr", "hour", "hours", false),
    ("hrs", "hour", "hours", false),
    ("USD", "U.S dollar", "U.S dollars", false),
    ("EUR", "euro", "euros", false),
    ("GBP", "British pound", "British pounds", false),
    ("€", "euro", "euros", false),
    ("£", "pound", "pounds", false),
    ("¥", "yen", "yen", false),
];

/// Letters that multiply, when they touch the number.
const MULTIPLES: &[(&str, &str)] = &[
    ("k", "thousand"),
    ("K", "thousand"),
    ("M", "million"),
    ("bn", "billion"),
    ("B", "billion"),
    ("T", "trillion"),
    ("million", "million"),
    ("billion", "billion"),
    ("trillion", "trillion"),
    ("thousand", "thousand"),
];

/// Words after which four digits are a year.
const BEFORE_YEARS: &[&str] = &[
    "in", "since", "by", "until", "till", "from", "of", "year", "around", "before", "after", "during", "to",
    "and",
];

#[derive(Clone, Debug, Default)]
struct Figure {
    end: usize,
    negative: bool,
    /// Digits before the point, commas taken out.
    whole: String,
    fraction: Option<String>,
    /// Written with commas between thousands.
    grouped: bool,
}

impl Figure {
    fn said(&self) -> String {
        let number = match &self.fraction {
            Some(fraction) => decimal(&self.whole, fraction),
            None => whole(&self.whole),
        };
        if self.negative { format!("minus {number}") } else { number }
    }

    fn is_one(&self) -> bool {
        self.whole == "1" && self.fraction.is_none()
    }

    /// The value, when it is a plain whole number.
    fn value(&self) -> Option<u64> {
        (!self.negative && self.fraction.is_none() && !self.grouped)
            .then(|| self.whole.parse().ok())
            .flatten()
    }
}

/// Reads a figure that begins here; gives the place after it.
pub fn read(text: &Text, at: usize, out: &mut Vec<Token>) -> Option<usize> {
    let c = text.char(at);
    let (end, spoken) = match c {
        '#' | '№' if text.char(at + 1).is_ascii_digit() => {
            let figure = number(text, at + 1)?;
            (figure.end, format!("number {}", figure.said()))
        }
        '~' | '≈' if text.char(text.skip_spaces(at + 1)).is_ascii_digit() => (at + 1, "about".to_owned()),
        '±' => (at + 1, "plus or minus".to_owned()),
        '+' if text.char(at + 1).is_ascii_digit() => (at + 1, "plus".to_owned()),
        '½' | '¼' | '¾' | '⅓' | '⅔' | '⅛' => (at + 1, vulgar(c)?.to_owned()),
        '\'' | '’' if text.begins(at) => {
            let (digits, end) = text.digits(at + 1);
            if digits.len() != 2 || text.char(end) != 's' || !text.ends(end + 1) {
                return None;
            }
            (end + 1, decade(digits.parse().ok()?))
        }
        '$' | '€' | '£' | '¥' | '₹' => money(text, at, false)?,
        '-' | '−' if matches!(text.char(at + 1), '$' | '€' | '£' | '¥') && text.begins(at) => {
            money(text, at + 1, true)?
        }
        _ if c.is_ascii_digit() && text.before(at).is_alphabetic() => {
            // "GPT-4" comes with its hyphen, "H200" without.
            let figure = number(text, at)?;
            (figure.end, figure.said())
        }
        _ => version(text, at).or_else(|| plain(text, at))?,
    };
    out.push(text.word(at, end, spoken));
    Some(end)
}

fn vulgar(c: char) -> Option<&'static str> {
    Some(match c {
        '½' => "one half",
        '¼' => "one quarter",
        '¾' => "three quarters",
        '⅓' => "one third",
        '⅔' => "two thirds",
        '⅛' => "one eighth",
        _ => return None,
    })
}

/// The number written here, sign and all.
fn number(text: &Text, at: usize) -> Option<Figure> {
    let negative = matches!(text.char(at), '-' | '−') && text.begins(at);
    let start = at + usize::from(negative);
    let (mut digits, mut end) = text.digits(start);
    let mut grouped = false;
    if (1..=3).contains(&digits.len()) {
        while text.char(end) == ',' {
            let (more, next) = text.digits(end + 1);
            if more.len() != 3 {
                break;
            }
            digits.push_str(&more);
            end = next;
            grouped = true;
        }
    }
    let mut fraction = None;
    if text.char(end) == '.' {
        let (more, next) = text.digits(end + 1);
        if !more.is_empty() {
            fraction = Some(more);
            end = next;
        }
    }
    let bare_point = digits.is_empty() && (text.before(start).is_alphanumeric() || text.before(start) == '.');
    if digits.is_empty() && fraction.is_none() || bare_point {
        return None;
    }
    Some(Figure { end, negative, whole: digits, fraction, grouped })
}

/// "$3.50", "€5 million", "-$4", "$5-10".
fn money(text: &Text, sign: usize, negative: bool) -> Option<(usize, String)> {
    let (one, many, cent, cents) = match text.char(sign) {
        '$' => ("dollar", "dollars", "cent", "cents"),
        '€' => ("euro", "euros", "cent", "cents"),
        '£' => ("pound", "pounds", "penny", "pence"),
        '₹' => ("rupee", "rupees", "paisa", "paise"),
        _ => ("yen", "yen", "", ""),
    };
    let start = text.skip_spaces(sign + 1);
    let figure = number(text, start).filter(|figure| !figure.negative)?;
    let minus = if negative { "minus " } else { "" };
    if let Some((word, end)) = multiple(text, figure.end, true) {
        return Some((end, format!("{minus}{} {word} {many}", figure.said())));
    }
    if matches!(text.char(figure.end), '-' | '–') {
        let next = figure.end + 1;
        let next = next + usize::from(text.char(next) == text.char(sign));
        if let Some(last) = number(text, next).filter(|last| !last.negative && text.ends(last.end)) {
            return Some((last.end, format!("{} to {} {many}", figure.said(), last.said())));
        }
    }
    let unit = |count: &str, one: &str, many: &str| {
        let name = if count.trim_start_matches('0') == "1" { one } else { many };
        format!("{} {name}", whole(count.trim_start_matches('0')))
    };
    let said = match figure.fraction.as_deref() {
        Some(fraction) if fraction.len() == 2 && !cent.is_empty() => {
            match (figure.whole.as_str(), fraction) {
                ("" | "0", "00") => format!("zero {many}"),
                ("" | "0", fraction) => unit(fraction, cent, cents),
                (amount, "00") => unit(amount, one, many),
                (amount, fraction) => {
                    format!("{} and {}", unit(amount, one, many), unit(fraction, cent, cents))
                }
            }
        }
        Some(_) => format!("{} {many}", figure.said()),
        None if figure.is_one() => format!("one {one}"),
        None => format!("{} {many}", figure.said()),
    };
    Some((figure.end, format!("{minus}{said}")))
}

/// "million" after a number, or a letter for it.
fn multiple(text: &Text, at: usize, spaced: bool) -> Option<(&'static str, usize)> {
    let start = if spaced { text.skip_spaces(at) } else { at };
    let (letters, end) = text.letters(start);
    let (_, word) = MULTIPLES.iter().find(|(written, _)| *written == letters)?;
    // A lone letter after a space is a word of its own.
    (text.ends(end) && (start == at || letters.len() > 2)).then_some((*word, end))
}

/// "3.11.2", "192.168.0.1".
fn version(text: &Text, at: usize) -> Option<(usize, String)> {
    if !text.char(at).is_ascii_digit() || !text.begins(at) {
        return None;
    }
    let mut parts = Vec::new();
    let mut end = at;
    loop {
        let (digits, next) = text.digits(end);
        parts.push(digits);
        end = next;
        if text.char(end) == '.' && text.char(end + 1).is_ascii_digit() {
            end += 1;
        } else {
            break;
        }
    }
    let said: Vec<String> = match parts.len() {
        4 => parts.iter().map(|part| one_by_one(part)).collect(),
        _ => parts.iter().map(|part| whole(part)).collect(),
    };
    (parts.len() >= 3).then(|| (end, said.join(if parts.len() == 4 { " dot " } else { " point " })))
}

fn plain(text: &Text, at: usize) -> Option<(usize, String)> {
    let figure = number(text, at)?;
    let end = figure.end;
    let said = figure.said();
    let (letters, after_letters) = text.letters(end);
    let value = figure.value();

    if let Some(value) = value {
        if matches!(letters.as_str(), "st" | "nd" | "rd" | "th") && text.ends(after_letters) {
            return Some((after_letters, ordinal(value)));
        }
        if letters == "s" && text.ends(after_letters) && is_decade(text, at, &figure.whole) {
            return Some((after_letters, decade(value)));
        }
        if let Some(found) = parts(text, value, end) {
            return Some(found);
        }
        if text.char(end) == '\'' && text.char(end + 1).is_ascii_digit() {
            let (inches, next) = text.digits(end + 1);
            if inches.len() <= 2 && text.ends(next) && (3..=8).contains(&value) {
                let quote = next + usize::from(text.char(next) == '"');
                return Some((quote, format!("{said} foot {}", whole(&inches))));
            }
        }
    }
    if let Some((word, end)) = multiple(text, end, false) {
        return Some((end, format!("{said} {word}")));
    }
    if matches!(letters.as_str(), "x" | "X") && text.ends(after_letters) {
        return Some((after_letters, format!("{said} times")));
    }
    if matches!(text.char(end), '-' | '–')
        && let Some(last) = number(text, end + 1).filter(|last| !last.negative && is_free(text, last.end))
    {
        let years = is_year(&figure) && is_year(&last);
        let say = |figure: &Figure| match figure.value() {
            Some(value) if years => year(value),
            _ => figure.said(),
        };
        let (end, unit) = unit(text, last.end, false).unwrap_or((last.end, ""));
        return Some((end, format!("{} to {} {unit}", say(&figure), say(&last)).trim_end().to_owned()));
    }
    if let Some((end, unit)) = unit(text, end, figure.is_one()) {
        return Some((end, format!("{said} {unit}")));
    }
    if let Some(value) = value
        && is_year(&figure)
        && text.ends(end)
        && reads_as_year(text, at, value)
    {
        return Some((end, year(value)));
    }
    Some((end, said))
}

/// "3/4", "2 1/2", "24/7".
fn parts(text: &Text, value: u64, end: usize) -> Option<(usize, String)> {
    let quotient = |at: usize| {
        let (below, end) = text.digits(at);
        let fits = (1..=3).contains(&below.len()) && text.ends(end) && text.char(end) != '/';
        fits.then(|| below.parse::<u64>().ok().map(|below| (below, end))).flatten()
    };
    if text.char(end) == '/' {
        let (below, end) = quotient(end + 1)?;
        return Some(match value < below && (2..=20).contains(&below) || below == 100 && value < 100 {
            true => (end, fraction(value, below)),
            false => (end, format!("{} {}", cardinal(value), cardinal(below))),
        });
    }
    if let Some(name) = vulgar(text.char(end)) {
        return Some((end + 1, format!("{} and {}", cardinal(value), half_first(name))));
    }
    if text.char(end) == ' ' {
        let (above, slash) = text.digits(end + 1);
        if text.char(slash) == '/'
            && let Ok(above) = above.parse::<u64>()
            && let Some((below, end)) = quotient(slash + 1)
            && above < below
            && (2..=20).contains(&below)
        {
            return Some((end, format!("{} and {}", cardinal(value), half_first(&fraction(above, below)))));
        }
    }
    None
}

/// "two and a half", not "two and one half".
fn half_first(name: &str) -> String {
    name.strip_prefix("one ").map_or_else(
        || name.to_owned(),
        |rest| {
            let article = if rest.starts_with("eighth") || rest.starts_with("eleventh") { "an" } else { "a" };
            format!("{article} {rest}")
        },
    )
}

/// The unit after a number, `one` or more of it.
fn unit(text: &Text, at: usize, one: bool) -> Option<(usize, &'static str)> {
    let start = text.skip_spaces(at);
    if text.char(start) == '%' {
        return Some((start + 1, "percent"));
    }
    let (written, single, many, _) = UNITS
        .iter()
        .filter(|(written, _, _, touches)| {
            let length = written.chars().count();
            written.chars().enumerate().all(|(offset, c)| text.char(start + offset) == c)
                && text.ends(start + length)
                && (!touches || start == at)
                && !(text.char(start + length) == '\'' && text.char(start + length + 1).is_alphabetic())
        })
        .max_by_key(|(written, ..)| written.chars().count())?;
    Some((start + written.chars().count(), if one { single } else { many }))
}

/// Whether a number may end here, with a unit or without.
fn is_free(text: &Text, end: usize) -> bool {
    (text.ends(end) || unit(text, end, false).is_some())
        && !(matches!(text.char(end), '-' | '/') && text.char(end + 1).is_ascii_digit())
}

fn is_year(figure: &Figure) -> bool {
    figure.whole.len() == 4 && figure.value().is_some_and(|value| (1_000..2_100).contains(&value))
}

/// "1990s" always, "80s" only after "the": else it is seconds.
fn is_decade(text: &Text, at: usize, digits: &str) -> bool {
    let century = digits.starts_with('1') || digits.starts_with("20");
    let after_the = at >= 4 && text.is_here(at - 4, "the ");
    digits.ends_with('0') && (digits.len() == 2 && after_the || digits.len() == 4 && century)
}

/// Whether four digits stand where a year does: after "in" and the like, or
/// alone and of our time.
fn reads_as_year(text: &Text, at: usize, value: u64) -> bool {
    let mut start = at;
    while start > 0 && text.char(start - 1) == ' ' {
        start -= 1;
    }
    let end = start;
    while start > 0 && text.char(start - 1).is_alphabetic() {
        start -= 1;
    }
    let before = text.slice(start, end).to_lowercase();
    BEFORE_YEARS.contains(&before.as_str()) || (1_900..2_100).contains(&value)
}
