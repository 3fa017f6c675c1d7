// Orders of all adapters in Node, as in common.py.
import { spawn } from "node:child_process";
import { closeSync, existsSync, openSync, writeSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

const FOLDER = process.env.PEER_FOLDER ?? ".";
const HANDLER = process.env.PEER_HANDLER ?? "noop";
const BATCH = 1000;
const BURST = 8;
const WARM_UP = 10;
const HANDLER_MS = 1;
const LOOK_MS = 5;

let held = process.env.PEER_HOLD === "1";
let starts;

export async function handle(payload) {
  if (held) hold();
  if (HANDLER === "1ms") await sleep(HANDLER_MS);
  else if (HANDLER === "latency") note(payload);
}

function hold() {
  closeSync(openSync(`${FOLDER}/ready.${process.pid}`, "a"));
  const never = new Int32Array(new SharedArrayBuffer(4));
  while (!existsSync(`${FOLDER}/go`)) Atomics.wait(never, 0, 0, LOOK_MS);
  held = false;
}

function note(payload) {
  const started = monotonic();
  starts ??= openSync(`${FOLDER}/starts`, "a");
  const record = Buffer.alloc(16);
  record.writeDoubleLE(payload.at, 0);
  record.writeDoubleLE(started, 8);
  writeSync(starts, record);
}

// hrtime reads CLOCK_MONOTONIC, which time.monotonic of Python reads, too.
function monotonic() {
  return Number(process.hrtime.bigint()) / 1e9;
}

export async function run({ migrate, publish, publishMany, work }) {
  const [order, ...words] = process.argv.slice(2);
  if (order === "migrate") await migrate();
  else if (order === "publish") {
    const [how, jobs, seconds] = words;
    const stretch = new Stretch(Number(jobs), Number(seconds));
    await (how === "many" ? publishMany(stretch.many()) : publish(stretch.each()));
    console.log(JSON.stringify({ published: stretch.published, seconds: stretch.seconds }));
  } else if (order === "pace") {
    const [how, rate, seconds] = words;
    const pace = new Pace(Number(rate), Number(seconds));
    await (how === "many" ? publishMany(pace.many()) : publish(pace.each()));
    console.log(JSON.stringify({ published: pace.published }));
  } else if (order === "work") {
    for (let more = Number(words[0]); more > 1; more--) again();
    return await work();
  }
  process.exit(0);
}

function again() {
  spawn(process.execPath, [process.argv[1], "work", "1"], { stdio: "inherit" });
}

class Payloads {
  published = 0;
  constructor(atATime) {
    this.atATime = atATime;
  }
  async *each() {
    for await (const batch of this.batches(1)) yield* batch;
  }
  many() {
    return this.batches(this.atATime);
  }
}

class Stretch extends Payloads {
  seconds = 0;
  constructor(jobs, most) {
    super(BATCH);
    Object.assign(this, { jobs, most });
  }
  async *batches(size) {
    if (this.most) for (let at = 0; at < WARM_UP; at += size) yield payloads(at, size);
    const start = monotonic();
    while (this.published < this.jobs) {
      size = Math.min(size, this.jobs - this.published);
      yield payloads(this.published, size);
      this.published += size;
      this.seconds = monotonic() - start;
      if (this.most && this.seconds > this.most) return;
    }
  }
}

function payloads(from, size) {
  return Array.from({ length: size }, (_, number) => payload(from + number));
}

function payload(number) {
  return { number, filler: "x".repeat(100) };
}

// A slow peer ends in time with fewer payloads.
class Pace extends Payloads {
  constructor(rate, seconds) {
    super(BURST);
    Object.assign(this, { rate, seconds });
  }
  async *batches(size) {
    const wanted = Math.round(this.rate * this.seconds);
    const start = monotonic();
    for (let now = start; this.published < wanted && now < start + this.seconds; ) {
      const wait = start + this.published / this.rate - now;
      if (wait > 0) await sleep(wait * 1000);
      size = Math.min(size, wanted - this.published);
      const at = monotonic();
      yield payloads(this.published, size).map((fields) => ({ ...fields, at }));
      this.published += size;
      now = monotonic();
    }
  }
}
