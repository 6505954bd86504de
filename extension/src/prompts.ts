/** The prompts that are offered: the user's earlier ones, then the usual wishes. */

/** Earlier prompts that are kept, the newest first. */
const MOST = 10;

export interface Choice {
  label: string;
  description: string;
  alwaysShow?: boolean;
}

export const CHIPS: readonly Choice[] = [
  { label: "Make it faster", description: "time" },
  { label: "Reduce memory usage", description: "shared, else local, else global memory" },
  { label: "Use fewer registers", description: "registers per thread" },
  { label: "Raise occupancy", description: "warps that fit on an SM" },
  { label: "Make it more accurate", description: "error against the reference" },
];

/** The choices while something is typed; the first is what Enter takes. */
export function choices(typed: string, earlier: readonly string[]): Choice[] {
  const said = typed.trim();
  const own = said === "" ? [] : [{ label: said, description: "your words", alwaysShow: true }];
  const usual = new Set(CHIPS.map((one) => one.label));
  const before = earlier.filter((one) => one !== said && !usual.has(one));
  return [...own, ...before.map((one) => ({ label: one, description: "asked before" })), ...CHIPS.filter((one) => one.label !== said)];
}

/** The earlier prompts once another was asked: each once, the newest first. */
export function remembered(prompt: string, earlier: readonly string[]): string[] {
  return [prompt, ...earlier.filter((one) => one !== prompt)].slice(0, MOST);
}
