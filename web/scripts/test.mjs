// Runs the tests of the pure parts with Node's own runner, bundled first, for they are TypeScript.
import { spawnSync } from "node:child_process";
import { readdirSync, rmSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { buildSync } from "esbuild";

process.chdir(fileURLToPath(new URL("..", import.meta.url)));
rmSync("build", { recursive: true, force: true });
const names = readdirSync("test").filter((name) => name.endsWith(".test.ts"));
buildSync({
  entryPoints: names.map((name) => `test/${name}`),
  outdir: "build",
  bundle: true,
  platform: "node",
  target: "node20",
  format: "esm",
  sourcemap: "inline",
  outExtension: { ".js": ".mjs" },
  logLevel: "warning",
});
const built = names.map((name) => `build/${name.replace(/\.ts$/, ".mjs")}`);
const { status } = spawnSync(process.execPath, ["--enable-source-maps", "--test", "--test-reporter=spec", ...built], {
  stdio: "inherit",
});
process.exit(status ?? 1);
