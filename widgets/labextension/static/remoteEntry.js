// Shows %%kernelmate cells as C++ in JupyterLab 4, and says where a panel has lost its kernel: a prebuilt extension, written
// by hand as it is served.
//
// JupyterLab loads this script, hands its shared modules to `init`, and asks `get` for the plugin. Nothing is bundled, so
// there is nothing to build and no Node to have; of JupyterLab's modules only the notebook tracker's token is used.
(() => {
  const MAGIC = /^\s*%%kernelmate\b/;
  const CUDA = "text/x-c++src"; // JupyterLab has no grammar of CUDA's own; its C++ one reads kernels well
  let shared = {};

  /** Keeps one cell's language to its first line. Its own language is the one that the notebook gave it last. */
  function watch(cell) {
    const model = cell.model;
    if (model.type !== "code") return;
    let own = model.mimeType;
    const settle = () => {
      const wanted = MAGIC.test(model.sharedModel.getSource()) ? CUDA : own;
      if (model.mimeType !== wanted) model.mimeType = wanted;
    };
    const changed = () => {
      // The notebook sets its kernel's language anew whenever it hears from the kernel.
      if (model.mimeType !== CUDA) own = model.mimeType;
      settle();
    };
    model.mimeTypeChanged.connect(changed);
    model.sharedModel.changed.connect(settle);
    cell.disposed.connect(() => {
      if (model.isDisposed) return;
      model.mimeTypeChanged.disconnect(changed);
      model.sharedModel.changed.disconnect(settle);
    });
    settle();
  }

  const CELLS = "kernelmate.cells";

  /** Writes an accepted version into the cell that its kernel was defined in, or below it. */
  function write(panel, { cell, text, below }) {
    const index = panel.content.widgets.findIndex((one) => one.model.id === cell);
    if (index < 0) return;
    if (below) panel.content.model.sharedModel.insertCell(index + 1, { cell_type: "code", source: text, metadata: {} });
    else panel.content.widgets[index].model.sharedModel.setSource(text);
  }

  /** Serves the comm of a notebook's kernel, also one that was opened before this page was loaded. */
  function serve(panel) {
    const context = panel.sessionContext;
    const known = new WeakSet();
    const attach = async () => {
      const kernel = context.session?.kernel;
      if (!kernel || known.has(kernel)) return;
      known.add(kernel);
      const use = (comm) => {
        comm.onMsg = (message) => write(panel, message.content.data);
        comm.send({ ready: true });
      };
      kernel.registerCommTarget(CELLS, use);
      const open = await kernel.requestCommInfo({ target_name: CELLS });
      for (const id of Object.keys(open.content.comms ?? {})) if (!kernel.hasComm(id)) use(kernel.createComm(CELLS, id));
    };
    context.kernelChanged.connect(attach);
    context.ready.then(attach).catch(() => {});
  }

  const LOST = "Error displaying widget: model not found";

  /** A panel whose kernel is gone says so in place of an error: what was found stands above it. */
  function explain(outputs) {
    for (const output of outputs) {
      if (output.textContent !== LOST) continue;
      const before = output.closest(".jp-OutputArea-child")?.previousElementSibling;
      if (before?.querySelector('[class^="km-kept-"]')) output.textContent = "The panel is here while its kernel runs: run this cell again.";
    }
  }

  function follow(panel) {
    const seen = new WeakSet();
    const page = panel.content.node;
    const observer = new MutationObserver(() => explain(page.querySelectorAll(".jp-OutputArea-output.jupyter-widgets")));
    observer.observe(page, { childList: true, subtree: true });
    panel.disposed.connect(() => observer.disconnect());
    const look = () => {
      for (const cell of panel.content.widgets) {
        if (seen.has(cell)) continue;
        seen.add(cell);
        watch(cell);
      }
    };
    // Cells are there once the notebook has been read, and come and go with editing.
    panel.context.ready.then(look);
    serve(panel);
    panel.content.modelContentChanged.connect(look);
    look();
  }

  /** A module that JupyterLab shares, in the one version that it has loaded. */
  async function sharedModule(name) {
    const versions = Object.values(shared[name] ?? {});
    const chosen = versions.find((version) => version.loaded) ?? versions[0];
    if (chosen === undefined) throw new Error(`kernelmate: JupyterLab shares no ${name}`);
    return (await chosen.get())();
  }

  async function plugin() {
    const { INotebookTracker } = await sharedModule("@jupyterlab/notebook");
    return {
      id: "kernelmate:highlight",
      description: "Shows %%kernelmate cells as CUDA C++.",
      autoStart: true,
      requires: [INotebookTracker],
      activate: (_app, tracker) => {
        tracker.forEach(follow);
        tracker.widgetAdded.connect((_tracker, panel) => follow(panel));
      },
    };
  }

  window._JUPYTERLAB = window._JUPYTERLAB ?? {};
  window._JUPYTERLAB.kernelmate = {
    init: (scope) => {
      shared = scope;
    },
    get: async () => {
      const made = await plugin();
      return () => ({ __esModule: true, default: made });
    },
  };
})();
