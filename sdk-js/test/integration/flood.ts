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

/** A silent line is given up after 60 s at most: when nothing has moved for so long, nothing will. */
const standstillMs = 90_000;
const lookMs = 5000;
const recentEvents = 40;

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
  const unanswered = new Set<number>();
  const publish = async (key: number) => {
    const published: Array<Promise<void>> = [];
    for (let i = key; i < records; i += keys) {
      unanswered.add(i);
      const one = client.publish(topic, { i }, { key: `k${key}`, timeoutMs: 3_600_000 }).then((p) => {
        assert.equal(p.topic, topic);
        unanswered.delete(i);
        acknowledged.hit();
      });
      published.push(one);
      if (published.length % 6 === 1) await Promise.all(published);
    }
    await Promise.all(published);
  };
  const publishing = Array.from({ length: keys }, (_, key) => publish(key));
  const read = async () => {
    const log: Message[] = [];
    for await (const m of (await reader()).history(topic)) log.push(m);
    return log;
  };
  const all = Promise.all([trouble(acknowledged, records), ...publishing, got.reached]);
  await moving(
    client,
    () => acknowledged.n() + got.n(),
    all,
    async () => {
      const log = await read();
      const missing = log.map(place).filter((p) => !seen.some((m) => place(m) === p));
      return [
        `acknowledged ${acknowledged.n()}, not ${[...unanswered]}`,
        `subscription ${sub.state} at ${sub.cursor}, handed out ${got.n()}`,
        `the log has ${log.length}, of which were not handed out: ${missing}`,
      ];
    },
  );
  await sub.unsubscribe();

  const log = await read();
  const number = (m: Message) => (m.value as { i: number }).i;
  const numbers = Array.from({ length: records }, (_, i) => i);
  assert.deepEqual(sorted(log.map(number)), numbers, "every publish is in the log once");
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

/** Waits for `done`. Where nothing moves any more it fails, and tells how things stand and what the client said last. */
async function moving(
  client: Reading,
  moved: () => number,
  done: Promise<unknown>,
  describe: () => Promise<string[]>,
): Promise<void> {
  const said: string[] = [];
  const say = (event: string) => (e: object) => {
    said.push(`${new Date().toISOString()} ${event} ${e instanceof Error ? e.message : JSON.stringify(e)}`);
    if (said.length > recentEvents) said.shift();
  };
  const offs = (["state", "connected", "error"] as const).map((event) => client.on(event, say(event)));
  let watch: NodeJS.Timeout | undefined;
  const still = new Promise<never>((_, reject) => {
    let last = { n: moved(), at: Date.now() };
    watch = setInterval(async () => {
      if (moved() !== last.n) last = { n: moved(), at: Date.now() };
      if (Date.now() - last.at < standstillMs) return;
      clearInterval(watch);
      const stand = await describe().catch((e) => [`and the log cannot be read: ${e}`]);
      reject(
        new Error(["it stands still", `client ${client.state} by ${client.transport}`, ...stand, ...said].join("\n")),
      );
    }, lookMs);
  });
  try {
    await Promise.race([done, still]);
  } finally {
    clearInterval(watch);
    for (const off of offs) off();
  }
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
