// The official Agents SDK over WebSocket, unchanged, against a running server.
//
//   VOLUBLE_URL=http://127.0.0.1:8080 SDK_KEY=... node check.mjs
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import OpenAI from "openai";
import { OpenAIRealtimeWebSocket, RealtimeAgent, RealtimeSession, tool } from "@openai/agents-realtime";
import WebSocket from "ws";
import { z } from "zod";

const URL_ = process.env.VOLUBLE_URL.replace(/\/$/, "");
const KEY = process.env.SDK_KEY ?? "none";
const SPEECH = process.env.SDK_SPEECH;
const WS = `${URL_.replace(/^http/, "ws")}/v1/realtime?model=gpt-realtime`;
const PATIENCE = 1000 * Number(process.env.VOLUBLE_PATIENCE ?? "120");
const RATE = 24000;

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** A 16-bit mono WAV as samples at 24 kHz. */
function recording(name) {
  const file = readFileSync(join(SPEECH, name));
  const rate = file.readUInt32LE(24);
  const data = file.indexOf("data") + 8;
  const bytes = file.readUInt32LE(data - 4);
  const samples = new Int16Array(file.buffer.slice(file.byteOffset + data, file.byteOffset + data + bytes));
  const out = new Int16Array(Math.floor((samples.length * RATE) / rate));
  for (let i = 0; i < out.length; i++) {
    const at = (i * rate) / RATE;
    const left = Math.floor(at);
    const right = Math.min(left + 1, samples.length - 1);
    out[i] = Math.round(samples[left] + (samples[right] - samples[left]) * (at - left));
  }
  return out;
}

/** Sends a recording in real time, then silence, until stopped. */
function speak(session, name) {
  const samples = recording(name);
  const step = RATE / 50;
  const lead = RATE / 2;
  let stopped = false;
  const start = performance.now();
  (async () => {
    for (let index = 0; !stopped; index++) {
      const piece = new Int16Array(step);
      const at = index * step - lead;
      for (let i = 0; i < step; i++) piece[i] = samples[at + i] ?? 0;
      session.sendAudio(piece.buffer);
      await sleep(Math.max(0, start + (index + 1) * 20 - performance.now()));
    }
  })();
  return () => (stopped = true);
}

/** A session of the SDK, with everything that the server said. */
async function open({ instructions = "Answer in one short sentence.", tools = [], config = {} } = {}) {
  const agent = new RealtimeAgent({ name: "agent", instructions, tools });
  const transport = new OpenAIRealtimeWebSocket({ useInsecureApiKey: true });
  const session = new RealtimeSession(agent, { transport, config });
  const events = [];
  const waiting = new Set();
  const errors = [];
  session.on("error", ({ error }) => errors.push(error));
  transport.on("*", (event) => {
    events.push(event);
    for (const check of waiting) check();
  });
  // A frame that fails the SDK's schema reaches nobody but the raw listeners: it must be the same number.
  await session.connect({ apiKey: KEY, url: WS });
  const until = (what, holds) =>
    new Promise((resolve, reject) => {
      const late = setTimeout(() => {
        waiting.delete(check);
        reject(new Error(`no ${what}; seen: ${events.slice(-30).map((event) => event.type).join(", ")}`));
      }, PATIENCE);
      const check = () => {
        if (!holds()) return;
        clearTimeout(late);
        waiting.delete(check);
        resolve();
      };
      waiting.add(check);
      check();
    });
  const all = (type) => events.filter((event) => event.type === type);
  return { session, transport, events, errors, all, until, seen: (type, count = 1) => until(type, () => all(type).length >= count) };
}

function settled({ errors, session }) {
  session.close();
  assert.deepEqual(errors, [], "the session reported errors");
}

async function textTurn() {
  const call = await open();
  let audio = 0;
  call.session.on("audio", ({ data }) => (audio += data.byteLength));
  call.session.sendMessage("What is the capital of France?");
  await call.seen("response.done");
  await sleep(200);
  const answer = call.session.history.find((item) => item.type === "message" && item.role === "assistant");
  const text = answer.content.map((part) => part.transcript ?? part.text ?? "").join("");
  assert.match(text, /Paris/);
  assert.equal(answer.status, "completed");
  assert.ok(audio > RATE, `${audio} bytes of sound`);
  settled(call);
  return `${JSON.stringify(text)}, ${(audio / 2 / RATE).toFixed(1)} s`;
}

async function voiceTurn() {
  const call = await open();
  let audio = 0;
  let started = 0;
  let stopped = 0;
  call.session.on("audio", ({ data }) => (audio += data.byteLength));
  call.session.on("audio_start", () => started++);
  call.session.on("audio_stopped", () => stopped++);
  const stop = speak(call.session, "brooklyn-bridge.wav");
  try {
    await call.seen("response.done");
    await call.seen("conversation.item.input_audio_transcription.completed");
    await sleep(2000);
  } finally {
    stop();
  }
  assert.equal(call.all("response.created").length, 1, "answered more than once");
  const said = call.session.history.find((item) => item.type === "message" && item.role === "user");
  const words = said.content.map((part) => part.transcript ?? "").join("");
  assert.match(words, /brooklyn bridge/i);
  assert.ok(audio > RATE / 2, `${audio} bytes of sound`);
  assert.deepEqual([started, stopped], [1, 1]);
  settled(call);
  return `${JSON.stringify(words)}, ${(audio / 2 / RATE).toFixed(1)} s`;
}

async function functionCall() {
  const asked = [];
  const weather = tool({
    name: "get_weather",
    description: "Tells the weather in a city now.",
    parameters: z.object({ city: z.string() }),
    async execute({ city }) {
      asked.push(city);
      return "It is sunny with 21 degrees Celsius.";
    },
  });
  const call = await open({
    instructions: "Use the tools to answer. Answer in one short sentence.",
    tools: [weather],
  });
  call.session.sendMessage("What is the weather in Paris? Use the get_weather tool.");
  await call.seen("response.done", 2);
  // The default model is small and may call again although it has the result: the SDK answers each call with a
  // new response, and the exchange must come to an end by itself.
  for (let round = 0; round < 10; round++) {
    const done = call.all("response.done").length;
    await sleep(3000);
    if (call.all("response.created").length === done) break;
  }
  assert.ok(asked.length >= 1, "never called");
  for (const city of asked) assert.match(city, /paris/i);
  const answers = call.session.history.filter((item) => item.type === "message" && item.role === "assistant");
  const text = answers.map((item) => item.content.map((part) => part.transcript ?? part.text ?? "").join("")).join(" ");
  settled(call);
  return `${asked} -> ${JSON.stringify(text)}`;
}

async function bargeIn() {
  const call = await open({ instructions: "You are a storyteller. Tell long stories of many sentences." });
  let interrupted = 0;
  call.session.on("audio_interrupted", () => interrupted++);
  call.session.sendMessage("Tell me a long story about a ship on the sea.");
  await call.seen("response.output_audio.delta");
  const item = call.all("response.output_audio.delta")[0].item_id;
  await sleep(500);
  const stop = speak(call.session, "testing-routine.wav");
  try {
    await call.seen("input_audio_buffer.speech_started");
    // The SDK truncates by itself and asks for what was kept.
    await call.seen("conversation.item.truncated");
    await call.until("conversation.item.retrieved", () =>
      call.all("conversation.item.retrieved").some((event) => event.item.id === item));
    await call.seen("response.created", 2);
  } finally {
    stop();
  }
  assert.ok(interrupted >= 1, "the SDK was not interrupted");
  assert.equal(call.all("conversation.item.truncated")[0].item_id, item);
  const whole = call.all("response.output_audio_transcript.delta")
    .filter((event) => event.item_id === item).map((event) => event.delta).join("");
  const kept = call.all("conversation.item.retrieved").findLast((event) => event.item.id === item).item.content[0].transcript;
  assert.ok(kept.length < whole.length, `${kept} / ${whole}`);
  settled(call);
  return `kept ${JSON.stringify(kept)} of ${whole.length} characters`;
}

async function ephemeralKey() {
  const client = new OpenAI({ apiKey: KEY, baseURL: `${URL_}/v1` });
  const secret = await client.realtime.clientSecrets.create({
    session: { type: "realtime", instructions: "From the secret." },
  });
  assert.match(secret.value, /^ek_/);
  const agent = new RealtimeAgent({ name: "agent", instructions: "Mine." });
  const session = new RealtimeSession(agent, { transport: "websocket" });
  await session.connect({ apiKey: secret.value, url: WS });
  session.close();
  return "opened a session";
}

async function subprotocol() {
  const socket = new WebSocket(WS, ["realtime", `openai-insecure-api-key.${KEY}`, "openai-beta.realtime-v1"]);
  await new Promise((resolve, reject) => {
    socket.on("open", resolve);
    socket.on("error", reject);
  });
  assert.equal(socket.protocol, "realtime");
  socket.close();
  return socket.protocol;
}

let failed = 0;
const wanted = process.argv.slice(2);
for (const scenario of [textTurn, voiceTurn, functionCall, bargeIn, ephemeralKey, subprotocol]) {
  if (wanted.length > 0 && !wanted.includes(scenario.name)) continue;
  try {
    console.log(`agents-realtime: ${scenario.name}: ok: ${await scenario()}`);
  } catch (error) {
    failed++;
    console.log(`agents-realtime: ${scenario.name}: FAILED`);
    console.error(error);
  }
}
process.exit(failed ? 1 : 0);
