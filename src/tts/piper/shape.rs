//! The network's sound made ready for a caller: silence at the ends cut, words placed.

/// Sound below this part of the clause's loudest is silence: -40 dB.
const SILENCE: f32 = 0.01;
/// Nor is anything below this part of full scale a sound: -60 dB.
const FLOOR: f32 = 0.001;
/// Sound is looked for in steps of this part of a second: 2.5 ms.
const STEPS_PER_SECOND: usize = 400;
/// Kept before the first sound, in steps: 10 ms, so that no soft onset is cut.
const LEAD: usize = 4;
/// Kept after the last sound, in steps: 20 ms, so that it can fade.
const TAIL: usize = 8;

/// Longest onset that is looked for in a blank, in samples: two frames.
const MOST_ONSET: usize = 512;

/// Where the sound of a clause lies: its first sample and the one after its
/// last, with a little air. `None` when it is all silence.
pub fn audible(samples: &[f32], rate: u32) -> Option<std::ops::Range<usize>> {
    let step = (rate as usize / STEPS_PER_SECOND).max(1);
    let peak = samples.iter().fold(0.0f32, |peak, sample| peak.max(sample.abs()));
    let threshold = (peak * SILENCE).max(FLOOR);
    let loud = |piece: &[f32]| {
        let power = piece.iter().map(|sample| sample * sample).sum::<f32>() / piece.len() as f32;
        power.sqrt() > threshold
    };
    let first = samples.chunks(step).position(loud)?;
    let last = samples.chunks(step).rposition(loud)?;
    Some(first.saturating_sub(LEAD) * step..((last + 1 + TAIL) * step).min(samples.len()))
}

/// Cuts a clause to its sound and gives it a pause of this many samples after
/// it: what the network left of it, then silence. Gives how many samples were
/// taken from the front.
pub fn trim(samples: &mut Vec<f32>, rate: u32, pause: usize) -> usize {
    let Some(sound) = audible(samples, rate) else {
        samples.clear();
        return 0;
    };
    let end = sound.end + pause;
    samples.resize(end, 0.0);
    samples.drain(..sound.start);
    let edge = (rate as usize / STEPS_PER_SECOND).min(samples.len());
    for index in 0..edge {
        let gain = index as f32 / edge as f32;
        samples[index] *= gain;
        let last = samples.len() - 1 - index;
        samples[last] *= gain;
    }
    sound.start
}

/// The spans of the words: for each, the first sample of its first id and the
/// one after its last id's. A word without an id gets an empty span where the
/// word before it ends. `of` says for each id which word it is of.
pub fn spans(lengths: &[usize], of: &[Option<usize>], words: usize) -> Vec<(usize, usize)> {
    let mut found: Vec<Option<(usize, usize)>> = vec![None; words];
    let mut at = 0;
    for (length, word) in lengths.iter().zip(of) {
        if let Some(word) = word {
            let span = found[*word].get_or_insert((at, at));
            span.1 = at + length;
        }
        at += length;
    }
    let mut end = 0;
    found
        .into_iter()
        .map(|span| {
            let (start, stop) = span.unwrap_or((end, end));
            end = stop.max(end);
            (start, stop)
        })
        .collect()
}

/// Moves the begin of each word back by half of the blank before it, where
/// that belongs to no word. The network gives a consonant's onset to the blank
/// before it; measured against the sound of stops after a pause, this halves
/// the error, to about a frame.
pub fn with_onsets(
    mut spans: Vec<(usize, usize)>,
    lengths: &[usize],
    of: &[Option<usize>],
) -> Vec<(usize, usize)> {
    let mut at = 0;
    let mut before = 0;
    for ((length, word), last) in lengths.iter().zip(of).zip(std::iter::once(&None).chain(of)) {
        if let Some(word) = word
            && last.is_none()
            && spans[*word].0 == at
        {
            spans[*word].0 -= (before / 2).min(MOST_ONSET);
        }
        before = *length;
        at += length;
    }
    spans
}

/// Lengths in proportion, for a network that does not tell: each id as long as any other.
pub fn even_lengths(samples: usize, ids: usize) -> Vec<usize> {
    (0..ids).map(|id| samples * (id + 1) / ids - samples * id / ids).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: u32 = 22_050;

    /// Silence with hiss, a tone, silence with hiss; in ms.
    fn clause(before: usize, tone: usize, after: usize) -> Vec<f32> {
        let ms = RATE as usize / 1_000;
        (0..(before + tone + after) * ms)
            .map(|i| {
                let hiss = ((i * 7_919) % 100) as f32 / 100_000.0;
                let inside = (before * ms..(before + tone) * ms).contains(&i);
                hiss + if inside { (i as f32 * 0.1).sin() * 0.3 } else { 0.0 }
            })
            .collect()
    }

    #[test]
    fn silence_at_the_ends_is_cut() {
        let mut samples = clause(100, 200, 300);
        let cut = trim(&mut samples, RATE, 2_205);
        let ms = |samples: usize| samples * 1_000 / RATE as usize;
        assert!((85..=92).contains(&ms(cut)), "{} ms cut", ms(cut));
        let sound = samples.iter().position(|sample| sample.abs() > 0.05).expect("the tone is there");
        assert!(ms(sound) < 20, "{} ms before the sound", ms(sound));
        // 10 ms of air, the tone, 20 ms of air, 100 ms of pause.
        assert!((325..=340).contains(&ms(samples.len())), "{} ms in all", ms(samples.len()));
    }

    #[test]
    fn all_silence_leaves_nothing() {
        let mut samples = clause(100, 0, 100);
        assert_eq!(trim(&mut samples, RATE, 2_205), 0);
        assert!(samples.is_empty());
        trim(&mut samples, RATE, 0);
    }

    #[test]
    fn a_pause_is_filled_up() {
        let mut samples = clause(0, 100, 0);
        trim(&mut samples, RATE, 22_050);
        assert!(samples.len() >= 22_050 + 2_200);
    }

    #[test]
    fn words_span_their_ids() {
        let of = [None, Some(0), Some(0), None, Some(2), None];
        assert_eq!(spans(&[10, 20, 30, 40, 50, 60], &of, 3), [(10, 60), (60, 60), (100, 150)]);
    }

    #[test]
    fn a_word_begins_in_the_blank_before_it() {
        let (lengths, of) = ([10, 20, 30, 40, 4_000, 50], [None, None, Some(0), Some(1), None, Some(2)]);
        let spans = spans(&lengths, &of, 3);
        assert_eq!(with_onsets(spans, &lengths, &of), [(20, 60), (60, 100), (4_100 - 512, 4_150)]);
    }

    #[test]
    fn even_lengths_add_up() {
        assert_eq!(even_lengths(10, 3).iter().sum::<usize>(), 10);
        assert!(even_lengths(10, 0).is_empty());
    }
}
