//! Numbers as English words, the American way.

const ONES: [&str; 20] = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
];
const TENS: [&str; 10] =
    ["", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"];
const GROUPS: [&str; 6] = ["", " thousand", " million", " billion", " trillion", " quadrillion"];

/// Longest number that is said as one, in digits; longer ones are said digit by digit.
const LONGEST: usize = 15;

/// "one hundred twenty-three".
pub fn cardinal(mut value: u64) -> String {
    if value == 0 {
        return ONES[0].to_owned();
    }
    let mut parts = Vec::new();
    for group in GROUPS {
        let part = value % 1_000;
        value /= 1_000;
        if part > 0 {
            parts.push(format!("{}{group}", below_thousand(part as usize)));
        }
    }
    parts.reverse();
    parts.join(" ")
}

fn below_thousand(value: usize) -> String {
    match (value / 100, value % 100) {
        (0, rest) => below_hundred(rest),
        (hundreds, 0) => format!("{} hundred", ONES[hundreds]),
        (hundreds, rest) => format!("{} hundred {}", ONES[hundreds], below_hundred(rest)),
    }
}

fn below_hundred(value: usize) -> String {
    match value {
        0..20 => ONES[value].to_owned(),
        _ if value.is_multiple_of(10) => TENS[value / 10].to_owned(),
        _ => format!("{}-{}", TENS[value / 10], ONES[value % 10]),
    }
}

/// "twenty-first".
pub fn ordinal(value: u64) -> String {
    let cardinal = cardinal(value);
    let at = cardinal.rfind([' ', '-']).map_or(0, |at| at + 1);
    let (head, last) = cardinal.split_at(at);
    let last = match last {
        "one" => "first".to_owned(),
        "two" => "second".to_owned(),
        "three" => "third".to_owned(),
        "five" => "fifth".to_owned(),
        "eight" => "eighth".to_owned(),
        "nine" => "ninth".to_owned(),
        "twelve" => "twelfth".to_owned(),
        other => other.strip_suffix('y').map_or_else(|| format!("{other}th"), |stem| format!("{stem}ieth")),
    };
    format!("{head}{last}")
}

/// "nineteen oh five", "twenty twenty-six".
pub fn year(value: u64) -> String {
    let (century, rest) = (value / 100, value % 100);
    match (century, rest) {
        _ if !(1_000..10_000).contains(&value) => cardinal(value),
        _ if value % 1_000 < 10 => cardinal(value),
        (_, 0) => format!("{} hundred", cardinal(century)),
        (_, 1..10) => format!("{} oh {}", cardinal(century), cardinal(rest)),
        _ => format!("{} {}", cardinal(century), cardinal(rest)),
    }
}

/// "three", "one two three" when it is too long to be one number or begins with zero.
pub fn whole(digits: &str) -> String {
    match digits.parse() {
        Ok(value) if digits.len() <= LONGEST && (digits.len() == 1 || !digits.starts_with('0')) => {
            cardinal(value)
        }
        _ => one_by_one(digits),
    }
}

/// "one oh two" is for years; this says "one zero two".
pub fn one_by_one(digits: &str) -> String {
    let names: Vec<&str> =
        digits.chars().filter_map(|c| c.to_digit(10)).map(|digit| ONES[digit as usize]).collect();
    names.join(" ")
}

/// "three point one four"; "point five" when nothing stands before the point.
pub fn decimal(whole_part: &str, fraction: &str) -> String {
    match whole_part {
        "" => format!("point {}", one_by_one(fraction)),
        _ => format!("{} point {}", whole(whole_part), one_by_one(fraction)),
    }
}

/// "three quarters", "one half".
pub fn fraction(above: u64, below: u64) -> String {
    let name = match below {
        2 if above == 1 => "half".to_owned(),
        2 => "halves".to_owned(),
        4 if above == 1 => "quarter".to_owned(),
        4 => "quarters".to_owned(),
        _ if above == 1 => ordinal(below),
        _ => format!("{}s", ordinal(below)),
    };
    format!("{} {name}", cardinal(above))
}

/// "nineties", "twenty tens".
pub fn decade(value: u64) -> String {
    let year = year(value);
    year.strip_suffix('y').map_or_else(|| format!("{year}s"), |stem| format!("{stem}ies"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_said_the_american_way() {
        for (value, words) in [
            (0, "zero"),
            (13, "thirteen"),
            (40, "forty"),
            (99, "ninety-nine"),
            (100, "one hundred"),
            (1_005, "one thousand five"),
            (21_300, "twenty-one thousand three hundred"),
            (1_000_001, "one million one"),
            (
                999_999_999_999_999,
                "nine hundred ninety-nine trillion nine hundred ninety-nine billion nine hundred ninety-nine million nine hundred ninety-nine thousand nine hundred ninety-nine",
            ),
        ] {
            assert_eq!(cardinal(value), words);
        }
        assert!(cardinal(u64::MAX).len() > 20);
        assert_eq!(whole("007"), "zero zero seven");
        assert_eq!(whole("1234567890123456").split(' ').count(), 16);
        assert_eq!(decimal("3", "14"), "three point one four");
        assert_eq!(decimal("", "5"), "point five");
    }

    #[test]
    fn ordinals_years_and_parts() {
        for (value, words) in
            [(1, "first"), (12, "twelfth"), (20, "twentieth"), (21, "twenty-first"), (100, "one hundredth")]
        {
            assert_eq!(ordinal(value), words);
        }
        for (value, words) in [
            (1066, "ten sixty-six"),
            (1900, "nineteen hundred"),
            (1905, "nineteen oh five"),
            (2000, "two thousand"),
            (2007, "two thousand seven"),
            (2026, "twenty twenty-six"),
            (476, "four hundred seventy-six"),
        ] {
            assert_eq!(year(value), words);
        }
        assert_eq!(fraction(1, 2), "one half");
        assert_eq!(fraction(3, 4), "three quarters");
        assert_eq!(fraction(2, 3), "two thirds");
        assert_eq!(decade(1990), "nineteen nineties");
        assert_eq!(decade(80), "eighties");
    }
}
