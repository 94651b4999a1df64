/**
 * Pull workers and a small management client for Punctual.
 *
 * `Worker` asks a server for runs and executes them; `Client` registers jobs and reads runs;
 * `once` makes a handler take effect once for each idempotency key.
 */
export { Client } from "./client.js";
export type {
  Attempt,
  AttemptError,
  Job,
  JobSpec,
  LogLine,
  Output,
  Page,
  Progress,
  Run,
  RunSummary,
} from "./client.js";
export { NotRetryable, Problem, RetryAfter, ServerUnreachable, Stopped } from "./errors.js";
export type { FieldError, Why } from "./errors.js";
export { MemoryStore, SqlStore, once } from "./once.js";
export type { SqlConnection, Store } from "./once.js";
export type { Task } from "./task.js";
export { Worker } from "./worker.js";
export type { Handler, Logger, WorkerOptions } from "./worker.js";
