import type { Group, Partition, Topic } from "./wire.js";

/** Records that a partition keeps; null where its leader does not say. */
export const kept = (p: Partition): number | null => (p.hw === null || p.earliest === null ? null : p.hw - p.earliest);

export interface TopicRow {
  topic: Topic;
  name: string;
  partitions: number;
  /** Records kept, as far as leaders say. */
  records: number;
  /** Some leader does not say. */
  partial: boolean;
  /** Records a second since the look before; null while there is none. */
  rate: number | null;
  leaderless: number;
  short: number;
  /** null: not asked yet. */
  groups: number | null;
  /** The greatest lag of its groups; null: not known. */
  maxLag: number | null;
}

/** Where each partition ended at a time, to tell rates by. */
export interface Ends {
  atMs: number;
  of: Map<string, number>;
}

export const ends = (topics: readonly Topic[], atMs: number): Ends => ({
  atMs,
  of: new Map(
    topics.flatMap((t) =>
      t.layout.partitions.flatMap((p): [string, number][] => (p.hw === null ? [] : [[`${t.id}/${p.id}`, p.hw]])),
    ),
  ),
});

/** Looks that a rate goes back: a leader says about once a second where it ends. */
const rateLooks = 4;

/** The looks with one more, without those that no rate needs. */
export const look = (looks: readonly Ends[], now: Ends): Ends[] => [...looks, now].slice(-rateLooks);

/** Records a second that some partitions of a topic took from the first look to the last. */
export function growth(topic: Topic, looks: readonly Ends[], partitions = topic.layout.partitions): number | null {
  const [before, now] = [looks[0], looks.at(-1)];
  if (!before || !now || now.atMs <= before.atMs) return null;
  let grown: number | null = null;
  for (const p of partitions) {
    const id = `${topic.id}/${p.id}`;
    const [from, to] = [before.of.get(id), now.of.get(id)];
    if (from !== undefined && to !== undefined) grown = (grown ?? 0) + Math.max(0, to - from);
  }
  return grown === null ? null : (grown * 1000) / (now.atMs - before.atMs);
}

export function topicRow(topic: Topic, rate: number | null, groups: readonly Group[] | undefined): TopicRow {
  const known = topic.layout.partitions.map(kept);
  const lags = groups?.map(lagOf).filter((n) => n !== null);
  return {
    topic,
    name: topic.name,
    partitions: known.length,
    records: known.reduce<number>((sum, n) => sum + (n ?? 0), 0),
    partial: known.includes(null),
    rate,
    leaderless: topic.layout.partitions.filter((p) => !p.leader).length,
    short: topic.layout.partitions.filter((p) => p.isr.length < topic.replicas).length,
    groups: groups ? groups.length : null,
    maxLag: lags?.length ? Math.max(...lags) : groups?.length === 0 ? 0 : null,
  };
}

/** Records that a group has not done, as far as leaders say; null where none does. */
export function lagOf(group: Group): number | null {
  const known = (group.partitions ?? []).map((p) => p.lag).filter((n) => n !== null);
  return known.length ? known.reduce((a, b) => a + b, 0) : null;
}

/** The share of a topic's records that each partition has, of 1. */
export function shares(topic: Topic): number[] {
  const all = topic.layout.partitions.map((p) => kept(p) ?? 0);
  const sum = all.reduce((a, b) => a + b, 0);
  return all.map((n) => (sum ? n / sum : 0));
}
