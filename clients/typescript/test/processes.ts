/** Workers and servers as processes of their own. */
import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type { TestContext } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";

import { Client, type Run } from "../src/index.js";

/** The folder of the package. This file runs from `build/test`. */
export const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const PATIENCE_MS = 60_000; // Until a test gives up; never reached when all is well.

/** A program whose lines are kept; killed at the end of the test, if it still runs. */
export class Process {
  readonly lines: string[] = [];
  readonly child: ChildProcess;
  readonly ended: Promise<number | null>;
  readonly #waiting = new Set<() => void>();

  constructor(t: TestContext, program: string, args: string[], environment: Record<string, string> = {}) {
    const clean = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("PUNCTUAL_")));
    this.child = spawn(program, args, { env: { ...clean, ...environment }, stdio: ["ignore", "pipe", "pipe"] });
    for (const stream of [this.child.stdout!, this.child.stderr!]) {
      createInterface({ input: stream }).on("line", (line) => {
        this.lines.push(line);
        for (const wake of [...this.#waiting]) wake();
      });
    }
    this.ended = new Promise((resolve) => this.child.once("close", resolve));
    t.after(async () => {
      this.child.kill("SIGKILL");
      await this.ended;
    });
  }

  /** The first line in which the pattern is found. */
  async waitLine(pattern: string | RegExp): Promise<string> {
    const giveUp = AbortSignal.timeout(PATIENCE_MS);
    for (;;) {
      const found = this.lines.find((line) => line.match(pattern));
      if (found !== undefined) return found;
      if (giveUp.aborted) throw new Error(`${pattern} never came:\n${this.lines.slice(-50).join("\n")}`);
      await new Promise<void>((resolve) => {
        const wake = () => {
          this.#waiting.delete(wake);
          giveUp.removeEventListener("abort", wake);
          resolve();
        };
        this.#waiting.add(wake);
        giveUp.addEventListener("abort", wake);
      });
    }
  }

  signal(name: NodeJS.Signals): void {
    this.child.kill(name);
  }
}

/** A file as a worker. */
export class WorkerProcess extends Process {
  constructor(t: TestContext, file: string, serverUrl: string, environment: Record<string, string> = {}) {
    super(t, process.execPath, [file], { PUNCTUAL_SERVER: serverUrl, ...environment });
  }
}

/** The real binary, on a data directory that outlives it. */
export class RealServer extends Process {
  url = "";
  client!: Client;

  static async start(t: TestContext, data: string, ...args: string[]): Promise<RealServer> {
    return RealServer.startOn(t, 0, data, ...args);
  }

  static async startOn(t: TestContext, port: number, data: string, ...args: string[]): Promise<RealServer> {
    const serve = ["serve", "--listen", `127.0.0.1:${port}`, "--data", data, ...args];
    const server = new RealServer(t, process.env["PUNCTUAL_BIN"]!, serve, { PUNCTUAL_TZDATA: "bundled" });
    const line = await server.waitLine("is listening on http://");
    server.url = line.match(/http:\/\/\S+/)![0];
    server.client = new Client(server.url);
    return server;
  }

  get port(): number {
    return Number(new URL(this.url).port);
  }

  /** Reads a run until something is true of it. */
  async waitRun(runId: string, isTrue: (run: Run) => boolean): Promise<Run> {
    const giveUpAt = performance.now() + PATIENCE_MS;
    for (;;) {
      const run = await this.client.getRun(runId);
      if (isTrue(run)) return run;
      if (performance.now() > giveUpAt) {
        throw new Error(`never came: ${JSON.stringify(run)}\n${this.lines.slice(-30).join("\n")}`);
      }
      await sleep(50);
    }
  }
}

/** A folder for the length of a test. */
export function folder(t: TestContext): string {
  const path = mkdtempSync(join(tmpdir(), "punctual-"));
  t.after(() => rmSync(path, { recursive: true, force: true }));
  return path;
}
