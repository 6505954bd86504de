/** Asks before a text goes to another machine, and shows that text, all of it and nothing else. */

import * as vscode from "vscode";
import { page } from "./webview";

/** As the server sends it. */
export interface Outgoing {
  text: string;
  host: string;
  model: string;
  workspace: string;
  price: string;
}

/** Show a text that would be sent; resolves to whether its user agreed. Closing the view is a refusal. */
export function askConsent(dist: vscode.Uri, outgoing: Outgoing, token: vscode.CancellationToken): Promise<boolean> {
  return new Promise((resolve) => {
    const panel = vscode.window.createWebviewPanel(
      "kernelmate.consent",
      `Send to ${outgoing.host}?`,
      { viewColumn: vscode.ViewColumn.Active },
      { enableScripts: true, localResourceRoots: [dist], retainContextWhenHidden: true },
    );
    panel.webview.onDidReceiveMessage((message: { kind: string; agreed?: boolean }) => {
      if (message.kind === "ready") {
        void panel.webview.postMessage(outgoing);
      } else if (message.kind === "answer") {
        resolve(message.agreed === true);
        panel.dispose();
      }
    });
    panel.onDidDispose(() => resolve(false));
    token.onCancellationRequested(() => panel.dispose());
    panel.webview.html = page(panel.webview, dist, "Consent", ["consent.js"]);
  });
}
