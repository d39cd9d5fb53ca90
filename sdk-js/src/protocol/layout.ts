/** A partition as `metadata` tells of it: it owns the hashes from lo up to, not with, hi. */
export interface LayoutPartition {
  id: number;
  lo: number;
  hi: number;
  state: string;
}

export interface Layout {
  generation: number;
  partitions: LayoutPartition[];
}

/** The partitions that take records. */
export const openPartitions = (layout: Layout): LayoutPartition[] =>
  layout.partitions.filter((p) => p.state === "open");

/** The partition that owns a hash; undefined: none is open for it just now. */
export const partitionOf = (layout: Layout, hash: number): number | undefined =>
  openPartitions(layout).find((p) => p.lo <= hash && hash < p.hi)?.id;
