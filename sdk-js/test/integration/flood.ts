import assert from "node:assert/strict";
import type { TestContext } from "node:test";
import type { Client, HistoryMethods, Message, TopicMap } from "../../src/types.js";
import { counter } from "./world.js";

type Reading = Client & HistoryMethods<TopicMap>;
type Counter = ReturnType<typeof counter>;

export interface Flood {
  topic: string;
  /** Who publishes and subscribes. */
  client: Reading;
  /** Who reads the log in the end. */
  reader(): Promise<Reading>;
  records?: number;
}

const keys = 6;
const place = (m: Message) => `${m.partition}:${m.offset}`;
const sorted = <V>(list: V[]) => list.toSorted((a, b) => (a < b ? -1 : a > b ? 1 : 0));

/**
 * Publishes and reads while there is trouble, which goes by what is acknowledged. In the
 * end every publish is in the log once, in the order of its key, and the subscriber saw
 * the log, once, each partition in order, without a gap.
 */
export async function flood(
  { topic, client, reader, records = 600 }: Flood,
  trouble: (acknowledged: Counter, records: number) => Promise<void>,
): Promise<void> {
  const seen: Message[] = [];
  const got = counter(records);
  const see = (m: Message) => {
    seen.push(m);
    got.hit();
  };
  const sub = client.subscribe(topic, see, { from: "earliest", credit: 32 });
  const gaps: unknown[] = [];
  sub.on("gap", (gap) => gaps.push(gap));
  await sub.ready();

  // Each key's next record goes out once half a dozen before it are acknowledged.
  const acknowledged = counter(records);
  const publish = async (key: number) => {
    for (let i = key; i < records; i += keys) {
      const published = client.publish(topic, { i }, { key: `k${key}`, timeoutMs: 3_600_000 }).then((p) => {
        assert.equal(p.topic, topic);
        acknowledged.hit();
      });
      if (i % (6 * keys) === key) await published;
      else published.catch(() => {}); // the batch's last one tells of it
    }
  };
  const publishing = Promise.all(Array.from({ length: keys }, (_, key) => publish(key)));
  await Promise.all([trouble(acknowledged, records), publishing]);
  await acknowledged.reached;
  await got.reached;
  await sub.unsubscribe();

  const log: Message[] = [];
  for await (const m of (await reader()).history(topic)) log.push(m);
  const number = (m: Message) => (m.value as { i: number }).i;
  const all = Array.from({ length: records }, (_, i) => i);
  assert.deepEqual(sorted(log.map(number)), all, "every publish is in the log once");
  for (let key = 0; key < keys; key++) {
    const ofKey = log.filter((m) => m.key === `k${key}`).map(number);
    assert.deepEqual(ofKey, sorted(ofKey), `the order of k${key}`);
  }
  assert.deepEqual(sorted(seen.map(place)), sorted(log.map(place)), "the subscriber saw the log, once");
  for (const p of new Set(log.map((m) => m.partition))) {
    const offsets = seen.filter((m) => m.partition === p).map((m) => m.offset);
    assert.deepEqual(offsets, sorted(offsets), `the order of partition ${p}`);
  }
  assert.deepEqual(gaps, []);
}

/** A number of its own for each test, so that what happens can be had again; it is said aloud. */
export function chance(t: TestContext): (below: number) => number {
  let state = Number(process.env.TEST_SEED ?? Date.now()) >>> 0;
  t.diagnostic(`TEST_SEED=${state}`);
  return (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}
