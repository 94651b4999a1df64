/** A wake-up that carries no data: who is woken looks for itself. */
export class Wakeup {
  #isSet = false;
  #waiting = new Set<() => void>();

  notify(): void {
    this.#isSet = true;
    for (const wake of [...this.#waiting]) wake();
  }

  /** Until the next `notify` or, if one came since the last wait, not at all; at most so many milliseconds. */
  async wait(mostMs?: number): Promise<void> {
    if (!this.#isSet) {
      await new Promise<void>((resolve) => {
        const timer = mostMs === undefined ? undefined : setTimeout(() => wake(), mostMs);
        const wake = () => {
          clearTimeout(timer);
          this.#waiting.delete(wake);
          resolve();
        };
        this.#waiting.add(wake);
      });
    }
    this.#isSet = false;
  }
}
