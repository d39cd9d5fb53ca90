import assert from "node:assert/strict";
import { test } from "node:test";
import { openBrowser } from "./chromium.js";
import { sharedNode } from "./node.js";
import { browserSdk } from "./page.js";
import { clientOf, counter } from "./world.js";

const node = sharedNode();
const sessionMs = 8000;

const begin = (url: string, topic: string) => `new Promise((resolve) => {
  globalThis.worked = [];
  globalThis.tide = tidewire.createClient({ url: "${url}", use: [tidewire.worker()] });
  const work = async (item) => {
    worked.push(item.value);
    if (item.value % 10 === 9) await new Promise(() => {}); // some are in its hands when it goes
  };
  tide.worker("billing", "${topic}", work, { concurrency: 4 }).on("assigned", (all) => resolve(all.length));
})`;

for (const end of ["close", "crash"] as const) {
  test(`a page and a process share a group; the page that ends by a ${end} hands its part over ${end === "close" ? "at once" : "within the session"}`, {
    timeout: 120_000,
  }, async (t) => {
    const topic = `jobs-${end}`;
    await node.createTopic(topic, { partitions: 4 });
    const answer = await fetch(`${node.url}/groups/${topic}/register`, {
      method: "POST",
      body: JSON.stringify({ group: "billing", session: `${sessionMs}ms`, lease: "3s", backoff: "50ms" }),
      headers: { "Content-Type": "application/json" },
    });
    assert.equal(answer.status, 201, await answer.text());
    const browser = await openBrowser(t);
    if (!browser) return;
    const client = await clientOf(t, node);
    const records = 200;
    const worked = new Set<number>();
    const all = counter(records);
    const done = (n: number) => {
      if (worked.size < worked.add(n).size) all.hit();
    };
    const w = client.worker("billing", topic, ({ value }) => done(Number(value)), { concurrency: 4 });
    const owns = (n: number) =>
      new Promise<void>((resolve) => {
        const look = () => w.assigned.length === n && resolve();
        w.on("assigned", look);
        w.on("revoked", look);
        look();
      });
    const page = await browser.open(node.url);
    await page.evaluate(browserSdk());
    const halved = owns(2);
    await page.evaluate(begin(node.url, topic));
    await halved;

    const publish = (from: number, n: number) =>
      client.publishBatch(
        topic,
        Array.from({ length: n }, (_, i) => ({ value: from + i, key: `k${(from + i) % 8}` })),
      );
    await publish(0, records / 2);
    // What the page is through with is not worked on again by others.
    const theirs = await page.evaluate<number[]>("worked");
    for (const n of theirs) if (n % 10 !== 9) done(n);
    const whole = owns(4);
    const since = performance.now();
    await page[end]();
    await whole;
    const tookMs = performance.now() - since;
    if (end === "close") assert.ok(tookMs < sessionMs / 2, `it took ${tookMs} ms`);
    else assert.ok(tookMs < 2 * sessionMs, `it took ${tookMs} ms`);
    t.diagnostic(`handed over after ${Math.round(tookMs)} ms, of a session of ${sessionMs} ms`);
    await publish(records / 2, records / 2);
    const left = Array.from({ length: records }, (_, i) => i).filter((n) => n >= records / 2 || n % 10 === 9);
    await new Promise<void>((resolve) => {
      const timer = setInterval(() => {
        if (!left.every((n) => worked.has(n))) return;
        clearInterval(timer);
        resolve();
      }, 50);
    });
    await w.stop();
  });
}
