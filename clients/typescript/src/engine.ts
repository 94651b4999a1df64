/**
 * The life of a worker: claims as there is room, heartbeats, results until they are delivered, and a good end.
 *
 * Promise: what was claimed is executed and its result reported, through any number of outages, unless the server says
 * that it is not held any more.
 */
import { Connection } from "./connection.js";
import { Problem, ServerUnreachable, type Why } from "./errors.js";
import { type Outcome, failed, failure, success } from "./outcome.js";
import { HeldTask, type Reports } from "./task.js";
import { Wakeup } from "./wakeup.js";
import { duration, millis } from "./wire.js";
import type { Handler, Logger } from "./worker.js";

const CAPACITY_MAX = 1000; // Attempts of one claim, and results of one request: what the server takes.
const BODY_MAX = 768 << 10; // Bytes of a request; a server takes 1 MiB, and this is counted without what surrounds it.
const REPORTS_MIN = 400 << 10; // Of these, so many are left for reports: what one attempt has always finds room.
const BACKOFF_FIRST_MS = 100;
const BACKOFF_MAX_MS = 5_000; // Results arrive so soon after a server is back.
const TIMER_MAX_MS = 2 ** 31 - 1; // What a timer of Node takes; a longer one would end at once.

/** Limits that tests make short. */
export const limits = {
  /** What a handler has to end after it was told to; then its attempt is reported without it. */
  stopGraceMs: 5_000,
  /** What the last results have to be delivered when a worker ends. */
  deliverGraceMs: 10_000,
};

/** What a worker was made with. */
export interface Settings {
  serverUrl: string;
  queues: string[];
  concurrency: number;
  name: string;
  labels: Record<string, string>;
  key: string | undefined;
  tenant: string | undefined;
  graceMs: number;
  waitMs: number;
  logger: Logger;
}

type Result = Outcome & { run_id: string; attempt: number; log?: string[]; started_at?: string; finished_at?: string };

/** An attempt that the server gave to this worker. */
class Held {
  readonly key: string;
  readonly startedAt = new Date();
  /** Resolves with the first reason to stop. */
  readonly stopping: Promise<Why>;
  /** Set when it is over and waits to be reported. */
  result: Result | undefined;
  isWorking = false;
  isRefused = false;
  stop!: (why: Why) => void;

  constructor(readonly task: HeldTask) {
    this.key = keyOf({ run_id: task.runId, attempt: task.attempt });
    this.stopping = new Promise((resolve) => (this.stop = resolve));
  }

  /** As requests name it. */
  get name(): { run_id: string; attempt: number } {
    return { run_id: this.task.runId, attempt: this.task.attempt };
  }
}

/** Runs once. */
export class Engine {
  readonly #settings: Settings;
  readonly #handlers: ReadonlyMap<string, Handler>;
  readonly #http: Connection;
  #identity: string | undefined;
  #wasKnown = false;
  #heartbeatEveryMs = 5_000;
  readonly #held = new Map<string, Held>();
  /** What is held, and what was but has a handler that still goes on: together never more than `concurrency`. */
  readonly #places = new Set<Held>();
  #claiming = new AbortController();
  #hasRun = false;
  #isOver = false;
  #stops = 0;
  readonly #room = new Wakeup();
  readonly #beatNow = new Wakeup();
  readonly #over = new Wakeup();
  readonly #changed = new Wakeup();
  /** Ends the pauses of heartbeats and results. */
  readonly #ended = [new Wakeup(), new Wakeup()] as const;
  /** Heartbeats one after the other, so that no report is sent twice at once. */
  #beating: Promise<unknown> = Promise.resolve();

  constructor(settings: Settings, handlers: ReadonlyMap<string, Handler>) {
    this.#settings = settings;
    this.#handlers = handlers;
    this.#http = new Connection(settings.serverUrl, settings.key, settings.tenant);
  }

  /** Begins to stop; the second time the grace is over. */
  stop(): void {
    this.#stops += 1;
    this.#room.notify();
    this.#changed.notify();
  }

  /** Works until `stop`. Throws `Problem` if the server refuses the worker at its first call. */
  async run(): Promise<void> {
    if (this.#hasRun) throw new Error("a worker runs once; make another");
    this.#hasRun = true;
    let refusal: unknown;
    const claims = this.#claim().catch((error: unknown) => {
      refusal = error;
      this.#changed.notify();
    });
    const duties = [claims, this.#heartbeat(), this.#report()];
    try {
      await this.#until(() => this.#stops > 0 || refusal !== undefined);
      if (refusal !== undefined) throw refusal;
      await this.#drain();
    } finally {
      this.#isOver = true;
      this.#claiming.abort();
      for (const held of [...this.#held.values()]) this.#forget(held);
      for (const wakeup of [this.#room, this.#beatNow, this.#over, ...this.#ended]) wakeup.notify();
      await Promise.all(duties);
      await this.#takeLeave();
    }
  }

  // Claim

  async #claim(): Promise<void> {
    let failures = 0;
    while (this.#stops === 0 && !this.#isOver) {
      const room = this.#settings.concurrency - this.#places.size;
      if (room < 1) {
        await this.#room.wait();
        continue;
      }
      const askedAs = this.#identity;
      this.#claiming = new AbortController();
      try {
        const answer = await this.#ask(askedAs, Math.min(room, CAPACITY_MAX));
        failures = 0;
        // If it was given to who this worker was before, it is not listed, and goes to somebody else.
        if (askedAs === this.#identity && !this.#isOver) this.#accept(answer);
      } catch (error) {
        if (!isFromServer(error)) throw error;
        if (this.#isLost(error, askedAs) || askedAs !== this.#identity || this.#stops > 0) continue;
        if (isFinal(error) && !this.#wasKnown) throw error;
        failures += 1;
        this.#settings.logger.warn(`punctual: claim: ${error.message}; trying again`);
        await this.#room.wait(backoffMs(failures, error));
      }
    }
  }

  async #ask(askedAs: string | undefined, capacity: number): Promise<any> {
    const { name, queues, labels, concurrency, waitMs } = this.#settings;
    const body = { worker: askedAs, name, queues, labels, capacity, concurrency, wait: duration(waitMs) };
    const options = { timeoutMs: waitMs + 10_000, signal: this.#claiming.signal };
    return this.#http.request("POST", "/v1/claims", body, options);
  }

  #accept(answer: any): void {
    if (this.#identity !== answer.worker) {
      this.#settings.logger.info(`punctual: this worker is ${answer.worker}`);
      this.#beatNow.notify(); // The pause that goes on now is longer than this server may want.
    }
    this.#identity = answer.worker;
    this.#wasKnown = true;
    this.#heartbeatEveryMs = millis(answer.heartbeat_every);
    for (const attempt of answer.attempts) {
      const held = new Held(new HeldTask(attempt, () => this.#beatNow.notify()));
      if (this.#held.has(held.key)) continue;
      this.#held.set(held.key, held);
      this.#places.add(held);
      if (this.#stops > 0) this.#finish(held, { outcome: "released" });
      else void this.#execute(held);
    }
  }

  // Execute

  async #execute(held: Held): Promise<void> {
    const { task } = held;
    const handler = this.#handlers.get(task.handler);
    if (handler === undefined) {
      const known = [...this.#handlers.keys()].sort().map((name) => `\`${name}\``);
      const message = `this worker has no handler \`${task.handler}\`; it has ${known.join(", ") || "none"}`;
      return this.#finish(held, failed("handler_unknown", message));
    }
    held.isWorking = true;
    // The handler begins later, not inside the claim: what it does first must not hold up the other attempts.
    const work = Promise.resolve().then(() => handler(task)).then(success, failure);
    void work.then(() => {
      held.isWorking = false;
      this.#leave(held);
    });
    const limitMs = timeLeftMs(task);
    const end = await within(limitMs, Promise.race([work, held.stopping]));
    if (typeof end === "object") return this.#finish(held, end);
    const why = end ?? "timed_out";
    task.stop(why);
    await within(limits.stopGraceMs, work);
    if (why === "not_held") return;
    const message = `the attempt did not end within ${(limitMs ?? 0) / 1000} s`;
    const outcome = why === "timed_out" ? failed("timed_out", message, { outcome: why }) : { outcome: why };
    this.#finish(held, outcome);
  }

  /** It is over: reported, unless it is not held any more. */
  #finish(held: Held, outcome: Outcome): void {
    if (this.#held.get(held.key) !== held) return;
    const times = { started_at: held.startedAt.toISOString(), finished_at: new Date().toISOString() };
    held.result = { ...held.name, ...outcome, ...(outcome.outcome !== "released" && times) };
    this.#over.notify();
    this.#changed.notify();
  }

  /** It is not held any more: reported, given to somebody else, or lost with the identity. */
  #forget(held: Held): void {
    if (this.#held.get(held.key) === held) this.#held.delete(held.key);
    held.stop("not_held");
    held.task.close();
    this.#leave(held);
  }

  #leave(held: Held): void {
    if (!held.isWorking && this.#held.get(held.key) !== held) {
      this.#places.delete(held);
      this.#room.notify();
    }
    this.#changed.notify();
  }

  // Heartbeat

  async #heartbeat(): Promise<void> {
    let failures = 0;
    while (!this.#isOver) {
      const pause = this.#heartbeatEveryMs;
      if (failures > 0) await this.#ended[0].wait(Math.min(pause, backoffMs(failures)));
      else await this.#beatNow.wait(pause);
      if (this.#isOver) return;
      try {
        await this.#alone(() => this.#beat());
        failures = 0;
      } catch (error) {
        if (!isFromServer(error)) throw error;
        failures += 1;
        this.#settings.logger.warn(`punctual: heartbeat: ${error.message}; trying again`);
      }
    }
  }

  /** After the heartbeat that is under way, and before the next. */
  #alone<T>(work: () => Promise<T>): Promise<T> {
    const mine = this.#beating.then(work);
    this.#beating = mine.catch(() => {});
    return mine;
  }

  async #beat(): Promise<void> {
    const beatAs = this.#identity;
    if (beatAs === undefined) return;
    const listed = [...this.#held.values()];
    const taken: [HeldTask, Reports][] = [];
    let room = Math.max(BODY_MAX - 100 * listed.length, REPORTS_MIN);
    const members = listed.map((held) => {
      const reports = held.task.takeReports(room);
      if (reports === undefined) {
        this.#beatNow.notify(); // There is more than one request takes.
        return held.name;
      }
      room -= reports.size;
      taken.push([held.task, reports]);
      return { ...held.name, ...reports.body() };
    });
    const working = [...this.#places].filter((held) => held.isWorking).length;
    const { concurrency } = this.#settings;
    const body = { held: members, concurrency, saturation: Math.min(1, working / concurrency) };
    let answer: any;
    try {
      const timeoutMs = Math.max(1_000, this.#heartbeatEveryMs);
      answer = await this.#http.request("POST", `/v1/workers/${beatAs}/heartbeat`, body, { timeoutMs });
    } catch (error) {
      if (isRefusal(error) && taken.some(([, reports]) => Object.keys(reports.body()).length > 0)) {
        // What is held must be kept, whatever is wrong with what a handler said.
        this.#settings.logger.error(`punctual: heartbeat: ${error.message}; sent without what handlers reported`);
        for (const [, reports] of taken) for (const { reject } of reports.waiting) reject(error);
        return this.#beat();
      }
      for (const [task, reports] of taken) task.putBack(reports);
      if (this.#isLost(error, beatAs)) return;
      throw error;
    }
    for (const [, reports] of taken) for (const { resolve } of reports.waiting) resolve();
    if (beatAs !== this.#identity) return;
    for (const named of answer.cancelled ?? []) {
      const held = this.#held.get(keyOf(named));
      if (held !== undefined && held.result === undefined) held.stop("cancelled");
    }
    for (const named of answer.not_held ?? []) {
      const held = this.#held.get(keyOf(named));
      if (held === undefined) continue;
      this.#settings.logger.warn(`punctual: ${titleOf(held)} is not held any more; stopping it`);
      this.#forget(held);
    }
  }

  // Results

  async #report(): Promise<void> {
    let failures = 0;
    while (!this.#isOver) {
      const batch = this.#nextBatch();
      if (batch.length === 0) {
        await this.#over.wait();
        continue;
      }
      try {
        await this.#deliver(batch);
        failures = 0;
      } catch (error) {
        if (!isFromServer(error)) throw error;
        failures += 1;
        this.#settings.logger.warn(`punctual: results: ${error.message}; trying again`);
        await this.#ended[1].wait(backoffMs(failures, error));
      }
    }
  }

  #nextBatch(): Held[] {
    const batch: Held[] = [];
    let room = BODY_MAX;
    for (const held of this.#held.values()) {
      if (held.result === undefined) continue;
      if (held.isRefused) return [held];
      room -= Buffer.byteLength(JSON.stringify(held.result));
      if (batch.length > 0 && (room < 0 || batch.length === CAPACITY_MAX)) break;
      batch.push(held);
    }
    return batch;
  }

  async #deliver(over: Held[]): Promise<void> {
    const sentAs = this.#identity;
    const batch = await this.#alone(async () => {
      // The next attempt is given the checkpoint, so it has to be there before this one ends.
      if (over.some((held) => held.task.hasCheckpoint && hasNext(held))) await this.#beat();
      const held = over.filter((held) => this.#held.get(held.key) === held);
      for (const { task, result } of held) {
        const lines = task.takeLines();
        if (result !== undefined && lines.length > 0) result.log = [...(result.log ?? []), ...lines];
      }
      return held;
    });
    if (batch.length === 0 || sentAs !== this.#identity) return;
    let answer: any;
    try {
      const body = { results: batch.map((held) => held.result) };
      answer = await this.#http.request("POST", `/v1/workers/${sentAs}/results`, body);
    } catch (error) {
      if (this.#isLost(error, sentAs)) return;
      if (isRefusal(error)) return this.#refused(batch, error);
      throw error;
    }
    let unavailable: Problem | undefined;
    batch.forEach((held, index) => {
      const problem = answer.results[index]?.problem;
      if (problem !== undefined && problem.status >= 500) {
        unavailable = Problem.read(problem.status, problem, "");
        return;
      }
      if (problem !== undefined) {
        this.#settings.logger.warn(`punctual: ${titleOf(held)}: result not taken: ${problem.detail}`);
      }
      this.#forget(held);
    });
    if (unavailable !== undefined) throw unavailable;
  }

  /** A request that will never be taken: each of its results is sent alone, without its log, and as a failure. */
  #refused(batch: Held[], problem: Problem): void {
    for (const held of batch) {
      if (batch.length === 1) {
        if (held.result?.error?.code === "result_refused") {
          this.#settings.logger.error(`punctual: ${titleOf(held)}: ${problem.message}`);
          return this.#forget(held);
        }
        this.#settings.logger.error(`punctual: ${titleOf(held)}: ${problem.message}; trying with less`);
        if (held.result?.log !== undefined) delete held.result.log;
        else held.result = { ...held.name, ...failed("result_refused", problem.message, { isRetryable: false }) };
      }
      held.isRefused = true;
    }
  }

  // The end

  async #drain(): Promise<void> {
    this.#settings.logger.info(`punctual: stopping; ${this.#working().length} attempts still run`);
    // What is released must not come back by a claim that still waits. If one is answered right now, the server gives
    // those attempts to somebody else, because they are never listed.
    this.#claiming.abort();
    await this.#until(() => this.#working().length === 0 || this.#stops > 1, this.#settings.graceMs);
    for (const held of this.#working()) held.stop("released");
    await this.#until(() => this.#working().length === 0, limits.stopGraceMs + 1_000);
    await this.#until(() => this.#held.size === 0, limits.deliverGraceMs);
    if (this.#held.size > 0) {
      this.#settings.logger.error(`punctual: ${this.#held.size} results could not be delivered`);
    }
  }

  #working(): Held[] {
    return [...this.#held.values()].filter((held) => held.result === undefined);
  }

  async #until(isTrue: () => boolean, mostMs = Infinity): Promise<void> {
    const giveUpAt = performance.now() + mostMs;
    while (!isTrue()) {
      const left = giveUpAt - performance.now();
      if (left <= 0) return;
      await this.#changed.wait(Math.min(left, TIMER_MAX_MS));
    }
  }

  async #takeLeave(): Promise<void> {
    if (this.#identity === undefined) return;
    try {
      await this.#http.request("DELETE", `/v1/workers/${this.#identity}`, undefined, { timeoutMs: 5_000 });
    } catch (error) {
      if (!isFromServer(error)) throw error;
      this.#settings.logger.warn(`punctual: taking leave: ${error.message}`); // The server will notice by itself.
    }
  }

  /** Whether the server does not know this worker any more; then it begins anew, holding nothing. */
  #isLost(error: unknown, askedAs: string | undefined): boolean {
    if (!(error instanceof Problem) || error.code !== "worker_lost" || askedAs === undefined) return false;
    if (this.#identity === askedAs) {
      this.#settings.logger.warn("punctual: the server took this worker for dead; beginning anew");
      this.#identity = undefined;
      for (const held of [...this.#held.values()]) this.#forget(held);
      this.#claiming.abort();
    }
    return true;
  }
}

function keyOf(named: { run_id: string; attempt: number }): string {
  return `${named.attempt} ${named.run_id}`;
}

function titleOf({ task }: Held): string {
  return `run ${task.runId}, attempt ${task.attempt}`;
}

function hasNext(held: Held): boolean {
  return ["failed", "timed_out", "released"].includes(held.result?.outcome ?? "");
}

function timeLeftMs(task: HeldTask): number | undefined {
  const timeoutMs = task.timeoutSeconds === undefined ? Infinity : task.timeoutSeconds * 1000;
  const deadlineMs = task.deadline === undefined ? Infinity : Math.max(0, task.deadline.getTime() - Date.now());
  const left = Math.min(timeoutMs, deadlineMs);
  return left <= TIMER_MAX_MS ? left : undefined;
}

/** What a promise gives, or nothing if it takes longer. */
async function within<T>(mostMs: number | undefined, promise: Promise<T>): Promise<T | undefined> {
  if (mostMs === undefined) return promise;
  let timer: NodeJS.Timeout | undefined;
  const over = new Promise<undefined>((resolve) => (timer = setTimeout(() => resolve(undefined), mostMs)));
  try {
    return await Promise.race([promise, over]);
  } finally {
    clearTimeout(timer);
  }
}

/** Whether it is about the server, and not a mistake of this program. */
function isFromServer(error: unknown): error is Problem | ServerUnreachable {
  return error instanceof Problem || error instanceof ServerUnreachable;
}

/** Whether the same request would be refused again. */
function isFinal(error: unknown): error is Problem {
  const isClient = error instanceof Problem && error.status >= 400 && error.status < 500;
  return isClient && ![408, 425, 429].includes(error.status);
}

/** Whether it is the body that is refused, and not who sends it. */
function isRefusal(error: unknown): error is Problem {
  return error instanceof Problem && [400, 413, 422].includes(error.status);
}

/** How long to wait after so many failures in a row. Chance keeps workers from coming back all at once. */
function backoffMs(failures: number, error?: Problem | ServerUnreachable): number {
  const longest = Math.min(BACKOFF_MAX_MS, BACKOFF_FIRST_MS * 2 ** Math.min(failures - 1, 16));
  const asked = error instanceof Problem ? (error.retryAfter ?? 0) * 1000 : 0;
  return Math.max(longest * (0.5 + Math.random() / 2), Math.min(asked, 30_000));
}
