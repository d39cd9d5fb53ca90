/** Time and chance, so that tests can have their own. */
export interface Clock {
  now(): number;
  random(): number;
  /** Runs `fn` after some milliseconds, unless what it returns is called before. */
  after(ms: number, fn: () => void): () => void;
}

/** Timers take at most 2^31-1 ms; nobody waits that long in earnest. */
const longestMs = 2 ** 31 - 1;

export const systemClock: Clock = {
  now: () => Date.now(),
  random: () => Math.random(),
  after(ms, fn) {
    const timer = setTimeout(fn, Math.min(ms, longestMs));
    return () => clearTimeout(timer);
  },
};
