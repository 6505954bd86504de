import assert from "node:assert/strict";
import * as os from "node:os";
import test from "node:test";
import { resolved, sentToServer } from "../src/settings";

test("only what somebody set is sent, so that a project's own file is not outweighed by defaults", () => {
  const given: Record<string, unknown> = { std: "c++20", target: null, checkOnType: false };
  const names = ["std", "target", "checkOnType", "seed"];
  const sent = sentToServer(names, (name) => ({ value: given[name], given: name in given }), "/w");
  assert.deepEqual(sent, { std: "c++20", checkOnType: false });
});

test("the extension's own settings are not sent", () => {
  const names = ["interpreter", "importStrategy", "path", "logLevel", "trace.server", "backend"];
  assert.deepEqual(sentToServer(names, () => ({ value: "x", given: true }), "/w"), { backend: "x" });
});

test("paths count from the workspace folder, and know the editor's variables", () => {
  const values: Record<string, unknown> = { includePaths: ["include", "/usr/x", "${workspaceFolder}/y"], build: "build" };
  const sent = sentToServer(["includePaths", "build"], (name) => ({ value: values[name], given: true }), "/w");
  assert.deepEqual(sent, { includePaths: ["/w/include", "/usr/x", "/w/y"], build: "/w/build" });
  assert.equal(resolved("~/models", "/w"), `${os.homedir()}/models`);
  assert.equal(resolved("${userHome}/m", undefined), `${os.homedir()}/m`);
  assert.equal(resolved("", "/w"), "");
});

test("beside clangd's extension the compiler's problems are left to it, unless somebody wants them", () => {
  const names = ["compilerProblems", "std"];
  assert.deepEqual(sentToServer(names, () => ({ value: true, given: false }), "/w", true), { compilerProblems: false });
  assert.deepEqual(sentToServer(names, (name) => ({ value: true, given: name === "compilerProblems" }), "/w", true), {
    compilerProblems: true,
  });
  assert.deepEqual(sentToServer(names, () => ({ value: true, given: false }), "/w"), {});
});
