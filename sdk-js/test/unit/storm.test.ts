import assert from "node:assert/strict";
import { test } from "node:test";
import { createClient } from "../../src/client/client.js";
import { history } from "../../src/features/history.js";
import { poll } from "../../src/features/poll.js";
import { sse } from "../../src/features/sse.js";
import { fakeClock, fakeServer } from "../../src/testing/index.js";
import type { Message } from "../../src/types.js";
import { type Kind, storm } from "./storm.js";

const records = 80;
const keys = 5;
const seeds = Number(process.env.TEST_SEEDS ?? 12);
const first = Number(process.env.TEST_SEED ?? 1);

const kinds: Kind[] = ["both", "refusals", "ways"];
const place = (m: Message) => `${m.partition}:${m.offset}`;

for (const transport of ["websocket", "sse", "poll"]) {
  test(`whatever goes wrong over ${transport}, it ends with all published and read, once and in order`, async () => {
    for (let seed = first; seed < first + seeds; seed++) await weather(transport, seed);
  });
}

async function weather(transport: string, seed: number): Promise<void> {
  const clock = fakeClock({ seed: seed * 7919 });
  const server = fakeServer(clock);
  const topic = server.topic("orders", 3);
  const { WebSocket, fetch, hang, mute, over } = storm(clock, server, topic, kinds[seed % 3]!);
  let raging = true;
  const luck = (chance: number) => clock.random() < chance;
  const pause = (ms: number) => new Promise<void>((resolve) => clock.after(ms, resolve));
  const client = createClient({
    url: [server.url, "http://fake2"],
    clock,
    WebSocket: transport === "websocket" ? WebSocket : (null as never),
    fetch,
    use: [{ websocket: poll, sse, poll }[transport as "sse"](), history()],
    async auth() {
      await pause(clock.random() * 50);
      if (raging && luck(0.1)) throw new Error("no token just now");
      const expiresAt = clock.now() + 60_000;
      return { token: `${expiresAt}`, expiresAt };
    },
  });
  server.admit((token) => (token === undefined || Number(token) > clock.now() ? "ok" : "expired")); // a sign of life has none
  const said: string[] = [];
  client.on("state", (e) => said.push(JSON.stringify(e)));
  client.on("error", (e) => said.push(e.message));

  const seen: Message[][] = [[], []];
  const gaps: unknown[] = [];
  const subs = [
    client.subscribe("orders", (m) => void seen[0]!.push(m), { from: "earliest" }),
    client.subscribe(
      "orders",
      async (m) => {
        seen[1]!.push(m);
        await pause(clock.random() * 400);
      },
      { from: "earliest", credit: 8 },
    ),
  ];
  let caughtUp = 0;
  for (const sub of subs) {
    sub.on("gap", (gap) => gaps.push(gap));
    sub.on("error", (e) => said.push(`subscription: ${e.message}`));
    sub.on("caught-up", () => caughtUp++);
  }
  const wrong: string[] = [];
  let published = 0;
  const calm = luck(0.5) ? records - 1 : Math.floor(clock.random() * records); // the last of them in the storm
  for (let i = 0; i < records; i++) {
    client.publish("orders", i, { key: luck(0.8) ? `k${i % keys}` : undefined, timeoutMs: 3_600_000 }).then(
      () => published++,
      (e) => wrong.push(`${i}: ${e.message}`),
    );
    await clock.advance(clock.random() * 600);
    if (i === calm) {
      if (luck(0.5)) hang();
      raging = false;
      over();
    }
    if (!raging || seed % 3 === 1) continue;
    if (luck(0.03)) hang();
    if (luck(0.03)) mute();
    if (luck(0.03)) for (const c of server.connections) c.close();
    if (luck(0.02)) {
      server.down({ sockets: true, http: true });
      await clock.advance(clock.random() * 10_000);
      server.down({ sockets: false, http: false });
    }
  }
  await clock.advance(600_000);

  const stand = () =>
    [
      `seed ${seed}: ${client.state} by ${client.transport}, published ${published}, read ${seen.map((s) => s.length)}`,
      ...subs.map((sub) => `${sub.state} at ${sub.cursor}`),
      ...wrong,
      ...said.slice(-20),
    ].join("\n");
  assert.equal(published, records, stand());
  assert.deepEqual(gaps, [], stand());
  const values = topic.records.map((m) => m.value as number);
  assert.deepEqual(
    values.toSorted((a, b) => a - b),
    Array.from({ length: records }, (_, i) => i),
    stand(),
  );
  for (let key = 0; key < keys; key++) {
    const ofKey = topic.records.filter((m) => m.key === `k${key}`).map((m) => m.value as number);
    assert.deepEqual(
      ofKey,
      ofKey.toSorted((a, b) => a - b),
      stand(),
    );
  }
  const log = topic.records.map((m) => place(m as unknown as Message)).sort();
  for (const messages of seen) {
    assert.deepEqual(messages.map(place).sort(), log, stand());
    for (const p of [0, 1, 2]) {
      const offsets = messages.filter((m) => m.partition === p).map((m) => m.offset);
      assert.deepEqual(
        offsets,
        offsets.toSorted((a, b) => a - b),
        stand(),
      );
    }
  }
  assert.ok(subs.every((sub) => sub.state === "live") && caughtUp >= 2, stand());
  const closed = client.close({ drainMs: 0 });
  await clock.advance(1000);
  await closed;
  assert.equal(clock.pending, 0, `seed ${seed}: a timer is left`);
}
