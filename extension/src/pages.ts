/** Pages of text about a kernel, made by the server: what limits it, and its PTX and SASS. */

import * as vscode from "vscode";
import type { Kernel, Requests } from "./requests";

const SCHEME = "kernelmate-page";

export class Pages implements vscode.Disposable, vscode.TextDocumentContentProvider {
  private readonly texts = new Map<string, string>();
  private readonly changed = new vscode.EventEmitter<vscode.Uri>();
  readonly onDidChange = this.changed.event;
  private readonly disposables: vscode.Disposable[];

  constructor(private readonly requests: Requests) {
    this.disposables = [
      vscode.workspace.registerTextDocumentContentProvider(SCHEME, this),
      vscode.workspace.onDidCloseTextDocument(({ uri }) => this.texts.delete(uri.toString())),
      this.changed,
    ];
  }

  dispose(): void {
    this.disposables.forEach((one) => one.dispose());
  }

  provideTextDocumentContent(uri: vscode.Uri): string {
    return this.texts.get(uri.toString()) ?? "";
  }

  /** Show a kernel's page beside its text; one that is open already is made anew. */
  async open(command: string, given: Kernel): Promise<void> {
    const answer = await this.requests.send<{ text: string }>(command, { ...given });
    if (answer === undefined) {
      return;
    }
    const name = given.kernel.replace(/^\d+:/, "");
    const uri = vscode.Uri.from({ scheme: SCHEME, path: `/${command} ${name}`, query: given.uri });
    this.texts.set(uri.toString(), answer.text);
    this.changed.fire(uri);
    const document = await vscode.workspace.openTextDocument(uri);
    await vscode.window.showTextDocument(document, {
      viewColumn: vscode.ViewColumn.Beside,
      preserveFocus: true,
      preview: false,
    });
  }
}
