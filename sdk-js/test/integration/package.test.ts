import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { test } from "node:test";

const entries = {
  tidewire: "createClient",
  "tidewire/full": "createClient",
  "tidewire/react": "useSubscription",
  "tidewire/testing": "fakeServer",
};

for (const [entry, name] of Object.entries(entries)) {
  test(`what is built of ${entry} loads, as ESM and as CommonJS`, async () => {
    const require = createRequire(import.meta.url);
    assert.equal(typeof require(entry)[name], "function");
    assert.equal(typeof (await import(entry))[name], "function");
  });
}

test("entry points share their modules: an error of one is an error of the other", async () => {
  const [main, full] = [await import("tidewire" as string), await import("tidewire/full" as string)];
  assert.equal(main.TidewireError, full.TidewireError);
});
