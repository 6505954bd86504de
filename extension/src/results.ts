/** The results panel: what is known of one kernel, in the same view as the notebook's. */

import * as vscode from "vscode";
import type { Kernel, Requests } from "./requests";
import { page } from "./webview";

/** What the panel's page may ask for. */
type Asked =
  | { kind: "ready" }
  | { kind: "command"; command: "benchmark" | "optimize" | "compare" | "pin" }
  | { kind: "preview"; candidate: number }
  | { kind: "line"; line: number };

export class Results implements vscode.Disposable {
  private panel: vscode.WebviewPanel | undefined;
  private shown: Kernel | undefined;

  constructor(
    private readonly dist: vscode.Uri,
    private readonly requests: Requests,
  ) {}

  dispose(): void {
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
    const results = await this.requests.results(shown);
    const view = results === undefined ? undefined : await this.requests.view(shown);
    const charts = results === undefined ? undefined : await this.requests.figures(shown);
    if (this.panel === panel && this.shown === shown && results !== undefined) {
      panel.title = `${results.kernel}: results`;
      await panel.webview.postMessage({ results, view, charts, trusted: vscode.workspace.isTrusted, now: Date.now() / 1000 });
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
      await vscode.window.showTextDocument(uri, { selection, viewColumn: vscode.ViewColumn.One });
    }
  }
}
