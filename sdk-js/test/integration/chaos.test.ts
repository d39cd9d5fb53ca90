import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import type { TransportName } from "../../src/types.js";
import { chance, flood } from "./flood.js";
import { startCluster, startNode, type TestNode } from "./node.js";
import { startProxy } from "./proxy.js";
import { clientOf, quickClock } from "./world.js";

const reconnect = { minDelayMs: 100, maxDelayMs: 1000 };
const transports: TransportName[] = ["websocket", "sse", "poll"];

for (const transport of transports) {
  test(`nothing is lost, doubled or out of order over ${transport} through a line that breaks in every way`, {
    timeout: 240_000,
  }, async (t) => {
    const node = await startNode(t);
    await node.createTopic("orders", { partitions: 4 });
    const proxy = await startProxy(t, () => node.url);
    const clock = quickClock(8);
    const client = await clientOf(t, proxy, { clock, reconnect }, transport);
    const pick = chance(t);
    const faults: Array<() => Promise<void> | void> = [
      proxy.cut,
      proxy.hang,
      proxy.mute,
      async () => {
        proxy.delay(20 + pick(60));
        await pause(200);
        proxy.delay(0);
      },
      async () => {
        proxy.refuse(true);
        proxy.cut();
        await pause(pick(300));
        proxy.refuse(false);
      },
      async () => {
        // The page sleeps, and the line is gone when it wakes.
        clock.freeze(true);
        proxy.cut();
        await pause(pick(300));
        clock.freeze(false);
      },
    ];
    const all = [...faults, ...faults.map(() => faults[pick(faults.length)]!)];
    await flood({ topic: "orders", client, reader: () => clientOf(t, node) }, async (acknowledged, records) => {
      for (const [k, fault] of all.entries()) {
        await acknowledged.at(Math.floor(((k + 1) * records) / (all.length + 1)));
        await fault();
      }
    });
  });
}

/** A client of all nodes, whichever is there. */
const clientOfAll = (t: TestContext, nodes: TestNode[], transport: TransportName) =>
  clientOf(t, { url: nodes.map((n) => n.url) as never }, { reconnect: { minDelayMs: 20, maxDelayMs: 200 } }, transport);

const describe = async (node: TestNode, topic: string) =>
  (await (await fetch(`${node.url}/topics/${topic}/metadata`)).json()) as {
    layout: { partitions: Array<{ leader: string | null }> };
  };

for (const transport of transports) {
  test(`in a cluster, over ${transport}, leaders die and gateways are drained without a trace`, {
    timeout: 240_000,
  }, async (t) => {
    const nodes = await startCluster(t);
    await nodes[0]!.createTopic("orders", { partitions: 6, replicas: 3 });
    const client = await clientOfAll(t, nodes, transport);
    let kills = 0;
    await flood({ topic: "orders", client, reader: () => clientOf(t, nodes[0]!) }, async (acknowledged, records) => {
      for (const [i, node] of nodes.entries()) {
        // Each leads a third of the partitions, and one of them has this client's connection.
        await acknowledged.at(Math.floor(((2 * i + 1) * records) / 8));
        const { layout } = await describe(node, "orders");
        kills += layout.partitions.filter((p) => p.leader === `n${i + 1}`).length;
        await node.kill();
        await acknowledged.at(Math.floor(((2 * i + 2) * records) / 8)); // the others go on
        await node.start();
      }
      await acknowledged.at(Math.floor((7 * records) / 8));
      for (const cancel of [false, true]) {
        for (const name of ["n1", "n2"]) {
          const answer = await fetch(`${nodes[2]!.url}/nodes/${name}/drain`, {
            method: "POST",
            body: JSON.stringify({ cancel }),
            headers: { "Content-Type": "application/json" },
          });
          assert.equal(answer.status, 202, await answer.text());
        }
      }
    });
    assert.ok(kills > 0, "somebody led when it was killed");
  });
}
