/** Elements made of text: kernel names, messages and reasons come from files and models. Only the server's result view is markup. */

export interface Editor {
  postMessage(message: unknown): void;
}

declare function acquireVsCodeApi(): Editor;

export const editor: Editor = acquireVsCodeApi();

type Child = Node | string;

/** An element with its class and its children. */
export function element(tag: string, cssClass: string, ...children: Child[]): HTMLElement {
  const made = document.createElement(tag);
  if (cssClass !== "") {
    made.className = cssClass;
  }
  made.append(...children);
  return made;
}

/** A button that tells the extension something. */
export function button(text: string, cssClass: string, message: unknown): HTMLElement {
  const made = element("button", cssClass, text);
  made.addEventListener("click", () => editor.postMessage(message));
  return made;
}

/** Show these in place of what the page showed. */
export function show(...children: Child[]): void {
  document.getElementById("root")?.replaceChildren(...children);
}
