// pg-boss: batches, fetched again at once while they come back full, and LISTEN.
import { PgBoss } from "pg-boss";
import { handle, run } from "./common.mjs";

const QUEUE = "jobs";
const BATCH = 500;
const LOOPS = 2;

const boss = new PgBoss({
  host: process.env.PGHOST,
  port: Number(process.env.PGPORT),
  user: process.env.PGUSER,
  password: process.env.PGPASSWORD,
  database: process.env.PGDATABASE,
  useListenNotify: true,
});
boss.on("error", console.error);

async function migrate() {
  await boss.start();
  await boss.createQueue(QUEUE, { notify: true });
}

async function publish(payloads) {
  await boss.start();
  for await (const payload of payloads) await boss.send(QUEUE, payload);
}

async function publishMany(batches) {
  await boss.start();
  for await (const batch of batches) await boss.insert(QUEUE, batch.map((data) => ({ data })));
}

async function work() {
  await boss.start();
  await boss.work(
    QUEUE,
    {
      batchSize: BATCH,
      localConcurrency: LOOPS,
      burstWhenBatchFull: true,
      pollingIntervalSeconds: 0.5,
    },
    async (jobs) => {
      await Promise.all(jobs.map((job) => handle(job.data)));
    },
  );
}

run({ migrate, publish, publishMany, work });
