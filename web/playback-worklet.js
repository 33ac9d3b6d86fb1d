// Plays queued samples in order; a flush is silent within one 128-sample quantum.
// Reports per item how many samples were played, and when the queue runs dry.
class Playback extends AudioWorkletProcessor {
  constructor() {
    super();
    this.queue = [];
    this.at = 0;
    this.item = null;
    this.played = 0;
    this.sinceReport = 0;
    this.last = 0;
    this.port.onmessage = ({ data }) => {
      if (data.flush) {
        this.report();
        this.queue = [];
        this.at = 0;
        this.item = null;
      } else {
        this.queue.push(data);
      }
    };
  }

  report() {
    if (this.item) this.port.postMessage({ item: this.item, samples: this.played });
    this.sinceReport = 0;
  }

  process(_, [output]) {
    const channel = output[0];
    let written = 0;
    while (written < channel.length && this.queue.length > 0) {
      const { item, samples } = this.queue[0];
      if (item !== this.item) {
        this.report();
        this.item = item;
        this.played = 0;
        this.port.postMessage({ started: item });
      }
      const count = Math.min(channel.length - written, samples.length - this.at);
      channel.set(samples.subarray(this.at, this.at + count), written);
      written += count;
      this.at += count;
      this.played += count;
      this.sinceReport += count;
      if (this.at === samples.length) {
        this.queue.shift();
        this.at = 0;
      }
    }
    // A step from sound to nothing clicks: fade what is left of this quantum.
    if (written < channel.length) {
      for (let i = written, level = written ? channel[written - 1] : this.last; i < channel.length; i++) {
        level *= 0.9;
        channel[i] = level;
      }
    }
    this.last = channel[channel.length - 1];
    if (this.sinceReport >= sampleRate / 20) this.report();
    if (written === 0 && this.item && this.queue.length === 0) {
      this.report();
      this.item = null;
      this.port.postMessage({ idle: true });
    }
    return true;
  }
}
registerProcessor("voluble-playback", Playback);
