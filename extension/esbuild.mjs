// Bundles the extension, its web views and, with --tests, the unit tests; everything lands in dist/, which is not kept.
import { build } from "esbuild";
import { cpSync, mkdirSync, readdirSync, rmSync } from "node:fs";

const tests = process.argv.includes("--tests");
const common = { bundle: true, logLevel: "warning", target: "es2022", legalComments: "linked" };

if (tests) {
  rmSync("dist/test", { recursive: true, force: true });
  await build({
    ...common,
    entryPoints: readdirSync("test").map((name) => `test/${name}`),
    outdir: "dist/test",
    platform: "node",
    format: "cjs",
    outExtension: { ".js": ".cjs" },
    sourcemap: "inline",
  });
} else {
  rmSync("dist", { recursive: true, force: true });
  mkdirSync("dist");
  await Promise.all([
    build({
      ...common,
      entryPoints: ["src/extension.ts"],
      outfile: "dist/extension.js",
      platform: "node",
      format: "cjs",
      external: ["vscode"],
      minify: true,
    }),
    build({
      ...common,
      entryPoints: ["webview/results.ts", "webview/consent.ts"],
      outdir: "dist",
      platform: "browser",
      format: "iife",
      minify: true,
    }),
  ]);
  cpSync("webview/view.css", "dist/view.css");
  cpSync("node_modules/plotly.js-cartesian-dist-min/plotly-cartesian.min.js", "dist/plotly.js");
  cpSync("node_modules/plotly.js-cartesian-dist-min/LICENSE", "dist/plotly.LICENSE.txt");
  cpSync("../LICENSE", "LICENSE");
}
