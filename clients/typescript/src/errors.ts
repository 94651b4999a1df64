/** What a server refuses, and what a handler throws to say how its attempt failed. */

/** One wrong field of a request. */
export interface FieldError {
  pointer: string;
  code: string;
  detail: string;
}

/** A refusal of the server (RFC 9457), with its stable `code`. */
export class Problem extends Error {
  override readonly name = "Problem";
  readonly code: string;
  readonly status: number;
  readonly detail: string;
  readonly title: string;
  readonly errors: readonly FieldError[];
  /** How many seconds the server asks to be left alone. */
  readonly retryAfter: number | undefined;

  constructor(members: {
    code: string;
    status: number;
    detail: string;
    title?: string;
    errors?: readonly FieldError[];
    retryAfter?: number | undefined;
  }) {
    const { code, status, detail, title = "", errors = [], retryAfter } = members;
    super(`${detail} (${code})${errors.map((e) => `\n  ${e.pointer}: ${e.detail}`).join("")}`);
    this.code = code;
    this.status = status;
    this.detail = detail;
    this.title = title;
    this.errors = errors;
    this.retryAfter = retryAfter;
  }

  /** From an answer; one that is no problem document, as a proxy's, has the code `http_status`. */
  static read(status: number, body: unknown, text: string, retryAfter?: number): Problem {
    if (!isProblem(body)) {
      const detail = `the server answered ${status}: ${text.slice(0, 200).trim()}`;
      return new Problem({ code: "http_status", status, detail, retryAfter });
    }
    const { code, detail = "", title = "", errors = [] } = body;
    return new Problem({ code, status, detail, title, errors, retryAfter });
  }
}

function isProblem(
  body: unknown,
): body is { code: string; detail?: string; title?: string; errors?: FieldError[] } {
  return typeof body === "object" && body !== null && "code" in body && typeof body.code === "string";
}

/** The server could not be reached, or went away before its answer was complete. */
export class ServerUnreachable extends Error {
  override readonly name = "ServerUnreachable";
}

/** Thrown by a handler: the attempt failed, and another would fail as well. */
export class NotRetryable extends Error {
  override name = "NotRetryable";
  readonly code: string | undefined;

  constructor(message = "", options: { code?: string; cause?: unknown } = {}) {
    super(message, { cause: options.cause });
    this.code = options.code;
  }
}

/** Thrown by a handler: the attempt failed, and the next one is to wait for so many seconds. */
export class RetryAfter extends Error {
  override name = "RetryAfter";
  readonly seconds: number;
  readonly code: string | undefined;

  constructor(seconds: number, message?: string, options: { code?: string; cause?: unknown } = {}) {
    super(message ?? `to be tried again in ${seconds} s`, { cause: options.cause });
    this.seconds = seconds;
    this.code = options.code;
  }
}

/** Why a handler is to stop. */
export type Why = "cancelled" | "timed_out" | "released" | "not_held";

/** The reason of a task's `signal`. */
export class Stopped extends Error {
  override readonly name = "Stopped";
  readonly why: Why;

  constructor(why: Why) {
    super(`the handler is to stop: ${why}`);
    this.why = why;
  }
}

// These say nothing about what happened.
const NAMELESS = new Set(["Error", "NotRetryable", "RetryAfter", "Object", ""]);

/** The stable word of an error: its own, or the name of its class as `snake_case`. */
export function codeOf(error: unknown): string {
  if ((error instanceof NotRetryable || error instanceof RetryAfter) && error.code) return error.code;
  if (!(error instanceof Error)) return "worker_failed";
  // A class that does not set `name` has that of the class it extends.
  const isNamed = error instanceof DOMException || NAMELESS.has(error.constructor.name);
  const name = isNamed ? error.name : error.constructor.name;
  if (NAMELESS.has(name)) return "worker_failed";
  const words = name.replace(/([a-z0-9])([A-Z])/g, "$1_$2").replace(/([A-Z])([A-Z][a-z])/g, "$1_$2");
  return words.replace(/^_+|_+$/g, "").toLowerCase() || "worker_failed";
}

/** As the server takes words: up to 200 printable ASCII characters without spaces. */
export function word(text: string): string {
  return text.replace(/[^!-~]+/g, "_").slice(0, 200) || "worker_failed";
}
