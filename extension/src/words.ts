/** Verdicts in the few words that a panel has room for; what is predicted is never worded as if it were measured. */

export interface Verdict {
  kernel: string;
  instance: string | null;
  backend: string;
  target: string;
  compiled: boolean;
  correct: boolean | null;
  accepted: boolean | null;
  reasons: string[];
  trade_offs: string[];
  diagnostics: { severity: string; message: string; line: number | null }[];
  findings: { code: string; severity: string; message: string; line: number | null; column: number | null }[];
  cases: { correct: boolean | null }[];
  resources: { registers: number; shared_bytes: number; dynamic_shared_bytes: number; local_bytes: number } | null;
  occupancy: { theoretical: number; limiter: string } | null;
  timing: { kind: string; median_us: number | null; ci95_us: [number, number] | null } | null;
  speedup: { kind: string; median: number | null; ci95: [number, number] | null; weighted: boolean } | null;
  counters: { source: string; global_load_sectors: number | null; global_store_sectors: number | null } | null;
  objective: { name: string; basis: string; before: number | null; after: number | null; met: boolean | null; weighted: boolean } | null;
}

export interface Candidate {
  author: string;
  why: string;
  verdict: Verdict;
}

export type Tone = "good" | "bad" | "doubt";

/** The verdict in a word or two. */
export function standing(verdict: Verdict, candidate: boolean): [string, Tone] {
  if (!verdict.compiled) {
    return ["does not compile", "bad"];
  }
  if (verdict.accepted === false) {
    return [candidate ? "rejected" : "not good", "bad"];
  }
  if (verdict.accepted === true) {
    return [candidate ? "ready to accept" : "clean", "good"];
  }
  return verdict.objective?.met ? ["promising, confirm on a GPU", "doubt"] : ["not settled", "doubt"];
}

/** At how many of its sizes it is right. */
export function correctness(verdict: Verdict): string {
  const judged = verdict.cases.filter((one) => one.correct !== null);
  const right = judged.filter((one) => one.correct).length;
  return judged.length === 0 ? "not known" : `right at ${right} of ${judged.length} sizes`;
}

/** `12.1 us measured [12.0, 12.2]`, `~3.7 us predicted`. */
export function timeWords(verdict: Verdict): string {
  const timing = verdict.timing;
  if (timing === null || timing.median_us === null) {
    return "";
  }
  const shown = `${significant(timing.median_us)} us`;
  if (timing.kind !== "measured") {
    return `~${shown} ${timing.kind}`;
  }
  const span = timing.ci95_us;
  return `${shown} measured${span === null ? "" : ` [${significant(span[0])}, ${significant(span[1])}]`}`;
}

/** `1.42x [1.40, 1.44]`, `~1.4x predicted`. */
export function speedupWords(verdict: Verdict): string {
  const speedup = verdict.speedup;
  if (speedup === null || speedup.median === null) {
    return "";
  }
  const span = speedup.ci95 === null ? "" : ` [${speedup.ci95[0].toFixed(2)}, ${speedup.ci95[1].toFixed(2)}]`;
  const by = speedup.weighted ? " by weights" : "";
  return speedup.kind === "measured"
    ? `${speedup.median.toFixed(2)}x${span}${by}`
    : `~${speedup.median.toFixed(2)}x ${speedup.kind}${by}`;
}

/** `32 regs, 8,192 B shared`. */
export function resourceWords(verdict: Verdict): string {
  const it = verdict.resources;
  if (it === null) {
    return "";
  }
  const shared = it.shared_bytes + it.dynamic_shared_bytes;
  const parts = [`${it.registers} regs`, `${shared.toLocaleString("en")} B shared`];
  if (it.local_bytes > 0) {
    parts.push(`${it.local_bytes.toLocaleString("en")} B local`);
  }
  return parts.join(", ");
}

/** `75%, limited by registers`. */
export function occupancyWords(verdict: Verdict): string {
  const it = verdict.occupancy;
  return it === null ? "" : `${Math.round(it.theoretical * 100)}%, limited by ${it.limiter.replaceAll("_", " ")}`;
}

/** `shared_bytes 16,384 -> 8,192 (counted)`. */
export function objectiveWords(verdict: Verdict): string {
  const it = verdict.objective;
  if (it === null || it.before === null || it.after === null) {
    return "";
  }
  const number = (value: number): string => value.toLocaleString("en", { maximumSignificantDigits: 5 });
  const by = it.weighted ? ", by weights" : "";
  return `${it.name.replaceAll("_", " ")} ${number(it.before)} → ${number(it.after)} (${it.basis}${by})`;
}

/** How long ago a moment was; both in seconds since 1970. */
export function ago(at: number, now: number): string {
  const seconds = Math.max(0, now - at);
  for (const [unit, size] of [["d", 86_400], ["h", 3_600], ["min", 60]] as const) {
    if (seconds >= size) {
      return `${Math.floor(seconds / size)} ${unit} ago`;
    }
  }
  return "just now";
}

/** Three significant digits, without an exponent. */
function significant(value: number): string {
  return value.toLocaleString("en", { maximumSignificantDigits: 3, minimumSignificantDigits: 3 });
}
