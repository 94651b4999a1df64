/** The part of the management API that programs around workers need: jobs and runs, typed as the API has them. */
import { randomUUID } from "node:crypto";

import { Connection } from "./connection.js";

/** A job as its owner asks for it. */
export interface JobSpec {
  name?: string;
  key?: string;
  type?: string;
  labels?: Record<string, string>;
  queue?: string;
  requires?: Record<string, string>;
  lane?: "critical" | "standard" | "batch";
  priority?: number;
  schedule: Record<string, unknown>;
  target: { worker: { handler: string } } | Record<string, unknown>;
  dead_letter_target?: Record<string, unknown>;
  payload?: unknown;
  retry?: Record<string, unknown>;
  catch_up?: Record<string, unknown>;
  overlap?: Record<string, unknown>;
  concurrency?: Record<string, unknown>;
  rate?: Record<string, unknown>;
  breaker?: Record<string, unknown>;
  start_window?: string;
  timeout?: string;
  deadline?: string;
  min_duration?: string;
  retention?: Record<string, unknown>;
  correlation_id?: string;
}

/** A job as it is. */
export interface Job extends JobSpec {
  id: string;
  tenant: string;
  version: number;
  state: "active" | "paused" | "ended";
  next_fire_at: string | null;
  warnings?: string[];
  created_at: string;
  updated_at: string;
}

/** A run as lists show it. */
export interface RunSummary {
  id: string;
  job_id: string;
  tenant: string;
  job_version: number;
  type: string | null;
  queue: string;
  cause: string;
  scheduled_for: string;
  state: "pending" | "running" | "succeeded" | "failed" | "timed_out" | "cancelled" | "missed";
  reason?: string;
  waiting_for: string | null;
  available_at: string | null;
  attempt: number;
  started_at: string | null;
  finished_at: string | null;
  lateness_ms: number | null;
  is_cancel_requested?: boolean;
  idempotency_key: string;
  correlation_id?: string;
}

/** Why an attempt failed. */
export interface AttemptError {
  code: string;
  message: string;
  is_retryable: boolean;
  retry_after?: string;
}

/** What an attempt gave: `text`, or `base64` if it is not UTF-8. */
export interface Output {
  text?: string;
  base64?: string;
  is_truncated: boolean;
}

/** How far an attempt is. */
export interface Progress {
  percent?: number;
  message?: string;
}

/** A line of an attempt's log. */
export interface LogLine {
  at: string;
  text: string;
}

/** One try of a run. */
export interface Attempt {
  number: number;
  worker: string;
  outcome: "succeeded" | "failed" | "timed_out" | "cancelled" | "lost" | null;
  claimed_at: string;
  started_at: string | null;
  finished_at: string | null;
  duration_ms: number | null;
  status?: number;
  error?: AttemptError;
  output?: Output;
  log?: LogLine[];
  log_dropped?: number;
}

/** A run with its attempts, oldest first. */
export interface Run extends RunSummary {
  attempts: Attempt[];
  progress?: Progress;
  checkpoint?: unknown;
  warnings?: string[];
}

/** A part of a list; `next_cursor` leads to the next one. */
export interface Page<T> {
  items: T[];
  next_cursor: string | null;
}

/** Registers jobs and reads runs. Refusals are thrown as `Problem`. */
export class Client {
  readonly #http: Connection;

  constructor(serverUrl: string, options: { key?: string; tenant?: string } = {}) {
    this.#http = new Connection(serverUrl, options.key, options.tenant);
  }

  /** Registers a job. Repeated under the same `idempotencyKey`, it is registered once. */
  async createJob(spec: JobSpec, options: { idempotencyKey?: string } = {}): Promise<Job> {
    return this.#http.request("POST", "/v1/jobs", spec, { headers: once(options.idempotencyKey) });
  }

  /** Reads a job. */
  async getJob(jobId: string): Promise<Job> {
    return this.#http.request("GET", `/v1/jobs/${encodeURIComponent(jobId)}`);
  }

  /** Deletes a job; its history stays until it expires. */
  async deleteJob(jobId: string): Promise<void> {
    await this.#http.request("DELETE", `/v1/jobs/${encodeURIComponent(jobId)}`);
  }

  /** Runs a job now. */
  async trigger(
    jobId: string,
    options: { correlationId?: string; idempotencyKey?: string } = {},
  ): Promise<RunSummary> {
    const body = options.correlationId === undefined ? {} : { correlation_id: options.correlationId };
    const path = `/v1/jobs/${encodeURIComponent(jobId)}/trigger`;
    return this.#http.request("POST", path, body, { headers: once(options.idempotencyKey) });
  }

  /** Reads a run with its attempts. */
  async getRun(runId: string): Promise<Run> {
    return this.#http.request("GET", `/v1/runs/${encodeURIComponent(runId)}`);
  }

  /** Ends a waiting run, or asks a running one to stop. */
  async cancelRun(runId: string): Promise<RunSummary> {
    return this.#http.request("POST", `/v1/runs/${encodeURIComponent(runId)}/cancel`);
  }

  /** A page of runs, newest first. */
  async listRuns(
    filter: { job?: string; state?: string; queue?: string; limit?: number; cursor?: string } = {},
  ): Promise<Page<RunSummary>> {
    const query = new URLSearchParams();
    for (const [name, value] of Object.entries(filter)) if (value !== undefined) query.set(name, String(value));
    return this.#http.request("GET", query.size > 0 ? `/v1/runs?${query}` : "/v1/runs");
  }

  /** Every run, newest first, page by page. */
  async *eachRun(filter: { job?: string; state?: string; queue?: string } = {}): AsyncGenerator<RunSummary> {
    let cursor: string | null = null;
    do {
      const page: Page<RunSummary> = await this.listRuns({ ...filter, limit: 1000, ...(cursor && { cursor }) });
      yield* page.items;
      cursor = page.next_cursor ?? null;
    } while (cursor !== null);
  }

  /** The workers of the tenant that are there. */
  async listWorkers(): Promise<Record<string, unknown>[]> {
    const answer = await this.#http.request("GET", "/v1/workers");
    return Array.isArray(answer) ? answer : answer.items;
  }
}

// A request that was sent again because its answer got lost must not do its work twice.
function once(key = randomUUID() as string): Record<string, string> {
  return { "idempotency-key": key };
}
