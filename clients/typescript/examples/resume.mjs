// Works through many rows, and goes on where an earlier attempt was when its worker is killed or stopped.
// Try it: start a server, this file twice, and kill one of them while `punctual run get` shows its progress.
import { setTimeout as sleep } from "node:timers/promises";

import { Client, Worker } from "punctual";

const server = process.env.PUNCTUAL_SERVER ?? "http://127.0.0.1:7171";
const rows = Number(process.env.ROWS ?? 100);
const msPerRow = Number(process.env.MS_PER_ROW ?? 200);

const worker = new Worker(server, { queues: ["rows"], concurrency: 4, logger: console });

worker.handler("rows", async (task) => {
  const first = task.lastCheckpoint?.row ?? 0;
  for (let row = first; row < rows; row += 1) {
    await sleep(msPerRow, undefined, { signal: task.signal });
    task.progress((100 * (row + 1)) / rows, `row ${row + 1} of ${rows}`);
    task.checkpoint({ row: row + 1 }, { flush: row % 10 === 9 });
  }
  task.log(`rows ${first} to ${rows}`);
  return { first, rows: rows - first };
});

await new Client(server).createJob({
  name: "rows",
  queue: "rows",
  schedule: { now: true },
  target: { worker: { handler: "rows" } },
});
await worker.run();
