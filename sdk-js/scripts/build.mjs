// Builds dist/: each module once as ESM and once as CommonJS, with types beside
// both. Nothing is bundled, so the entry points share their modules, and a user's
// bundler drops what is not used.
import { spawnSync } from "node:child_process";
import { copyFileSync, rmSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { buildSync } from "esbuild";

process.chdir(fileURLToPath(new URL("..", import.meta.url)));
rmSync("dist", { recursive: true, force: true });

const tsc = (...flags) => {
  const { status } = spawnSync("node_modules/.bin/tsc", ["-p", "tsconfig.build.json", ...flags], { stdio: "inherit" });
  if (status !== 0) process.exit(status ?? 1);
};

tsc();
tsc("--emitDeclarationOnly", "--outDir", "dist/cjs");
buildSync({
  entryPoints: ["src/**/*.ts"],
  outdir: "dist/cjs",
  format: "cjs",
  target: "es2022",
  logLevel: "warning",
});
copyFileSync("../LICENSE", "LICENSE"); // a package carries its own
writeFileSync("dist/cjs/package.json", '{ "type": "commonjs", "sideEffects": false }\n');
