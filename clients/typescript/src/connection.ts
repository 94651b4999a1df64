/** Requests to one server, by `fetch`, which keeps connections open. */
import { Problem, ServerUnreachable } from "./errors.js";

export interface RequestOptions {
  timeoutMs?: number;
  headers?: Record<string, string>;
  /** Ends the request; it throws `ServerUnreachable`. */
  signal?: AbortSignal;
}

/** The way to one server. */
export class Connection {
  readonly #base: string;
  readonly #headers: Record<string, string>;

  constructor(serverUrl: string, key?: string, tenant?: string) {
    if (!/^https?:\/\/[^/]/.test(serverUrl) || !URL.canParse(serverUrl)) {
      throw new TypeError(`\`${serverUrl}\` is not the address of a server; write it as \`http://host:7171\``);
    }
    this.#base = serverUrl.replace(/\/+$/, "");
    this.#headers = { accept: "application/json", "user-agent": "punctual-typescript/0.1.0" };
    // A file that a key was read from ends with a line break.
    const shown = (key || process.env["PUNCTUAL_KEY"] || "").trim();
    if (shown && !/^[!-~]+$/.test(shown)) {
      // What somebody put there may be a secret, and is not repeated.
      throw new TypeError("that is not a key: one word that begins with `pk_`, as it was shown when it was created");
    }
    if (shown) this.#headers["authorization"] = `Bearer ${shown}`;
    if (tenant !== undefined) this.#headers["punctual-tenant"] = tenant;
  }

  /**
   * Sends a request and gives the JSON of its answer.
   * Throws `Problem` if the server refuses and `ServerUnreachable` if there is no complete answer.
   */
  async request(method: string, path: string, body?: unknown, options: RequestOptions = {}): Promise<any> {
    const { timeoutMs = 30_000, headers = {}, signal } = options;
    const ended = new AbortController();
    const end = () => ended.abort(signal?.reason);
    const timer = setTimeout(() => ended.abort(new Error(`no answer within ${timeoutMs} ms`)), timeoutMs);
    signal?.addEventListener("abort", end);
    if (signal?.aborted) end();
    let status: number, text: string, retryAfter: number | undefined;
    try {
      const init: RequestInit = { method, headers: { ...this.#headers, ...headers }, signal: ended.signal };
      if (body !== undefined) {
        init.body = JSON.stringify(body);
        init.headers = { ...init.headers, "content-type": "application/json" };
      }
      const answer = await fetch(this.#base + path, init);
      status = answer.status;
      text = await answer.text();
      const after = answer.headers.get("retry-after") ?? "";
      retryAfter = /^\d+$/.test(after) ? Number(after) : undefined;
    } catch (error) {
      throw new ServerUnreachable(`${method} ${path}: ${reasonOf(error)}`, { cause: error });
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", end);
    }
    const isTaken = status >= 200 && status < 300;
    let parsed: unknown;
    try {
      parsed = text.trim() === "" ? undefined : JSON.parse(text);
    } catch {
      const detail = `${method} ${path}: the answer is not JSON`;
      if (isTaken) throw new Problem({ code: "http_status", status, detail });
    }
    if (isTaken) return parsed;
    throw Problem.read(status, parsed, text, retryAfter);
  }
}

/** `fetch failed` says nothing; its cause does. */
function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return error.cause instanceof Error ? error.cause.message || error.message : error.message;
}
