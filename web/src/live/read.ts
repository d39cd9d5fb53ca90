// Reads of a topic as the message browser wants them: a piece at a time, forwards from a
// place or backwards from the end.

import { windowsBack } from "../core/messages.js";
import type { Message, Page, Topic } from "../core/wire.js";
import { ApiError, api, at } from "./api.js";

export interface Piece {
  messages: Message[];
  /** Records looked at, also those that the node's filter left out; null where nobody tells. */
  looked: number | null;
  done: boolean;
}

export interface Reader {
  next(limit: number, signal: AbortSignal): Promise<Piece>;
}

type Query = Record<string, string | number | undefined>;

const pageRecords = 500;

/** Goes on from a place to the end of what is kept now. */
export function forwards(topic: string, place: Query, filter: Query): Reader {
  let query = place;
  return {
    async next(limit, signal) {
      const page = await api<Page>(at("topics", topic), {
        query: { ...query, ...filter, limit: Math.min(limit, pageRecords) },
        signal,
        exact: true,
      });
      query = { cursor: page.cursor, partition: place.partition };
      return { messages: page.messages, looked: null, done: page.end };
    },
  };
}

/** Goes back from the end that each partition has now. */
export function backwards(topic: Topic, partition: number | undefined, filter: Query): Reader {
  const tops = topic.layout.partitions
    .filter((p) => p.hw !== null && p.earliest !== null && (partition === undefined || p.id === partition))
    .map((p) => ({ partition: p.id, earliest: p.earliest!, top: p.hw! }));
  return {
    async next(limit, signal) {
      const windows = windowsBack(tops, Math.min(limit, pageRecords));
      const lists = await Promise.all(
        windows.map(async (w) => {
          const side = tops.find((p) => p.partition === w.partition)!;
          try {
            const found = await range(topic.name, w, filter, signal);
            side.top = w.from;
            return found;
          } catch (thrown) {
            if (partition !== undefined || !(thrown instanceof ApiError) || thrown.code !== "wrong-partition")
              throw thrown;
            side.top = side.earliest; // the key that is asked for is never there
            return [];
          }
        }),
      );
      const looked = windows.reduce((sum, w) => sum + w.to - w.from, 0);
      return { messages: lists.flat(), looked, done: tops.every((p) => p.top <= p.earliest) };
    },
  };
}

/** The records of a partition from an offset up to another one. What is no longer kept is left out. */
async function range(
  topic: string,
  w: { partition: number; from: number; to: number },
  filter: Query,
  signal: AbortSignal,
): Promise<Message[]> {
  const { partition, from, to } = w;
  const found: Message[] = [];
  let query: Query = { partition, offset: from };
  for (;;) {
    const page: Page = await api<Page>(at("topics", topic), {
      query: { ...query, ...filter, limit: to - from },
      signal,
      exact: true,
    });
    found.push(...page.messages.filter((m) => m.offset < to));
    const last = page.messages.at(-1)?.offset ?? to;
    if (page.end || last >= to - 1) return found;
    query = { cursor: page.cursor, partition };
  }
}

/** One record, as it is kept. */
export async function one(
  topic: string,
  partition: number,
  offset: number,
  signal?: AbortSignal,
): Promise<Message | undefined> {
  const { messages } = await api<Page>(at("topics", topic), {
    query: { partition, offset, limit: 1 },
    signal,
    exact: true,
  });
  return messages.find((m) => m.offset === offset);
}
