/** Draws what is known of a kernel: the result view that the server wrote, the candidates, and further charts, drawn when they are opened. */

import type { Charts, Known, View } from "../src/requests";
import {
  ago,
  correctness,
  objectiveWords,
  occupancyWords,
  resourceWords,
  speedupWords,
  standing,
  timeWords,
  type Verdict,
} from "../src/words";
import { button, editor, element, show } from "./page";

interface State {
  results: Known;
  view: View | undefined;
  charts: Charts | undefined;
  trusted: boolean;
  now: number;
}

interface Version {
  name: string;
  why: string;
  verdict: Verdict;
  /** Its number among the candidates; undefined for what is no candidate. */
  candidate: number | undefined;
  best: boolean;
}

declare const Plotly: {
  react(place: HTMLElement, data: unknown[], layout: object, config: object): Promise<unknown>;
};

const CONFIG = { displaylogo: false, responsive: true, displayModeBar: false };
const drawn: { place: HTMLElement; title: string }[] = [];
const sheet = new CSSStyleSheet();
document.adoptedStyleSheets = [sheet]; // the policy of the page allows no inline styles
const MORE = "More charts";
const opened = new Set<string>();
let state: State | undefined;

function render(now: State): void {
  const { results, trusted } = now;
  const { benchmark, search } = results;
  const parts: HTMLElement[] = [element("h1", "", results.kernel)];
  if (trusted) {
    for (const [text, command] of [["Benchmark", "benchmark"], ["Optimize...", "optimize"], ["Compare with...", "compare"], ["Pin", "pin"]] as const) {
      parts.push(button(text, command === "benchmark" ? "" : "second", { kind: "command", command }));
    }
  } else {
    parts.push(element("p", "stale", "This workspace is not trusted: kernels are compiled, and nothing is run."));
  }
  const known = search !== null && (benchmark === null || search.at >= benchmark.at) ? search : benchmark;
  if (known === null) {
    parts.push(element("p", "muted", "Nothing is known yet. Benchmark the kernel, or ask for something."));
    show(...parts);
    return;
  }
  parts.push(element("p", "muted", `judged ${ago(known.at, now.now)}`));
  if (search !== null && known === search && search.taken !== null) {
    parts.push(element("p", "good", `The text is candidate ${search.taken + 1} of this search.`));
  }
  if (known.stale) {
    parts.push(element("p", "stale", "The text was changed since: this is of an earlier version."));
  }
  parts.push(...resultView(now.view, known.stale));
  if (known === search) {
    const versions = versionsOf(now);
    const best = versions.find((one) => one.best)?.candidate;
    if (best !== undefined) {
      parts.splice(1, 0, button(`Diff of ${best + 1}`, "second", { kind: "preview", candidate: best }));
    }
    parts.push(folded("All candidates", table(versions)));
  }
  parts.push(...figures(now));
  show(...parts);
  draw();
}

/** The view as the server wrote it, in which all text of files and models is escaped; findings of the present text lead to their lines. */
function resultView(view: View | undefined, stale: boolean): HTMLElement[] {
  if (view === undefined) {
    return [];
  }
  sheet.replaceSync(view.style);
  const made = element("div", "kernelmate");
  made.innerHTML = view.html;
  for (const finding of stale ? [] : Array.from(made.querySelectorAll<HTMLElement>(".finding[data-line]"))) {
    const place = finding.querySelectorAll("code")[1];
    const line = Number(finding.dataset.line);
    place?.replaceWith(link(place.textContent ?? "", line));
  }
  return [made];
}

/** A fold that keeps its state when the page is drawn again. */
function folded(title: string, ...children: HTMLElement[]): HTMLElement {
  const made = element("details", "", element("summary", "", title), ...children) as HTMLDetailsElement;
  made.open = opened.has(title);
  made.addEventListener("toggle", () => {
    if (made.open) {
      opened.add(title);
      draw();
    } else {
      opened.delete(title);
    }
  });
  return made;
}

function versionsOf({ results: { benchmark, search } }: State): Version[] {
  const plain = { why: "", candidate: undefined, best: false };
  if (search !== null && (benchmark === null || search.at >= benchmark.at)) {
    return [
      { ...plain, name: "baseline", verdict: search.baseline },
      ...search.candidates.map((one, index) => ({
        name: `${index + 1} ${one.author}`,
        why: one.why,
        verdict: one.verdict,
        candidate: index,
        best: index === search.best,
      })),
    ];
  }
  return (benchmark?.verdicts ?? []).map((verdict) => ({ ...plain, name: verdict.instance ?? verdict.kernel, verdict }));
}

function table(versions: Version[]): HTMLElement {
  const heads = ["Version", "Verdict", "Correct", "Asked for", "Time", "Speed-up", "Resources", "Occupancy", ""];
  const rows = versions.map((version) => {
    const { verdict, candidate } = version;
    const [said, tone] = standing(verdict, candidate !== undefined);
    const cells = [
      element("td", "", version.name + (version.best ? " (best)" : "")),
      element("td", tone, said),
      ...[correctness, objectiveWords, timeWords, speedupWords, resourceWords, occupancyWords].map((words) =>
        element("td", "", words(verdict)),
      ),
      element("td", ""),
    ];
    cells[0]?.setAttribute("title", version.why);
    if (candidate !== undefined && verdict.compiled) {
      cells.at(-1)?.append(button("Diff", "second", { kind: "preview", candidate }));
    }
    return element("tr", "", ...cells);
  });
  // A column in which no version says anything takes room from those that do.
  const said = heads.map((_, column) => column < 2 || rows.some((row) => row.children[column]?.textContent !== ""));
  for (const row of rows) Array.from(row.children).forEach((cell, column) => !said[column] && cell.remove());
  const head = element("thead", "", element("tr", "", ...heads.filter((_, column) => said[column]).map((one) => element("th", "", one))));
  return element("div", "scroll", element("table", "", head, element("tbody", "", ...rows)));
}

function link(text: string, line: number): HTMLElement {
  const made = element("a", "", text);
  made.tabIndex = 0;
  const go = (): void => editor.postMessage({ kind: "line", line });
  made.addEventListener("click", go);
  made.addEventListener("keydown", (event) => event.key === "Enter" && go());
  return made;
}

function figures({ charts }: State): HTMLElement[] {
  drawn.length = 0;
  if (charts === undefined) {
    return [];  // the server said why
  }
  const places = Object.keys(charts.figures).map((title) => {
    const place = element("div", "chart");
    drawn.push({ place, title });
    return element("figure", "", element("figcaption", "", title), place);
  });
  return places.length === 0 ? [] : [folded(MORE, ...places)];
}

/** Draw the charts that are in view; a closed fold has no width to draw them in. */
function draw(): void {
  if (!opened.has(MORE)) {
    return;
  }
  const charts = state?.charts;
  const light = document.body.classList.contains("vscode-light") || document.body.classList.contains("vscode-high-contrast-light");
  for (const { place, title } of drawn) {
    const figure = charts?.figures[title];
    if (charts !== undefined && figure !== undefined) {
      const layout = { ...figure.layout, template: light ? charts.templates.light : charts.templates.dark };
      void Plotly.react(place, figure.data, layout, CONFIG);
    }
  }
}

window.addEventListener("message", ({ data }: MessageEvent<State>) => {
  state = data;
  render(data);
});
new MutationObserver(draw).observe(document.body, { attributes: true, attributeFilter: ["class"] });
editor.postMessage({ kind: "ready" });
