// A spoken conversation with the program: real models, a fake microphone.
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

import { check, launch, open, run, shots, until } from "./browser.mjs";

const url = process.env.WEB_URL;
const speech = join(import.meta.dirname, "../data/speech");
const RATE = 16000;

/** The samples of a recording (mono, 16 bit, 16 kHz). */
function samples(name) {
  const bytes = readFileSync(join(speech, name));
  const at = bytes.indexOf("data", 12, "latin1");
  check(bytes.readUInt32LE(24) === RATE, `${name} is at ${RATE} Hz`);
  return bytes.subarray(at + 8, at + 8 + bytes.readUInt32LE(at + 4));
}

/** A recording for the microphone: parts are file names, or seconds of silence. */
function record(name, parts) {
  const data = Buffer.concat(parts.map((part) => (typeof part === "number" ? Buffer.alloc(part * RATE * 2) : samples(part))));
  const head = Buffer.alloc(44);
  head.write("RIFF", 0);
  head.writeUInt32LE(36 + data.length, 4);
  head.write("WAVEfmt ", 8);
  head.writeUInt32LE(16, 16);
  head.writeUInt16LE(1, 20);
  head.writeUInt16LE(1, 22);
  head.writeUInt32LE(RATE, 24);
  head.writeUInt32LE(RATE * 2, 28);
  head.writeUInt16LE(2, 32);
  head.writeUInt16LE(16, 34);
  head.write("data", 36);
  head.writeUInt32LE(data.length, 40);
  const path = join(process.env.WEB_WORK, name);
  writeFileSync(path, Buffer.concat([head, data]));
  return path;
}

const words = (text) => text.toLowerCase().replace(/[^a-z0-9 ]/g, "").split(/\s+/).filter(Boolean).join(" ");
const of = (list, type) => list.filter((event) => event.type === type);

await run({
  async "it hears a question and answers aloud, once"() {
    const browser = await launch(record("question.wav", [1, "brooklyn-bridge.wav", 60]));
    const { page, faults, received } = await open(browser, url);
    await page.getByRole("button", { name: "Talk" }).click();
    const user = page.locator("#log li.user");
    await until("the question", async () => (await user.count()) > 0 && words(await user.first().innerText()).includes("bridge"));
    await until("an answer in words", async () => (await page.locator("#log li.agent").count()) > 0);
    await until("an answer in sound", () => page.evaluate(() => window.sound.loud > 10));
    await until("the end of the answer", () => of(received, "response.done").length > 0);
    await until("the measured turn", async () => Number(await page.locator("#gap").innerText()) > 0);
    await until("listening again", async () => (await page.locator("#state").innerText()) === "Listening");
    await page.screenshot({ path: `${shots}/talk-desktop.png` });
    await page.setViewportSize({ width: 390, height: 780 });
    await page.screenshot({ path: `${shots}/talk-phone.png`, fullPage: true });
    const heard = words(await user.first().innerText());
    // Whisper base may slip on the article; the words that matter must be right.
    check(/how old is .*brooklyn bridge$/.test(heard), `heard: ${heard}`);
    check(of(received, "response.created").length === 1, "one answer");
    check(of(received, "error").length === 0, JSON.stringify(of(received, "error")));
    check((await page.locator("#blocks .block").count()) > 1, "blocks are shown");
    console.log(`      gap ${await page.locator("#gap").innerText()} ms; ${await page.locator("#rate").innerText()}`);
    console.log(`      answer: ${(await page.locator("#log li.agent").first().innerText()).split("\n").pop()}`);
    check(faults.length === 0, faults.join("\n"));
    await browser.close();
  },

  async "speaking over a long answer stops it"() {
    const browser = await launch();
    // When the answer sounds is not known beforehand, so this microphone speaks when it is told to.
    const prepare = (page) =>
      page.addInitScript(() => {
        navigator.mediaDevices.getUserMedia = async () => {
          const context = new AudioContext();
          const microphone = context.createMediaStreamDestination();
          window.say = async (recording) => {
            const bytes = Uint8Array.from(atob(recording), (c) => c.charCodeAt(0));
            const source = new AudioBufferSourceNode(context, { buffer: await context.decodeAudioData(bytes.buffer) });
            source.connect(microphone);
            source.start();
          };
          return microphone.stream;
        };
      });
    const { page, faults, sent, received } = await open(browser, url, { prepare });
    await page.getByRole("button", { name: "Talk" }).click();
    await until("listening", async () => (await page.locator("#state").innerText()) === "Listening");
    await page.getByPlaceholder("or write here").fill("Tell me a long story about a lighthouse, with at least ten sentences.");
    await page.keyboard.press("Enter");
    await until("the story aloud", () => page.evaluate(() => window.sound.loud > 10));
    const recording = readFileSync(join(speech, "testing-routine.wav")).toString("base64");
    await page.evaluate((data) => window.say(data), recording);
    const started = await until("the interruption", () => of(received, "input_audio_buffer.speech_started")[0]);
    const truncate = await until("a truncate", () => of(sent, "conversation.item.truncate")[0]);
    await until("silence", () => page.evaluate(() => Date.now() - window.sound.last > 300));
    const last = await page.evaluate(() => window.sound.last);
    console.log(`      truncate sent ${truncate.at - started.at} ms, silent ${last - started.at} ms after the caller was heard`);
    await until("the mark", async () => (await page.locator("#log li.cut").count()) > 0);
    await until("what was said instead", async () => {
      const said = await page.locator("#log li.user").allInnerTexts();
      return said.some((text) => words(text).includes("routine"));
    });
    await until("an answer to it", () => of(received, "response.created").length === 2);
    await page.screenshot({ path: `${shots}/talk-interrupted.png` });
    check(faults.length === 0, faults.join("\n"));
    await browser.close();
  },

  async "a written question is answered aloud"() {
    const browser = await launch();
    const { page, faults } = await open(browser, url);
    await page.getByPlaceholder("or write here").fill("What is the capital of France?");
    await page.keyboard.press("Enter");
    await until("the answer", async () => /paris/i.test(await page.locator("#log li.agent").allInnerTexts().then((all) => all.join(" "))));
    await until("its sound", () => page.evaluate(() => window.sound.loud > 10));
    check(faults.length === 0, faults.join("\n"));
    await browser.close();
  },
});
