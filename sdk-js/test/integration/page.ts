import { buildSync } from "esbuild";

/** A module as a script that makes its exports a global; pages have the SDK as `tidewire`. */
export const browserScript = (contents: string, globalName: string): string => {
  const { outputFiles } = buildSync({
    stdin: { contents, resolveDir: ".", loader: "tsx" },
    bundle: true,
    write: false,
    format: "iife",
    globalName,
    target: "es2022",
    jsx: "automatic",
    define: { "process.env.NODE_ENV": '"production"' },
  });
  return `${outputFiles[0]!.text}; globalThis.${globalName} = ${globalName}; 0`;
};

export const browserSdk = (): string => browserScript('export * from "./src/index.js"', "tidewire");
