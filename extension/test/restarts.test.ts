import assert from "node:assert/strict";
import test from "node:test";
import { Restarts } from "../src/restarts";

test("a server that dies now and then is started again, and that is said each time", () => {
  const restarts = new Restarts(4, 1000);
  for (let at = 0; at < 20_000; at += 2000) {
    assert.deepEqual(restarts.died(at), { restart: true, tell: true });
  }
});

test("one that keeps dying is started four times, which is said once, and given up, which is said too", () => {
  const restarts = new Restarts(4, 1000);
  const answers = [0, 1, 2, 3, 4].map((at) => restarts.died(at));
  assert.deepEqual(answers.map((one) => one.restart), [true, true, true, true, false]);
  assert.deepEqual(answers.map((one) => one.tell), [true, false, false, false, true]);
});

test("a restart by the user begins anew", () => {
  const restarts = new Restarts(1, 1000);
  assert.equal(restarts.died(0).restart, true);
  assert.equal(restarts.died(1).restart, false);
  restarts.forget();
  assert.deepEqual(restarts.died(2), { restart: true, tell: true });
});
