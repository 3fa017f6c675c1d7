// graphile-worker: the local queue and batched completion of its page on performance.
import { Logger, makeWorkerUtils, run as runWorker } from "graphile-worker";
import pg from "pg";
import { handle, run } from "./common.mjs";

const preset = {
  worker: {
    concurrentJobs: 24,
    maxPoolSize: 25,
    localQueue: { size: 500 },
    completeJobBatchDelay: 0,
    failJobBatchDelay: 0,
  },
};

// It logs each job unless it has a logger that leaves those out.
const logger = new Logger(() => (level, message) => {
  if (level === "error" || level === "warning") console.error(message);
});

const pool = () => new pg.Pool({ max: preset.worker.maxPoolSize });

async function migrate() {
  await (await makeWorkerUtils({ pgPool: pool() })).migrate();
}

async function publish(payloads) {
  const { addJob } = await makeWorkerUtils({ pgPool: pool() });
  for await (const payload of payloads) await addJob("job", payload);
}

async function publishMany(batches) {
  const { addJobs } = await makeWorkerUtils({ pgPool: pool() });
  for await (const batch of batches) {
    await addJobs(batch.map((payload) => ({ identifier: "job", payload })));
  }
}

async function work() {
  const runner = await runWorker({ preset, logger, pgPool: pool(), taskList: { job: handle } });
  await runner.promise;
}

run({ migrate, publish, publishMany, work });
