// How long publishes took, as the playground shows it.

/** Upper bounds in milliseconds; what is longer is in the last. */
export const bounds = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, Number.POSITIVE_INFINITY];

export interface RoundTrips {
  counts: number[];
  /** In milliseconds, sorted. */
  all: number[];
}

export const none: RoundTrips = { counts: bounds.map(() => 0), all: [] };

export function add({ counts, all }: RoundTrips, ms: number): RoundTrips {
  const i = bounds.findIndex((b) => ms <= b);
  return { counts: counts.map((n, j) => (j === i ? n + 1 : n)), all: [...all, ms].sort((a, b) => a - b) };
}

/** The quantile q of what was measured; null of nothing. */
export const at = ({ all }: RoundTrips, q: number): number | null =>
  all.length ? all[Math.min(all.length - 1, Math.ceil(q * all.length) - 1)]! : null;
