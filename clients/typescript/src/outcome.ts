/** What came of a handler, as the members of a result. */
import { NotRetryable, RetryAfter, codeOf, word } from "./errors.js";
import { duration, shorten } from "./wire.js";

const MESSAGE_MAX = 4 << 10; // Bytes of an error's message: enough for people, small enough for a list of a thousand.
const OUTPUT_MAX = (256 << 10) + 4; // A character more than a server keeps at most, so that it says that there was more.

/** Without the name of its attempt. */
export interface Outcome {
  outcome: "succeeded" | "failed" | "timed_out" | "cancelled" | "released";
  output?: string;
  error?: { code: string; message: string; is_retryable: boolean; retry_after?: string };
}

/** For what a handler returned. */
export function success(value: unknown): Outcome {
  if (value === undefined || value === null) return { outcome: "succeeded" };
  let text: string | undefined;
  try {
    text = typeof value === "string" ? value : JSON.stringify(value);
  } catch (error) {
    return notJson(error instanceof Error ? error.message : String(error));
  }
  if (text === undefined) return notJson(`a ${typeof value}`);
  return { outcome: "succeeded", output: shorten(text, OUTPUT_MAX) };
}

/** For what a handler threw. */
export function failure(error: unknown): Outcome {
  const message = error instanceof Error ? error.message || error.name : String(error);
  const result = failed(codeOf(error), message, { isRetryable: !(error instanceof NotRetryable) });
  if (error instanceof RetryAfter) result.error!.retry_after = duration(error.seconds * 1000);
  return result;
}

/** For everything else that went wrong. */
export function failed(
  code: string,
  message: string,
  options: { isRetryable?: boolean; outcome?: "failed" | "timed_out" } = {},
): Outcome {
  const { isRetryable = true, outcome = "failed" } = options;
  return {
    outcome,
    error: { code: word(code), message: shorten(message, MESSAGE_MAX), is_retryable: isRetryable },
  };
}

function notJson(what: string): Outcome {
  // It would do its work again to fail again.
  return failed("output_not_json", `what the handler returned is no JSON: ${what}`, { isRetryable: false });
}
