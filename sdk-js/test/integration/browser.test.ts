import assert from "node:assert/strict";
import { test } from "node:test";
import { openPage } from "./chromium.js";
import { sharedNode } from "./node.js";
import { browserSdk } from "./page.js";

const node = sharedNode();

// What runs in the page: it publishes and reads by one transport, and says what it saw.
const visit = `async (transport, url, topic) => {
  class Blocked { constructor() { setTimeout(() => this.onclose({ code: 1006, reason: "" })); } close() {} }
  const use = { websocket: [], sse: [tidewire.sse()], poll: [tidewire.poll()] }[transport];
  const WebSocket = transport === "websocket" ? undefined : Blocked;
  const cursors = tidewire.webStorage();
  const tide = tidewire.createClient({ url, use, WebSocket, cursors });
  const sub = tide.subscribe(topic, { from: "earliest", name: topic });
  const values = [{ n: 1 }, "ä€😀", new Uint8Array([0, 255])];
  for (const value of values) await tide.publish(topic, value, { key: "k" });
  const seen = [];
  for await (const m of sub) {
    seen.push(m.value instanceof Uint8Array ? [...m.value] : m.value);
    if (seen.length === values.length) break;
  }
  const used = tide.transport;
  await tide.close();
  return { seen, used, stored: localStorage.getItem("tidewire:" + topic) === sub.cursor, state: tide.state };
}`;

test("a browser publishes, reads and stores its cursors by every transport", { timeout: 120_000 }, async (t) => {
  const page = await openPage(t, node.url);
  if (!page) return;
  // The page's own rules about scripts stand: the code comes over the debugger.
  await page.evaluate(browserSdk());
  for (const transport of ["websocket", "sse", "poll"]) {
    await node.createTopic(`orders-${transport}`, { partitions: 2 });
    const call = `(${visit})("${transport}", "${node.url}", "orders-${transport}")`;
    assert.deepEqual(await page.evaluate(call), {
      seen: [{ n: 1 }, "ä€😀", [0, 255]],
      used: transport,
      stored: true,
      state: "closed",
    });
  }
});
