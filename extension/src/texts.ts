/** Edits of the protocol applied to a text: positions count lines and UTF-16 units, as strings here do. */

export interface Place {
  line: number;
  character: number;
}

export interface Change {
  range: { start: Place; end: Place };
  newText: string;
}

/** The text after all changes, each of which names places of the text before any. */
export function changed(text: string, changes: readonly Change[]): string {
  const starts = lineStarts(text);
  const offset = (place: Place): number => {
    const start = starts[place.line];
    if (start === undefined) {
      return text.length;
    }
    const end = starts[place.line + 1] ?? text.length;
    return Math.min(start + place.character, end);
  };
  const placed = changes
    .map((one, index) => ({ from: offset(one.range.start), to: offset(one.range.end), text: one.newText, index }))
    .sort((a, b) => a.from - b.from || a.index - b.index);
  let made = "";
  let done = 0;
  for (const one of placed) {
    made += text.slice(done, one.from) + one.text;
    done = one.to;
  }
  return made + text.slice(done);
}

function lineStarts(text: string): number[] {
  const starts = [0];
  for (const match of text.matchAll(/\r\n|\r|\n/g)) {
    starts.push(match.index + match[0].length);
  }
  return starts;
}
