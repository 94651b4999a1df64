/** A worker: handlers by name, and a server to ask for their runs. */
import { hostname } from "node:os";

import { Engine } from "./engine.js";
import type { Task } from "./task.js";

/** What executes an attempt. Its value is the output: text as it is, anything else as JSON, nothing for `undefined`. */
export type Handler<Payload = any> = (task: Task<Payload>) => unknown;

/** Where a worker says what happens; `console` is one. */
export interface Logger {
  info(message: string): void;
  warn(message: string): void;
  error(message: string): void;
}

export interface WorkerOptions {
  /** What to ask for; `["default"]`. */
  queues?: string[];
  /** How many attempts it executes at a time; 10. */
  concurrency?: number;
  /** What lists show; host and process. */
  name?: string;
  /** What the worker has, for jobs that require it. */
  labels?: Record<string, string>;
  /** Sent as `Authorization: Bearer`. */
  key?: string;
  /** Sent as `Punctual-Tenant`. */
  tenant?: string;
  /** How long what runs may take to end when the worker is told to stop; 30. */
  graceSeconds?: number;
  /** How long a claim may wait at the server; 20. */
  waitSeconds?: number;
  /** Warnings and errors go to the console, unless said otherwise. */
  logger?: Logger;
}

const QUIET: Logger = { info: () => {}, warn: (text) => console.warn(text), error: (text) => console.error(text) };

/**
 * Executes runs of jobs whose target is `worker`.
 *
 * `run()` goes on until SIGTERM or SIGINT, or until `stop()`; it then claims nothing more, lets what runs end within the
 * grace, gives back the rest, and takes leave of the server. A second signal ends the grace.
 */
export class Worker {
  readonly #engine: Engine;
  readonly #handlers = new Map<string, Handler>();

  constructor(serverUrl: string, options: WorkerOptions = {}) {
    const { queues = ["default"], concurrency = 10 } = options;
    if (!Array.isArray(queues) || queues.length === 0) {
      throw new TypeError("`queues` is a list with at least one name, such as ['emails']");
    }
    if (!Number.isInteger(concurrency) || concurrency < 1) {
      throw new RangeError(`a concurrency of ${concurrency} executes nothing; write a whole number from 1 on`);
    }
    this.#engine = new Engine(
      {
        serverUrl,
        queues,
        concurrency,
        name: (options.name ?? `${hostname()}-${process.pid}`).slice(0, 200),
        labels: options.labels ?? {},
        key: options.key,
        tenant: options.tenant,
        graceMs: (options.graceSeconds ?? 30) * 1000,
        waitMs: (options.waitSeconds ?? 20) * 1000,
        logger: options.logger ?? QUIET,
      },
      this.#handlers,
    );
  }

  /** Registers a handler under a name. */
  handler<Payload = any>(name: string, handler: Handler<Payload>): this {
    if (this.#handlers.has(name)) throw new TypeError(`there is a handler \`${name}\` already`);
    this.#handlers.set(name, handler);
    return this;
  }

  /** Works until it is told to stop, once. With `signals: false`, SIGTERM and SIGINT are the program's own affair. */
  async run(options: { signals?: boolean } = {}): Promise<void> {
    const stop = () => this.stop();
    const signals: NodeJS.Signals[] = options.signals === false ? [] : ["SIGTERM", "SIGINT"];
    for (const signal of signals) process.on(signal, stop);
    try {
      await this.#engine.run();
    } finally {
      for (const signal of signals) process.removeListener(signal, stop);
    }
  }

  /** Begins to stop, as SIGTERM does; called again, what runs is given back at once. */
  stop(): void {
    this.#engine.stop();
  }
}
