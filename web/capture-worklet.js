// Collects 20 ms of microphone samples at the protocol's rate and hands them to the page.
// Where the device's rate is another one, it is brought there by a windowed sinc.
const HALF = 16;

class Capture extends AudioWorkletProcessor {
  constructor({ processorOptions: { rate } }) {
    super();
    this.step = sampleRate / rate;
    // Above half of the lower rate nothing may pass: it would come back as another tone.
    this.cut = Math.min(1, 1 / this.step) * 0.92;
    this.before = new Float32Array(0);
    this.at = HALF;
    this.size = Math.round(rate / 50);
    this.block = new Float32Array(this.size);
    this.filled = 0;
  }

  put(samples) {
    for (let at = 0; at < samples.length; ) {
      const count = Math.min(samples.length - at, this.size - this.filled);
      this.block.set(samples.subarray(at, at + count), this.filled);
      this.filled += count;
      at += count;
      if (this.filled === this.size) {
        this.port.postMessage(this.block, [this.block.buffer]);
        this.block = new Float32Array(this.size);
        this.filled = 0;
      }
    }
  }

  resample(samples) {
    const all = new Float32Array(this.before.length + samples.length);
    all.set(this.before);
    all.set(samples, this.before.length);
    const out = [];
    for (; this.at + HALF < all.length; this.at += this.step) {
      const centre = Math.floor(this.at);
      let sum = 0;
      for (let i = centre - HALF + 1; i <= centre + HALF; i++) {
        const x = this.at - i;
        const sinc = x === 0 ? this.cut : Math.sin(Math.PI * this.cut * x) / (Math.PI * x);
        sum += all[i] * sinc * (0.5 + 0.5 * Math.cos((Math.PI * x) / HALF));
      }
      out.push(sum);
    }
    const keep = Math.max(0, Math.floor(this.at) - HALF);
    this.before = all.slice(keep);
    this.at -= keep;
    return Float32Array.from(out);
  }

  process([input]) {
    const channel = input?.[0];
    if (channel) this.put(this.step === 1 ? channel : this.resample(channel));
    return true;
  }
}
registerProcessor("voluble-capture", Capture);
