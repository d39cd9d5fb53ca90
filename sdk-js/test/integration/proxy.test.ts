import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, connect, createServer } from "node:net";
import { test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { startProxy } from "./proxy.js";

test("nothing overtakes what came before it on a line whose delay becomes shorter", async (t) => {
  let got = "";
  let arrived = () => {};
  const all = new Promise<void>((resolve) => {
    arrived = resolve;
  });
  const server = createServer((socket) =>
    socket.on("data", (chunk) => {
      got += chunk;
      if (got.endsWith(".")) arrived();
    }),
  ).listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => server.close());
  const proxy = await startProxy(t, () => `http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  const { hostname, port } = new URL(proxy.url);
  const line = connect(Number(port), hostname).setNoDelay(true);
  t.after(() => line.destroy());
  let sent = "";
  for (const delayMs of [0, 60, 0, 30, 10, 0]) {
    proxy.delay(delayMs);
    for (let i = 0; i < 10; i++) {
      const word = `${delayMs}:${i} `;
      sent += word;
      line.write(word);
      await pause(2); // else several are one chunk
    }
  }
  line.write(".");
  await all;
  assert.equal(got, `${sent}.`);
});
