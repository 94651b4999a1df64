/** An attempt as its handler sees it, and what the handler says until the worker sends it. */
import { Stopped, type Why } from "./errors.js";
import { bytes, millis, shorten } from "./wire.js";

const CHECKPOINT_MAX = 64 << 10; // What the server takes.
const LINE_MAX = 4 << 10; // What the server takes.
const LOG_MAX = 256 << 10; // Bytes of lines that wait: a request has room for them; when there are more, older ones make room.

/** One attempt of a run. `Payload` is what you know about the job's payload. */
export interface Task<Payload = any> {
  readonly runId: string;
  /** From 1. */
  readonly attempt: number;
  readonly jobId: string;
  readonly jobName: string;
  readonly handler: string;
  readonly queue: string;
  /** Which part of its slot, from 1, of a job in parts. */
  readonly part: number | undefined;
  /** Of how many. */
  readonly parts: number | undefined;
  readonly labels: Readonly<Record<string, string>>;
  readonly type: string | undefined;
  /** The nominal time of the run. */
  readonly scheduledFor: Date;
  /** The same for every attempt of the run. */
  readonly idempotencyKey: string;
  readonly payload: Payload;
  readonly correlationId: string | undefined;
  readonly timeoutSeconds: number | undefined;
  readonly deadline: Date | undefined;
  /** What an earlier attempt left with `checkpoint`. */
  readonly lastCheckpoint: any;
  /** Aborted when the handler is to stop; its reason is a `Stopped`. Pass it on to whatever takes one. */
  readonly signal: AbortSignal;

  /** Says how far it is, in whole percent; people see it after the next heartbeat. */
  progress(percent: number, message?: string): void;

  /**
   * Leaves JSON of up to 64 KiB for the next attempt; the last one counts. It is sent with the next heartbeat or, with
   * `flush`, at once. The promise resolves when the server has it, and rejects if the attempt ends before or the
   * server refuses it; it need not be awaited.
   */
  checkpoint(value: unknown, options?: { flush?: boolean }): Promise<void>;

  /** Adds lines to the attempt's log, each cut at 4 KiB. */
  log(line: string): void;
}

/** What a handler said since the last heartbeat. */
export class Reports {
  progress: { percent: number; message?: string } | undefined;
  /** In a list, because `null` is a checkpoint too. */
  checkpoint: [unknown] | undefined;
  checkpointBytes = 0;
  lines: string[] = [];
  lineBytes = 0;
  dropped = 0;
  waiting: { resolve: () => void; reject: (reason: unknown) => void }[] = [];

  /** About how many bytes it takes. */
  get size(): number {
    return this.checkpointBytes + this.lineBytes + (this.progress ? LINE_MAX : 0);
  }

  /** Leaves the oldest lines out if there are too many. */
  makeRoom(): void {
    let gone = 0;
    while (this.lineBytes > LOG_MAX) this.lineBytes -= cost(this.lines[gone++]!);
    this.lines.splice(0, gone);
    this.dropped += gone;
  }

  /** The lines, the first of which says how many are missing. */
  told(): string[] {
    return this.dropped ? [`(${this.dropped} lines are left out)`, ...this.lines] : this.lines;
  }

  /** The members of a heartbeat. */
  body(): Record<string, unknown> {
    return {
      ...(this.progress && { progress: this.progress }),
      ...(this.checkpoint && { checkpoint: this.checkpoint[0] }),
      ...(this.told().length > 0 && { log: this.told() }),
    };
  }
}

/** A task with the worker's side of it. */
export class HeldTask implements Task {
  readonly runId: string;
  readonly attempt: number;
  readonly jobId: string;
  readonly jobName: string;
  readonly handler: string;
  readonly queue: string;
  readonly part: number | undefined;
  readonly parts: number | undefined;
  readonly labels: Readonly<Record<string, string>>;
  readonly type: string | undefined;
  readonly scheduledFor: Date;
  readonly idempotencyKey: string;
  readonly payload: any;
  readonly correlationId: string | undefined;
  readonly timeoutSeconds: number | undefined;
  readonly deadline: Date | undefined;
  readonly lastCheckpoint: any;
  readonly signal: AbortSignal;
  readonly #stop = new AbortController();
  readonly #wake: () => void;
  #reports = new Reports();
  #isClosed = false;

  /** From the member of a claim's answer; `wake` asks for a heartbeat at once. */
  constructor(attempt: any, wake: () => void = () => {}) {
    this.runId = attempt.run_id;
    this.attempt = attempt.attempt;
    this.jobId = attempt.job_id;
    this.jobName = attempt.job_name ?? "";
    this.handler = attempt.handler;
    this.queue = attempt.queue ?? "default";
    this.part = attempt.part ?? undefined;
    this.parts = attempt.parts ?? undefined;
    this.labels = attempt.labels ?? {};
    this.type = attempt.type ?? undefined;
    this.scheduledFor = new Date(attempt.scheduled_for);
    this.idempotencyKey = attempt.idempotency_key;
    this.payload = attempt.payload;
    this.correlationId = attempt.correlation_id ?? undefined;
    this.timeoutSeconds = attempt.timeout == null ? undefined : millis(attempt.timeout) / 1000;
    this.deadline = attempt.deadline == null ? undefined : new Date(attempt.deadline);
    this.lastCheckpoint = attempt.checkpoint;
    this.signal = this.#stop.signal;
    this.#wake = wake;
  }

  progress(percent: number, message?: string): void {
    const bounded = Math.floor(Math.max(0, Math.min(100, percent)));
    this.#reports.progress = {
      percent: bounded,
      ...(message !== undefined && { message: shorten(message, LINE_MAX) }),
    };
  }

  checkpoint(value: unknown, options: { flush?: boolean } = {}): Promise<void> {
    // What is sent is what it is now, whatever the handler does to it later.
    const text = JSON.stringify(value);
    if (text === undefined) throw new TypeError("a checkpoint is JSON; this value has none");
    const size = bytes(text);
    if (size > CHECKPOINT_MAX) {
      throw new RangeError(`a checkpoint of ${size} bytes is too large, at most ${CHECKPOINT_MAX}`);
    }
    const delivered = new Promise<void>((resolve, reject) => {
      if (this.#isClosed) return reject(this.signal.reason ?? new Stopped("not_held"));
      this.#reports.checkpoint = [JSON.parse(text)];
      this.#reports.checkpointBytes = size;
      this.#reports.waiting.push({ resolve, reject });
    });
    delivered.catch(() => {}); // It need not be awaited.
    if (options.flush) this.#wake();
    return delivered;
  }

  log(line: string): void {
    const lines = line.split(/\r?\n/).map((part) => shorten(part, LINE_MAX));
    this.#reports.lines.push(...lines);
    for (const part of lines) this.#reports.lineBytes += cost(part);
    this.#reports.makeRoom();
    if (this.#reports.lineBytes > LOG_MAX / 2) this.#wake();
  }

  /** Tells the handler to stop. */
  stop(why: Why): void {
    this.#stop.abort(new Stopped(why));
  }

  /** What waits to be sent, if it has no more bytes than this. */
  takeReports(most: number): Reports | undefined {
    if (this.#reports.size > most) return undefined;
    const taken = this.#reports;
    this.#reports = new Reports();
    return taken;
  }

  /** What could not be sent waits again, unless something newer takes its place. */
  putBack(taken: Reports): void {
    const newer = this.#reports;
    newer.progress ??= taken.progress;
    if (newer.checkpoint === undefined) {
      newer.checkpoint = taken.checkpoint;
      newer.checkpointBytes = taken.checkpointBytes;
    }
    newer.waiting.unshift(...taken.waiting);
    newer.lines.unshift(...taken.lines);
    newer.lineBytes += taken.lineBytes;
    newer.dropped += taken.dropped;
    newer.makeRoom();
    if (this.#isClosed) this.close();
  }

  takeLines(): string[] {
    const lines = this.#reports.told();
    this.#reports.lines = [];
    this.#reports.lineBytes = this.#reports.dropped = 0;
    return lines;
  }

  get hasCheckpoint(): boolean {
    return this.#reports.checkpoint !== undefined;
  }

  /** Nothing more will be sent. */
  close(): void {
    this.#isClosed = true;
    const reason = this.signal.reason ?? new Stopped("not_held");
    for (const { reject } of this.#reports.waiting.splice(0)) reject(reason);
  }
}

/** The bytes of a line in a list. */
function cost(line: string): number {
  return bytes(line) + 3;
}
