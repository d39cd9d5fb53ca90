import type { Clock } from "../client/clock.js";

export interface FakeClock extends Clock {
  /** Timers that are set. */
  readonly pending: number;
  /** Lets time pass; what is due runs in its order, and all that follows from it. */
  advance(ms: number): Promise<void>;
  /** Lets everything run that waits for nothing but its turn. */
  settle(): Promise<void>;
}

interface Timer {
  at: number;
  fn: () => void;
}

/** Virtual time: it moves only when a test says so. Chance comes from a seed. */
export function fakeClock({ start = 1_800_000_000_000, seed = 1 } = {}): FakeClock {
  const timers = new Set<Timer>();
  let now = start;
  let state = seed;

  // All promises that can go on do so before a new task of the host begins.
  const settle = () => new Promise<void>((resolve) => nextTask(resolve));
  const next = (until: number): Timer | undefined => {
    let first: Timer | undefined;
    for (const t of timers) if (t.at <= until && (!first || t.at < first.at)) first = t; // a set keeps its order
    return first;
  };

  return {
    get pending() {
      return timers.size;
    },
    now: () => now,
    random() {
      state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
      return state / 2 ** 32;
    },
    after(ms, fn) {
      const timer = { at: now + Math.max(0, ms), fn };
      timers.add(timer);
      return () => void timers.delete(timer);
    },
    settle,
    async advance(ms) {
      const until = now + ms;
      await settle();
      for (let timer = next(until); timer; timer = next(until)) {
        timers.delete(timer);
        now = Math.max(now, timer.at);
        timer.fn();
        await settle();
      }
      now = until;
    },
  };
}

const nextTask: (fn: () => void) => void =
  (globalThis as { setImmediate?: (fn: () => void) => void }).setImmediate ?? ((fn) => setTimeout(fn, 0));
