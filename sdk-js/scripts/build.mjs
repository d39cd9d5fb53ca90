// Builds dist/: each module once as ESM and once as CommonJS, with types beside both.
// Nothing is bundled, so the entry points share their modules, and a user's bundler drops
// what is not used. The SDK's own properties have short names, the same in all modules;
// source maps tell the long ones.
import { spawnSync } from "node:child_process";
import { copyFileSync, rmSync, writeFileSync } from "node:fs";
import { buildSync } from "esbuild";
import { internals } from "./internals.mjs";

rmSync("dist", { recursive: true, force: true });

for (const format of ["esm", "cjs"]) {
  const outdir = `dist/${format}`;
  const { status } = spawnSync("node_modules/.bin/tsc", ["-p", "tsconfig.build.json", "--outDir", outdir], {
    stdio: "inherit",
  });
  if (status !== 0) process.exit(status ?? 1);
  const { mangleCache } = buildSync({
    entryPoints: ["src/**/*.ts"],
    outdir,
    format,
    target: "es2022",
    sourcemap: true,
    logLevel: "warning",
    ...internals,
  });
  internals.mangleCache = mangleCache; // the next format has the same names
}
copyFileSync("../LICENSE", "LICENSE"); // a package carries its own
writeFileSync("dist/cjs/package.json", '{ "type": "commonjs", "sideEffects": false }\n');
