/** A worker for tests: says when an attempt begins and ends, and takes as long as its payload says. */
import { setTimeout as sleep } from "node:timers/promises";

import { Worker } from "../src/index.js";

const worker = new Worker(process.env["PUNCTUAL_SERVER"]!, {
  concurrency: Number(process.env["CONCURRENCY"] ?? 4),
  graceSeconds: Number(process.env["GRACE"] ?? 30),
});

worker.handler("slow", async (task) => {
  console.log(`begins ${task.runId} ${task.attempt}`);
  try {
    await sleep((task.payload?.seconds ?? 60) * 1000, undefined, { signal: task.signal });
  } catch (error) {
    console.log(`stops ${task.runId} ${task.attempt}`);
    throw error;
  }
  console.log(`ends ${task.runId} ${task.attempt}`);
  return "ended";
});

// Waits for somebody to kill it at its first attempt; goes on from its checkpoint at the next.
worker.handler("steps", async (task) => {
  if (task.lastCheckpoint == null) {
    task.progress(50, "half way");
    await task.checkpoint({ row: 800 }, { flush: true });
    console.log(`saved ${task.runId} ${task.attempt}`);
    await sleep(600_000, undefined, { signal: task.signal });
  }
  return { from: task.lastCheckpoint, attempt: task.attempt };
});

await worker.run();
console.log("left");
