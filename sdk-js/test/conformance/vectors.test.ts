import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { fullJitter } from "../../src/core/backoff.js";
import { errorOf } from "../../src/error.js";
import { linePublisher } from "../../src/features/lines.js";
import { afterText } from "../../src/features/pages.js";
import { verdictOf } from "../../src/protocol/close.js";
import { milliseconds } from "../../src/protocol/duration.js";
import { eventParser } from "../../src/protocol/events.js";
import { parseFrames, type ServerFrame } from "../../src/protocol/frames.js";
import { type Layout, partitionOf } from "../../src/protocol/layout.js";
import { toMessage, type WireMessage } from "../../src/protocol/message.js";
import { keyHash } from "../../src/protocol/murmur3.js";
import { parsePosition, placeOf, positionText } from "../../src/protocol/position.js";
import { encodeRecord } from "../../src/protocol/record.js";

// The vectors that every client holds to, and the node: docs/clients.md tells what they mean.
const read = <T>(name: string): T => JSON.parse(readFileSync(`../e2e/conformance/${name}.json`, "utf8")) as T;
const cases = <C>(name: string): C[] => {
  const { cases } = read<{ cases: C[] }>(name);
  assert.ok(cases.length > 5, `${name} has ${cases.length} cases`);
  return cases;
};

test("keys hash and map as the vectors say", () => {
  type Keys = {
    layouts: Record<string, number[]>;
    keys: Array<{ key: string; hash: number; partitions: Record<string, number> }>;
  };
  const vectors = read<Keys>("keys");
  assert.ok(vectors.keys.length >= 100);
  for (const { key, hash, partitions } of vectors.keys) {
    assert.equal(keyHash(key), hash, key);
    for (const [count, starts] of Object.entries(vectors.layouts)) {
      const list = starts.map((lo, id) => ({ id, lo, hi: starts[id + 1] ?? 2 ** 32, state: "open" }));
      assert.equal(partitionOf({ generation: 1, partitions: list }, hash), partitions[count], key);
    }
  }
});

test("hashes map through the generations of a layout", () => {
  for (const { says, layout, owners } of cases<{
    says: string;
    layout: Layout;
    owners: Array<[number, number | null]>;
  }>("layouts")) {
    for (const [hash, owner] of owners) assert.equal(partitionOf(layout, hash) ?? null, owner, `${says}: ${hash}`);
  }
});

test("codes are retryable where they are", () => {
  const all = cases<{ code: string; status: number; retryable: boolean }>("codes");
  for (const { code, status, retryable } of all) {
    const error = errorOf({ code, status });
    assert.deepEqual([error.code, error.status, error.retryable], [code, status, retryable]);
  }
});

test("close codes, listed and not, ask for what they ask", () => {
  type Close = {
    codes: Array<{ code: number; then: string }>;
    ranges: Array<{ from: number; to: number; then: string }>;
  };
  const { codes, ranges } = read<Close>("close");
  const verdicts: Record<string, string> = { again: "retry", renew: "renew", never: "fatal" };
  const listed = new Map(codes.map(({ code, then }) => [code, then]));
  for (const { from, to, then } of ranges) {
    for (let code = from; code <= to; code++)
      assert.equal(verdictOf(code), verdicts[listed.get(code) ?? then], `${code}`);
  }
});

test("the backoff is full jitter", () => {
  type Wait = { failures: number; min_ms: number; max_ms: number; random: number; wait_ms: number };
  for (const c of cases<Wait>("backoff")) {
    assert.equal(fullJitter(c.failures - 1, c.min_ms, c.max_ms, c.random), c.wait_ms, JSON.stringify(c));
  }
});

test("durations are read", () => {
  for (const { text, ms } of cases<{ text: string; ms: number }>("durations")) {
    assert.ok(Math.abs(milliseconds(text)! - ms) < 1e-6, text);
  }
});

test("frames are read out of text frames", () => {
  for (const c of cases<{ says: string; text: string; frames: ServerFrame[] }>("frames")) {
    const found = parseFrames(c.text).map(({ count, ...frame }: ServerFrame & { count?: number }) => frame);
    assert.deepEqual(found, c.frames, c.says);
  }
});

test("records go there and back", () => {
  interface Given {
    json?: unknown;
    text?: string;
    base64?: string;
    tombstone?: true;
    key?: string;
    headers?: Record<string, string>;
    content_type?: string;
  }
  type Case = { says: string; given: Given; publish: object; message: Partial<WireMessage> };
  for (const { says, given, publish, message } of cases<Case>("records")) {
    const { key, headers, content_type: contentType } = given;
    const bytes = given.base64 === undefined ? undefined : new Uint8Array(Buffer.from(given.base64, "base64"));
    const value = bytes ?? given.text ?? given.json ?? null;
    // The client publishes no tombstones; it reads those of others, as null.
    if (!given.tombstone) {
      assert.deepEqual(JSON.parse(`{${encodeRecord(value, { key, headers, contentType })}}`), publish, says);
    }
    const wire = { topic: "orders", partition: 0, offset: 0, timestamp: "2026-01-31T15:04:05.123Z", ...message };
    const got = toMessage(wire as WireMessage);
    assert.deepEqual([got.value, got.key, got.contentType], [value, key, message.content_type], says);
    assert.deepEqual(got.headers, message.headers, says);
  }
});

test("events are read out of streams, however these are cut", () => {
  type Event = { event: string; data: string; last_event_id: string };
  type Case = { says: string; stream: string; events: Event[]; last_event_id: string };
  for (const { says, stream, events, last_event_id } of cases<Case>("events")) {
    const bytes = new TextEncoder().encode(stream);
    for (let size = 1; size <= bytes.length; size++) {
      const parse = eventParser();
      const found: Event[] = [];
      let last = "";
      for (let i = 0; i < bytes.length; i += size) {
        for (const { event, data, id } of parse(bytes.subarray(i, i + size))) {
          last = id ?? last;
          if (event || data) found.push({ event: event || "message", data, last_event_id: last });
        }
      }
      assert.deepEqual(found, events, `${says}, in chunks of ${size}`);
      assert.equal(last, last_event_id, says);
    }
  }
});

test("bodies of lines are answered line by line", async () => {
  interface Case {
    says: string;
    lines: string[];
    producer?: string;
    sequence?: number;
    status: number;
    answers: Array<{ offset?: number; code?: string; duplicate?: boolean }>;
  }
  for (const { says, lines, producer, sequence, status, answers } of cases<Case>("lines")) {
    const got: ServerFrame[] = [];
    const publish = linePublisher(
      async (path, { method, query, headers, body } = {}) => {
        assert.deepEqual([path, method, query?.partition], ["/topics/orders", "POST", 0], says);
        assert.equal(headers!["Content-Type"], "application/x-ndjson");
        assert.deepEqual(
          [headers!["Tidewire-Producer"], headers!["Tidewire-Sequence"]],
          [producer, sequence?.toString()],
        );
        assert.equal(body, lines.map((line) => `${line}\n`).join(""), says);
        return new Response(answers.map((a) => `${JSON.stringify(a)}\n`).join(""), { status });
      },
      (frame) => got.push(frame),
      (error) => assert.fail(error),
      new AbortController().signal,
    );
    lines.forEach((line, i) => {
      const number = sequence === undefined ? undefined : sequence + i;
      const frame = { op: "publish" as const, id: i, topic: "orders", partition: 0, producer, sequence: number };
      publish({ ...frame, body: line.slice(1, -1) });
    });
    await new Promise(setImmediate);
    const want = answers.map((a, id) => ({ ...a, op: a.code ? "error" : "published", id }));
    assert.deepEqual(got, want, says);
  }
});

test("cursors pass through untouched, and after has two spellings", () => {
  interface Cursors {
    cursors: Array<{ cursor: string }>;
    after: Array<{ frame: Record<number, number>; query: string }>;
  }
  const { cursors, after } = read<Cursors>("cursors");
  assert.ok(cursors.length > 3 && after.length > 2);
  for (const { cursor } of cursors) {
    assert.deepEqual(parsePosition(cursor), { cursor, after: {} });
    assert.equal(encodeURIComponent(cursor), cursor);
    for (const { frame, query } of after) {
      const text = positionText({ cursor, after: frame });
      assert.deepEqual(placeOf({ cursor: text }), { cursor, after: frame });
      assert.equal(afterText(frame), query);
    }
  }
});
