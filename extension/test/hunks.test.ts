import assert from "node:assert/strict";
import test from "node:test";
import { type Hunk, hunkAt, hunksOf, linesOf, withHunk, withoutHunk } from "../src/hunks";

const BEFORE = "a\nb\nc\nd\ne\nf\n";

function applied(before: string, after: string, hunks: Hunk[]): string {
  return [...hunks].reverse().reduce((text, hunk) => withHunk(text, after, { ...hunk }), before);
}

/** A generator of numbers that is the same in every run. */
function numbers(seed: number): () => number {
  let state = seed;
  return () => (state = (state * 1_103_515_245 + 12_345) % 2_147_483_648) / 2_147_483_648;
}

test("equal texts have no hunks", () => {
  assert.deepEqual(hunksOf(BEFORE, BEFORE), []);
  assert.deepEqual(hunksOf("", ""), []);
});

test("a changed line is one hunk", () => {
  assert.deepEqual(hunksOf(BEFORE, "a\nb\nX\nd\ne\nf\n"), [{ before: 2, beforeEnd: 3, after: 2, afterEnd: 3 }]);
});

test("insertions and deletions are hunks of their own", () => {
  assert.deepEqual(hunksOf(BEFORE, "a\nX\nb\nc\nd\nf\n"), [
    { before: 1, beforeEnd: 1, after: 1, afterEnd: 2 },
    { before: 4, beforeEnd: 5, after: 5, afterEnd: 5 },
  ]);
});

test("line ends and a missing last one are kept", () => {
  assert.deepEqual(linesOf("a\r\nb\rc\nd"), ["a\r\n", "b\r", "c\n", "d"]);
  const after = "a\r\nB\rc\nd\n";
  assert.equal(applied("a\r\nb\rc\nd", after, hunksOf("a\r\nb\rc\nd", after)), after);
});

test("hunks turn any text into any other, and leave out what is equal", () => {
  const random = numbers(7);
  for (let round = 0; round < 300; round++) {
    const [before, after] = [0, 1].map(() =>
      Array.from({ length: Math.floor(random() * 12) }, () => `${"abc"[Math.floor(random() * 3)]}\n`).join(""),
    ) as [string, string];
    const hunks = hunksOf(before, after);
    assert.equal(applied(before, after, hunks), after);
    const [old, now] = [linesOf(before), linesOf(after)];
    let [i, j] = [0, 0];
    for (const hunk of hunks) {
      assert.deepEqual(old.slice(i, hunk.before), now.slice(j, hunk.after));
      assert.ok(hunk.before < hunk.beforeEnd || hunk.after < hunk.afterEnd);
      [i, j] = [hunk.beforeEnd, hunk.afterEnd];
    }
    assert.deepEqual(old.slice(i), now.slice(j));
  }
});

test("taking a hunk and putting it back are opposites", () => {
  const after = "a\nX\nc\nd\nY\nZ\nf\n";
  const [first, second] = hunksOf(BEFORE, after) as [Hunk, Hunk];
  assert.equal(withHunk(BEFORE, after, first), "a\nX\nc\nd\ne\nf\n");
  assert.equal(withoutHunk(BEFORE, after, second), "a\nX\nc\nd\ne\nf\n");
  assert.equal(withoutHunk(BEFORE, withoutHunk(BEFORE, after, second), first), BEFORE);
});

test("a long text with few changes is compared at once", () => {
  const lines = Array.from({ length: 20_000 }, (_, index) => `line ${index}\n`);
  const after = [...lines];
  after[10] = "changed\n";
  after.splice(15_000, 2);
  assert.equal(hunksOf(lines.join(""), after.join("")).length, 2);
});

test("a place names the hunk that it is in, and a deletion from either side of its gap", () => {
  const hunks = hunksOf(BEFORE, "a\nX\nc\nf\n");
  assert.equal(hunkAt(hunks, 1), hunks[0]);
  assert.equal(hunkAt(hunks, 0), undefined);
  assert.equal(hunkAt(hunks, 2), hunks[1]);
  assert.equal(hunkAt(hunks, 3), hunks[1]);
});
