import assert from "node:assert/strict";
import test from "node:test";
import { CHIPS, choices, remembered } from "../src/prompts";

test("earlier prompts come first, the usual ones once", () => {
  const shown = choices("", ["at most 32 registers", "Make it faster"]).map((one) => one.label);
  assert.deepEqual(shown, ["at most 32 registers", ...CHIPS.map((one) => one.label)]);
});

test("what is typed is what Enter takes", () => {
  const shown = choices(" faster, without atomics ", ["at most 32 registers"]);
  assert.deepEqual(shown.slice(0, 2).map((one) => one.label), ["faster, without atomics", "at most 32 registers"]);
  assert.equal(shown[0]?.alwaysShow, true);
  assert.equal(choices("at most 32 registers", ["at most 32 registers"]).filter((one) => one.label === "at most 32 registers").length, 1);
});

test("a prompt is kept once, and no more than ten are", () => {
  assert.deepEqual(remembered("b", ["a", "b", "c"]), ["b", "a", "c"]);
  const many = Array.from({ length: 20 }, (_, index) => `${index}`);
  assert.equal(many.reduce<string[]>((kept, one) => remembered(one, kept), []).length, 10);
});
