import { Worker } from "punctual";

const worker = new Worker(process.env.PUNCTUAL_SERVER ?? "http://127.0.0.1:7171", { queues: ["emails"] });

worker.handler("welcome", async (task) => {
  return `sent ${task.payload.n}`;
});

await worker.run();
