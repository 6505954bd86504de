// The panel of one kernel. It shows what the model's traits hold and sends what the user does; nothing is decided here.
// All text goes in as text nodes; `html` and `svg` are pieces that the kernel's side has escaped.

const KEYWORDS = new Set(
  "alignas auto bool break case char class const constexpr continue default do double else enum extern false float for if inline int long namespace nullptr return short signed sizeof static struct switch template this true typedef typename union unsigned using void volatile while __global__ __device__ __host__ __shared__ __constant__ __restrict__ __launch_bounds__ __forceinline__".split(" "),
);
const BUILTINS = new Set("threadIdx blockIdx blockDim gridDim warpSize __syncthreads __syncwarp".split(" "));
const TOKENS = /(\/\/.*$|\/\*.*?\*\/)|("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(^\s*#\w+)|(\b(?:0x[\da-fA-F]+|\d+\.?\d*(?:[eE][+-]?\d+)?)[fFuUlL]*\b)|([A-Za-z_]\w*)/gm;

/** Keeps the notebook's own keys from acting on what is typed. Saving stays the notebook's. */
function typed(event) {
  const saves = (event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "s";
  if (!saves) event.stopPropagation();
}

/** An element with attributes and children; a child that is a string is text. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "onclick" || name === "onkeydown" || name === "onchange") element[name] = value;
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** One line of CUDA as coloured pieces. */
function coloured(line) {
  const pieces = [];
  let end = 0;
  for (const match of line.matchAll(TOKENS)) {
    const [text, comment, string, directive, number, word] = match;
    const kind = comment ? "comment" : string ? "string" : directive ? "directive" : number ? "number" : KEYWORDS.has(word) ? "keyword" : BUILTINS.has(word) ? "builtin" : null;
    if (kind === null) continue;
    pieces.push(line.slice(end, match.index), make("span", { class: `km-${kind}` }, text));
    end = match.index + text.length;
  }
  pieces.push(line.slice(end));
  return pieces;
}

function isDark() {
  const body = document.body;
  return body.dataset.jpThemeLight === "false" || body.classList.contains("vscode-dark") || body.classList.contains("vscode-high-contrast");
}

// ----------------------------------------------------------------------------------------------- Plotly, once a page

let library = null;
/** Plotly's library, asked of the kernel once for all panels of a page; null where a page may not run it. */
function plotly(model) {
  library ??= new Promise((resolve) => {
    const take = (message, buffers) => {
      if (!message.plotly) return;
      model.off("msg:custom", take);
      const address = URL.createObjectURL(new Blob([buffers[0]], { type: "text/javascript" }));
      const script = make("script", { src: address });
      script.onload = () => resolve(window.Plotly ?? null);
      script.onerror = () => resolve(null);
      document.head.append(script);
    };
    model.on("msg:custom", take);
    model.send({ do: "plotly" });
  });
  return library;
}

const PLOTLY_FROM_PX = 440; // narrower, its legends and texts overlap; the drawing scrolls instead

/** Puts Plotly's chart in a drawing's place, once somebody points at it: its library takes a page's whole attention for a
    while when it is loaded, and each of its charts a little. The drawing says the same, without details at the pointer. */
async function enliven(model, holder) {
  if (holder.clientWidth < PLOTLY_FROM_PX) return;
  const wanted = holder.chart;
  const Plotly = await plotly(model);
  if (Plotly === null || !holder.isConnected || holder.chart !== wanted) return;
  const figure = JSON.parse(wanted.figure);
  const template = model.get("fixed").templates[isDark() ? "dark" : "light"];
  const layout = { ...figure.layout, template, width: undefined, autosize: true };
  const plot = holder.querySelector(".km-plot") ?? make("div", { class: "km-plot" });
  plot.style.height = `${wanted.height}px`;
  if (!plot.isConnected) holder.append(plot);
  holder.querySelector(".km-drawing").hidden = true;
  await Plotly.react(plot, figure.data, layout, { displayModeBar: false, responsive: true });
}

/** Puts the drawing back in the place of Plotly's chart. */
function flatten(holder) {
  const plot = holder.querySelector(".km-plot");
  holder.querySelector(".km-drawing").hidden = false;
  if (plot === null) return;
  window.Plotly?.purge(plot);
  plot.remove();
}

// ------------------------------------------------------------------------------------------------------------ parts

const PAGE = crypto.getRandomValues(new Uint32Array(1))[0].toString(16);
let requests = 0;
const RESTS_MS = 150;
const READS_MS = 300;

class View {
  constructor(model, root) {
    this.model = model;
    this.root = root;
    this.pending = null; // the version that is asked for, until the kernel has answered: { key, asked }
    this.details = new Map(); // those that have come, by their versions' keys
    this.build();
    // What stands above for pages without this kernel would say everything twice here.
    const kept = model.get("fixed").kept;
    this.hides = make("style", {}, `.${kept}, .jp-OutputArea-child:has(.${kept}) { display: none }`);
    document.head.append(this.hides);
    this.update = {
      state: () => this.showState(),
      versions: () => this.showVersions(),
      detail: () => this.showDetail(),
      result: () => this.showFigures(this.result, this.model.get("result"), false),
      charts: () => this.showFigures(this.charts, this.model.get("charts"), true),
    };
    for (const [trait, show] of Object.entries(this.update)) {
      model.on(`change:${trait}`, show);
      show();
    }
    // A restarted kernel knows nothing of this panel: what is shown stays, and says so.
    model.on("comm_live_update", () => {
      this.root.classList.add("km-lost");
      clearInterval(this.ticking);
      this.root.querySelectorAll("button, input, select").forEach((one) => (one.disabled = true));
      this.status.textContent = "The kernel was restarted: run this cell again.";
    });
    this.theme = new MutationObserver(() => this.retheme());
    this.theme.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light", "class"] });
    this.retheme();
  }

  close() {
    for (const [trait, show] of Object.entries(this.update)) this.model.off(`change:${trait}`, show);
    this.theme.disconnect();
    clearInterval(this.ticking);
    this.hides.remove();
  }

  send(what, more = {}) {
    this.model.send({ do: what, ...more });
  }

  build() {
    const { name, chips, authors } = this.model.get("fixed");
    this.prompt = make("input", {
      type: "text",
      class: "km-prompt",
      placeholder: `What should ${name} become? "reduce memory usage"`,
      "aria-label": `Prompt for ${name}`,
      onkeydown: (event) => {
        typed(event);
        if (event.key === "Enter") this.ask();
        if (event.key === "Escape") this.send("cancel");
      },
    });
    this.author = make("select", { class: "km-author", "aria-label": "Who proposes" }, ...authors.map((one) => make("option", { value: one }, one)));
    this.author.onkeydown = typed;
    this.prompt.oninput = () => {
      clearTimeout(this.reading);
      this.reading = setTimeout(() => this.send("read", { prompt: this.prompt.value }), READS_MS);
    };
    this.go = make("button", { class: "km-go", onclick: () => this.ask() }, "Ask");
    this.stop = make("button", { class: "km-cancel", title: "End the search and keep what was judged", onclick: () => this.send("cancel") }, "Stop");
    this.status = make("div", { class: "km-status", role: "status", "aria-live": "polite" });
    this.error = make("div", { class: "km-error", role: "alert" });
    this.notes = make("p", { class: "km-notes" });
    this.text = make("pre", { class: "km-text", "aria-label": "What the model writes" });
    this.textFold = this.folded("What the model writes", this.text, false);
    this.wishes = make("div", { class: "km-wishes", role: "group", "aria-label": "How the prompt is read" });
    this.answer = make("div", { class: "km-answer" });
    this.result = make("div", { class: "km-result" });
    this.question = make("div", { class: "km-question", role: "alertdialog", "aria-label": "May this be sent?" });
    this.list = make("div", { class: "km-list", role: "listbox", "aria-label": "Versions", tabindex: "0", onkeydown: (event) => this.move(event) });
    this.buttons = make("div", { class: "km-buttons" });
    this.body = make("div");
    this.headline = make("p", { class: "kernelmate km-headline" });
    this.head = make("div", { class: "km-verdict" }, this.headline, this.buttons);
    this.detail = make("div", { class: "km-detail" }, this.body);
    this.charts = make("div", { class: "km-charts" });
    this.more = this.folded("More charts", this.charts, false);
    const asked = chips.map((chip) => make("button", { class: "km-chip", onclick: () => this.choose(chip) }, chip));
    this.root.classList.add("km-panel");
    this.root.setAttribute("data-kernel", name);
    this.root.append(
      make("div", { class: "km-head" }, make("strong", {}, name), (this.force = make("span", { class: "km-force" }))),
      make("div", { class: "km-ask" }, this.prompt, this.author, this.go, this.stop),
      make("div", { class: "km-chips", role: "group", "aria-label": "Common prompts" }, ...asked),
      this.wishes, this.status, this.error, this.question, this.textFold, this.notes, this.answer,
      this.head, this.result,
      make("div", { class: "km-columns" }, make("div", {}, this.list, (this.changed = make("div", { class: "kernelmate km-changed" })), (this.why = make("div")), (this.folds = make("div", { class: "km-folds" }))), this.detail),
      this.more,
    );
  }

  choose(text) {
    this.prompt.value = text;
    this.prompt.focus();
  }

  ask() {
    clearTimeout(this.reading); // the answer says how the prompt was read
    const prompt = this.prompt.value.trim();
    if (prompt) this.send("ask", { prompt, author: this.author.value });
  }

  retheme() {
    this.root.classList.toggle("km-dark", isDark());
    for (const holder of this.charts.children) if (holder.querySelector(".km-plot")) this.redraw(holder, holder.chart);
  }

  // ---------------------------------------------------------------------------------------------------------- state

  showState() {
    const state = this.model.get("state");
    this.root.classList.toggle("km-busy", state.busy);
    this.go.disabled = state.busy;
    this.stop.disabled = !state.busy;
    this.tick(state);
    this.error.textContent = state.error;
    this.text.textContent = state.text;
    this.textFold.hidden = !state.text;
    if (this.answered !== state.html) this.answer.innerHTML = this.answered = state.html;
    this.showWishes(state);
    this.text.scrollTop = this.text.scrollHeight;
    this.notes.textContent = state.notes.join("\n");
    if (state.prompt && !this.prompt.value) this.prompt.value = state.prompt;
    this.showQuestion(state.question);
    if (this.wasInForce !== state.inForce || this.wasBusy !== state.busy) {
      [this.wasInForce, this.wasBusy] = [state.inForce, state.busy];
      this.showVersions();
      this.showButtons();
    }
    const by = state.source && state.source !== "user" ? `In use: the version of ${state.source}, accepted` : "In use: the cell's own version";
    this.force.replaceChildren(by);
    if (state.canRevert) this.force.append(make("button", { class: "km-revert", onclick: () => this.send("revert") }, "Undo"));
  }

  /** What is done now, and for how long: the time goes on in work that tells nothing, as a long reference. */
  tick({ busy, stage, elapsedS }) {
    clearInterval(this.ticking);
    if (!busy) {
      this.began = undefined;
      this.status.textContent = "";
      return;
    }
    const began = performance.now() - 1000 * elapsedS;
    this.began = Math.min(this.began ?? began, began);
    const show = () => (this.status.textContent = `${stage} | ${Math.round((performance.now() - this.began) / 1000)} s …`);
    show();
    this.ticking = setInterval(show, 1000);
  }

  /** How the prompt would be read, each part of it with a button that leaves it out. */
  showWishes({ wishes, reading, busy }) {
    const mark = JSON.stringify([wishes, reading, busy]);
    if (this.wishes.mark === mark) return;
    this.wishes.mark = mark;
    const leave = (wish) => {
      this.prompt.value = wish.without;
      this.prompt.focus();
      this.send("read", { prompt: wish.without });
    };
    const chips = wishes.map((wish) => make("button", { class: "km-wish", title: "Leave this out", onclick: () => leave(wish) }, `${wish.words} ×`));
    this.wishes.replaceChildren(...(reading && !busy ? [make("span", {}, reading), ...chips] : []));
  }

  showQuestion(question) {
    if (!question) return this.question.replaceChildren();
    const price = question.usd === null ? "an unknown price" : `at most ${question.usd} USD`;
    this.question.replaceChildren(
      make("p", {}, `Send the text below to ${question.model} at ${question.host}, for ${price}?`),
      make("pre", {}, question.text),
      make("button", { class: "km-yes", onclick: () => this.send("answer", { agreed: true }) }, "Send"),
      make("button", { class: "km-no", onclick: () => this.send("answer", { agreed: false }) }, "Do not send"),
    );
  }

  // ------------------------------------------------------------------------------------------------------- versions

  /** The key of the version that the user looks at: what was asked for last, else what the kernel shows. */
  get selected() {
    return this.pending?.key ?? this.model.get("detail").key;
  }

  /** Looks at a version. The list follows at once; its detail too where it has come before, else once the kernel answers. */
  select(key) {
    this.pending = { key, asked: `${PAGE}-${++requests}` };
    this.send("select", this.pending);
    this.showVersions();
    this.showDetail();
  }

  showVersions() {
    const versions = this.model.get("versions");
    const { inForce } = this.model.get("state");
    const selected = this.selected;
    // Rows that are the same stay as they are: with forty of them the page must stay fluid.
    versions.forEach((version, index) => {
      const mark = JSON.stringify([version, version.key === selected, version.key === inForce]);
      const old = this.list.children[index];
      if (old?.mark === mark) return;
      const row = this.row(version, version.key === selected, version.key === inForce);
      row.mark = mark;
      if (old) old.replaceWith(row);
      else this.list.append(row);
    });
    while (this.list.children.length > versions.length) this.list.lastChild.remove();
    const keys = new Set(versions.map((version) => version.key));
    for (const key of this.details.keys()) if (!keys.has(key)) this.details.delete(key);
    this.showButtons(); // a version may have been put aside
  }

  row(version, selected, inForce) {
    const marks = [version.best ? "best" : null, inForce ? (version.number ? "accepted" : "in use") : null, version.rejected ? "put aside" : null].filter(Boolean);
    return make(
      "div",
      {
        class: `km-row${selected ? " km-selected" : ""}${version.rejected ? " km-aside" : ""}`,
        role: "option",
        "aria-selected": String(selected),
        "data-number": String(version.number),
        onclick: () => this.select(version.key),
      },
      make("span", { class: "km-number" }, version.number === 0 ? "" : String(version.number)),
      make(
        "span",
        { class: "km-who" },
        make("code", {}, version.number === 0 ? "baseline" : version.name),
        ...marks.map((mark) => make("span", { class: "km-mark" }, mark)),
        make("span", { class: version.predicted ? "km-asked km-predicted" : "km-asked" }, version.asked || version.right),
        make("span", { class: "km-cost" }, version.number ? version.cost : ""),
      ),
      make("span", { class: `km-standing km-${version.tone}` }, version.standing),
    );
  }

  move(event) {
    const step = { ArrowDown: 1, ArrowUp: -1, Home: -Infinity, End: Infinity }[event.key];
    const versions = this.model.get("versions");
    const at = Math.max(0, versions.findIndex((version) => version.key === this.selected));
    const key = versions[at]?.key;
    if (event.key === "Enter" && at > 0) this.send("accept", { key });
    else if (event.key === "Delete" && at > 0) this.send("reject", { key });
    else if (step === undefined) return;
    else {
      this.select(versions[Math.max(0, Math.min(versions.length - 1, at + step))].key);
      this.list.children[versions.findIndex((version) => version.key === this.selected)]?.scrollIntoView({ block: "nearest" });
    }
    event.preventDefault();
    event.stopPropagation();
  }

  // --------------------------------------------------------------------------------------------------------- detail

  /** Shows the version that is looked at. Until its detail has come, that of another one takes no clicks: they would hit
      what the user did not mean. */
  showDetail() {
    const latest = this.model.get("detail");
    if (latest.key === undefined) return;
    this.details.set(latest.key, latest);
    if (this.pending?.asked === latest.asked) this.pending = null;
    const detail = this.details.get(this.selected);
    for (const part of [this.head, this.detail]) {
      part.inert = detail === undefined;
      part.classList.toggle("km-awaited", detail === undefined);
      part.setAttribute("aria-busy", String(detail === undefined));
    }
    if (detail === undefined || (detail.key === this.shown?.key && detail.headline === this.shown.headline)) return;
    this.shown = detail;
    this.showButtons();
    this.showBody(detail);
    this.showVersions();
  }

  showButtons() {
    if (this.shown === undefined) return;
    const { key, refused } = this.shown;
    const { inForce, busy } = this.model.get("state");
    const version = this.model.get("versions").find((one) => one.key === key);
    const mark = JSON.stringify([key, refused, inForce === key, busy, version?.number > 0, version?.rejected]);
    if (this.buttons.mark === mark) return;
    this.buttons.mark = mark;
    const buttons = [];
    if (version?.number > 0) {
      const why = refused ? `Cannot be accepted: ${refused}` : busy ? "Wait for the end of the search, or cancel it" : "";
      buttons.push(
        make("button", { class: "km-accept", disabled: Boolean(refused) || busy || inForce === key, title: why || "Put this version in force", onclick: () => this.send("accept", { key }) }, inForce === key ? "Accepted" : "Accept"),
        make("button", { class: "km-reject", onclick: () => this.send("reject", { key }) }, version.rejected ? "Take back in" : "Reject"),
      );
      if (why && !busy) buttons.push(make("span", { class: "km-why-not" }, why));
    }
    const held = this.buttons.contains(document.activeElement) ? document.activeElement.className : null;
    this.buttons.replaceChildren(...buttons);
    if (held === null) return;
    // Who works by keys stays where they were, or on the list where that is no place any more.
    const same = buttons.find((button) => button.className === held && !button.disabled);
    (same ?? this.list).focus();
  }

  showBody(detail) {
    const parts = [];
    parts.push(...detail.messages.map((message) => this.message(message)));
    if (detail.diff.length) parts.push(this.diff(detail.diff));
    this.headline.innerHTML = detail.headline;
    this.changed.innerHTML = detail.changed;
    this.why.replaceChildren(
      detail.why ? make("p", { class: "km-why" }, detail.why) : "",
      detail.worse ? make("p", { class: "km-worse" }, `Worse for it: ${detail.worse}.`) : "",
    );
    const figures = make("div", { class: "kernelmate" });
    figures.innerHTML = detail.html;
    const reasons = make("ul", {}, ...detail.reasons.map((reason) => make("li", {}, reason)));
    if (detail.lifts.length) reasons.append(make("li", { class: "km-lifts" }, `To lift its occupancy: ${detail.lifts.join("; ")}`));
    this.source = this.lines(detail);
    this.sourceFold = this.folded("Source", this.source, false);
    this.folds.replaceChildren(this.folded("Figures, sizes and reasons", make("div", {}, reasons, figures), false), this.sourceFold);
    this.body.replaceChildren(...parts);
  }

  folded(title, content, open) {
    return make("details", { open }, make("summary", {}, title), content);
  }

  message(message) {
    const line = message.line === null ? null : make("button", { class: "km-line", onclick: () => this.goTo(message.line) }, `line ${message.line}`);
    return make("div", { class: `km-finding km-of-${message.severity}` }, make("strong", {}, `${message.severity} `), make("code", {}, message.code), " ", line, make("div", {}, message.text));
  }

  goTo(line) {
    this.sourceFold.open = true;
    const wanted = this.source.querySelector(`[data-line="${line}"]`);
    for (const one of this.source.querySelectorAll(".km-here")) one.classList.remove("km-here");
    wanted?.classList.add("km-here");
    wanted?.scrollIntoView({ block: "center", behavior: "smooth" });
  }

  diff(lines) {
    return make("pre", { class: "km-diff", tabindex: "0", "aria-label": "What it changes" }, ...lines.map(([kind, line]) =>
      make("span", { class: `km-${kind}` }, ...(kind === "hunk" ? [line] : [line.slice(0, 1), ...coloured(line.slice(1))]))));
  }

  lines(detail) {
    return make("pre", { class: "km-source", tabindex: "0", "aria-label": "Source" }, ...detail.source.split("\n").map((line, index) =>
      make("span", { "data-line": String(index + detail.firstLine) }, make("i", {}, String(index + detail.firstLine).padStart(4)), ...coloured(line))));
  }

  // --------------------------------------------------------------------------------------------------------- charts

  /** Charts in their place; those with a figure become Plotly's where somebody points at them. */
  showFigures(place, charts, lively) {
    charts.forEach((chart, index) => {
      const old = place.children[index];
      if (old?.chart.title === chart.title) {
        if (old.chart.svg !== chart.svg) this.redraw(old, chart);
        return;
      }
      const holder = make("figure", { "data-title": chart.title }, make("figcaption", {}, chart.title), make("div", { class: "km-drawing" }));
      if (lively) {
        holder.onpointermove = (event) => (event.movementX || event.movementY) && this.rest(holder); // not when the page scrolls under it
        holder.onpointerdown = () => this.point(holder);
      }
      if (old) old.replaceWith(holder);
      else place.append(holder);
      this.redraw(holder, chart);
    });
    while (place.children.length > charts.length) place.lastChild.remove();
  }

  /** A chart as a drawing; as Plotly's where somebody points at it. */
  redraw(holder, chart) {
    holder.chart = chart;
    holder.querySelector(".km-drawing").innerHTML = chart.svg;
    if (holder.querySelector(".km-plot") && holder.matches(":hover")) this.point(holder, true);
    else flatten(holder);
  }

  /** Who passes over a chart does not mean it. */
  rest(holder) {
    clearTimeout(this.resting);
    this.resting = setTimeout(() => holder.matches(":hover") && this.point(holder), RESTS_MS);
  }

  point(holder, again = false) {
    if (again || !holder.querySelector(".km-plot")) enliven(this.model, holder).catch((error) => console.error(error));
  }
}

export default {
  render({ model, el }) {
    const view = new View(model, el);
    return () => view.close();
  },
};
