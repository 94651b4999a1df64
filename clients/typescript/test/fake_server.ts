/**
 * A small server in this process that keeps to docs/reference/workers.md.
 *
 * Leases are counted in heartbeats, not in time: an attempt that is not listed in twenty of them goes to somebody else.
 * Tests look at what it saw, and wait for it; nothing here sleeps.
 */
import { once as event } from "node:events";
import { type IncomingMessage, type Server, type ServerResponse, createServer } from "node:http";
import type { AddressInfo } from "node:net";

const PATIENCE_MS = 30_000; // Until a test that waits for something gives up; never reached when all is well.
const LEASE_HEARTBEATS = 20; // So many that a claim's answer is read meanwhile, also on a busy machine.

export interface Seen {
  method: string;
  path: string;
  body: any;
  headers: IncomingMessage["headers"];
}

/** A run of a `worker` job. */
export class FakeRun {
  readonly id: string;
  readonly queue: string;
  readonly attemptsMax: number;
  state = "pending";
  attempt = 0;
  holder: string | undefined;
  unlisted = 0;
  isCancelRequested = false;
  checkpoint: unknown;
  progress: unknown;
  log: string[] = [];
  results: any[] = [];

  constructor(
    number: number,
    readonly handler: string,
    readonly members: Record<string, unknown>,
    options: { queue?: string; attemptsMax?: number } = {},
  ) {
    this.id = `run-${number}`;
    this.queue = options.queue ?? "default";
    this.attemptsMax = options.attemptsMax ?? 1;
  }

  claimed(): Record<string, unknown> {
    return {
      run_id: this.id,
      attempt: this.attempt,
      job_id: "job-1",
      job_name: "a job",
      handler: this.handler,
      queue: this.queue,
      labels: { team: "a" },
      scheduled_for: "2026-11-18T09:00:00.123456789Z",
      idempotency_key: `key-${this.id}`,
      ...this.members,
      ...(this.checkpoint !== undefined && { checkpoint: this.checkpoint }),
    };
  }
}

type Answer = [number, unknown] | undefined;

export class FakeServer {
  readonly runs = new Map<string, FakeRun>();
  readonly workers = new Set<string>();
  readonly deleted: string[] = [];
  readonly requests: Seen[] = [];
  /** Answers to routes that are no worker's, and refusals of those that are. */
  readonly fixed = new Map<string, [number, unknown]>();
  mostHeld = 0;
  /** So many answers that give something never arrive. */
  loseClaims = 0;
  loseResults = 0;
  /** So many results are refused for now, each for itself. */
  putOffResults = 0;
  /** Takes no progress, checkpoints and lines. */
  refusesReports = false;
  isUp = false;
  port = 0;
  #http: Server | undefined;
  #numbers = 0;
  #waiting = new Set<() => void>();

  private constructor(readonly heartbeatEvery: string) {}

  static async start(heartbeatEvery = "PT0.050S"): Promise<FakeServer> {
    const server = new FakeServer(heartbeatEvery);
    await server.up();
    return server;
  }

  // What tests do

  get url(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  add(handler: string, members: Record<string, unknown> = {}, options: { queue?: string; attemptsMax?: number } = {}): FakeRun {
    const run = new FakeRun(++this.#numbers, handler, members, options);
    this.runs.set(run.id, run);
    this.#changed();
    return run;
  }

  cancel(run: FakeRun): void {
    run.isCancelRequested = true;
  }

  /** Somebody else has it now. */
  takeAway(run: FakeRun): void {
    run.holder = "somebody-else";
  }

  /** Takes every worker for dead; what they held is pending again. */
  loseWorkers(): void {
    this.workers.clear();
    for (const run of this.runs.values()) {
      if (run.state === "running") [run.state, run.holder] = ["pending", undefined];
    }
    this.#changed();
  }

  seen(method: string, ending: string): any[] {
    return this.requests.filter((r) => r.method === method && r.path.endsWith(ending)).map((r) => r.body);
  }

  async wait(isTrue: () => unknown, what = String(isTrue)): Promise<void> {
    const giveUpAt = performance.now() + PATIENCE_MS;
    while (!isTrue()) {
      const left = giveUpAt - performance.now();
      if (left <= 0) throw new Error(`never came: ${what}; ${JSON.stringify(this.requests.slice(-5))}`);
      await this.#next(left);
    }
  }

  async waitState(run: FakeRun, state: string): Promise<void> {
    await this.wait(() => run.state === state, `${run.id} ${state}`);
  }

  async up(): Promise<void> {
    this.#http = createServer((request, response) => void this.#receive(request, response));
    this.#http.listen(this.port, "127.0.0.1");
    await event(this.#http, "listening");
    this.port = (this.#http.address() as AddressInfo).port;
    this.isUp = true;
  }

  /** Cuts every connection and listens no more; what it knows stays. */
  async down(): Promise<void> {
    if (!this.isUp) return;
    this.isUp = false;
    this.#changed();
    const closed = event(this.#http!, "close");
    this.#http!.close();
    this.#http!.closeAllConnections();
    await closed;
  }

  #changed(): void {
    for (const wake of [...this.#waiting]) wake();
  }

  async #next(mostMs: number): Promise<void> {
    await new Promise<void>((resolve) => {
      const timer = setTimeout(() => wake(), mostMs);
      const wake = () => {
        clearTimeout(timer);
        this.#waiting.delete(wake);
        resolve();
      };
      this.#waiting.add(wake);
    });
  }

  async #receive(request: IncomingMessage, response: ServerResponse): Promise<void> {
    try {
      const parts: Buffer[] = [];
      for await (const part of request) parts.push(part as Buffer);
      const text = Buffer.concat(parts).toString();
      const body = text === "" ? undefined : JSON.parse(text);
      const path = request.url ?? "";
      let isGone = false;
      response.on("close", () => {
        isGone = true;
        this.#changed();
      });
      const answer = await this.#serve({ method: request.method ?? "", path, body, headers: request.headers }, () => isGone);
      this.#changed();
      if (answer === undefined) return void request.socket.destroy();
      const [status, content] = answer;
      response.writeHead(status, { "content-type": "application/json" });
      response.end(content === undefined ? undefined : JSON.stringify(content));
    } catch {
      request.socket.destroy();
    }
  }

  // What the page says

  async #serve(seen: Seen, isGone: () => boolean): Promise<Answer> {
    this.requests.push(seen);
    this.#changed();
    const { method, path, body } = seen;
    const fixed = this.fixed.get(`${method} ${path.split("?")[0]}`);
    if (fixed !== undefined) return fixed;
    if (path === "/v1/claims") return this.#claim(body, isGone);
    const [, version, kind, worker = "", verb] = path.split("/");
    if (version !== "v1" || kind !== "workers") return problem(404, "route_not_found");
    if (!this.workers.has(worker)) return problem(409, "worker_lost");
    if (method === "DELETE") return this.#delete(worker);
    const hasReports = body?.held?.some((member: object) => Object.keys(member).length > 2);
    const hasLog = body?.results?.some((result: object) => "log" in result);
    if (this.refusesReports && (hasReports || hasLog)) return problem(422, "invalid_request", "unknown field");
    return verb === "heartbeat" ? this.#heartbeat(worker, body) : this.#results(worker, body);
  }

  async #claim(body: any, isGone: () => boolean): Promise<Answer> {
    let worker: string = body.worker;
    if (worker === undefined) {
      worker = `worker-${++this.#numbers}`;
      this.workers.add(worker);
    } else if (!this.workers.has(worker)) return problem(409, "worker_lost");
    const due = () => [...this.runs.values()].filter((r) => r.state === "pending" && body.queues.includes(r.queue));
    // Only the first call is answered at once, so that its worker knows who it is.
    if (body.worker !== undefined) {
      await this.wait(() => due().length > 0 || !this.isUp || !this.workers.has(worker) || isGone());
    }
    if (!this.isUp || isGone()) return undefined;
    if (!this.workers.has(worker)) return problem(409, "worker_lost");
    const given = due().slice(0, body.capacity);
    for (const run of given) {
      [run.state, run.holder, run.unlisted] = ["running", worker, 0];
      run.attempt += 1;
    }
    const held = [...this.runs.values()].filter((r) => r.holder === worker && r.state === "running").length;
    this.mostHeld = Math.max(this.mostHeld, held);
    if (given.length > 0 && this.loseClaims > 0) {
      this.loseClaims -= 1;
      return undefined;
    }
    const attempts = given.map((run) => run.claimed());
    return [200, { worker, lease: "PT15S", heartbeat_every: this.heartbeatEvery, attempts }];
  }

  #isHeld(run: FakeRun, worker: string, attempt: number): boolean {
    return run.holder === worker && run.attempt === attempt && run.state === "running";
  }

  #heartbeat(worker: string, body: any): Answer {
    const cancelled: unknown[] = [];
    const notHeld: unknown[] = [];
    const listed = new Set<string>();
    for (const member of body.held) {
      const run = this.runs.get(member.run_id)!;
      const named = { run_id: run.id, attempt: member.attempt };
      if (!this.#isHeld(run, worker, member.attempt)) {
        notHeld.push(named);
        continue;
      }
      listed.add(run.id);
      run.unlisted = 0;
      run.progress = member.progress ?? run.progress;
      run.checkpoint = member.checkpoint ?? run.checkpoint;
      run.log.push(...(member.log ?? []));
      if (run.isCancelRequested) cancelled.push(named);
    }
    for (const run of this.runs.values()) {
      if (run.holder !== worker || run.state !== "running" || listed.has(run.id)) continue;
      run.unlisted += 1;
      if (run.unlisted >= LEASE_HEARTBEATS) [run.state, run.holder] = ["pending", undefined];
    }
    return [200, { cancelled, not_held: notHeld }];
  }

  #results(worker: string, body: any): Answer {
    const results = body.results.map((result: any) => {
      const run = this.runs.get(result.run_id)!;
      const named = { run_id: run.id, attempt: result.attempt };
      if (!this.#isHeld(run, worker, result.attempt)) return { ...named, problem: problem(409, "lease_lost")[1] };
      if (this.putOffResults > 0) {
        this.putOffResults -= 1;
        return { ...named, problem: problem(503, "unavailable")[1] };
      }
      run.results.push(result);
      run.log.push(...(result.log ?? []));
      const isBad = result.outcome === "failed" || result.outcome === "timed_out";
      const isRetried = isBad && result.error.is_retryable && run.attempt < run.attemptsMax;
      run.state = isRetried || result.outcome === "released" ? "pending" : result.outcome;
      run.holder = undefined;
      return { ...named, state: run.state };
    });
    if (this.loseResults > 0) {
      this.loseResults -= 1;
      return undefined;
    }
    return [200, { results }];
  }

  #delete(worker: string): Answer {
    this.workers.delete(worker);
    this.deleted.push(worker);
    for (const run of this.runs.values()) {
      if (run.holder === worker && run.state === "running") [run.state, run.holder] = ["pending", undefined];
    }
    return [204, undefined];
  }
}

/** A refusal. */
export function problem(status: number, code: string, detail = "no"): [number, Record<string, unknown>] {
  return [status, { code, status, title: code, detail, type: `urn:punctual:problem:${code}` }];
}
