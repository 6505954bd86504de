/** The text that would be sent, and the two answers. */

import type { Outgoing } from "../src/consent";
import { button, editor, element, show } from "./page";

window.addEventListener("message", ({ data }: MessageEvent<Outgoing>) => {
  const facts: [string, string][] = [
    ["To", data.host],
    ["Model", data.model],
    ["Price", data.price],
    ["For", data.workspace],
  ];
  const rows = facts.map(([name, value]) => element("tr", "", element("th", "", name), element("td", "", value)));
  show(
    element("h1", "", `Send this text to ${data.host}?`),
    element("p", "muted", "Nothing has been sent. This is all of it; no other file goes with it. Closing this view sends nothing."),
    element("table", "", element("tbody", "", ...rows)),
    button("Send this text", "", { kind: "answer", agreed: true }),
    button("Do not send", "second", { kind: "answer", agreed: false }),
    element("pre", "", data.text),
  );
});
editor.postMessage({ kind: "ready" });
