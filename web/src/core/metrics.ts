// Figures out of what /metrics says.

export interface Sample {
  name: string;
  labels: Record<string, string>;
  value: number;
}

const line = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/;
const label = /([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"/g;

/** The samples of those names, of the text that Prometheus reads. */
export function samples(text: string, ...names: string[]): Sample[] {
  const found: Sample[] = [];
  for (const row of text.split("\n")) {
    if (!names.some((name) => row.startsWith(name))) continue;
    const m = line.exec(row);
    if (!m || !names.includes(m[1]!)) continue;
    const labels: Record<string, string> = {};
    for (const [, k, v] of (m[2] ?? "").matchAll(label)) labels[k!] = v!;
    found.push({ name: m[1]!, labels, value: Number(m[3]) });
  }
  return found;
}

/** Counts below bounds, cumulative, the lowest bound first. */
export type Histogram = [bound: number, count: number][];

/** A histogram, added up over all its labels but the bound. */
export function histogram(all: Sample[]): Histogram {
  const sum = new Map<number, number>();
  for (const { labels, value } of all) {
    const bound = labels.le === "+Inf" ? Number.POSITIVE_INFINITY : Number(labels.le);
    sum.set(bound, (sum.get(bound) ?? 0) + value);
  }
  return [...sum].sort(([a], [b]) => a - b);
}

/** What was added between two looks at one histogram; all of the later one, where it began anew. */
export function since(before: Histogram, now: Histogram): Histogram {
  const was = new Map(before);
  const added = now.map(([bound, n]): [number, number] => [bound, n - (was.get(bound) ?? 0)]);
  return added.some(([, n]) => n < 0) ? now : added;
}

/** The quantile q of a histogram, straight between two bounds; null of an empty one. */
export function quantile(h: Histogram, q: number): number | null {
  const total = h.at(-1)?.[1] ?? 0;
  if (total === 0) return null;
  const rank = q * total;
  let [lowBound, lowCount] = [0, 0];
  for (const [bound, n] of h) {
    if (n >= rank) {
      if (bound === Number.POSITIVE_INFINITY) return lowBound;
      return n === lowCount ? bound : lowBound + ((bound - lowBound) * (rank - lowCount)) / (n - lowCount);
    }
    [lowBound, lowCount] = [bound, n];
  }
  return lowBound;
}
