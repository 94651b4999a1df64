/** Durations and texts as the API writes them. */

const DURATION = /^P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?$/;

/** The milliseconds of an exact ISO 8601 duration such as `PT1H30M`. */
export function millis(text: string): number {
  const found = DURATION.exec(text);
  if (!found || found.slice(1).every((part) => part === undefined)) {
    throw new RangeError(`\`${text}\` is not a duration; it is written as \`PT5S\``);
  }
  const [days = 0, hours = 0, minutes = 0, seconds = 0] = found.slice(1).map((part) => Number(part ?? 0));
  return Math.round((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000);
}

/** Milliseconds as an ISO 8601 duration, at least one. */
export function duration(length: number): string {
  const whole = Math.max(1, Math.round(length));
  const [seconds, rest] = [Math.floor(whole / 1000), whole % 1000];
  return rest ? `PT${seconds}.${String(rest).padStart(3, "0")}S` : `PT${seconds}S`;
}

/** How many bytes a text has as UTF-8. */
export function bytes(text: string): number {
  return Buffer.byteLength(text, "utf8");
}

/** At most so many bytes of UTF-8, cut between characters. */
export function shorten(text: string, most: number): string {
  if (bytes(text) <= most) return text;
  const data = Buffer.from(text, "utf8");
  let end = most;
  while (end > 0 && (data[end]! & 0xc0) === 0x80) end -= 1;
  return data.toString("utf8", 0, end);
}
