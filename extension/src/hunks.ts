/** Differences of two texts by whole lines, as few and as small as there can be. */

/** Lines `[before, beforeEnd)` of the old text, which are lines `[after, afterEnd)` of the new one; from 0. */
export interface Hunk {
  before: number;
  beforeEnd: number;
  after: number;
  afterEnd: number;
}

/** A text in lines, each with its line end. */
export function linesOf(text: string): string[] {
  return text.match(/[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+$/g) ?? [];
}

/** What turns one text into another, in order of position. */
export function hunksOf(before: string, after: string): Hunk[] {
  const old = linesOf(before);
  const now = linesOf(after);
  let head = 0;
  while (head < old.length && head < now.length && old[head] === now[head]) {
    head++;
  }
  let tail = 0;
  while (tail < old.length - head && tail < now.length - head && old.at(-1 - tail) === now.at(-1 - tail)) {
    tail++;
  }
  const kept = common(old.slice(head, old.length - tail), now.slice(head, now.length - tail));
  const found: Hunk[] = [];
  let [before_, after_] = [head, head];
  for (const [i, j] of [...kept, [old.length - tail - head, now.length - tail - head] as const]) {
    const [a, b] = [i + head, j + head];
    if (before_ < a || after_ < b) {
      found.push({ before: before_, beforeEnd: a, after: after_, afterEnd: b });
    }
    [before_, after_] = [a + 1, b + 1];
  }
  return found;
}

/** Pairs of equal lines of a longest common subsequence (E. Myers, An O(ND) Difference Algorithm, 1986). */
function common(old: string[], now: string[]): Array<readonly [number, number]> {
  const reach = old.length + now.length;
  const trail: Map<number, number>[] = [];
  let furthest = new Map<number, number>([[1, 0]]);
  for (let edits = 0; edits <= reach; edits++) {
    trail.push(new Map(furthest));
    for (let diagonal = -edits; diagonal <= edits; diagonal += 2) {
      let x = step(furthest, edits, diagonal);
      let y = x - diagonal;
      while (x < old.length && y < now.length && old[x] === now[y]) {
        x++;
        y++;
      }
      furthest.set(diagonal, x);
      if (x >= old.length && y >= now.length) {
        return traced(trail, old.length, now.length);
      }
    }
    furthest = new Map(furthest);
  }
  return [];
}

/** Where a path on a diagonal begins: by an insertion from the diagonal above, else a deletion from the one below. */
function step(furthest: Map<number, number>, edits: number, diagonal: number): number {
  const down = furthest.get(diagonal + 1) ?? -1;
  const right = furthest.get(diagonal - 1) ?? -1;
  return diagonal === -edits || (diagonal !== edits && right < down) ? down : right + 1;
}

function traced(trail: Map<number, number>[], oldLength: number, newLength: number): Array<readonly [number, number]> {
  const pairs: Array<readonly [number, number]> = [];
  let [x, y] = [oldLength, newLength];
  for (let edits = trail.length - 1; edits >= 0; edits--) {
    const furthest = trail[edits] as Map<number, number>;
    const diagonal = x - y;
    const start = step(furthest, edits, diagonal);
    while (x > Math.max(start, 0) && y > Math.max(start - diagonal, 0)) {
      x--;
      y--;
      pairs.push([x, y]);
    }
    const down = diagonal === -edits || (diagonal !== edits && (furthest.get(diagonal - 1) ?? -1) < (furthest.get(diagonal + 1) ?? -1));
    [x, y] = down ? [start, start - diagonal - 1] : [start - 1, start - diagonal];
  }
  return pairs.reverse();
}

/** The old text with one hunk taken over from the new one. */
export function withHunk(before: string, after: string, hunk: Hunk): string {
  const old = linesOf(before);
  const taken = linesOf(after).slice(hunk.after, hunk.afterEnd);
  return [...old.slice(0, hunk.before), ...taken, ...old.slice(hunk.beforeEnd)].join("");
}

/** The new text with one hunk put back as it is in the old one. */
export function withoutHunk(before: string, after: string, hunk: Hunk): string {
  const reversed = { before: hunk.after, beforeEnd: hunk.afterEnd, after: hunk.before, afterEnd: hunk.beforeEnd };
  return withHunk(after, before, reversed);
}

/** The hunk at a line of the new text; one that only deletes stands at the line before and after the gap. */
export function hunkAt(hunks: readonly Hunk[], line: number): Hunk | undefined {
  return (
    hunks.find((one) => one.after <= line && line < one.afterEnd) ??
    hunks.find((one) => one.after === one.afterEnd && (one.after === line || one.after - 1 === line))
  );
}
