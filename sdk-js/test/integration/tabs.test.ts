import assert from "node:assert/strict";
import { test } from "node:test";
import type { Message } from "../../src/types.js";
import { openBrowser, type Page } from "./chromium.js";
import { startNode } from "./node.js";
import { browserSdk, visitor } from "./page.js";
import { clientOf } from "./world.js";

test("tabs share one connection, and go on without the one that had it", { timeout: 180_000 }, async (t) => {
  const node = await startNode(t);
  await node.createTopic("orders", { partitions: 4 });
  const browser = await openBrowser(t);
  if (!browser) return;
  const sdk = browserSdk();
  const open = async () => {
    const page = await browser.open(node.url);
    await page.evaluate(sdk);
    await page.evaluate(visitor);
    await page.evaluate(`begin("${node.url}", { use: [tidewire.sharedTabs()] })`);
    return page;
  };
  const connections = async () => {
    const answer = await fetch(`${node.url}/connections/`);
    const { connections } = (await answer.json()) as { connections: Array<{ transport: string }> };
    return connections.filter((c) => c.transport === "websocket").length;
  };
  let published = 0;
  /** All of these publish, while something happens; afterwards all have seen everything. */
  const busy = async (pages: Page[], happen: () => Promise<unknown>) => {
    const sent = pages.map((page, i) => page.evaluate(`publish("${"abcdef"[i]}", ${published}, 200)`));
    await happen();
    await Promise.all(sent);
    published += 200 * pages.length;
    for (const page of pages) assert.equal(await page.evaluate(`saw(${published})`), published);
    assert.equal(await connections(), 1);
  };

  const [a, b, c] = [await open(), await open(), await open()];
  await busy([a, b, c], async () => {});
  await busy([b, c], () => a.close());
  const d = await open();
  await busy([c, d], () => b.crash());
  // One that is frozen holds the connection and does nothing: whoever opens takes the lead.
  await c.freeze(true);
  const e = await open();
  await d.evaluate(`saw(${published})`);
  await c.freeze(false);
  await busy([c, d, e], async () => {});

  const reader = await clientOf(t, node);
  const log: Message[] = [];
  for await (const m of reader.history("orders")) log.push(m);
  assert.equal(log.length, published, "every publish is in the log once");
  const places = log.map((m) => `${m.partition}:${m.offset}`).toSorted();
  for (const page of [c, d, e]) {
    assert.deepEqual((await page.evaluate<string[]>("seen")).toSorted(), places, "each tab saw the log, once");
    assert.deepEqual(await page.evaluate("[gaps.length, unheard.length]"), [0, 0]);
  }
  for (const key of new Set(log.map((m) => m.key))) {
    const ofKey = log.filter((m) => m.key === key).map((m) => (m.value as { n: number }).n);
    assert.deepEqual(
      ofKey,
      ofKey.toSorted((x, y) => x - y),
      `the order of ${key}`,
    );
  }
  await c.evaluate("tide.close()");
  await busy([d, e], async () => {});
  for (const page of [d, e]) await page.evaluate("tide.close()");
  while ((await connections()) > 1); // the reader's
});
