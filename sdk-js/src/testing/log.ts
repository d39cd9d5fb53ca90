import type { WireGap } from "../protocol/frames.js";
import { type Layout, partitionOf } from "../protocol/layout.js";
import type { WireMessage } from "../protocol/message.js";
import { keyHash } from "../protocol/murmur3.js";
import type { Place } from "../protocol/position.js";

/** What a record is published with. */
export interface FakeRecord {
  partition?: number;
  producer?: string;
  sequence?: number;
  key?: string;
  headers?: Record<string, string>;
  content_type?: string;
  value?: unknown;
  value_base64?: string;
}

export interface Filter {
  key?: string;
  keys?: string[];
  key_prefix?: string;
  partition?: number;
}

export type Outcome =
  | { topic: string; partition: number; offset: number; timestamp: string; duplicate: boolean }
  | { code: string; detail: string; [member: string]: unknown };

/** A topic of a fake server, in memory, with the sequences of its producers. */
export interface FakeTopic {
  readonly layout: Layout;
  /** All records, in the order in which they were kept. */
  readonly records: WireMessage[];
  append(record: FakeRecord): Outcome;
  /** Forgets everything below an offset, as retention does. */
  expire(partition: number, below: number): void;
  /** The offsets to go on at, by partition. */
  resolve(place: Place): { next: number[]; gap?: WireGap };
  read(next: number[], filter: Filter, most: number): WireMessage[];
  cursor(next: number[]): string;
}

export function fakeTopic(name: string, partitions: number, now: () => number): FakeTopic {
  const width = 2 ** 32 / partitions;
  const ids = Array.from({ length: partitions }, (_, id) => id);
  const layout: Layout = {
    generation: 1,
    partitions: ids.map((id) => ({ id, lo: Math.round(id * width), hi: Math.round((id + 1) * width), state: "open" })),
  };
  const logs: WireMessage[][] = ids.map(() => []);
  const earliest = ids.map(() => 0);
  const producers = new Map<string, Outcome[]>(); // by producer and partition, each sequence's outcome
  const records: WireMessage[] = [];
  let turn = 0;

  const pairs = (offsets: number[]) => offsets.map((offset, id) => `${id}:${offset}`).join();
  const ends = () => logs.map((log) => log.length);
  const cursor = (next: number[]) => `c${next.join("-")}`;

  function keep(
    { key = undefined, headers = {}, content_type, value, value_base64 }: FakeRecord,
    partition: number,
  ): Outcome {
    const timestamp = new Date(now()).toISOString();
    const offset = logs[partition]!.length;
    const message: WireMessage = {
      topic: name,
      partition,
      offset,
      timestamp,
      key: key ?? null,
      content_type: content_type ?? "application/json",
      headers,
      ...(value_base64 === undefined ? { value } : { value_base64 }),
    };
    logs[partition]!.push(message);
    records.push(message);
    return { topic: name, partition, offset, timestamp, duplicate: false };
  }

  return {
    layout,
    records,
    append(record) {
      const routed = record.key === undefined ? turn++ % partitions : partitionOf(layout, keyHash(record.key))!;
      const partition = record.partition ?? routed;
      if (!logs[partition]) return { code: "partition-not-found", detail: `there is no partition ${partition}` };
      if (record.key !== undefined && partition !== routed)
        return { code: "wrong-partition", detail: `${routed} has that key` };
      if (record.sequence === undefined) return keep(record, partition);
      const id = `${record.producer} ${partition}`;
      const seen = producers.get(id) ?? [];
      const before = seen[record.sequence];
      if (before) return { ...before, duplicate: true };
      if (record.sequence !== seen.length) {
        const code = seen.length ? "out-of-order-sequence" : "unknown-producer";
        return { code, detail: `${seen.length} is expected`, expected: seen.length };
      }
      const outcome = keep(record, partition);
      seen.push(outcome);
      producers.set(id, seen);
      return outcome;
    },
    expire(partition, below) {
      earliest[partition] = below;
    },
    resolve({ from, cursor: given, after = {} }) {
      if (given === undefined) {
        if (from === "earliest") return { next: [...earliest] };
        if (from === "latest" || from === undefined) return { next: ends() };
        return { next: logs.map((log, id) => Math.max(earliest[id]!, firstAt(log, from))) };
      }
      const known = /^c[\d-]+$/.test(given);
      const asked = known ? given.slice(1).split("-").map(Number) : [...earliest];
      for (const [id, offset] of Object.entries(after)) asked[Number(id)] = Math.max(asked[Number(id)]!, offset + 1);
      const next = asked.map((offset, id) => Math.max(offset, earliest[id]!));
      const lost = !known || next.some((offset, id) => offset !== asked[id]);
      const reason = known ? "expired" : "unknown";
      const gap = {
        reason,
        requested: known ? pairs(asked) : given,
        earliest: pairs(earliest),
        end: pairs(ends()),
        cursor: cursor(next),
      };
      return lost ? { next, gap } : { next };
    },
    read(next, filter, most) {
      const found: WireMessage[] = [];
      for (const [id, log] of logs.entries()) {
        for (; next[id]! < log.length && found.length < most; next[id]!++) {
          if (passes(log[next[id]!]!, filter)) found.push(log[next[id]!]!);
        }
      }
      return found;
    },
    cursor,
  };
}

const firstAt = (log: WireMessage[], time: string): number => {
  const at = log.findIndex((m) => m.timestamp >= time);
  return at < 0 ? log.length : at;
};

const passes = ({ key, partition }: WireMessage, f: Filter): boolean =>
  (f.partition === undefined || f.partition === partition) &&
  (f.key === undefined || f.key === key) &&
  (f.keys === undefined || (key !== null && f.keys.includes(key))) &&
  (f.key_prefix === undefined || !!key?.startsWith(f.key_prefix));
