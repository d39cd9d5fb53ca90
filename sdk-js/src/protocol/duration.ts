const units: Record<string, number> = { ms: 1, s: 1e3, m: 6e4, h: 36e5 };

/** Milliseconds of a duration like "250ms", "1.5s" or "1m30s"; undefined where there is none. */
export const milliseconds = (duration: string | undefined): number | undefined =>
  duration
    ?.match(/[\d.]+[a-z]+/g)
    ?.reduce((sum, part) => sum + Number.parseFloat(part) * units[part.replace(/[\d.]+/, "")]!, 0);
