import type { Group, Topic } from "./wire.js";

export interface GroupSums {
  lag: number | null;
  inFlight: number | null;
  redelivered: number | null;
  dead: number | null;
  expired: number | null;
  /** The time of the oldest record that was leased and is not done. */
  oldest: string | null;
  paused: number;
  /** Partitions whose leader does not say. */
  unknown: number;
}

/** The sums of a group over its partitions, as far as leaders say. */
export function sums({ partitions = [] }: Group): GroupSums {
  const add = (f: (p: (typeof partitions)[number]) => number | null) => {
    const known = partitions.map(f).filter((n) => n !== null);
    return known.length ? known.reduce((a, b) => a + b, 0) : null;
  };
  const oldest = partitions.flatMap((p) => p.oldest_unacked ?? []).sort();
  return {
    lag: add((p) => p.lag),
    inFlight: add((p) => p.in_flight),
    redelivered: add((p) => p.redelivered),
    dead: add((p) => p.dead),
    expired: add((p) => p.expired),
    oldest: oldest[0] ?? null,
    paused: partitions.filter((p) => p.paused).length,
    unknown: partitions.filter((p) => p.lag === null).length,
  };
}

export interface DeadLetters {
  topic: string;
  /** Missing: no record has died yet. */
  there: Topic | undefined;
  /** Records kept; null where some leader does not say. */
  records: number | null;
  from: { topic: string; group: string; dead: number | null }[];
}

/** The dead-letter topics that groups name, each once. */
export function deadLetters(groups: readonly Group[], topics: readonly Topic[]): DeadLetters[] {
  const byName = new Map<string, DeadLetters>();
  for (const g of groups) {
    const there = topics.find((t) => t.name === g.dead_letter);
    const kept = there?.layout.partitions.map((p) => (p.hw === null || p.earliest === null ? null : p.hw - p.earliest));
    const records = !kept ? 0 : kept.includes(null) ? null : kept.reduce<number>((a, b) => a + b!, 0);
    const row = byName.get(g.dead_letter) ?? { topic: g.dead_letter, there, records, from: [] };
    row.from.push({ topic: g.topic, group: g.group, dead: sums(g).dead });
    byName.set(g.dead_letter, row);
  }
  return [...byName.values()].sort((a, b) => (b.records ?? 0) - (a.records ?? 0) || a.topic.localeCompare(b.topic));
}

export type ResetTo =
  | { kind: "earliest" | "latest" }
  | { kind: "time"; time: string }
  | { kind: "offsets"; text: string };

/** The body of a move of a group; throws what is wrong with what was typed. */
export function resetBody(to: ResetTo): { from: string } | { offsets: Record<string, number> } {
  switch (to.kind) {
    case "earliest":
    case "latest":
      return { from: to.kind };
    case "time": {
      const ms = Date.parse(to.time);
      if (Number.isNaN(ms)) throw new Error("Give a date and a time.");
      return { from: new Date(ms).toISOString() };
    }
    case "offsets":
      return { offsets: offsetsOf(to.text) };
  }
}

/** Offsets by partition, as they are typed; throws what is wrong with them. */
export function offsetsOf(text: string): Record<string, number> {
  const offsets: Record<string, number> = {};
  for (const part of text.split(/[\s,]+/).filter(Boolean)) {
    const m = /^(\d+):(\d+)$/.exec(part);
    if (!m) throw new Error(`"${part}" is not partition:offset, such as 0:42.`);
    offsets[m[1]!] = Number(m[2]);
  }
  if (!Object.keys(offsets).length) throw new Error("Give offsets as partition:offset, such as 0:42, 1:17.");
  return offsets;
}
