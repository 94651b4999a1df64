/** Workers for the length of a test. */
import type { Logger, Worker, WorkerOptions } from "../src/index.js";
import { Worker as NewWorker } from "../src/index.js";
import { FakeServer } from "./fake_server.js";

const SILENT: Logger = { info: () => {}, warn: () => {}, error: () => {} };

/** A promise and what resolves it. */
export function gate<T = void>(): { promise: Promise<T>; open: (value: T) => void } {
  let open!: (value: T) => void;
  const promise = new Promise<T>((resolve) => (open = resolve));
  return { promise, open };
}

/** Resolves when a signal is aborted. */
export function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener("abort", () => resolve(), { once: true });
  });
}

/** A server, and a worker of it that runs while `body` does; both are ended after it. */
export async function withWorker(
  options: WorkerOptions & { heartbeatEvery?: string },
  prepare: (worker: Worker, server: FakeServer) => void,
  body: (server: FakeServer, worker: Worker, ended: Promise<void>) => Promise<void>,
): Promise<FakeServer> {
  const { heartbeatEvery, ...rest } = options;
  const server = await FakeServer.start(heartbeatEvery);
  const worker = new NewWorker(server.url, { logger: SILENT, ...rest });
  prepare(worker, server);
  const ended = worker.run({ signals: false });
  try {
    await body(server, worker, ended);
  } finally {
    worker.stop();
    worker.stop();
    await ended;
    await server.down();
  }
  return server;
}
