/**
 * A candidate beside the text as it is, in the editor's own diff view: all of it or single changes are taken into the
 * document or put back in the candidate, until nothing differs or the view is closed.
 */

import * as vscode from "vscode";
import { columnOf } from "./columns";
import { type Hunk, hunkAt, hunksOf, linesOf, withHunk, withoutHunk } from "./hunks";

export const BEFORE = "kernelmate-before";
export const AFTER = "kernelmate-after";
const OPEN = "kernelmate.suggestionOpen";

/** A changed text of a document, and where it is from. */
export interface Suggestion {
  uri: vscode.Uri;
  text: string;
  /** As in "KernelMate: recipe:pad-shared-tile". */
  label: string;
  /** Why, and what the verdict says. */
  description: string;
  /** Other documents that change once all of it is taken: they launch the kernel. */
  others: readonly OtherChange[];
}

/** A document beside the kernel's: its text when the suggestion came, and the changed one. */
export interface OtherChange {
  uri: vscode.Uri;
  before: string;
  text: string;
}

interface Shown extends Suggestion {
  key: string;
  beforeText: string;
  /** The text that was judged; `text` has fewer changes once some were put back. */
  judged: string;
  taken: boolean;
  /** Of the document, from 0, where the first change is. */
  line: number;
  /** While this writes into the document itself. */
  writing: boolean;
  done: (taken: boolean) => void;
}

export class Previews implements vscode.Disposable, vscode.TextDocumentContentProvider {
  private readonly shown = new Map<string, Shown>();
  private readonly changed = new vscode.EventEmitter<vscode.Uri>();
  readonly onDidChange = this.changed.event;
  private readonly lensesChanged = new vscode.EventEmitter<void>();
  private readonly mark = vscode.window.createTextEditorDecorationType({
    after: { color: new vscode.ThemeColor("editorCodeLens.foreground"), margin: "0 0 0 3em" },
  });
  private readonly disposables: vscode.Disposable[];
  private count = 0;

  /** @param onTaken called after a suggestion was taken; `partial` where it was so in part. */
  constructor(private readonly onTaken: (uri: vscode.Uri, line: number, partial: boolean) => void) {
    const commands: [string, (uri?: unknown, index?: unknown) => unknown][] = [
      ["kernelmate.acceptCandidate", (uri) => this.acceptAll(uri)],
      ["kernelmate.rejectCandidate", (uri) => this.rejectAll(uri)],
      ["kernelmate.acceptChange", (uri, index) => this.oneChange(uri, index, true)],
      ["kernelmate.rejectChange", (uri, index) => this.oneChange(uri, index, false)],
    ];
    this.disposables = [
      vscode.workspace.registerTextDocumentContentProvider(BEFORE, this),
      vscode.workspace.registerTextDocumentContentProvider(AFTER, this),
      vscode.languages.registerCodeLensProvider({ scheme: AFTER }, {
        onDidChangeCodeLenses: this.lensesChanged.event,
        provideCodeLenses: (document) => this.lenses(document),
      }),
      vscode.window.onDidChangeVisibleTextEditors(() => this.decorate()),
      vscode.workspace.onDidChangeTextDocument(({ document }) => this.textChanged(document)),
      vscode.window.tabGroups.onDidChangeTabs((event) => event.closed.forEach((tab) => this.closed(tab))),
      ...commands.map(([name, run]) => vscode.commands.registerCommand(name, run)),
      this.changed,
      this.lensesChanged,
      this.mark,
    ];
  }

  dispose(): void {
    this.disposables.forEach((one) => one.dispose());
  }

  provideTextDocumentContent(uri: vscode.Uri): string {
    const shown = this.shown.get(keyOf(uri));
    return (uri.scheme === BEFORE ? shown?.beforeText : shown?.text) ?? "";
  }

  /**
   * Show a suggestion, after a question where its user is at another document meanwhile; resolves once its user is done with it, true
   * where any of it was taken.
   */
  async show(suggestion: Suggestion): Promise<boolean> {
    const document = await vscode.workspace.openTextDocument(suggestion.uri);
    if (this.elsewhere(suggestion.uri)) {
      const ready = `${authorIn(suggestion.label)} is ready for ${baseName(suggestion.uri)}. ${verdictOf(suggestion)}`;
      if ((await vscode.window.showInformationMessage(ready, "Show", "Discard")) !== "Show") {
        return false;
      }
    }
    for (const other of [...this.shown.values()]) {
      if (other.uri.toString() === suggestion.uri.toString()) {
        await this.close(other);
      }
    }
    const key = String(++this.count);
    return new Promise<boolean>((resolve, reject) => {
      const beforeText = document.getText();
      const line = hunksOf(beforeText, suggestion.text)[0]?.before ?? 0;
      const judged = suggestion.text;
      this.shown.set(key, { ...suggestion, key, beforeText, judged, taken: false, line, writing: false, done: resolve });
      this.open(key, document).catch(reject);
    });
  }

  private async open(key: string, document: vscode.TextDocument): Promise<void> {
    const shown = this.shown.get(key);
    if (shown === undefined) {
      return;
    }
    const [before, after] = [uriOf(BEFORE, shown), uriOf(AFTER, shown)];
    for (const uri of [before, after]) {
      const made = await vscode.workspace.openTextDocument(uri);
      if (made.languageId !== document.languageId) {
        await vscode.languages.setTextDocumentLanguage(made, document.languageId);
      }
    }
    this.tellOpen();
    await vscode.commands.executeCommand("vscode.diff", before, after, `${baseName(shown.uri)} ↔ ${authorIn(shown.label)}`, {
      preview: false,
      viewColumn: columnOf(shown.uri, vscode.ViewColumn.Active),
    });
    this.decorate();
    if (!this.shown.has(key)) {
      return; // its user was faster than this
    }
    const chosen = await vscode.window.showInformationMessage(`${authorIn(shown.label)}: ${verdictOf(shown)}`, "Accept", "Reject");
    if (this.shown.has(key)) {
      await (chosen === "Accept" ? this.accept(shown) : chosen === "Reject" ? this.close(shown) : undefined);
    }
  }

  /** Whether the active editor shows another document, or a comparison of one. */
  private elsewhere(uri: vscode.Uri): boolean {
    const active = vscode.window.activeTextEditor?.document.uri;
    const compared = active && this.shown.get(keyOf(active))?.uri;
    return active !== undefined && (compared ?? active).toString() !== uri.toString();
  }

  /** A comparison with a text that is no longer there, as after an undo, cannot be accepted: its question goes. */
  private textChanged(document: vscode.TextDocument): void {
    const stale = [...this.shown.values()].some(
      (one) => !one.writing && one.uri.toString() === document.uri.toString() && document.getText() !== one.beforeText,
    );
    if (stale) {
      void vscode.commands.executeCommand("notifications.hideToasts");
    }
  }

  private acceptAll(uri: unknown): Promise<void> | undefined {
    const shown = this.find(uri);
    return shown && this.accept(shown);
  }

  private rejectAll(uri: unknown): Promise<void> | undefined {
    const shown = this.find(uri);
    return shown && this.close(shown);
  }

  private async accept(shown: Shown): Promise<void> {
    if (await this.write(shown, shown.text)) {
      await this.close(shown);
    }
  }

  /** Take one change into the document, or put it back in the candidate. */
  private async oneChange(uri: unknown, index: unknown, take: boolean): Promise<void> {
    const shown = this.find(uri);
    if (shown === undefined) {
      return;
    }
    const hunks = hunksOf(shown.beforeText, shown.text);
    const hunk = typeof index === "number" ? hunks[index] : this.atCursor(shown, hunks);
    if (hunk === undefined) {
      void vscode.window.showInformationMessage("There is no change at the cursor: put it into one of the marked lines.");
      return;
    }
    if (take) {
      const text = withHunk(shown.beforeText, shown.text, hunk);
      if (!(await this.write(shown, text))) {
        return;
      }
      shown.beforeText = text;
    } else {
      shown.text = withoutHunk(shown.beforeText, shown.text, hunk);
    }
    if (shown.text === shown.beforeText) {
      await this.close(shown);
      return;
    }
    this.changed.fire(uriOf(BEFORE, shown));
    this.changed.fire(uriOf(AFTER, shown));
    this.lensesChanged.fire();
    // The marks move once the editor has the new texts.
    setTimeout(() => this.decorate(), 100);
  }

  private atCursor(shown: Shown, hunks: readonly Hunk[]): Hunk | undefined {
    const after = uriOf(AFTER, shown).toString();
    const editor = vscode.window.visibleTextEditors.find((one) => one.document.uri.toString() === after);
    return editor && hunkAt(hunks, editor.selection.active.line);
  }

  /** Write a text into the document, as one step that undo takes back; says whether that could be done. */
  private async write(shown: Shown, text: string): Promise<boolean> {
    const changes = [{ uri: shown.uri, before: shown.beforeText, text }, ...(text === shown.judged ? shown.others : [])];
    const edit = new vscode.WorkspaceEdit();
    for (const one of changes) {
      const document = await vscode.workspace.openTextDocument(one.uri);
      if (document.getText() !== one.before) {
        void vscode.window.showWarningMessage(
          `${baseName(one.uri)} was changed after this candidate was judged. Close the comparison and run Optimize again.`,
        );
        return false;
      }
      for (const hunk of hunksOf(one.before, one.text)) {
        const range = new vscode.Range(hunk.before, 0, hunk.beforeEnd, 0);
        edit.replace(one.uri, range, linesOf(one.text).slice(hunk.after, hunk.afterEnd).join(""));
      }
    }
    shown.writing = true;
    const applied = await vscode.workspace.applyEdit(edit);
    shown.writing = false;
    shown.taken ||= applied;
    return applied;
  }

  private async close(shown: Shown): Promise<void> {
    if (!this.shown.delete(shown.key)) {
      return;
    }
    this.tellOpen();
    // The question of this comparison is answered; a toast cannot be taken back by itself.
    await vscode.commands.executeCommand("notifications.hideToasts");
    const tab = vscode.window.tabGroups.all.flatMap((group) => group.tabs).find((one) => keyOfTab(one) === shown.key);
    if (tab !== undefined) {
      await vscode.window.tabGroups.close(tab);
    }
    if (shown.taken) {
      await reveal(shown.uri);
      const document = await vscode.workspace.openTextDocument(shown.uri);
      this.onTaken(shown.uri, shown.line, document.getText() !== shown.judged);
    }
    shown.done(shown.taken);
  }

  private closed(tab: vscode.Tab): void {
    const shown = this.shown.get(keyOfTab(tab) ?? "");
    if (shown !== undefined) {
      void this.close(shown);
    }
  }

  private find(uri: unknown): Shown | undefined {
    const active = vscode.window.activeTextEditor?.document.uri;
    const tab = vscode.window.tabGroups.activeTabGroup.activeTab;
    const keys = [uri instanceof vscode.Uri ? keyOf(uri) : uri, tab && keyOfTab(tab), active && keyOf(active)];
    const key = keys.find((one): one is string => typeof one === "string" && this.shown.has(one));
    return key === undefined ? undefined : this.shown.get(key);
  }

  private tellOpen(): void {
    void vscode.commands.executeCommand("setContext", OPEN, this.shown.size > 0);
  }

  private lenses(document: vscode.TextDocument): vscode.CodeLens[] {
    const shown = this.shown.get(keyOf(document.uri));
    if (shown === undefined) {
      return [];
    }
    return hunksOf(shown.beforeText, shown.text).flatMap((hunk, index) => {
      const line = Math.min(hunk.after, document.lineCount - 1);
      const range = new vscode.Range(line, 0, line, 0);
      const args = [document.uri, index];
      return [
        new vscode.CodeLens(range, { title: "Accept change", command: "kernelmate.acceptChange", arguments: args }),
        new vscode.CodeLens(range, { title: "Reject change", command: "kernelmate.rejectChange", arguments: args }),
      ];
    });
  }

  /** Mark each change in the candidate's pane; the mark's hover has what can be done with it. */
  private decorate(): void {
    for (const editor of vscode.window.visibleTextEditors) {
      const shown = editor.document.uri.scheme === AFTER ? this.shown.get(keyOf(editor.document.uri)) : undefined;
      if (shown === undefined) {
        continue;
      }
      const hunks = hunksOf(shown.beforeText, shown.text);
      editor.setDecorations(
        this.mark,
        hunks.map((hunk, index) => {
          const line = editor.document.lineAt(Math.min(hunk.after, editor.document.lineCount - 1));
          return {
            range: line.range,
            hoverMessage: hoverOf(shown, index, hunks.length),
            renderOptions: { after: { contentText: `change ${index + 1} of ${hunks.length}` } },
          };
        }),
      );
    }
  }
}

function hoverOf(shown: Shown, index: number, count: number): vscode.MarkdownString {
  const given = encodeURIComponent(JSON.stringify([shown.key, index]));
  const text = new vscode.MarkdownString();
  text.isTrusted = { enabledCommands: ["kernelmate.acceptChange", "kernelmate.rejectChange"] };
  text.appendMarkdown(
    `Change ${index + 1} of ${count}: [Accept](command:kernelmate.acceptChange?${given}) · ` +
      `[Reject](command:kernelmate.rejectChange?${given})\n\n`,
  );
  text.appendText(shown.description);
  return text;
}

function uriOf(scheme: string, shown: Shown): vscode.Uri {
  return vscode.Uri.from({ scheme, path: `/${baseName(shown.uri)}`, query: shown.key });
}

function keyOf(uri: vscode.Uri): string {
  return uri.scheme === BEFORE || uri.scheme === AFTER ? uri.query : "";
}

function keyOfTab(tab: vscode.Tab): string | undefined {
  return tab.input instanceof vscode.TabInputTextDiff ? keyOf(tab.input.modified) || undefined : undefined;
}

/** The author's name without the product's and without the kind of a built-in author, as in the results panel. */
function authorIn(label: string): string {
  return label.replace(/^KernelMate: (?:(?:recipe|synthesis|triton):)?/, "");
}

/** A suggestion's verdict, without the reason that follows on its next line. */
function verdictOf({ description }: Suggestion): string {
  return description.split("\n", 1)[0] ?? "";
}

function baseName(uri: vscode.Uri): string {
  return uri.path.slice(uri.path.lastIndexOf("/") + 1);
}

/** Bring the document to the front; a notebook's cell within its notebook. */
async function reveal(uri: vscode.Uri): Promise<void> {
  const notebook = vscode.workspace.notebookDocuments.find((one) =>
    one.getCells().some((cell) => cell.document.uri.toString() === uri.toString()),
  );
  if (notebook === undefined) {
    await vscode.window.showTextDocument(uri, { viewColumn: columnOf(uri, vscode.ViewColumn.Active) });
  } else {
    await vscode.window.showNotebookDocument(notebook);
  }
}
