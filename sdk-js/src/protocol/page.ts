import type { Problem } from "../error.js";
import type { WireMessage } from "./message.js";
import type { Place } from "./position.js";

/** What a poll reads, and how much of it. */
export interface PageQuery extends Place {
  key?: string;
  key_prefix?: string;
  partition?: number;
  limit?: number;
  max_bytes?: number;
  wait?: string;
}

export interface Page {
  messages: WireMessage[];
  cursor: string;
  end: boolean;
  /** Partitions that could not be read. */
  unavailable?: Array<{ partition: number; problem: Problem }>;
}
