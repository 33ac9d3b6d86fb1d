// The page against a far end that this file plays: every state a person may see.
import { createServer } from "node:http";
import { readFile } from "node:fs/promises";
import { extname, join } from "node:path";

import { check, launch, open, run, shots, until } from "./browser.mjs";

const TYPES = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml" };
const web = join(import.meta.dirname, "../../web");

/** Serves web/ as the program does; `models` is the status of /v1/models. */
async function serve(models = 200) {
  const server = createServer(async (request, answer) => {
    const path = new URL(request.url, "http://x").pathname;
    if (path === "/v1/models") return answer.writeHead(models).end("{}");
    try {
      const name = path === "/" ? "index.html" : path.slice(1);
      answer.writeHead(200, { "content-type": TYPES[extname(name)] }).end(await readFile(join(web, name)));
    } catch {
      answer.writeHead(404).end();
    }
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { url: `http://127.0.0.1:${server.address().port}/`, close: () => server.close() };
}

/** A tone of this many ms as the protocol's audio. */
function tone(ms) {
  const bytes = Buffer.alloc(Math.round(24 * ms) * 2);
  for (let i = 0; i < bytes.length / 2; i++) bytes.writeInt16LE(Math.round(8000 * Math.sin(i / 12)), 2 * i);
  return bytes.toString("base64");
}

const TIMELINE = {
  speech_ms: 1700, likely_ms: 96, final_ms: 212, transcript_ms: 431, prefill_ms: 520, first_block_ms: 611,
  first_clause_ms: 742, first_audio_ms: 905, first_audible_ms: 921, prompt_tokens: 96, cached_tokens: 71, tokens: 21, passes: 9,
};

/** Plays the far end: `answer(send, event)` is called for every event of the page. */
async function far(page, answer) {
  await page.routeWebSocket(/v1\/realtime/, (socket) => {
    const send = (event) => socket.send(JSON.stringify(event));
    send({ type: "session.created", session: {} });
    socket.onMessage((text) => {
      const event = JSON.parse(text);
      if (event.type === "session.update") send({ type: "session.updated", session: {} });
      answer(send, event, socket);
    });
  });
}

function speak(send, { id = "r1", item = "a1", words, seconds = 1 }) {
  send({ type: "response.created", response: { id } });
  for (const [text, tokens] of words) {
    send({ type: "response.output_audio_transcript.delta", item_id: item, delta: text });
    send({ type: "voluble.block", item_id: item, text, tokens });
  }
  for (let i = 0; i < seconds * 10; i++) send({ type: "response.output_audio.delta", item_id: item, delta: tone(100) });
  send({ type: "response.done", response: { id, status: "completed", output: [] } });
  send({ type: "voluble.turn.measured", response_id: id, timeline: TIMELINE });
}

const WORDS = [["The capital", 2], [" of France", 2], [" is", 1], [" Paris,", 3], [" a city of about two", 5], [" million", 1], [" people", 1], [".", 1]];

const server = await serve();
const browser = await launch();

async function page(options) {
  return open(browser, server.url, options);
}

async function write(page, text) {
  await page.getByPlaceholder("or write here").fill(text);
  await page.keyboard.press("Enter");
}

const shown = (page, selector) => page.locator(selector).innerText();

await run({
  async "a written turn is answered, shown and heard"() {
    for (const [name, options] of [
      ["desktop", {}],
      ["desktop-dark", { colorScheme: "dark" }],
      ["phone", { viewport: { width: 390, height: 780 }, hasTouch: true, isMobile: true }],
    ]) {
      const { page: it, faults } = await page(options);
      await far(it, (send, event) => {
        if (event.type === "conversation.item.create") send({ type: "conversation.item.added", item: { id: "u1", ...event.item } });
        if (event.type === "response.create") speak(send, { words: WORDS, seconds: 0.6 });
      });
      await it.screenshot({ path: `${shots}/${name}-empty.png` });
      await write(it, "What is the capital of France?");
      await until("the answer", async () => (await shown(it, "#log")).includes("two million people."));
      check((await shown(it, "#log")).includes("What is the capital of France?"), "the question is shown");
      await until("sound", () => it.evaluate(() => window.sound.loud > 5));
      await until("the gap", async () => (await shown(it, "#gap")) === "921");
      check((await it.locator("#blocks .block").count()) === WORDS.length, "every block is shown");
      await until("quiet", async () => (await shown(it, "#state")).includes("Connected"));
      await it.screenshot({ path: `${shots}/${name}.png`, fullPage: true });
      const wide = await it.evaluate(() => document.documentElement.scrollWidth > innerWidth);
      check(!wide, `${name}: the page is wider than the screen`);
      check(faults.length === 0, faults.join("\n"));
      await it.context().close();
    }
  },

  async "speaking over the answer stops the sound and says what was heard"() {
    const { page: it, sent, faults } = await page();
    let say;
    await far(it, (send, event) => {
      say = send;
      sent.push(event);
      if (event.type === "response.create") speak(send, { words: WORDS, seconds: 30 });
      if (event.type === "conversation.item.truncate") send({ ...event, type: "conversation.item.truncated" });
      if (event.type === "conversation.item.retrieve") {
        const content = [{ type: "output_audio", transcript: "The capital of France" }];
        send({ type: "conversation.item.retrieved", item: { id: event.item_id, type: "message", role: "assistant", content } });
      }
    });
    await write(it, "Go on.");
    await until("sound", () => it.evaluate(() => window.sound.loud > 20));
    say({ type: "input_audio_buffer.speech_started", item_id: "u2", audio_start_ms: 0 });
    const truncate = await until("a truncate", () => sent.find((event) => event.type === "conversation.item.truncate"));
    check(truncate.item_id === "a1", "it names the item");
    check(truncate.audio_end_ms > 200 && truncate.audio_end_ms < 29_000, `${truncate.audio_end_ms} ms were heard`);
    // Far less than the 30 s that were sent.
    await until("silence", () => it.evaluate(() => Date.now() - window.sound.last > 500));
    check((await it.locator("#log li.cut").count()) === 1, "the answer is marked");
    check((await shown(it, "#log")).includes("The capital of France …"), "only the words that were heard stay");
    await it.screenshot({ path: `${shots}/interrupted.png` });
    check(faults.length === 0, faults.join("\n"));
    await it.context().close();
  },

  async "the microphone reaches the far end, whatever rate the device has"() {
    const recording = join(import.meta.dirname, "../data/speech/brooklyn-bridge.wav");
    const speaking = await launch(recording);
    for (const picky of [false, true]) {
      const { page: it, faults } = await open(speaking, server.url);
      // As Firefox does: a microphone is joined only to a context of its own rate.
      if (picky) {
        await it.evaluate(() => {
          const join = AudioContext.prototype.createMediaStreamSource;
          AudioContext.prototype.createMediaStreamSource = function (stream) {
            if (this.sampleRate === 24000) throw new DOMException("other rate", "NotSupportedError");
            return join.call(this, stream);
          };
        });
      }
      const blocks = [];
      await far(it, (send, event) => {
        if (event.type === "input_audio_buffer.append") blocks.push(Buffer.from(event.audio, "base64"));
      });
      await it.getByRole("button", { name: "Talk" }).click();
      await until("two seconds of sound", () => blocks.length >= 100);
      check(blocks.every((block) => block.length === 960), "20 ms at a time");
      const all = Buffer.concat(blocks);
      let peak = 0;
      for (let i = 0; i < all.length; i += 2) peak = Math.max(peak, Math.abs(all.readInt16LE(i)));
      check(peak > 2000, `the voice is in it (peak ${peak})`);
      check((await shown(it, "#state")) === "Listening", "the state says so");
      await it.getByRole("button", { name: "Stop" }).click();
      await until("the end", async () => (await shown(it, "#state")) === "Not connected");
      check(faults.length === 0, faults.join("\n"));
      await it.context().close();
    }
    await speaking.close();
  },

  async "words that come late keep their place"() {
    const { page: it } = await page();
    await far(it, (send, event) => {
      if (event.type !== "response.create") return;
      send({ type: "conversation.item.added", item: { id: "u1", type: "message", role: "user", content: [{ type: "input_audio", transcript: null }] } });
      speak(send, { words: WORDS, seconds: 0.2 });
      send({ type: "conversation.item.input_audio_transcription.completed", item_id: "u1", transcript: " What is the capital? " });
    });
    await write(it, "x");
    await until("both", async () => (await it.locator("#log li").count()) === 2);
    await until("the words", async () => (await it.locator("#log li").first().innerText()).includes("What is the capital?"));
    await it.context().close();
  },

  async "trouble is told in words"() {
    const { page: it } = await page();
    await far(it, (send, event, socket) => {
      if (event.type !== "response.create") return;
      send({ type: "error", error: { type: "server_error", message: "The voice model is busy." } });
      setTimeout(() => socket.close({ code: 1011, reason: "shutting down" }), 1500);
    });
    await write(it, "Hello?");
    await until("the error", async () => (await shown(it, "#problem")).includes("busy"));
    await until("the end", async () => (await shown(it, "#problem")).includes("shutting down"));
    check((await shown(it, "#state")) === "Disconnected", "the state says so");
    await it.screenshot({ path: `${shots}/trouble.png` });
    await it.context().close();
  },

  async "a refused microphone leaves writing"() {
    const { page: it } = await page({ permissions: [] });
    await far(it, (send, event) => {
      if (event.type === "response.create") speak(send, { words: WORDS });
    });
    await it.getByRole("button", { name: "Talk" }).click();
    await until("the reason", async () => /microphone/i.test(await shown(it, "#problem")));
    check((await it.getByRole("button", { name: "Talk" }).getAttribute("aria-pressed")) === "false", "it is not pressed");
    await write(it, "Hello");
    await until("the answer", async () => (await shown(it, "#log")).includes("Paris"));
    await it.context().close();
  },

  async "a server with a key asks for it"() {
    const locked = await serve(401);
    const { page: it } = await open(browser, locked.url);
    await write(it, "Hello");
    await until("the question", () => it.locator("#key-dialog").isVisible());
    await it.screenshot({ path: `${shots}/key.png` });
    await it.context().close();
    locked.close();
  },

  async "it can be used by keyboard and read aloud"() {
    const { page: it } = await page();
    await it.keyboard.press("Tab");
    check((await it.evaluate(() => document.activeElement.id)) === "talk", "the first stop is the talk button");
    await it.keyboard.press("Tab");
    check((await it.evaluate(() => document.activeElement.id)) === "text", "then the text box");
    check((await it.getByRole("log").count()) + (await it.locator("[aria-live=polite]").count()) >= 1, "words are announced");
    check((await it.getByRole("textbox").getAttribute("id")) === "text", "the box has a name");
    await it.context().close();
  },
});
