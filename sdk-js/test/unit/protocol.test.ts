import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { fromBase64, toBase64 } from "../../src/protocol/base64.js";
import { verdictOf } from "../../src/protocol/close.js";
import { isRetryable } from "../../src/protocol/codes.js";
import { milliseconds } from "../../src/protocol/duration.js";
import { eventParser } from "../../src/protocol/events.js";
import { lineOf, parseFrames } from "../../src/protocol/frames.js";
import { parsePosition, placeOf, positionText } from "../../src/protocol/position.js";
import { encodeRecord } from "../../src/protocol/record.js";
import { uuidv7 } from "../../src/protocol/uuid.js";

test("codes are retryable where the protocol says so", () => {
  const page = readFileSync("../docs/protocol.md", "utf8");
  const rows = [...page.matchAll(/^\| \d{3} \| `([a-z-]+)` \| (yes|no)/gm)];
  assert.ok(rows.length > 30);
  for (const [, code, again] of rows) assert.equal(isRetryable(code!), again === "yes", code);
});

test("close codes mean the same for ever", () => {
  const page = readFileSync("../docs/protocol.md", "utf8");
  const rows = [...page.matchAll(/^\| (4\d{3}) \| [^|]+ \| (yes|no)/gm)];
  assert.ok(rows.length >= 6);
  for (const [, code, back] of rows) assert.equal(verdictOf(Number(code)) !== "fatal", back === "yes", code);
  assert.equal(verdictOf(4003), "renew");
  assert.equal(verdictOf(4499), "retry");
  assert.equal(verdictOf(4999), "fatal");
  assert.equal(verdictOf(1006), "retry");
});

test("durations are milliseconds", () => {
  assert.equal(milliseconds("250ms"), 250);
  assert.equal(milliseconds("1.5s"), 1500);
  assert.equal(milliseconds("1h2m3s"), 3_723_000);
  assert.equal(milliseconds(undefined), undefined);
  assert.equal(milliseconds("soon"), undefined);
});

test("a run of messages is one frame, and others stand beside it", () => {
  const text =
    '{"op":"messages","sub":"s1","count":2}\n{"offset":1}\n{"offset":2}\n{"op":"cursor","sub":"s1","cursor":"x"}';
  assert.deepEqual(parseFrames(text), [
    { op: "messages", sub: "s1", count: 2, messages: [{ offset: 1 }, { offset: 2 }] },
    { op: "cursor", sub: "s1", cursor: "x" },
  ]);
});

test("a publish names its place in front of its value", () => {
  const body = encodeRecord({ op: "x" }, { key: "k", headers: { a: "b" } });
  const line = lineOf({ op: "publish", id: 7, topic: "t", partition: 1, producer: "p", sequence: 3, body });
  assert.equal(
    line,
    '{"op":"publish","id":7,"topic":"t","partition":1,"producer":"p","sequence":3,"key":"k","headers":{"a":"b"},"value":{"op":"x"}}',
  );
});

test("bytes travel as base64, text as text, and what is no JSON value is refused", () => {
  const bytes = Uint8Array.from({ length: 300 }, (_, i) => i);
  assert.deepEqual(fromBase64(toBase64(bytes)), bytes);
  assert.equal(
    encodeRecord(new Uint8Array([255]), {}),
    '"content_type":"application/octet-stream","value_base64":"/w=="',
  );
  assert.equal(encodeRecord("hi", { contentType: "text/plain" }), '"content_type":"text/plain","value":"hi"');
  assert.equal(encodeRecord(null, {}), '"value":null');
  assert.throws(() => encodeRecord(undefined, {}), TypeError);
});

test("a position is text and back, and a server's cursor is one", () => {
  const position = { cursor: "AbC-_9", after: { 0: 17, 12: 3 } };
  assert.deepEqual(parsePosition(positionText(position)), position);
  assert.deepEqual(parsePosition("AbC"), { cursor: "AbC", after: {} });
  assert.match(positionText(position), /^[A-Za-z0-9._~-]+$/);
});

test("places are as the wire wants them", () => {
  assert.deepEqual(placeOf("earliest"), { from: "earliest" });
  assert.deepEqual(placeOf(new Date(0)), { from: "1970-01-01T00:00:00.000Z" });
  assert.deepEqual(placeOf({ cursor: "c~1.2" }), { cursor: "c", after: { 1: 2 } });
  assert.deepEqual(placeOf({ cursor: "c" }), { cursor: "c" });
});

test("producers are UUIDs of version 7, in the order of their time", () => {
  const [a, b] = [uuidv7(1_800_000_000_000), uuidv7(1_800_000_000_001)];
  assert.match(a, /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
  assert.equal(Number.parseInt(a.replace("-", "").slice(0, 12), 16), 1_800_000_000_000);
  assert.ok(a < b);
});

test("events come whole however their bytes are cut", () => {
  const stream =
    'id: c1\n\nevent: message\r\nid: c2\r\ndata: {"v":"ä€😀"}\r\n\r\n: comment\n\nretry: 5\n\ndata: a\rdata: b\r\r';
  const bytes = new TextEncoder().encode(`${stream}event: end\ndata: .\n\n`);
  const want = [
    { event: "", data: "", id: "c1" },
    { event: "message", data: '{"v":"ä€😀"}', id: "c2" },
    { event: "", data: "a\nb" },
    { event: "end", data: "." },
  ];
  for (let size = 1; size <= bytes.length; size++) {
    const parse = eventParser();
    const found = [];
    for (let i = 0; i < bytes.length; i += size) found.push(...parse(bytes.subarray(i, i + size)));
    assert.deepEqual(found, want, `chunks of ${size}`);
  }
});
