// BullMQ on PostgreSQL: one worker a process, a pool as large as its concurrency, and LISTEN.
import { createPostgresBackend, Queue, runMigrations, Worker } from "bullmq";
import pg from "pg";
import { handle, run } from "./common.mjs";

const QUEUE = "jobs";
const CONCURRENCY = 32;
const OPTIONS = {
  connection: {
    host: process.env.PGHOST,
    port: Number(process.env.PGPORT),
    user: process.env.PGUSER,
    password: process.env.PGPASSWORD,
    database: process.env.PGDATABASE,
    max: CONCURRENCY,
  },
};
const JOB = { removeOnComplete: true };

async function migrate() {
  const client = new pg.Client(OPTIONS.connection);
  await client.connect();
  await runMigrations(client);
  await client.end();
}

const queue = () => new Queue(QUEUE, OPTIONS, createPostgresBackend);

async function publish(payloads) {
  const jobs = queue();
  for await (const payload of payloads) await jobs.add("job", payload, JOB);
}

async function publishMany(batches) {
  const jobs = queue();
  for await (const batch of batches)
    await jobs.addBulk(batch.map((data) => ({ name: "job", data, opts: JOB })));
}

async function work() {
  const options = { ...OPTIONS, concurrency: CONCURRENCY };
  const worker = new Worker(QUEUE, (job) => handle(job.data), options, createPostgresBackend);
  worker.on("error", console.error);
}

run({ migrate, publish, publishMany, work });
