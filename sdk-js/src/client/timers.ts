import { fullJitter } from "../core/backoff.js";
import type { Clock } from "./clock.js";

/** Timers that end together, each under what it is for. */
export interface Timers {
  /** Runs `fn` after some milliseconds; takes the place of what is set for the same. */
  set(what: unknown, ms: number, fn: () => void): void;
  /** The next try of something that failed so often before, or when the server says. */
  retry(what: unknown, failures: number, hintMs: number | undefined, fn: () => void): void;
  clear(): void;
}

const retryMinMs = 50;
const retryMaxMs = 5000;

export function timers(clock: Clock): Timers {
  const cancels = new Map<unknown, () => void>();
  const self: Timers = {
    set(what, ms, fn) {
      cancels.get(what)?.();
      const cancel = clock.after(ms, () => {
        cancels.delete(what);
        fn();
      });
      cancels.set(what, cancel);
    },
    retry(what, failures, hintMs, fn) {
      self.set(what, hintMs ?? fullJitter(failures, retryMinMs, retryMaxMs, clock.random()), fn);
    },
    clear() {
      for (const cancel of cancels.values()) cancel();
      cancels.clear();
    },
  };
  return self;
}
