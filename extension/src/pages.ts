/** Pages of text that the server made: what limits a kernel, its PTX and SASS, and what this machine has and lacks. */

import * as vscode from "vscode";
import type { Kernel, Requests } from "./requests";

const SCHEME = "kernelmate-page";
/**
 * Folders of pages, by which package.json gives them a language: editors of both have no numbers and no map; those of
 * sentences wrap lines, and those of code do not, as a wrapped instruction reads as two.
 */
const SENTENCES = "/kernelmate-page";
const CODE = "/kernelmate-code";

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
    if (answer !== undefined) {
      await this.show(`${command} ${given.kernel.replace(/^\d+:/, "")}`, given.uri, answer.text, command === "sass" ? CODE : SENTENCES);
    }
  }

  /** Show what this machine has and lacks; the probes take some seconds. */
  async doctor(): Promise<void> {
    const looking = { location: vscode.ProgressLocation.Notification, title: "KernelMate looks at this machine" };
    const uri = vscode.window.activeTextEditor?.document.uri;
    const given = uri?.scheme === "file" ? { uri: uri.toString() } : {};
    const answer = await vscode.window.withProgress(looking, () => this.requests.send<{ text: string }>("doctor", given));
    if (answer !== undefined) {
      await this.show("doctor", "", answer.text);
    }
  }

  /** Show a text beside the active editor; `query` tells pages of one title apart. */
  async show(title: string, query: string, text: string, folder = SENTENCES): Promise<void> {
    const uri = vscode.Uri.from({ scheme: SCHEME, path: `${folder}/${title}`, query });
    this.texts.set(uri.toString(), text);
    this.changed.fire(uri);
    const document = await vscode.workspace.openTextDocument(uri);
    await vscode.window.showTextDocument(document, {
      viewColumn: vscode.ViewColumn.Beside,
      preserveFocus: true,
      preview: false,
    });
  }
}
