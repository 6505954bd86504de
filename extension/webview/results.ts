/** Draws the page about a kernel: the result view that the server wrote, with buttons, and further charts once they are opened. */

import type { Judged, View } from "../src/requests";
import { button, editor, element } from "./page";

interface State {
  view: View;
  trusted: boolean;
}

declare const Plotly: {
  react(place: HTMLElement, data: unknown[], layout: object, config: object): Promise<unknown>;
};

const CONFIG = { displaylogo: false, responsive: true, displayModeBar: false };
const COMMANDS = [
  ["Benchmark", "benchmark"],
  ["Optimize...", "optimize"],
  ["Explain", "explain"],
  ["Compare with...", "compare"],
  ["Pin", "pin"],
] as const;
const sheet = new CSSStyleSheet();
document.adoptedStyleSheets = [sheet]; // the policy of the page allows no inline styles
const head = element("header", "");
const body = element("div", "result");
document.getElementById("root")?.append(element("div", "kernelmate page", head, body));
/** Folds that the user opened or closed, by their keys, of the kernel in view. */
const chosen = new Map<string, boolean>();
let state: State | undefined;
let written = "";
/** How the prompt was read: beside the buttons, where lines are free. */
let asked: HTMLElement | null = null;

function render(now: State): void {
  const { view } = now;
  if (state?.view.kernel !== view.kernel) {
    chosen.clear();
  }
  state = now;
  sheet.replaceSync(view.style);
  head.replaceChildren(...heading(now));
  // A page that says the same keeps its elements: what is open, selected and scrolled stays so.
  const wanted = JSON.stringify([view.html, Object.keys(view.figures)]);
  if (wanted !== written) {
    written = wanted;
    body.innerHTML = view.html; // all text of files and models in it is escaped
    asked = body.querySelector<HTMLElement>(".asked");
    linkLines();
    offerDiffs();
    addCharts(view);
    body.querySelectorAll<HTMLDetailsElement>("details[data-fold]").forEach(keepOpen);
  }
  head.append(...(asked === null ? [] : [asked]));
  draw();
}

/** The kernel's name, what can be done with it, and how the result relates to the present text. */
function heading({ view, trusted }: State): HTMLElement[] {
  const { judged } = view;
  const parts = [element("h1", "", view.kernel)];
  if (trusted) {
    const wrong = judged !== null && !judged.good && judged.repairable;
    // The next step stands out: after a search that is the comparison, beside the verdict.
    const next = wrong ? "fix" : judged?.of === "search" ? "" : "benchmark";
    const offered = [...(wrong ? [["Fix", "fix"] as const] : []), ...COMMANDS];
    const made = offered.map(([text, command]) =>
      button(text, command === next ? "" : "second", { kind: "command", command }),
    );
    parts.push(element("span", "", ...made));
  } else {
    parts.push(element("p", "stale", "This workspace is not trusted: kernels are compiled, and nothing is run."));
  }
  return [...parts, ...(judged === null ? [element("p", "muted", "Nothing is known yet. Benchmark the kernel, or ask for something.")] : standing(judged))];
}

function standing(judged: Judged): HTMLElement[] {
  const parts = [element("span", "muted", `judged ${judged.ago}`)];
  if (judged.taken !== null) {
    parts.push(element("p", "good", `The text is candidate ${judged.taken + 1} of this search.`));
  }
  if (judged.stale) {
    parts.push(element("p", "stale", "The text was changed since: this is of an earlier version."));
  }
  return parts;
}

/** Places of findings lead to their lines; the server marks those that are still in the text. */
function linkLines(): void {
  for (const place of Array.from(body.querySelectorAll<HTMLElement>("[data-line]"))) {
    place.replaceWith(link(place.textContent ?? "", { kind: "line", line: Number(place.dataset.line) }));
  }
}

/** Each candidate that the view names can be compared with the text. */
function offerDiffs(): void {
  for (const named of Array.from(body.querySelectorAll<HTMLElement>("[data-candidate]"))) {
    const number = Number(named.dataset.candidate);
    const message = { kind: "preview", candidate: number - 1 };
    const verdict = named.classList.contains("verdict");
    const made = verdict ? button("Diff", "", message) : link("diff", message);
    made.setAttribute("aria-label", `Diff of ${number}`);
    made.setAttribute("role", "button");
    if (verdict) {
      named.append(" ", made);
    } else {
      named.after(" ", made);
    }
  }
}

function link(text: string, message: object): HTMLElement {
  const made = element("a", "", text);
  made.tabIndex = 0;
  const go = (): void => editor.postMessage(message);
  made.addEventListener("click", go);
  made.addEventListener("keydown", (event) => event.key === "Enter" && go());
  return made;
}

/** Has a fold open where its user left it so, also after the page was drawn again. */
function keepOpen(fold: HTMLDetailsElement, place: number): void {
  const key = `${fold.dataset.fold} ${place}`;
  fold.open = chosen.get(key) ?? fold.open;
  // The click comes before the change, by the keyboard too; events of the change come from the code as well.
  fold.querySelector("summary")?.addEventListener("click", () => chosen.set(key, !fold.open));
  fold.addEventListener("toggle", draw);
}

/** Further charts are among all figures, as in the notebook. */
function addCharts(view: View): void {
  const folds = body.querySelectorAll<HTMLElement>('details[data-fold="all"], details[data-fold="notes"]');
  for (const title of Object.keys(view.figures)) {
    const place = element("div", "chart");
    place.dataset.title = title;
    folds[folds.length - 1]?.append(element("figure", "", element("figcaption", "", title), place));
  }
}

/** Draw the charts that are in view; a closed fold has no width to draw them in. */
function draw(): void {
  const view = state?.view;
  if (view === undefined) {
    return;
  }
  const light = document.body.classList.contains("vscode-light") || document.body.classList.contains("vscode-high-contrast-light");
  for (const place of Array.from(body.querySelectorAll<HTMLElement>("details[open] .chart"))) {
    const figure = view.figures[place.dataset.title ?? ""];
    if (figure !== undefined) {
      const layout = { ...figure.layout, template: light ? view.templates.light : view.templates.dark };
      void Plotly.react(place, figure.data, layout, CONFIG);
    }
  }
}

window.addEventListener("message", ({ data }: MessageEvent<State>) => render(data));
new MutationObserver(draw).observe(document.body, { attributes: true, attributeFilter: ["class"] });
editor.postMessage({ kind: "ready" });
