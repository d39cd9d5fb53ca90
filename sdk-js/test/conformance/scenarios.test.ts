import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { Player, type Scenario } from "./player.js";

const folder = "../e2e/conformance/scenarios";
const files = readdirSync(folder).filter((name) => name.endsWith(".json"));

test("there are scripts to play", () => assert.ok(files.length >= 20));

for (const file of files) {
  const scenario = JSON.parse(readFileSync(`${folder}/${file}`, "utf8")) as Scenario;
  test(`${file}: ${scenario.says}`, async (t) => {
    for (let seed = 1; seed <= 10; seed++) await new Player(t, scenario, seed).play();
  });
}
