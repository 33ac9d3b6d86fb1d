// The OpenAI Realtime protocol over one WebSocket: opening, sending, receiving.
// Knows nothing of the page or of sound devices.

/** Bytes of 16-bit little-endian PCM as base64. */
export function toBase64(bytes) {
  let text = "";
  // String.fromCharCode takes its arguments on the stack: a large array in one call overflows it.
  for (let at = 0; at < bytes.length; at += 0x8000) {
    text += String.fromCharCode(...bytes.subarray(at, at + 0x8000));
  }
  return btoa(text);
}

/** Base64 of 16-bit little-endian PCM as samples in -1..1. */
export function samplesFromBase64(base64) {
  const text = atob(base64);
  const samples = new Float32Array(text.length >> 1);
  for (let i = 0; i < samples.length; i++) {
    const value = text.charCodeAt(2 * i) | (text.charCodeAt(2 * i + 1) << 8);
    samples[i] = (value >= 0x8000 ? value - 0x10000 : value) / 0x8000;
  }
  return samples;
}

/** Samples in -1..1 as bytes of 16-bit little-endian PCM. */
export function pcm16(samples) {
  const view = new DataView(new ArrayBuffer(samples.length * 2));
  for (let i = 0; i < samples.length; i++) {
    const value = Math.max(-1, Math.min(1, samples[i]));
    view.setInt16(2 * i, Math.round(value * 0x7fff), true);
  }
  return new Uint8Array(view.buffer);
}

/**
 * One session. Calls `handlers[type](event)` for each server event, and
 * `handlers.open()`, `handlers.close(code, reason, wasOpen)`.
 */
export class Realtime {
  constructor(handlers) {
    this.handlers = handlers;
    this.socket = null;
    this.opened = false;
  }

  get live() {
    return this.socket !== null && this.socket.readyState === WebSocket.OPEN;
  }

  connect(key) {
    const url = new URL("v1/realtime", location.href);
    url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
    url.search = "?model=voluble&voluble=1";
    url.hash = "";
    const protocols = ["realtime"];
    if (key) protocols.push(`openai-insecure-api-key.${key}`);
    const socket = new WebSocket(url, protocols);
    this.socket = socket;
    this.opened = false;
    socket.onopen = () => {
      this.opened = true;
      this.handlers.open?.();
    };
    socket.onmessage = (message) => {
      let event;
      try {
        event = JSON.parse(message.data);
      } catch (cause) {
        console.warn("a frame that is not JSON was left out", cause);
        return;
      }
      this.handlers[event.type]?.(event);
    };
    socket.onclose = (event) => {
      if (this.socket === socket) this.socket = null;
      this.handlers.close?.(event.code, event.reason, this.opened);
    };
  }

  send(event) {
    if (!this.live) return false;
    this.socket.send(JSON.stringify(event));
    return true;
  }

  /** Appends microphone samples. Skips while more than two seconds wait unsent: late sound is worse than a hole. */
  append(samples) {
    if (!this.live || this.socket.bufferedAmount > 128_000) return;
    this.send({ type: "input_audio_buffer.append", audio: toBase64(pcm16(samples)) });
  }

  close() {
    this.socket?.close(1000);
  }
}
