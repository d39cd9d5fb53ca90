import type { Problem } from "../error.js";
import type { WireMessage } from "../protocol/message.js";
import type { Place } from "../protocol/position.js";
import type { Http } from "./http.js";

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

export const afterText = (after: Place["after"]): string | undefined =>
  after &&
  Object.entries(after)
    .map(([partition, offset]) => `${partition}:${offset}`)
    .join();

export async function readPage(http: Http, topic: string, query: PageQuery, signal?: AbortSignal): Promise<Page> {
  const { after, ...rest } = query;
  const answer = await http(`/topics/${encodeURIComponent(topic)}`, {
    query: { ...rest, after: afterText(after) },
    signal,
  });
  return (await answer.json()) as Page;
}
