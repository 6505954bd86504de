import assert from "node:assert/strict";
import test from "node:test";
import { ago, correctness, objectiveWords, resourceWords, speedupWords, standing, timeWords, type Verdict } from "../src/words";

const CLEAN: Verdict = {
  kernel: "k", instance: null, backend: "emulator", target: "H100 SXM", compiled: true, correct: true, accepted: true,
  reasons: [], trade_offs: [], diagnostics: [], findings: [], cases: [{ correct: true }, { correct: false }, { correct: null }],
  resources: { registers: 32, shared_bytes: 8192, dynamic_shared_bytes: 1024, local_bytes: 0 },
  occupancy: { theoretical: 0.75, limiter: "shared_memory" },
  timing: { kind: "predicted", median_us: 3.7214, ci95_us: null },
  speedup: { kind: "predicted", median: 1.4, ci95: null, weighted: false },
  counters: null,
  objective: { name: "shared_bytes", basis: "counted", before: 16384, after: 8192, met: true, weighted: false },
};

test("what is predicted is never worded as measured", () => {
  assert.equal(timeWords(CLEAN), "~3.72 us predicted");
  assert.equal(speedupWords(CLEAN), "~1.40x predicted");
  const measured: Verdict = {
    ...CLEAN,
    timing: { kind: "measured", median_us: 12.1, ci95_us: [12, 12.2] },
    speedup: { kind: "measured", median: 1.42, ci95: [1.4, 1.44], weighted: false },
  };
  assert.equal(timeWords(measured), "12.1 us measured [12.0, 12.2]");
  assert.equal(speedupWords(measured), "1.42x [1.40, 1.44]");
});

test("what the contract's weights decide is said", () => {
  const predicted = { kind: "predicted", median: 1.4, ci95: null, weighted: true };
  const measured = { kind: "measured", median: 1.42, ci95: [1.4, 1.44] as [number, number], weighted: true };
  assert.equal(speedupWords({ ...CLEAN, speedup: predicted }), "~1.40x predicted by weights");
  assert.equal(speedupWords({ ...CLEAN, speedup: measured }), "1.42x [1.40, 1.44] by weights");
  const objective = { name: "time", basis: "measured", before: 12, after: 8, met: true, weighted: true };
  assert.equal(objectiveWords({ ...CLEAN, objective }), "time 12 → 8 (measured, by weights)");
});

test("a verdict's standing", () => {
  assert.deepEqual(standing(CLEAN, false), ["clean", "good"]);
  assert.deepEqual(standing({ ...CLEAN, accepted: false }, true), ["rejected", "bad"]);
  assert.deepEqual(standing({ ...CLEAN, compiled: false }, true), ["does not compile", "bad"]);
  assert.deepEqual(standing({ ...CLEAN, accepted: null }, true), ["promising, confirm on a GPU", "doubt"]);
  assert.deepEqual(standing({ ...CLEAN, accepted: null, objective: null }, true), ["not settled", "doubt"]);
});

test("counts and resources", () => {
  assert.equal(correctness(CLEAN), "right at 1 of 2 sizes");
  assert.equal(correctness({ ...CLEAN, cases: [] }), "not known");
  assert.equal(resourceWords(CLEAN), "32 regs, 9,216 B shared");
  assert.equal(objectiveWords(CLEAN), "shared bytes 16,384 → 8,192 (counted)");
});

test("what is not known is left out", () => {
  const bare: Verdict = { ...CLEAN, resources: null, timing: null, speedup: null, objective: null };
  assert.deepEqual([resourceWords(bare), timeWords(bare), speedupWords(bare), objectiveWords(bare)], ["", "", "", ""]);
});

test("how long ago", () => {
  assert.deepEqual([0, 59, 60, 7200, 200_000].map((seconds) => ago(1000, 1000 + seconds)), [
    "just now", "just now", "1 min ago", "2 h ago", "2 d ago",
  ]);
});
