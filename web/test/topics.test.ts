import assert from "node:assert/strict";
import { test } from "node:test";
import { deadLetters, resetBody, sums } from "../src/core/groups.js";
import { changes, settings } from "../src/core/settings.js";
import { ends, growth, lagOf, look, shares, topicRow } from "../src/core/topics.js";
import type { Group, GroupPartition, Topic } from "../src/core/wire.js";

const topic = (name: string, hws: (number | null)[], more: Partial<Topic> = {}): Topic =>
  ({
    id: `id-${name}`,
    name,
    replicas: 1,
    layout: {
      generation: 1,
      partitions: hws.map((hw, id) => ({
        id,
        hw,
        earliest: hw === null ? null : 0,
        leader: hw === null ? null : "a",
        isr: ["a"],
      })),
    },
    ...more,
  }) as unknown as Topic;

const group = (name: string, lags: (number | null)[], more: Partial<Group> = {}): Group =>
  ({
    group: name,
    topic: "orders",
    dead_letter: `orders.${name}.dlq`,
    members: [],
    partitions: lags.map(
      (lag, partition): Partial<GroupPartition> => ({
        partition,
        lag,
        in_flight: lag,
        redelivered: 0,
        dead: lag === null ? null : 2,
        expired: 0,
        oldest_unacked: lag ? `2026-01-31T15:04:0${partition}Z` : null,
        paused: lag === 7,
      }),
    ),
    ...more,
  }) as unknown as Group;

test("a row has the sums of what leaders say, and says when some do not", () => {
  const row = topicRow(topic("t", [10, null, 5]), 3, [group("g", [1, 2]), group("h", [9])]);
  assert.deepEqual([row.records, row.partial, row.leaderless, row.groups, row.maxLag], [15, true, 1, 2, 9]);
  assert.equal(topicRow(topic("t", [1]), null, undefined).groups, null);
  assert.equal(topicRow(topic("t", [1]), null, []).maxLag, 0);
  assert.equal(topicRow(topic("t", [1]), null, [group("g", [null])]).maxLag, null);
  assert.deepEqual(shares(topic("t", [30, 10])), [0.75, 0.25]);
  assert.deepEqual(shares(topic("t", [0, 0])), [0, 0]);
});

test("rates are of what grew in between, of that which was known at both ends", () => {
  const looks = [ends([topic("t", [10, null])], 1000), ends([topic("t", [30, 99])], 3000)];
  assert.equal(growth(topic("t", [30, 99]), looks), 10);
  assert.equal(growth(topic("t", [30, 99]), looks.slice(0, 1)), null);
  assert.equal(growth(topic("other", [1]), looks), null);
  assert.equal(growth(topic("t", [3]), [looks[1]!, ends([topic("t", [3])], 5000)]), 0); // a log that was cut is not less than nothing
  let kept = looks.slice(0, 0);
  for (const atMs of [1, 2, 3, 4, 5, 6]) kept = look(kept, ends([], atMs));
  assert.deepEqual(
    kept.map((e) => e.atMs),
    [3, 4, 5, 6],
  );
});

test("a group is the sum of its partitions, as far as they are known", () => {
  const g = group("g", [3, null, 7]);
  assert.equal(lagOf(g), 10);
  const s = sums(g);
  assert.deepEqual(
    [s.lag, s.inFlight, s.dead, s.paused, s.unknown, s.oldest],
    [10, 10, 4, 1, 1, "2026-01-31T15:04:00Z"],
  );
  assert.equal(sums(group("g", [null])).lag, null);
});

test("dead letters are found by the groups that name their topic, once each", () => {
  const groups = [
    group("a", [1]),
    group("b", [1], { dead_letter: "shared" }),
    group("c", [1], { dead_letter: "shared" }),
  ];
  const rows = deadLetters(groups, [topic("shared", [4]), topic("orders", [9])]);
  assert.deepEqual(
    rows.map((r) => [r.topic, r.records, r.there !== undefined, r.from.map((f) => f.group).join()]),
    [
      ["shared", 4, true, "b,c"],
      ["orders.a.dlq", 0, false, "a"],
    ],
  );
});

test("a reset says what was typed, or what is wrong with it", () => {
  assert.deepEqual(resetBody({ kind: "latest" }), { from: "latest" });
  assert.deepEqual(resetBody({ kind: "offsets", text: "0:42, 1:17" }), { offsets: { 0: 42, 1: 17 } });
  assert.deepEqual(resetBody({ kind: "time", time: "2026-01-31T15:04:05Z" }), { from: "2026-01-31T15:04:05.000Z" });
  assert.throws(() => resetBody({ kind: "offsets", text: "42" }), /not partition:offset/);
  assert.throws(() => resetBody({ kind: "offsets", text: " " }), /Give offsets/);
  assert.throws(() => resetBody({ kind: "time", time: "" }), /date and a time/);
});

test("only settings that differ are changed, and retention is whole", () => {
  const t = topic("t", [1], {
    replicas: 3,
    min_insync: 2,
    retention: { age: "168h", bytes: 0 },
    max_message_bytes: 1024,
    durability: "fsync",
    unclean: false,
    idempotency_window: "2m",
  });
  const form = new Map(settings.map((s) => [s.name, s.of(t) === false ? null : String(s.of(t))]));
  const typed = (name: string) => form.get(name) ?? null;
  assert.deepEqual(changes(t, typed), {});
  form.set("age", " 24h ").set("unclean", "on").set("replicas", "2");
  assert.deepEqual(changes(t, typed), { replicas: 2, unclean: true, retention: { age: "24h", bytes: 0 } });
});
