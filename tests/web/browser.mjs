// What the page tests share: a browser, a tap on its sound, checks.
import { createRequire } from "node:module";
import { mkdirSync } from "node:fs";
import { join } from "node:path";

// The driver lies in the cache, not beside these files.
const require = createRequire(join(process.env.WEB_MODULES, "index.js"));
const { chromium } = require("playwright-core");

const FLAGS = [
  "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync", "--autoplay-policy=no-user-gesture-required",
];

export const shots = process.env.WEB_SHOTS;
mkdirSync(shots, { recursive: true });

/** A browser; `microphone` is a WAV that is spoken once into it, or null for a person who refuses. */
export function launch(microphone) {
  const args = [...FLAGS];
  if (microphone !== undefined) args.push("--use-fake-device-for-media-stream");
  if (microphone) args.push("--use-fake-ui-for-media-stream", `--use-file-for-fake-audio-capture=${microphone}%noloop`);
  return chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", headless: true, args });
}

/**
 * A page with a tap on what leaves its speaker, and lists of what went wrong and what went over the
 * socket. `prepare` sees the page before it is loaded.
 */
export async function open(browser, url, { prepare, ...options } = {}) {
  const context = await browser.newContext({ viewport: { width: 1200, height: 760 }, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(90_000);
  const faults = [];
  const sent = [];
  const received = [];
  page.on("console", (message) => {
    if (message.type() === "error" || message.type() === "warning") faults.push(message.text());
  });
  page.on("pageerror", (error) => faults.push(String(error)));
  page.on("request", (request) => {
    const from = new URL(request.url());
    if (!["127.0.0.1", "localhost"].includes(from.hostname)) faults.push(`asked another machine: ${from.hostname}`);
  });
  page.on("websocket", (socket) => {
    const keep = (list) => ({ payload }) => list.push({ at: Date.now(), ...JSON.parse(payload) });
    socket.on("framesent", keep(sent));
    socket.on("framereceived", keep(received));
  });
  await page.addInitScript(() => {
    const connect = AudioNode.prototype.connect;
    const sound = { loud: 0, last: 0 };
    window.sound = sound;
    AudioNode.prototype.connect = function (to, ...rest) {
      if (to instanceof AudioDestinationNode) {
        const tap = new AnalyserNode(this.context, { fftSize: 2048 });
        const samples = new Float32Array(tap.fftSize);
        connect.call(this, tap);
        setInterval(() => {
          tap.getFloatTimeDomainData(samples);
          if (samples.some((sample) => Math.abs(sample) > 0.02)) {
            sound.loud += 1;
            sound.last = Date.now();
          }
        }, 20);
      }
      return connect.call(this, to, ...rest);
    };
  });
  await prepare?.(page);
  await page.goto(url);
  return { page, faults, sent, received };
}

/** Waits until `probe` gives something; says what was missing when it never does. */
export async function until(what, probe, seconds = 90) {
  const end = Date.now() + seconds * 1000;
  for (;;) {
    const value = await probe();
    if (value) return value;
    if (Date.now() > end) throw new Error(`not within ${seconds} s: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

export function check(condition, what) {
  if (!condition) throw new Error(what);
}

/** Runs named tests one after the other; ends the process with their number of failures. */
export async function run(tests) {
  let failed = 0;
  for (const [name, test] of Object.entries(tests)) {
    const began = Date.now();
    try {
      await test();
      console.log(`ok    ${name} (${((Date.now() - began) / 1000).toFixed(1)} s)`);
    } catch (error) {
      failed += 1;
      console.log(`FAIL  ${name}\n      ${String(error.stack ?? error).replaceAll("\n", "\n      ")}`);
    }
  }
  process.exit(failed ? 1 : 0);
}
