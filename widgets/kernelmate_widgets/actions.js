// Buttons below a result. Nothing is decided here; `html` is a piece that the kernel's side has escaped.

function button(model, { do: what, words, refused }) {
  const element = document.createElement("button");
  element.textContent = words;
  element.className = `km-do km-do-${what}`;
  element.disabled = refused !== null;
  element.title = refused === null ? "" : what === "accept" ? `Cannot be accepted: ${refused}` : refused;
  element.onclick = () => model.send({ do: what });
  return element;
}

function part(name, text) {
  const element = document.createElement("div");
  element.className = name;
  element.textContent = text;
  return element;
}

// Width in pixels below which a result's charts are below each other, and its end is far from its verdict.
const NARROW = 480;

// The verdict of the result above the buttons if the notebook is narrow; null otherwise, and outside JupyterLab.
function nearVerdict(el) {
  let output = el.closest(".jp-OutputArea-child");
  if (output === null || output.parentElement.clientWidth >= NARROW) return null;
  while ((output = output.previousElementSibling) !== null) {
    const verdict = output.querySelector(".kernelmate .verdict");
    if (verdict !== null) return verdict;
  }
  return null;
}

export default {
  render({ model, el }) {
    const box = part("km-actions", "");
    const show = () => {
      const { buttons, said, error, html, above } = model.get("state");
      const held = box.contains(document.activeElement) ? document.activeElement.className : null;
      const row = part("km-row-of-buttons", "");
      row.append(...buttons.map((one) => button(model, one)));
      const parts = [row];
      if (said) parts.splice(above ? 0 : 1, 0, part("km-said", said));
      if (error) parts.push(part("km-failed", error));
      if (html) {
        const explained = part("km-explained", "");
        explained.innerHTML = html;
        parts.push(explained);
      }
      box.replaceChildren(...parts);
      if (held !== null) [...row.children].find((one) => one.className === held)?.focus();
      place();
    };
    const place = () => {
      const verdict = model.get("state").above ? null : nearVerdict(el);
      if (verdict === null && box.parentElement !== el) el.append(box);
      if (verdict !== null && verdict.nextElementSibling !== box) verdict.after(box);
    };
    // A result that is drawn again drops what was placed in it; before the first frame, `el` is in no output yet.
    const resized = new ResizeObserver(place);
    const redrawn = new MutationObserver(place);
    requestAnimationFrame(() => {
      const area = el.closest(".jp-OutputArea");
      if (area === null) return;
      resized.observe(area);
      redrawn.observe(area, { childList: true, subtree: true });
    });
    model.on("change:state", show);
    show();
    return () => {
      model.off("change:state", show);
      resized.disconnect();
      redrawn.disconnect();
      box.remove();
    };
  },
};
