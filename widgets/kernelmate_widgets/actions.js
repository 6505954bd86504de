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

export default {
  render({ model, el }) {
    el.classList.add("km-actions");
    const show = () => {
      const { buttons, said, error, html, above } = model.get("state");
      const held = el.contains(document.activeElement) ? document.activeElement.className : null;
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
      el.replaceChildren(...parts);
      if (held !== null) [...row.children].find((one) => one.className === held)?.focus();
    };
    model.on("change:state", show);
    show();
    return () => model.off("change:state", show);
  },
};
