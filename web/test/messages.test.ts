import assert from "node:assert/strict";
import { test } from "node:test";
import { asCommand, asScript } from "../src/core/copy.js";
import { parse } from "../src/core/json.js";
import {
  death,
  hex,
  keyQuery,
  matches,
  newestFirst,
  outcome,
  parseHeaders,
  preview,
  tally,
  toLine,
  valueText,
  windowsBack,
} from "../src/core/messages.js";
import { fromSdk } from "../src/core/sdk.js";
import type { Message } from "../src/core/wire.js";

const message = (more: Partial<Message>): Message => ({
  topic: "t",
  partition: 0,
  offset: 0,
  timestamp: "2026-01-31T15:04:05.123Z",
  key: "k",
  content_type: "application/json",
  headers: {},
  value: 1,
  ...more,
});

test("values are told as what they are", () => {
  assert.deepEqual(preview(message({ value: { a: [1, "<b>"] } })), { text: '{"a":[1,"<b>"]}', odd: false });
  assert.deepEqual(preview(message({ value: "text", content_type: "text/plain" })), { text: "text", odd: false });
  assert.equal(valueText(message({ value: "text" })), '"text"'); // JSON
  assert.match(
    preview(message({ value: undefined, value_base64: "AAECAw==", content_type: "a/b" })).text,
    /^4 bytes of a\/b$/,
  );
  assert.match(preview(message({ value: null, tombstone: true })).text, /tombstone/);
  assert.ok(preview(message({ value: "x".repeat(5000) })).text.length < 500);
  assert.equal(
    hex(new TextEncoder().encode("Tide\n")),
    "00000000  54 69 64 65 0a                                   Tide.",
  );
});

test("filters look at headers, text, and members of JSON", () => {
  const m = message({ value: { user: { name: "ann", age: 5 }, list: [{ x: true }] }, headers: { Trace: "7f-a" } });
  const fits = (header: string, text: string) => matches(m, { key: "", header, text });
  assert.ok(fits("", ""));
  assert.ok(fits("trace", "") && fits("TRACE=7f", "") && !fits("trace=8", "") && !fits("other", ""));
  assert.ok(fits("", "ann") && fits("", "user.name=ann") && fits("", "user.age=5") && fits("", "list[0].x=true"));
  assert.ok(!fits("", "user.name=an") && !fits("", "user.none=1") && !fits("", "bob"));
  assert.deepEqual(keyQuery("a*"), { key_prefix: "a" });
  assert.deepEqual(keyQuery("a"), { key: "a" });
  assert.deepEqual([keyQuery(""), keyQuery("*")], [{}, {}]);
});

test("the newest come first, and a partition's own order is kept", () => {
  const [a, b, c] = [
    message({ partition: 0, offset: 1, timestamp: "2026-01-31T15:04:05.123Z" }),
    message({ partition: 0, offset: 2, timestamp: "2026-01-31T15:04:05.123Z" }),
    message({ partition: 1, offset: 0, timestamp: "2026-01-31T15:04:06.000Z" }),
  ] as const;
  assert.deepEqual([a, b, c].sort(newestFirst), [c, b, a]);
});

test("going back, each partition gives its share and those with less leave the rest to the others", () => {
  const tops = [
    { partition: 0, earliest: 1000, top: 2000 },
    { partition: 1, earliest: 0, top: 20 },
    { partition: 2, earliest: 7, top: 7 },
    { partition: 3, earliest: 5, top: 500 },
  ];
  const windows = windowsBack(tops, 100);
  assert.deepEqual(windows, [
    { partition: 1, from: 0, to: 20 },
    { partition: 3, from: 460, to: 500 },
    { partition: 0, from: 1960, to: 2000 },
  ]);
  assert.deepEqual(windowsBack(tops, 100, true)[0], { partition: 2, from: 7, to: 7 });
  assert.equal(windowsBack(tops, 1).length, 3); // each goes back, so that it comes to an end
});

test("a record is published again as it was, without what the cluster wrote on it", () => {
  const dead = message({
    headers: {
      trace: "1",
      "Tidewire-Dead-Topic": "orders",
      "Tidewire-Dead-Reason": "no",
      "Tidewire-Dead-Partition": "3",
      "Tidewire-Dead-Offset": "9",
      "Tidewire-Dead-Group": "g",
      "Tidewire-Dead-Deliveries": "5",
    },
  });
  assert.deepEqual(JSON.parse(toLine(dead)), {
    key: "k",
    headers: { trace: "1" },
    content_type: "application/json",
    value: 1,
  });
  assert.deepEqual(death(dead), { reason: "no", topic: "orders", place: "3:9", group: "g", deliveries: "5" });
  assert.equal(death(message({})), undefined);
  assert.deepEqual(JSON.parse(toLine(message({ key: null, value: null, tombstone: true }))), {
    headers: {},
    tombstone: true,
  });
  assert.deepEqual(outcome('{"partition":0,"offset":1}\n{"code":"invalid","detail":"x"}\n'), {
    kept: 1,
    refused: [{ code: "invalid", detail: "x" }],
  });
  assert.deepEqual(tally(["a", "b", "b"]), [
    ["b", 2],
    ["a", 1],
  ]);
});

test("numbers stay as they were written where the machine can do that", () => {
  const text = '{"total":12345678901234567890,"n":1}';
  const exact = "rawJSON" in JSON ? text : JSON.stringify(JSON.parse(text));
  assert.equal(JSON.stringify(parse(text)), exact);
});

test("what is copied means the same in a shell and in a program", () => {
  const m = message({ key: "it's", value: "a'b", content_type: "text/plain", headers: { h: "1 2" } });
  assert.equal(
    asCommand("http://n", m),
    `tidewire publish 't' --server 'http://n' --key 'it'\\''s' --header 'h=1 2' <<< 'a'\\''b'`,
  );
  assert.equal(
    asScript(m),
    `await tide.publish("t", "a'b", {"key":"it's","headers":{"h":"1 2"},"contentType":"text/plain"});`,
  );
});

test("a message of the SDK is one of the API", () => {
  const { topic, partition, offset, timestamp } = message({});
  const base = { topic, partition, offset, timestamp, headers: {} };
  assert.deepEqual(fromSdk({ ...base, contentType: "a/b", value: new Uint8Array([0, 1, 2]) }), {
    ...base,
    key: null,
    content_type: "a/b",
    value_base64: "AAEC",
  });
});

test("headers are lines of name and value", () => {
  assert.deepEqual(parseHeaders("trace: 7f\n\n a :b: c "), { trace: "7f", a: "b: c" });
  assert.equal(parseHeaders(" \n"), undefined);
  assert.throws(() => parseHeaders("nonsense"), /write name: value/);
});
