import type { Topic } from "./wire.js";

/** What a purge takes from one partition: the offsets from `earliest` to below `before`. */
export interface Cut {
  partition: number;
  earliest: number;
  before: number;
}

/** All that is there now; throws where a leader does not say what that is. What comes from now on stays. */
export const cutAll = (topic: Topic): Cut[] =>
  topic.layout.partitions.map((p) => cutBelow(topic, p.id, p.hw ?? Number.NaN)).filter((c) => c.before > c.earliest);

/** Everything up to a record of one partition, and that one: a log gives up its oldest records only. */
export const cutThrough = (topic: Topic, partition: number, offset: number): Cut[] => [
  cutBelow(topic, partition, offset + 1),
];

/** What is below the offsets that were typed; throws where there is no such place. */
export const cutOffsets = (topic: Topic, offsets: Record<string, number>): Cut[] =>
  Object.entries(offsets).map(([partition, before]) => cutBelow(topic, Number(partition), before));

function cutBelow(topic: Topic, partition: number, before: number): Cut {
  const p = topic.layout.partitions.find((p) => p.id === partition);
  if (!p) throw new Error(`${topic.name} has no partition ${partition}.`);
  if (p.earliest === null || p.hw === null)
    throw new Error(`Nobody says at the moment what partition ${partition} holds. Try again in a moment.`);
  if (before > p.hw)
    throw new Error(`Partition ${partition} ends at offset ${p.hw}: nothing stands below ${before} yet.`);
  return { partition, earliest: p.earliest, before: Math.max(before, p.earliest) };
}

/** How many records go. */
export const goes = (cuts: readonly Cut[]): number => cuts.reduce((sum, c) => sum + c.before - c.earliest, 0);

/** The body of the call. */
export const purgeBody = (cuts: readonly Cut[]): { before: Record<string, number> } => ({
  before: Object.fromEntries(cuts.map((c) => [c.partition, c.before])),
});
