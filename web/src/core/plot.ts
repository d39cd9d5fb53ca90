// Where the lines and ticks of a chart go. Times are in seconds, places in pixels of the
// plot, from its upper left corner.

import type { Columns } from "./series.js";

export interface Box {
  width: number;
  height: number;
  fromS: number;
  toS: number;
  /** The value at the upper edge; the lower one is 0. */
  top: number;
}

/** Round values from 0 to at least `max`, about `wanted` of them, no nearer to one another than `least`. */
export function valueTicks(max: number, wanted: number, least = 0): number[] {
  if (!(max > 0)) return [0, 1];
  const rough = max / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = Math.max(least, [1, 2, 2.5, 5, 10].map((n) => n * power).find((n) => n >= rough)!);
  const last = Math.ceil(max / step - 1e-9);
  return Array.from({ length: last + 1 }, (_, i) => Number((i * step).toPrecision(12)));
}

/** Whole minutes between two times, at most `most` of them, evenly. */
export function timeTicks(fromS: number, toS: number, most: number): number[] {
  const stepS = [60, 120, 300, 600, 900].find((s) => (toS - fromS) / s <= most) ?? 1800;
  const ticks: number[] = [];
  for (let t = Math.ceil(fromS / stepS) * stepS; t <= toS; t += stepS) ticks.push(t);
  return ticks;
}

export function greatest([, ...lines]: Columns): number {
  let max = 0;
  for (const line of lines) for (const v of line) if (v !== null && v > max) max = v;
  return max;
}

export const x = (box: Box, timeS: number): number => ((timeS - box.fromS) / (box.toS - box.fromS)) * box.width;
export const y = (box: Box, value: number): number => box.height * (1 - value / box.top);

/** The path of a line, broken where nothing is known, or nobody looked for a while. */
export function path(columns: Columns, line: number, box: Box, gapS = 15): string {
  const [times] = columns;
  const values = columns[line] ?? [];
  let d = "";
  let before: number | undefined; // time of the point before, where the line goes on from
  for (const [i, t] of times.entries()) {
    const v = values[i] ?? null;
    if (v === null) {
      before = undefined;
      continue;
    }
    const joined = before !== undefined && t - before <= gapS;
    d += `${joined ? "L" : "M"}${x(box, t).toFixed(1)} ${y(box, v).toFixed(1)}`;
    if (!joined) d += "h0"; // a point of its own is drawn as a dot
    before = t;
  }
  return d;
}

/** The sample that is nearest to a place; undefined of none. */
export function nearest([times]: Columns, box: Box, px: number): number | undefined {
  const timeS = box.fromS + (px / box.width) * (box.toS - box.fromS);
  let best: number | undefined;
  for (const [i, t] of times.entries()) {
    if (best === undefined || Math.abs(t - timeS) < Math.abs(times[best]! - timeS)) best = i;
  }
  return best;
}
