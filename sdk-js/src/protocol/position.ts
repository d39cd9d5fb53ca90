import type { From } from "../types.js";

/**
 * Where a reader stands: a cursor of the server, and the last offsets handed out
 * since, by partition. Its text is what users see as a cursor: the server's own,
 * then `~partition.offset` for each; both are safe in a URL.
 */
export interface Position {
  cursor: string;
  after: Record<number, number>;
}

export const positionText = ({ cursor, after }: Position): string =>
  [cursor, ...Object.entries(after).map((pair) => pair.join("."))].join("~");

export function parsePosition(text: string): Position {
  const [cursor, ...pairs] = text.split("~");
  return { cursor: cursor!, after: Object.fromEntries(pairs.map((pair) => pair.split(".").map(Number))) };
}

/** What a `subscribe` says of where to begin. */
export interface Place {
  from?: string;
  cursor?: string;
  after?: Record<number, number>;
}

export function placeOf(from: From | Position): Place {
  if (typeof from === "string") return { from };
  if (from instanceof Date) return { from: from.toISOString() };
  const { cursor, after } = "after" in from ? from : parsePosition(from.cursor);
  return Object.keys(after).length ? { cursor, after } : { cursor };
}
