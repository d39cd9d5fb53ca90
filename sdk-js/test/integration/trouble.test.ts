import assert from "node:assert/strict";
import { test } from "node:test";
import type { Message, TransportName } from "../../src/types.js";
import { openPage } from "./chromium.js";
import { startNode } from "./node.js";
import { browserSdk, visitor } from "./page.js";
import { startProxy } from "./proxy.js";
import { clientOf } from "./world.js";

const blocked = "class { constructor() { setTimeout(() => this.onclose({ code: 1006, reason: '' })); } close() {} }";
const options: Record<TransportName, string> = {
  websocket: "{}",
  sse: `{ use: [tidewire.sse()], WebSocket: ${blocked} }`,
  poll: `{ use: [tidewire.poll()], WebSocket: ${blocked} }`,
};

for (const transport of ["websocket", "sse", "poll"] satisfies TransportName[]) {
  test(`a page loses and doubles nothing over ${transport}, whatever becomes of its node, its line and itself`, {
    timeout: 120_000,
  }, async (t) => {
    const node = await startNode(t);
    await node.createTopic("orders", { partitions: 4 });
    const proxy = await startProxy(t, () => node.url);
    const page = await openPage(t, proxy.url);
    if (!page) return;
    await page.evaluate(browserSdk());
    await page.evaluate(visitor);
    await page.evaluate(`begin("${proxy.url}", ${options[transport]})`);
    const restart = async () => {
      await node.kill();
      await node.start();
    };
    const troubles: Array<() => unknown> = [
      proxy.cut,
      restart,
      async () => {
        proxy.refuse(true);
        proxy.cut();
        await restart();
        proxy.refuse(false);
      },
      async () => {
        await page.freeze(true); // nothing runs in it, and all that it had is gone when it wakes
        await restart();
        proxy.cut();
        await page.freeze(false);
      },
    ];
    let published = 0;
    for (const trouble of troubles) {
      const sent = page.evaluate(`publish("a", ${published}, 200)`);
      await trouble();
      await sent;
      published += 200;
    }
    assert.equal(await page.evaluate(`saw(${published})`), published);
    assert.equal(await page.evaluate("tide.transport"), transport);

    const reader = await clientOf(t, node);
    const log: Message[] = [];
    for await (const m of reader.history("orders")) log.push(m);
    assert.equal(log.length, published, "every publish is in the log once");
    const places = log.map((m) => `${m.partition}:${m.offset}`).toSorted();
    assert.deepEqual((await page.evaluate<string[]>("seen")).toSorted(), places, "the page saw the log, once");
    for (const key of new Set(log.map((m) => m.key))) {
      const ofKey = log.filter((m) => m.key === key).map((m) => (m.value as { n: number }).n);
      assert.deepEqual(
        ofKey,
        ofKey.toSorted((x, y) => x - y),
        `the order of ${key}`,
      );
    }
    assert.deepEqual(await page.evaluate("[gaps.length, unheard.length]"), [0, 0]);
    await page.evaluate("tide.close()");
  });
}
