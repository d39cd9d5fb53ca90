import assert from "node:assert/strict";
import { test } from "node:test";
import { ago, bytes, clock, count, duration, latency, milliseconds, rate, short, span } from "../src/core/format.js";
import { href, parseRoute } from "../src/core/route.js";

test("numbers, sizes and latencies read the same everywhere", () => {
  assert.deepEqual([count(1234567), count(null), count(0)], ["1,234,567", "–", "0"]);
  assert.deepEqual([short(999), short(1500), short(2_000_000), short(0.25)], ["999", "1.5k", "2M", "0.3"]);
  assert.deepEqual([rate(3.14), rate(314.4), rate(null)], ["3.1", "314", "–"]);
  assert.deepEqual(
    [bytes(0), bytes(1023), bytes(1536), bytes(222 * 2 ** 30)],
    ["0 B", "1,023 B", "1.5 KiB", "222 GiB"],
  );
  assert.deepEqual(
    [latency(0.0005), latency(0.0123), latency(2.5), latency(null)],
    ["500 µs", "12.3 ms", "2.5 s", "–"],
  );
});

test("durations of the API are read, and nothing else is", () => {
  assert.equal(milliseconds("1h2m3.5s"), 3_723_500);
  assert.equal(milliseconds("250ms"), 250);
  assert.equal(milliseconds("0s"), 0);
  assert.equal(milliseconds("0"), 0);
  for (const bad of ["", "5", "s", "1h-2m", "1 h"]) assert.equal(milliseconds(bad), undefined);
  assert.deepEqual(
    [duration("168h"), duration("90s"), duration("1h30m"), duration("2m0s")],
    ["7 d", "1 min 30 s", "1 h 30 min", "2 min"],
  );
  assert.equal(span(25 * 3_600_000), "1 d 1 h");
  assert.equal(ago("2026-01-31T15:04:05Z", Date.parse("2026-01-31T15:04:15Z")), "10 s");
  assert.equal(ago(null, 0), "–");
});

test("a time of another day has its date", () => {
  const now = Date.parse("2026-01-31T15:04:05.123Z");
  assert.equal(clock("2026-01-31T09:04:05.003Z", "utc", now), "09:04:05.003");
  assert.equal(clock("2026-01-30T09:04:05.003Z", "utc", now), "2026-01-30 09:04:05.003");
  assert.equal(clock("nonsense", "utc", now), "nonsense");
});

test("a route is what it was made of, whatever its names hold", () => {
  const path = ["topics", "a/b?c#d%é", "messages"];
  const query = { key: "x&y=z", from: "", offset: 17, none: undefined };
  assert.deepEqual(parseRoute(href(path, query)), { path, query: { key: "x&y=z", offset: "17" } });
  assert.deepEqual(parseRoute(""), { path: [], query: {} });
  assert.deepEqual(parseRoute("#/topics/%"), { path: ["topics", "%"], query: {} });
});
