/** A random time below a bound that doubles with each try: full jitter. */
export const fullJitter = (attempt: number, minMs: number, maxMs: number, random: number): number =>
  random * Math.min(maxMs, minMs * 2 ** Math.min(attempt, 30));
