// Wires the page: socket, sound, transcript, waterfall, blocks.
import { Realtime, samplesFromBase64 } from "./realtime.js";
import { Microphone, Speaker, microphoneProblem } from "./audio.js";
import { drawWaterfall } from "./waterfall.js";
import { Log } from "./log.js";

const at = (id) => document.getElementById(id);
const log = new Log(at("log"), at("hint"));
const speaker = new Speaker();
let microphone = null;
let key = null;
let waiting = [];
let responding = null;
let hearing = false;
const gaps = [];

const STATES = {
  off: "Not connected",
  connecting: "Connecting…",
  ready: "Listening",
  text: "Connected, microphone off",
  hearing: "Hearing you",
  thinking: "Thinking",
  speaking: "Speaking",
  error: "Disconnected",
};

function show(state) {
  at("state").dataset.state = state === "text" ? "ready" : state;
  at("state").textContent = STATES[state];
}

function settle() {
  if (!realtime.live) return;
  if (hearing) show("hearing");
  else if (speaker.playing) show("speaking");
  else if (responding) show("thinking");
  else show(microphone ? "ready" : "text");
}

function problem(text) {
  at("problem").hidden = !text;
  at("problem").textContent = text ?? "";
}

const realtime = new Realtime({
  open() {
    problem(null);
    realtime.send({
      type: "session.update",
      session: { type: "realtime", audio: { input: { transcription: { model: "whisper" } } } },
    });
    settle();
  },

  close(code, reason, opened) {
    stopMicrophone();
    speaker.stop();
    responding = null;
    hearing = false;
    const asked = code === 1000;
    show(asked ? "off" : "error");
    if (asked) return;
    if (opened) problem(`The connection ended${reason ? `: ${reason}` : ""}. Press Talk to begin again.`);
    else void refused();
  },

  "session.updated"() {
    for (const event of waiting.splice(0)) realtime.send(event);
    settle();
  },

  error({ error }) {
    // Nothing to cancel: the answer ended while the request was on its way.
    if (error.code === "response_cancel_not_active") return;
    problem(error.message);
  },

  "input_audio_buffer.speech_started"() {
    hearing = true;
    yieldFloor();
    settle();
  },

  "input_audio_buffer.speech_stopped"() {
    hearing = false;
    settle();
  },

  "conversation.item.input_audio_transcription.delta"({ item_id, delta }) {
    log.add(item_id, "user", delta, true);
  },

  "conversation.item.input_audio_transcription.completed"({ item_id, transcript }) {
    if (transcript.trim()) log.set(item_id, "user", transcript.trim());
    else log.remove(item_id);
  },

  "conversation.item.input_audio_transcription.failed"({ item_id, error }) {
    log.set(item_id, "user", `(not understood: ${error.message})`);
  },

  "conversation.item.added"({ item }) {
    if (item.type === "message" && item.role === "user") {
      const text = item.content?.find((part) => part.type === "input_text")?.text;
      // What was said is known later than that something was: its place is kept.
      if (text) log.set(item.id, "user", text);
      else if (!log.has(item.id)) log.set(item.id, "user", "…", true);
    }
  },

  // Which words of an interrupted answer were heard, only the server knows.
  "conversation.item.truncated"({ item_id }) {
    realtime.send({ type: "conversation.item.retrieve", item_id });
  },

  "conversation.item.retrieved"({ item }) {
    const heard = item.content?.map((part) => part.transcript ?? part.text ?? "").join("").trim();
    if (!log.has(item.id)) return;
    log.set(item.id, item.role, heard ? `${heard} …` : "…");
    log.cut(item.id);
  },

  "conversation.item.deleted"({ item_id }) {
    log.remove(item_id);
  },

  "response.created"({ response }) {
    responding = response.id;
    at("blocks").replaceChildren();
    at("rate").textContent = "";
    settle();
  },

  "response.output_audio_transcript.delta"({ item_id, delta }) {
    log.add(item_id, "assistant", delta);
  },

  "response.output_text.delta"({ item_id, delta }) {
    log.add(item_id, "assistant", delta);
  },

  "response.output_audio.delta"({ item_id, delta }) {
    if (!hearing) speaker.play(item_id, samplesFromBase64(delta));
  },

  "response.output_audio.done"({ item_id }) {
    speaker.finish(item_id);
  },

  "response.done"({ response }) {
    if (responding === response.id) responding = null;
    if (response.status === "cancelled" || response.status === "incomplete") {
      for (const item of response.output ?? []) log.cut(item.id);
    }
    if (response.status === "failed") {
      problem(response.status_details?.error?.message ?? "The answer failed.");
    }
    settle();
  },

  "voluble.block"({ text, tokens }) {
    const block = document.createElement("span");
    block.className = "block";
    block.dataset.n = String(Math.min(tokens, 3));
    block.title = `${tokens} ${tokens === 1 ? "token" : "tokens"} in one pass`;
    block.textContent = text;
    at("blocks").append(block);
    at("blocks").scrollTop = at("blocks").scrollHeight;
  },

  "voluble.turn.measured"({ timeline }) {
    const gap = drawWaterfall(at("waterfall"), timeline);
    if (gap !== null) {
      at("gap").textContent = Math.round(gap);
      gaps.push(Math.round(gap));
      at("turns").textContent = gaps.length > 1 ? `before: ${gaps.slice(-7, -1).reverse().join(", ")}` : "";
    }
    if (timeline.passes > 0) {
      at("rate").textContent =
        `${timeline.tokens} tokens in ${timeline.passes} passes: ${(timeline.tokens / timeline.passes).toFixed(2)} a pass; ` +
        `${timeline.cached_tokens} of ${timeline.prompt_tokens} prompt tokens were in the cache`;
    }
  },
});

speaker.onstart = settle;
speaker.onidle = settle;

/** The caller spoke: stop the sound at once and say how much of it was heard. */
function yieldFloor() {
  const heard = speaker.stop();
  if (!heard) return;
  log.cut(heard.item);
  realtime.send({ type: "conversation.item.truncate", item_id: heard.item, content_index: 0, audio_end_ms: heard.ms });
}

/** A refused upgrade gives a page no status: ask by HTTP why. */
async function refused() {
  try {
    const answer = await fetch("v1/models", key ? { headers: { authorization: `Bearer ${key}` } } : {});
    if (answer.status === 401) {
      at("key-dialog").showModal();
      return;
    }
    problem(answer.ok ? "The server has no room for another conversation now. Try again in a moment." : `The server answered ${answer.status}.`);
  } catch {
    problem("The server cannot be reached. Is it running?");
  }
}

function connect() {
  if (realtime.socket) return;
  problem(null);
  show("connecting");
  realtime.connect(key);
}

async function startMicrophone() {
  await speaker.open();
  microphone = new Microphone(speaker.context, (samples) => {
    realtime.append(samples);
    let peak = 0;
    for (const sample of samples) peak = Math.max(peak, Math.abs(sample));
    at("talk").style.setProperty("--level", Math.min(1, Math.sqrt(peak)).toFixed(2));
  });
  microphone.onlost = () => {
    problem("The microphone went away. Plug it in again and press Talk; writing works meanwhile.");
    stopMicrophone();
    settle();
  };
  try {
    await microphone.open();
  } catch (error) {
    microphone = null;
    problem(microphoneProblem(error));
    return;
  }
  at("talk").setAttribute("aria-pressed", "true");
  at("talk-label").textContent = "Stop";
  connect();
  settle();
}

function stopMicrophone() {
  microphone?.close();
  microphone = null;
  at("talk").setAttribute("aria-pressed", "false");
  at("talk").style.removeProperty("--level");
  at("talk-label").textContent = "Talk";
}

at("talk").addEventListener("click", async () => {
  at("talk").disabled = true;
  try {
    if (microphone) {
      stopMicrophone();
      yieldFloor();
      realtime.close();
    } else {
      await startMicrophone();
    }
  } catch (error) {
    problem(`Sound cannot be started: ${error.message}`);
  } finally {
    at("talk").disabled = false;
  }
});

at("bar").addEventListener("submit", async (event) => {
  event.preventDefault();
  const text = at("text").value.trim();
  if (!text) return;
  at("text").value = "";
  await speaker.open();
  yieldFloor();
  const events = [];
  if (responding) events.push({ type: "response.cancel" });
  events.push(
    { type: "conversation.item.create", item: { type: "message", role: "user", content: [{ type: "input_text", text }] } },
    { type: "response.create" },
  );
  if (realtime.live) {
    for (const item of events) realtime.send(item);
  } else {
    waiting.push(...events);
    connect();
  }
});

at("key-dialog").addEventListener("close", () => {
  if (at("key-dialog").returnValue !== "ok") return;
  key = at("key").value.trim() || null;
  connect();
});
