import assert from "node:assert/strict";
import { test } from "node:test";
import { health, totals, troubles } from "../src/core/cluster.js";
import type { Alert, Node, Topic } from "../src/core/wire.js";

const node = (name: string, more: Partial<Node> = {}): Node => ({
  id: `id-${name}`,
  name,
  roles: ["gateway"],
  state: "alive",
  addresses: {},
  version: "v1",
  since: "2026-01-31T15:04:05Z",
  partitions: { led: 1, followed: 2 },
  coordinator_leader: false,
  moves: [],
  uptime: "1s",
  connections: 3,
  disk: { used: 10, free: 90 },
  rates: { in_records: 5, in_bytes: 50, out_messages: 7, out_bytes: 70 },
  ...more,
});
const silent = { uptime: undefined, connections: undefined, disk: undefined, rates: undefined };

test("totals add up what answered, and name what did not", () => {
  const t = totals({ nodes: [node("a"), node("b"), node("c", { ...silent, state: "dead", version: "v0" })] });
  assert.deepEqual(
    [t.alive, t.nodes, t.connections, t.inRecords, t.outMessages, t.used, t.free, t.led],
    [2, 3, 6, 10, 14, 20, 180, 3],
  );
  assert.deepEqual(t.silent, ["c"]);
  assert.deepEqual(t.versions, ["v1"]); // of a dead node nobody says what it will run
});

test("troubles say each thing once, the grave ones first, and lead to it", () => {
  const alert = (more: Partial<Alert>): Alert => ({
    alert: "node-down",
    state: "firing",
    since: "",
    detail: "it is down",
    advice: "start it",
    ...more,
  });
  const info = {
    nodes: [node("a"), node("b", { state: "dead" }), node("c", silent), node("d", { state: "draining" })],
  };
  const list = troubles(info, [
    alert({ alert: "replica-lag", topic: "t" }),
    alert({ node: "b" }),
    alert({ alert: "group-paused", topic: "t", group: "g" }),
    alert({ alert: "disk-space", state: "resolved" }),
  ]);
  assert.deepEqual(
    list.map((t) => [t.grave, t.what, t.path.join("/")]),
    [
      [true, "node-down: it is down", "cluster"],
      [true, "group-paused: it is down", "groups/t/g"],
      [true, "Node c does not answer.", "cluster"],
      [false, "replica-lag: it is down", "topics/t/partitions"],
      [false, "Node d is drained.", "cluster"],
    ],
  );
});

test("many alerts of one name are one trouble, so that the cause is seen", () => {
  const alerts = Array.from(
    { length: 13 },
    (_, i): Alert => ({
      alert: "under-replicated",
      state: "firing",
      since: "",
      topic: "t",
      detail: `partition ${i}`,
      advice: "look",
    }),
  );
  const list = troubles(undefined, alerts);
  assert.deepEqual(list, [
    { grave: true, what: "under-replicated: 13 alerts, such as: partition 0", advice: "look", path: ["cluster"] },
  ]);
  assert.equal(troubles(undefined, alerts.slice(0, 3)).length, 3);
});

test("an old feed and two versions are troubles, and no news is none", () => {
  assert.deepEqual(troubles(undefined, []), []);
  assert.deepEqual(troubles({ nodes: [node("a")], feed_age: "900ms" }, []), []);
  const list = troubles({ nodes: [node("a"), node("b", { version: "v2" })], feed_age: "4.2s" }, []);
  assert.match(list[0]!.what, /no coordinator for 4 s/);
  assert.match(list[1]!.what, /2 versions: v1, v2/);
});

test("health counts partitions without a leader and those short of replicas", () => {
  const topic = (replicas: number, isrs: string[][], leader: string | null = "a") =>
    ({
      replicas,
      layout: { generation: 1, partitions: isrs.map((isr, id) => ({ id, isr, leader })) },
    }) as unknown as Topic;
  assert.deepEqual(health([topic(2, [["a", "b"], ["a"]]), topic(1, [["a"]], null)]), {
    partitions: 3,
    leaderless: 1,
    short: 1,
  });
});
