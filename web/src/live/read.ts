// Reads of a topic as the message browser wants them: a piece at a time, forwards from a
// place or backwards from the end.

import { type Window, windowsBack } from "../core/messages.js";
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

interface Side {
  partition: number;
  earliest: number;
  /** Everything from here on has been looked at. */
  top: number;
}

/** Goes back from the end that each partition has when the first piece is asked for. */
export function backwards(topic: string, partition: number | undefined, filter: Query): Reader {
  let sides: Side[] | undefined;
  return {
    async next(limit, signal) {
      // Where a partition ends is as its leader said within a second: at first what is
      // beyond that comes too.
      const beyond = sides ? 0 : pageRecords;
      const all = sides ?? (await ends(topic, partition, signal));
      const windows = windowsBack(all, Math.min(limit, pageRecords), beyond > 0);
      const lists = await Promise.all(
        windows.map((w) =>
          range(topic, w, beyond, filter, signal).catch((thrown) => {
            if (partition === undefined && thrown instanceof ApiError && thrown.code === "wrong-partition") return null;
            throw thrown;
          }),
        ),
      );
      // Nothing has been looked at before all of it was: after an error the same comes again.
      sides = all.map((side) => {
        const i = windows.findIndex((w) => w.partition === side.partition);
        if (i < 0) return side;
        return { ...side, top: lists[i] ? windows[i]!.from : side.earliest }; // the key is never in that partition
      });
      const looked = windows.reduce((sum, w) => sum + w.to - w.from, 0);
      return { messages: lists.flatMap((l) => l ?? []), looked, done: sides.every((p) => p.top <= p.earliest) };
    },
  };
}

async function ends(topic: string, partition: number | undefined, signal: AbortSignal): Promise<Side[]> {
  const { layout } = await api<Topic>(at("topics", topic, "metadata"), { signal });
  return layout.partitions
    .filter((p) => p.hw !== null && p.earliest !== null && (partition === undefined || p.id === partition))
    .map((p) => ({ partition: p.id, earliest: p.earliest!, top: p.hw! }));
}

/**
 * The records of a partition from an offset up to another one, and up to `beyond` more that
 * come behind it at once. What is no longer kept is left out.
 */
async function range(
  topic: string,
  { partition, from, to }: Window,
  beyond: number,
  filter: Query,
  signal: AbortSignal,
): Promise<Message[]> {
  const found: Message[] = [];
  let query: Query = { partition, offset: from };
  for (;;) {
    try {
      const page: Page = await api<Page>(at("topics", topic), {
        query: { ...query, ...filter, limit: to - from + beyond },
        signal,
        exact: true,
      });
      found.push(...page.messages.filter((m) => m.offset < to + beyond));
      const last = page.messages.at(-1)?.offset ?? to;
      if (page.end || last >= to - 1) return found;
      query = { cursor: page.cursor, partition };
    } catch (thrown) {
      if (!(thrown instanceof ApiError) || thrown.code !== "offset-expired") throw thrown;
      query = { cursor: String(thrown.problem.cursor), partition }; // retention came first
    }
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
