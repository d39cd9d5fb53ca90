import assert from "node:assert/strict";
import { test } from "node:test";
import { histogram, quantile, samples, since } from "../src/core/metrics.js";
import { greatest, nearest, path, timeTicks, valueTicks } from "../src/core/plot.js";
import { add, at, none } from "../src/core/roundtrips.js";
import { type Columns, emptyColumns, latest, push } from "../src/core/series.js";

const text = `# HELP l_bucket nothing
l_bucket{transport="sse",le="0.001"} 5
l_bucket{transport="sse",le="+Inf"} 10
l_bucket{transport="websocket",le="0.001"} 1
l_bucket{transport="websocket",le="+Inf"} 10
l_bucket_other{le="1"} 99
plain 3
`;

test("a histogram is added up over its labels", () => {
  assert.deepEqual(histogram(samples(text, "l_bucket")), [
    [0.001, 6],
    [Number.POSITIVE_INFINITY, 20],
  ]);
  assert.deepEqual(samples(text, "plain"), [{ name: "plain", labels: {}, value: 3 }]);
});

test("quantiles lie between their bounds, and of nothing there are none", () => {
  const h = histogram(samples(text, "l_bucket"));
  assert.equal(quantile(h, 0.15), 0.0005);
  assert.equal(quantile(h, 0.99), 0.001); // beyond the last bound that is one
  assert.equal(quantile([], 0.5), null);
  assert.equal(quantile(since(h, h), 0.5), null);
  assert.deepEqual(since([[1, 50]], [[1, 2]]), [[1, 2]]); // the node was started again
});

test("series keep their time and are not changed in place", () => {
  const empty = emptyColumns(2);
  const one = push(empty, 10, [1, null], 60);
  const two = push(one, 40, [2, 5], 60);
  const three = push(two, 75, [3, 6], 60);
  assert.deepEqual(empty, [[], [], []]);
  assert.deepEqual(three, [
    [40, 75],
    [2, 3],
    [5, 6],
  ]);
  assert.equal(latest(one, 2), null);
  assert.equal(greatest(three), 6);
});

test("ticks are round, reach the greatest value, and are no fractions of what is counted", () => {
  assert.deepEqual(valueTicks(360, 4), [0, 100, 200, 300, 400]);
  assert.deepEqual(valueTicks(0.021, 4), [0, 0.01, 0.02, 0.03]);
  assert.deepEqual(valueTicks(2, 4, 1), [0, 1, 2]);
  assert.deepEqual(valueTicks(0, 4), [0, 1]);
  for (const max of [1e-6, 0.3, 7, 99, 12345, 1e9]) assert.ok(valueTicks(max, 4).at(-1)! >= max);
  assert.deepEqual(timeTicks(30, 330, 5), [60, 120, 180, 240, 300]);
  assert.ok(timeTicks(0, 900, 4).length <= 4);
});

test("a line is broken where nothing is known", () => {
  const box = { width: 100, height: 10, fromS: 0, toS: 100, top: 10 };
  const columns: Columns = [
    [0, 5, 10, 90, 95],
    [0, 10, null, 5, 5],
  ];
  assert.equal(path(columns, 1, box), "M0.0 10.0h0L5.0 0.0M90.0 5.0h0L95.0 5.0");
  assert.equal(nearest(columns, box, 48), 2);
  assert.equal(nearest([[]], box, 5), undefined);
});

test("round trips are counted and ranked", () => {
  const trips = [3, 1, 2000, 7].reduce(add, none);
  assert.equal(
    trips.counts.reduce((a, b) => a + b),
    4,
  );
  assert.equal(trips.counts.at(-1), 1);
  assert.deepEqual([at(trips, 0.5), at(trips, 0.99), at(none, 0.5)], [3, 2000, null]);
});
