// Collects 20 ms of microphone samples and hands them to the page.
class Capture extends AudioWorkletProcessor {
  constructor() {
    super();
    this.size = Math.round(sampleRate / 50);
    this.block = new Float32Array(this.size);
    this.filled = 0;
  }

  process([input]) {
    const channel = input?.[0];
    if (!channel) return true;
    for (let at = 0; at < channel.length; ) {
      const count = Math.min(channel.length - at, this.size - this.filled);
      this.block.set(channel.subarray(at, at + count), this.filled);
      this.filled += count;
      at += count;
      if (this.filled === this.size) {
        this.port.postMessage(this.block, [this.block.buffer]);
        this.block = new Float32Array(this.size);
        this.filled = 0;
      }
    }
    return true;
  }
}
registerProcessor("voluble-capture", Capture);
