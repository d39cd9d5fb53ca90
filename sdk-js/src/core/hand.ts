/** A leased record as what decides about it sees it. */
export interface InHand {
  readonly key?: string;
  /** The handler works on it; then it is done. */
  phase: "waiting" | "running" | "done";
}

/** The records to begin with now: no more than `concurrency` at once, and of each key one, in their order. */
export function startable<R extends InHand>(records: Iterable<R>, concurrency: number): R[] {
  const open = [...records].filter((r) => r.phase !== "done");
  const running = open.filter((r) => r.phase === "running");
  const keys = new Set(running.map((r) => r.key));
  let room = concurrency - running.length;
  return open.filter((r) => {
    if (r.phase === "running" || (r.key !== undefined && keys.has(r.key))) return false;
    keys.add(r.key); // those behind it wait, whether there is room or not
    return room-- > 0;
  });
}
