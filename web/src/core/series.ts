// Samples over time, as charts take them: a column of times in seconds, then one a line.

export type Value = number | null;
export type Columns = [times: number[], ...lines: Value[][]];

/** Adds a sample and lets those go that are older than `keepS` seconds. The columns given stay as they are. */
export function push(columns: Columns, timeS: number, values: Value[], keepS: number): Columns {
  const from = columns[0].findIndex((t) => t > timeS - keepS);
  const drop = from < 0 ? columns[0].length : from;
  const times = [...columns[0].slice(drop), timeS];
  const lines = values.map((v, i) => [...(columns[i + 1] ?? []).slice(drop), v]);
  return [times, ...lines] as Columns;
}

export const emptyColumns = (lines: number): Columns => [[], ...Array.from({ length: lines }, () => [])] as Columns;

/** The last value of a line that is known. */
export const latest = (columns: Columns, line: number): Value => columns[line]?.at(-1) ?? null;
