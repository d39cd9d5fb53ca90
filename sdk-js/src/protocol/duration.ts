const units: Record<string, number> = { ms: 1, s: 1e3, m: 6e4, h: 36e5 };

/** Milliseconds of a duration like "250ms", "1.5s" or "1m30s"; undefined where there is none. */
export function milliseconds(duration: string | undefined): number | undefined {
  let sum: number | undefined;
  for (const [, n, unit] of duration?.matchAll(/([\d.]+)(ms|s|m|h)/g) ?? []) {
    sum = (sum ?? 0) + Number(n) * units[unit!]!;
  }
  return sum;
}
