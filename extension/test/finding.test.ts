import assert from "node:assert/strict";
import test from "node:test";
import { findServer, type Launch, type Looker, type Missing, type Probed, quoted, type Wanted } from "../src/finding";

const GOOD: Probed = { python: "3.12.1", kernelmate: "0.1.0", pygls: true };
const NOTHING: Wanted = { path: [], interpreter: [], selected: undefined, importStrategy: "fromEnvironment" };

interface Machine {
  files?: string[];
  onPath?: Record<string, string>;
  pythons?: Record<string, Probed>;
}

function look(machine: Machine): Looker & { probed: string[] } {
  const probed: string[] = [];
  return {
    probed,
    exists: (path) => (machine.files ?? []).includes(path),
    which: (name) => machine.onPath?.[name],
    probe: (interpreter) => {
      probed.push(interpreter.join(" "));
      return Promise.resolve(machine.pythons?.[interpreter[0] ?? ""]);
    },
  };
}

function launched(found: Launch | Missing): string {
  assert.ok("command" in found, "message" in found ? found.message : "");
  return [found.command, ...found.args].join(" ");
}

function missing(found: Launch | Missing): Missing {
  assert.ok("message" in found);
  return found;
}

test("the interpreter of the settings wins over the selected one and PATH", async () => {
  const machine = look({ onPath: { python3: "/usr/bin/python3" }, pythons: { "/a/python": GOOD, "/s/python": GOOD } });
  const found = await findServer({ ...NOTHING, interpreter: ["/a/python", "-X", "dev"], selected: "/s/python" }, machine);
  assert.equal(launched(found), "/a/python -X dev -P -m kernelmate_lsp");
  assert.deepEqual(machine.probed, ["/a/python -X dev"]);
});

test("without a setting the selected one is taken, else the first on PATH that has KernelMate", async () => {
  const pythons = { "/s/python": GOOD, "/usr/bin/python3": { ...GOOD, kernelmate: null }, "/usr/bin/python": GOOD };
  const machine = { onPath: { python3: "/usr/bin/python3", python: "/usr/bin/python" }, pythons };
  assert.equal(launched(await findServer({ ...NOTHING, selected: "/s/python" }, look(machine))), "/s/python -P -m kernelmate_lsp");
  assert.equal(launched(await findServer(NOTHING, look(machine))), "/usr/bin/python -P -m kernelmate_lsp");
});

test("no module is ever taken from the folder that the server is started in", async () => {
  const found = await findServer({ ...NOTHING, interpreter: ["/a/python"] }, look({ pythons: { "/a/python": GOOD } }));
  assert.ok("args" in found && found.args.includes("-P"));
});

test("an interpreter without KernelMate is told what to run, quoted for a shell", async () => {
  const pythons = { "/my envs/python": { ...GOOD, kernelmate: null } };
  const found = missing(await findServer({ ...NOTHING, interpreter: ["/my envs/python"] }, look({ pythons })));
  assert.equal(found.install, "'/my envs/python' -m pip install 'kernelmate[lsp,report]'");
  assert.match(found.message, /not installed for \/my envs\/python \(Python 3\.12\.1\)\. Run: /);
});

test("a package without the server's dependency is told so", async () => {
  const pythons = { "/a/python": { ...GOOD, pygls: false } };
  const found = missing(await findServer({ ...NOTHING, interpreter: ["/a/python"] }, look({ pythons })));
  assert.match(found.message, /without its language server/);
});

test("an interpreter that is too old or cannot be run is named", async () => {
  const pythons = { "/old/python": { ...GOOD, python: "3.10.14" } };
  const old = missing(await findServer({ ...NOTHING, interpreter: ["/old/python"] }, look({ pythons })));
  assert.match(old.message, /is Python 3\.10\.14, and KernelMate needs 3\.11/);
  const none = missing(await findServer({ ...NOTHING, interpreter: ["/no/python"] }, look({ pythons })));
  assert.match(none.message, /\/no\/python cannot be run/);
});

test("kernelmate-lsp on PATH is the way out, or the first way where the settings say so", async () => {
  const onPath = { "kernelmate-lsp": "/pipx/kernelmate-lsp", python3: "/usr/bin/python3" };
  const without = look({ onPath, pythons: { "/usr/bin/python3": { ...GOOD, kernelmate: null } } });
  assert.equal(launched(await findServer(NOTHING, without)), "/pipx/kernelmate-lsp");
  const both = look({ onPath, pythons: { "/usr/bin/python3": GOOD } });
  assert.equal(launched(await findServer(NOTHING, both)), "/usr/bin/python3 -P -m kernelmate_lsp");
  assert.equal(launched(await findServer({ ...NOTHING, importStrategy: "fromPath" }, both)), "/pipx/kernelmate-lsp");
});

test("a chosen interpreter is not passed over in silence", async () => {
  const machine = look({ onPath: { "kernelmate-lsp": "/pipx/kernelmate-lsp" }, pythons: {} });
  missing(await findServer({ ...NOTHING, interpreter: ["/a/python"] }, machine));
});

test("a path is taken as it is, and one that is not there is told", async () => {
  const machine = look({ files: ["/b/kernelmate-lsp"] });
  assert.equal(launched(await findServer({ ...NOTHING, path: ["/a/x", "/b/kernelmate-lsp"] }, machine)), "/b/kernelmate-lsp");
  assert.match(missing(await findServer({ ...NOTHING, path: ["/a/x"] }, machine)).message, /names no file that exists: \/a\/x/);
});

test("words are quoted where a shell would read them otherwise", () => {
  assert.equal(quoted("/usr/bin/python3"), "/usr/bin/python3");
  assert.equal(quoted("a'b $c"), `'a'\\''b $c'`);
});
