import assert from "node:assert/strict";
import { test } from "node:test";
import { cutAll, cutOffsets, cutThrough, goes, purgeBody } from "../src/core/purge.js";
import type { Topic } from "../src/core/wire.js";

const topic = (...parts: [earliest: number | null, hw: number | null][]): Topic =>
  ({
    name: "t",
    layout: { partitions: parts.map(([earliest, hw], id) => ({ id, earliest, hw })) },
  }) as unknown as Topic;

test("all is what is there now, of the partitions that hold something", () => {
  const cuts = cutAll(topic([3, 10], [7, 7], [0, 1]));
  assert.deepEqual(cuts, [
    { partition: 0, earliest: 3, before: 10 },
    { partition: 2, earliest: 0, before: 1 },
  ]);
  assert.equal(goes(cuts), 8);
  assert.deepEqual(purgeBody(cuts), { before: { 0: 10, 2: 1 } });
  assert.equal(goes(cutAll(topic([5, 5]))), 0);
});

test("up to a record is that one and every older one of its partition", () => {
  const cuts = cutThrough(topic([3, 10], [0, 9]), 0, 5);
  assert.equal(goes(cuts), 3);
  assert.deepEqual(purgeBody(cuts), { before: { 0: 6 } });
  assert.equal(goes(cutThrough(topic([8, 10]), 0, 5)), 0, "somebody else was faster");
});

test("what nobody can say is not purged", () => {
  assert.throws(() => cutAll(topic([0, 4], [null, null])), /partition 1 holds/);
  assert.throws(() => cutOffsets(topic([0, 4]), { 0: 5 }), /ends at offset 4/);
  assert.throws(() => cutOffsets(topic([0, 4]), { 3: 1 }), /no partition 3/);
  assert.deepEqual(cutOffsets(topic([0, 4], [0, 9]), { 1: 2 }), [{ partition: 1, earliest: 0, before: 2 }]);
});
