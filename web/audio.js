// Microphone in, speaker out, both in one AudioContext at the protocol's rate.

const RATE = 24000;

/** Why the microphone cannot be used, in words for the person. */
export function microphoneProblem(error) {
  if (!navigator.mediaDevices) {
    return "The browser gives the microphone only to pages over https or on localhost.";
  }
  switch (error?.name) {
    case "NotAllowedError":
      return "The microphone was refused. Allow it in the browser's address bar, then press Talk again; writing works meanwhile.";
    case "NotFoundError":
      return "No microphone was found. Plug one in, or write instead.";
    case "NotReadableError":
      return "Another program is using the microphone. Close it, then press Talk again.";
    default:
      return `The microphone cannot be used: ${error?.message ?? error}`;
  }
}

/** Plays samples as they come and says how much of each item was heard. */
export class Speaker {
  constructor() {
    this.context = null;
    this.node = null;
    this.onidle = null;
    this.onstart = null;
    this.queued = new Map();
    this.played = new Map();
    this.playing = null;
    this.unfinished = null;
  }

  /** Must be called from a click the first time: browsers start sound only then. */
  async open() {
    if (this.context) {
      await this.context.resume();
      return;
    }
    const context = new AudioContext({ sampleRate: RATE, latencyHint: "interactive" });
    await context.audioWorklet.addModule("playback-worklet.js");
    this.node = new AudioWorkletNode(context, "voluble-playback", { numberOfInputs: 0, outputChannelCount: [1] });
    this.node.connect(context.destination);
    this.node.port.onmessage = ({ data }) => this.report(data);
    this.context = context;
    await context.resume();
  }

  report(data) {
    if (data.started) {
      this.playing = data.started;
      this.onstart?.(data.started);
    }
    if (data.item) this.played.set(data.item, data.samples);
    if (data.idle) {
      this.playing = null;
      this.onidle?.();
    }
  }

  play(item, samples) {
    if (!this.node) return;
    this.queued.set(item, (this.queued.get(item) ?? 0) + samples.length);
    this.playing ??= item;
    this.unfinished = item;
    this.node.port.postMessage({ item, samples }, [samples.buffer]);
  }

  /** No more of this item comes. */
  finish(item) {
    if (this.unfinished === item) this.unfinished = null;
  }

  /**
   * Stops at once. Returns the item that was playing, or whose next samples were waited for, and how
   * many ms of it were heard; null when nothing was under way.
   */
  stop() {
    const item = this.playing ?? this.unfinished;
    if (!this.node || !item) return null;
    this.node.port.postMessage({ flush: true });
    this.playing = null;
    this.unfinished = null;
    const heard = Math.min(this.played.get(item) ?? 0, this.queued.get(item) ?? 0);
    return { item, ms: Math.floor((heard * 1000) / RATE) };
  }
}

/** Gives microphone samples at the protocol's rate, 20 ms at a time. */
export class Microphone {
  constructor(context, onsamples) {
    this.context = context;
    this.onsamples = onsamples;
    this.onlost = null;
    this.stream = null;
    this.own = null;
    this.nodes = [];
  }

  async open() {
    if (!navigator.mediaDevices) throw new Error("no media devices");
    this.stream = await navigator.mediaDevices.getUserMedia({
      audio: { channelCount: 1, echoCancellation: true, noiseSuppression: true, autoGainControl: true },
    });
    for (const track of this.stream.getTracks()) track.onended = () => this.onlost?.();
    let context = this.context;
    let source;
    try {
      source = context.createMediaStreamSource(this.stream);
    } catch (error) {
      // Firefox joins a microphone only to a context of the device's own rate.
      if (error.name !== "NotSupportedError") throw error;
      context = this.own = new AudioContext({ latencyHint: "interactive" });
      source = context.createMediaStreamSource(this.stream);
    }
    await context.audioWorklet.addModule("capture-worklet.js");
    const capture = new AudioWorkletNode(context, "voluble-capture", {
      numberOfOutputs: 0,
      processorOptions: { rate: RATE },
    });
    capture.port.onmessage = ({ data }) => this.onsamples(data);
    source.connect(capture);
    this.nodes = [source, capture];
  }

  close() {
    for (const node of this.nodes) node.disconnect();
    for (const track of this.stream?.getTracks() ?? []) track.stop();
    this.own?.close();
    this.own = null;
    this.nodes = [];
    this.stream = null;
  }
}
