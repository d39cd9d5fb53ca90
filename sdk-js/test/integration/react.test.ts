import assert from "node:assert/strict";
import { test } from "node:test";
import { openPage } from "./chromium.js";
import { startNode } from "./node.js";
import { browserScript } from "./page.js";

const app = `
import { createRoot } from "react-dom/client";
import { StrictMode } from "react";
import { createClient } from "tidewire";
import { TidewireProvider, useConnection, usePublish, useSubscription } from "tidewire/react";

function Orders() {
  const { messages, status } = useSubscription("orders", { from: "earliest", keep: 1000 });
  const { state } = useConnection();
  const publish = usePublish("orders");
  return <button id="orders" title={state + " " + status} onClick={() => publish(messages.length, { key: "k" })}>
    {messages.map((m) => m.value).join()}
  </button>;
}

export function start(url) {
  const tide = createClient({ url, reconnect: { minDelayMs: 20, maxDelayMs: 200 } });
  const host = document.body.appendChild(document.createElement("div"));
  const root = createRoot(host);
  root.render(<StrictMode><TidewireProvider client={tide}><Orders /></TidewireProvider></StrictMode>);
  const button = () => document.getElementById("orders");
  return {
    click: () => button().click(),
    shows: (what) => new Promise((resolve) => {
      const look = () => {
        const now = button() && button().title + ": " + button().textContent;
        if (now !== what) return;
        observer.disconnect();
        resolve(now);
      };
      const observer = new MutationObserver(look);
      observer.observe(document.body, { subtree: true, childList: true, characterData: true, attributes: true });
      look();
    }),
    async stop() {
      root.unmount();
      await tide.close();
      return document.getElementById("orders") === null;
    },
  };
}`;

test("a component in a browser shows each record once, through a kill of the node", { timeout: 120_000 }, async (t) => {
  const node = await startNode(t);
  await node.createTopic("orders", { partitions: 1 });
  const page = await openPage(t, node.url);
  if (!page) return;
  await page.evaluate(browserScript(app, "app"));
  await page.evaluate(`globalThis.view = app.start("${node.url}"); 0`);
  const shows = (what: string) => page.evaluate(`view.shows("${what}")`);
  await shows("connected catching-up: ");
  for (const list of ["0", "0,1", "0,1,2"]) {
    await page.evaluate("view.click()");
    await shows(`connected catching-up: ${list}`);
  }
  await node.kill();
  await page.evaluate("view.click()"); // without a node
  await node.start();
  await shows("connected catching-up: 0,1,2,3");
  assert.equal(await page.evaluate("view.stop()"), true);
});
