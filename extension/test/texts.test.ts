import assert from "node:assert/strict";
import test from "node:test";
import { type Change, changed } from "../src/texts";

function change(fromLine: number, from: number, toLine: number, to: number, newText: string): Change {
  return { range: { start: { line: fromLine, character: from }, end: { line: toLine, character: to } }, newText };
}

test("changes name places of the text before any of them", () => {
  const made = changed("one\ntwo\nthree\n", [change(2, 0, 3, 0, ""), change(0, 0, 0, 3, "ONE"), change(1, 0, 1, 0, "x\n")]);
  assert.equal(made, "ONE\nx\ntwo\n");
});

test("insertions at one place stay in their order", () => {
  assert.equal(changed("ab", [change(0, 1, 0, 1, "1"), change(0, 1, 0, 1, "2")]), "a12b");
});

test("columns count UTF-16 units, lines end as the protocol says", () => {
  assert.equal(changed("// 🚀 x\r\nb\rc", [change(0, 5, 0, 6, "-"), change(2, 0, 2, 1, "C")]), "// 🚀-x\r\nb\rC");
});

test("a place after the end is the end", () => {
  assert.equal(changed("a\n", [change(1, 0, 9, 0, "b\n")]), "a\nb\n");
  assert.equal(changed("a\nb", [change(0, 0, 0, 99, "")]), "b");
});
