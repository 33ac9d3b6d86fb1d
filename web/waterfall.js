// Draws one turn's stages: where the time went between the caller's last sound and the answer's first.

const STAGES = [
  ["final_ms", "end of turn", "--s1"],
  ["transcript_ms", "words", "--s2"],
  ["prefill_ms", "prompt", "--s3"],
  ["first_block_ms", "first block", "--s4"],
  ["first_clause_ms", "first clause", "--s5"],
  ["first_audio_ms", "voice", "--s6"],
  ["first_audible_ms", "audible", "--s6"],
];

/** Fills `box` with the stages of `timeline`; returns the whole gap in ms, or null. */
export function drawWaterfall(box, timeline) {
  const known = STAGES.filter(([key]) => Number.isFinite(timeline[key]));
  box.replaceChildren();
  if (known.length === 0) return null;
  const total = Math.max(...known.map(([key]) => timeline[key]), 1);
  let before = 0;
  const words = [];
  for (const [key, name, colour] of known) {
    const end = timeline[key];
    const start = Math.max(0, Math.min(before, end));
    const label = document.createElement("span");
    label.textContent = name;
    const track = document.createElement("span");
    track.className = "track";
    const part = document.createElement("span");
    part.className = "part";
    part.style.left = `${(100 * start) / total}%`;
    part.style.width = `${(100 * Math.max(0, end - start)) / total}%`;
    part.style.background = `var(${colour})`;
    track.append(part);
    const ms = document.createElement("span");
    ms.className = "ms";
    ms.textContent = `+${Math.round(Math.max(0, end - start))}`;
    ms.title = `${Math.round(end)} ms after your last sound`;
    box.append(label, track, ms);
    words.push(`${name} at ${Math.round(end)} ms`);
    before = Math.max(before, end);
  }
  box.setAttribute("aria-label", words.join(", "));
  const gap = timeline.first_audible_ms ?? timeline.first_audio_ms;
  return Number.isFinite(gap) ? gap : null;
}
