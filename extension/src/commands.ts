/** Commands: those of the server with what their user leaves out filled in, and the extension's own. */

import * as path from "node:path";
import * as vscode from "vscode";
import {
  type CodeAction as ServerAction,
  CodeActionResolveRequest,
  DocumentSymbolRequest,
  type LanguageClientOptions,
} from "vscode-languageclient/node";
import type { Server } from "./client";
import { suggestionOf } from "./edits";
import { newExample } from "./example";
import type { Previews } from "./preview";
import type { Pages } from "./pages";
import { choices, remembered } from "./prompts";
import type { Kernel, Requests, Search } from "./requests";
import type { Results } from "./results";
import { SELECTOR } from "./selector";

type Middleware = NonNullable<LanguageClientOptions["middleware"]>;

/** Under which earlier prompts are kept, for all workspaces. */
const PROMPTS = "prompts";

/** Seconds after which a repair that was not found is given up, unless it is asked for with another limit. */
const FIX_BUDGET_S = 60;

const BASELINES = [
  { label: "Saved file", baseline: "saved" },
  { label: "Last commit", baseline: "HEAD" },
  { label: "Pinned version", baseline: "pinned" },
];

export class Commands {
  constructor(
    private readonly server: Server,
    private readonly requests: Requests,
    private readonly previews: Previews,
    private readonly results: Results,
    private readonly pages: Pages,
    private readonly memory: vscode.Memento,
  ) {}

  /** The client's middleware: what the editor calls by the server's names comes here first. */
  readonly middleware: Middleware = {
    executeCommand: async (command, args, next) => {
      if (command === "kernelmate.write") {
        // Of a Python function: there is no kernel yet.
        const written: unknown = await next(command, args);
        return written;
      }
      const [first] = args as unknown[];
      if (command === "kernelmate.addIncludePath") {
        return addIncludePath(first as { uri: string; folder: string });
      }
      if (command === "kernelmate.doctor") {
        return this.pages.doctor();
      }
      const given = isKernel(first) ? first : await this.kernelHere();
      if (given === undefined) {
        return undefined;
      }
      if (command === "kernelmate.results") {
        return this.results.open({ uri: given.uri, kernel: given.kernel });
      }
      if (command === "kernelmate.optimize") {
        return this.optimize(given);
      }
      if (command === "kernelmate.explain" || command === "kernelmate.sass") {
        return this.pages.open(command.slice("kernelmate.".length), given);
      }
      if (command === "kernelmate.history") {
        return this.history(given);
      }
      if (command === "kernelmate.fix") {
        return next(command, [{ budgetS: FIX_BUDGET_S, ...given }]);
      }
      if (command === "kernelmate.compare" && !("baseline" in given)) {
        return this.compare(given);
      }
      const answer: unknown = await next(command, [given]);
      await this.results.refresh(given);
      return answer;
    },
    provideInlineCompletionItems: (document, position, context, token, next) =>
      next(document, position, this.asSent(context), token),
    provideCodeActions: async (document, range, context, token, next) => {
      const found = await next(document, range, context, token);
      return found?.map((action) => (action instanceof vscode.CodeAction ? previewed(action) : action));
    },
    resolveCodeAction: (action, token, next) => (action.command === undefined ? next(action, token) : action),
  };

  /** After a candidate was taken: its verdict is shown, and a part of it, which has none, is judged. */
  readonly taken = async (uri: vscode.Uri, line: number, partial: boolean): Promise<void> => {
    const editor = vscode.window.activeTextEditor;
    if (partial && editor?.document.uri.toString() === uri.toString()) {
      editor.selection = new vscode.Selection(line, 0, line, 0);
      void vscode.window.showInformationMessage("A part of the candidate was taken, which is another version: it is judged now.");
      await vscode.commands.executeCommand("kernelmate.benchmark");
    }
    await this.results.refresh();
  };

  /** What the extension registers by itself. */
  readonly own: Record<string, (...args: never[]) => unknown> = {
    "kernelmate.previewAction": (action: ServerAction) => this.preview(action),
    "kernelmate.newExample": newExample,
  };

  /** Search for what the user asks for, and show the best candidate as a comparison. */
  private async optimize(given: Kernel & { prompt?: string }): Promise<Search | undefined> {
    const earlier = this.memory.get<string[]>(PROMPTS, []);
    const prompt = given.prompt ?? (await askPrompt(given.kernel, earlier));
    if (prompt === undefined) {
      return undefined;
    }
    await this.memory.update(PROMPTS, remembered(prompt, earlier));
    const { uri, kernel, ...more } = given;
    const found = await this.requests.optimize({ uri, kernel }, prompt, more);
    await this.results.refresh(given);
    if (found === undefined || "applied" in found) {
      return undefined;
    }
    if ("explained" in found) {
      await this.pages.show(`explain ${nameOf(kernel)}`, uri, found.text);
      return undefined;
    }
    if (found.best !== null && found.stopped === undefined) {
      await this.requests.apply({ uri, kernel }, found.best);
      return found;
    }
    const message = found.stopped ?? found.nothing ?? `Nothing that does “${prompt}” was found.`;
    const chosen = await vscode.window.showInformationMessage(message, "Show Results");
    if (chosen !== undefined) {
      await this.results.open({ uri, kernel });
    }
    return found;
  }

  /** Choose among the judged versions of a kernel; the chosen one is shown beside the present text. */
  private async history(given: Kernel): Promise<void> {
    const found = await this.requests.history(given);
    if (found === undefined) {
      return;
    }
    if (found.lines.length === 0) {
      void vscode.window.showInformationMessage(`${nameOf(given.kernel)} was not judged yet. Run Benchmark first.`);
      return;
    }
    const items = found.lines.map(({ version, label }) => ({ label: `${version}`, description: label, version }));
    const chosen = await vscode.window.showQuickPick(items, {
      placeHolder: "Compare the present text with",
      matchOnDescription: true,
    });
    if (chosen !== undefined) {
      await this.requests.send("restore", { ...given, version: chosen.version });
    }
  }

  /** A request's context as the protocol has it; the client of vscode-languageclient 9 leaves its range as it is here. */
  private asSent(context: vscode.InlineCompletionContext): vscode.InlineCompletionContext {
    const client = this.server.running();
    const info = context.selectedCompletionInfo;
    if (client === undefined || info === undefined) {
      return context;
    }
    const range = client.code2ProtocolConverter.asRange(info.range) as unknown as vscode.Range;
    return { ...context, selectedCompletionInfo: { text: info.text, range } };
  }

  private async compare(given: Kernel): Promise<void> {
    const chosen = await vscode.window.showQuickPick(BASELINES, { placeHolder: "Compare with which version?" });
    if (chosen !== undefined) {
      await this.requests.send("compare", { ...given, baseline: chosen.baseline });
      await this.results.open({ uri: given.uri, kernel: given.kernel });
    }
  }

  /** Have a rewrite judged, and show what it leads to. */
  private async preview(action: ServerAction): Promise<void> {
    const client = this.server.running();
    if (client === undefined) {
      return;
    }
    const resolved = await client.sendRequest(CodeActionResolveRequest.type, action);
    const suggestion = resolved.edit && (await suggestionOf(client, resolved.edit));
    if (suggestion !== undefined) {
      await this.previews.show(suggestion);
    }
  }

  /** The kernel at the cursor of the active editor, or of one in view where none is active, the only one, or the one that the user picks. */
  private async kernelHere(): Promise<Kernel | undefined> {
    const client = this.server.running();
    if (client === undefined) {
      return undefined;
    }
    // A page of the walkthrough is no text editor: its buttons mean the kernel beside it.
    const { activeTextEditor, visibleTextEditors } = vscode.window;
    const editor = activeTextEditor ?? visibleTextEditors.find(({ document }) => vscode.languages.match(SELECTOR, document) > 0);
    if (editor === undefined) {
      const example = "New Example Kernel";
      const chosen = await vscode.window.showInformationMessage("No document with a kernel is in view. Open one first.", example);
      if (chosen === example) {
        await newExample();
      }
      return undefined;
    }
    const uri = client.code2ProtocolConverter.asUri(editor.document.uri);
    const symbols = (await client.sendRequest(DocumentSymbolRequest.type, { textDocument: { uri } })) ?? [];
    const places = symbols.flatMap((one) => ("range" in one ? [{ name: one.name, range: one.range }] : []));
    const line = editor.selection.active.line;
    const here = places.find(({ range }) => range.start.line <= line && line <= range.end.line);
    if (here !== undefined || places.length === 1) {
      return { uri, kernel: (here ?? places[0])?.name ?? "" };
    }
    if (places.length === 0) {
      void vscode.window.showInformationMessage("There is no CUDA kernel in this document.");
      return undefined;
    }
    const kernel = await vscode.window.showQuickPick(places.map((one) => one.name), { placeHolder: "Which kernel?" });
    return kernel === undefined ? undefined : { uri, kernel };
  }
}

function isKernel(given: unknown): given is Kernel & { prompt?: string } {
  return typeof given === "object" && given !== null && "uri" in given && "kernel" in given;
}

/**
 * An action whose edit is only made, and judged, when it is chosen: shown as a comparison in place of being applied at
 * once. Edits that stand already are left as they are.
 */
function previewed(action: vscode.CodeAction): vscode.CodeAction {
  const data: unknown = "data" in action ? action.data : undefined;
  if (data === undefined || action.edit !== undefined) {
    return action;
  }
  const asked = { title: action.title, kind: action.kind?.value, data };
  action.command = { title: action.title, command: "kernelmate.previewAction", arguments: [asked] };
  return action;
}

/** The user's own words, earlier ones, or one of the usual wishes. */
function askPrompt(kernel: string, earlier: readonly string[]): Promise<string | undefined> {
  const pick = vscode.window.createQuickPick();
  pick.title = `What do you want of ${nameOf(kernel)}?`;
  pick.placeholder = "Say it in your own words, or choose";
  pick.ignoreFocusOut = true; // words that were typed must not be lost where another view takes the focus
  pick.items = choices("", earlier);
  pick.onDidChangeValue((value) => (pick.items = choices(value, earlier)));
  return new Promise((resolve) => {
    pick.onDidAccept(() => {
      resolve(pick.selectedItems[0]?.label ?? (pick.value.trim() || undefined));
      pick.hide();
    });
    pick.onDidHide(() => {
      resolve(undefined);
      pick.dispose();
    });
    pick.show();
  });
}

/** Have a folder's headers found, by the setting of the document's workspace folder; a relative path where it is in it. */
async function addIncludePath({ uri, folder }: { uri: string; folder: string }): Promise<void> {
  const root = vscode.workspace.getWorkspaceFolder(vscode.Uri.parse(uri));
  const config = vscode.workspace.getConfiguration("kernelmate", root?.uri);
  const under = root !== undefined && (folder === root.uri.fsPath || folder.startsWith(root.uri.fsPath + path.sep));
  const added = under ? path.relative(root.uri.fsPath, folder) || "." : folder;
  const folders = config.get<string[]>("includePaths", []);
  if (!folders.includes(added)) {
    const several = (vscode.workspace.workspaceFolders ?? []).length > 1;
    const target = root === undefined ? vscode.ConfigurationTarget.Global
      : several ? vscode.ConfigurationTarget.WorkspaceFolder : vscode.ConfigurationTarget.Workspace;
    await config.update("includePaths", [...folders, added], target);
  }
}

/** A kernel's name without the number of its place in the document. */
function nameOf(id: string): string {
  return id.replace(/^\d+:/, "");
}
