/** The results panel: what is known of one kernel, in the same view as the notebook's. */

import * as vscode from "vscode";
import { columnOf } from "./columns";
import type { Kernel, Requests } from "./requests";
import { page } from "./webview";

/** What the panel's page may ask for. */
type Asked =
  | { kind: "ready" }
  | { kind: "command"; command: string }
  | { kind: "preview"; candidate: number }
  | { kind: "line"; line: number };

/** Milliseconds without a change after which the panel tells that the text was changed. */
const RESTS_MS = 300;

export class Results implements vscode.Disposable {
  private panel: vscode.WebviewPanel | undefined;
  private shown: Kernel | undefined;
  private waiting: NodeJS.Timeout | undefined;
  private readonly changes: vscode.Disposable;

  constructor(
    private readonly dist: vscode.Uri,
    private readonly requests: Requests,
  ) {
    this.changes = vscode.workspace.onDidChangeTextDocument(({ document, contentChanges }) => {
      if (contentChanges.length > 0 && this.shown !== undefined && sameUri(this.shown.uri, document.uri)) {
        clearTimeout(this.waiting);
        this.waiting = setTimeout(() => void this.refresh(), RESTS_MS);
      }
    });
  }

  dispose(): void {
    clearTimeout(this.waiting);
    this.changes.dispose();
    this.panel?.dispose();
  }

  /** Show a kernel, beside the text. */
  async open(kernel: Kernel): Promise<void> {
    this.shown = kernel;
    if (this.panel === undefined) {
      this.panel = this.made();
    } else {
      this.panel.reveal(undefined, true);
      await this.refresh();
    }
  }

  /** Show anew what is known of the kernel in the panel; of no other, where one is named. */
  async refresh(only?: Kernel): Promise<void> {
    const { panel, shown } = this;
    if (panel === undefined || shown === undefined || (only !== undefined && only.uri !== shown.uri)) {
      return;
    }
    const view = await this.requests.view(shown);
    if (this.panel === panel && this.shown === shown && view !== undefined) {
      panel.title = `${view.kernel}: results`;
      await panel.webview.postMessage({ view, trusted: vscode.workspace.isTrusted });
    }
  }

  private made(): vscode.WebviewPanel {
    const panel = vscode.window.createWebviewPanel(
      "kernelmate.results",
      "KernelMate results",
      { viewColumn: vscode.ViewColumn.Beside, preserveFocus: true },
      { enableScripts: true, localResourceRoots: [this.dist], retainContextWhenHidden: true },
    );
    panel.onDidDispose(() => (this.panel = undefined));
    panel.webview.onDidReceiveMessage((asked: Asked) => this.asked(asked));
    panel.webview.html = page(panel.webview, this.dist, "KernelMate results", ["plotly.js", "results.js"]);
    return panel;
  }

  private async asked(asked: Asked): Promise<void> {
    const kernel = this.shown;
    if (asked.kind === "ready") {
      await this.refresh();
    } else if (kernel === undefined) {
      return;
    } else if (asked.kind === "command") {
      await vscode.commands.executeCommand(`kernelmate.${asked.command}`, kernel);
    } else if (asked.kind === "preview") {
      await this.requests.apply(kernel, asked.candidate);
    } else {
      const uri = vscode.Uri.parse(kernel.uri);
      const selection = new vscode.Range(asked.line - 1, 0, asked.line - 1, 0);
      await vscode.window.showTextDocument(uri, { selection, viewColumn: columnOf(uri, vscode.ViewColumn.One) });
    }
  }
}

/** Whether the server's spelling of a URI and the editor's are of the same document. */
function sameUri(sent: string, uri: vscode.Uri): boolean {
  return vscode.Uri.parse(sent).toString() === uri.toString();
}
