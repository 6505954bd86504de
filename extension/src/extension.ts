/** Joins the parts: the server's client, commands, comparisons, the results panel, keys and the status. */

import * as vscode from "vscode";
import { ApplyWorkspaceEditRequest, type CancellationToken, State } from "vscode-languageclient/node";
import { Server, SECTION } from "./client";
import { Commands } from "./commands";
import { askConsent, type Outgoing } from "./consent";
import { showDebugInformation } from "./debug";
import { applyEdit } from "./edits";
import { Pages } from "./pages";
import { Previews } from "./preview";
import { Progress } from "./progress";
import { onInterpreterSelected } from "./python";
import { Requests } from "./requests";
import { Results } from "./results";
import { SELECTOR } from "./selector";
import { forgetKeys, setKey } from "./secrets";
import { Status } from "./status";

/** Settings that the server cannot change while it runs. */
const AT_START = ["interpreter", "importStrategy", "path", "logLevel"].map((name) => `${SECTION}.${name}`);

let stop: (() => Promise<void>) | undefined;

export async function activate(context: vscode.ExtensionContext): Promise<void> {
  const dist = vscode.Uri.joinPath(context.extensionUri, "dist");
  const log = vscode.window.createOutputChannel("KernelMate", { log: true });
  const status = new Status();
  const previews = new Previews((uri, line, partial) => void commands.taken(uri, line, partial));
  const requests = new Requests(
    () => server.running(),
    (message) => log.error(message),
  );
  const results = new Results(dist, requests);
  const pages = new Pages(requests);
  const progress = new Progress(() => server.running());
  const server: Server = new Server(context, log, status, {
    get middleware() {
      return { ...commands.middleware, handleWorkDoneProgress: progress.handle };
    },
    prepare: (client) => {
      client.onDidChangeState(({ newState }) => {
        if (newState === State.Stopped) {
          progress.forget();
        }
      });
      client.onRequest(ApplyWorkspaceEditRequest.type, (params) => applyEdit(client, previews, params));
      client.onRequest("kernelmate/consent", async (outgoing: Outgoing, token: CancellationToken) => ({
        agreed: await askConsent(dist, outgoing, token),
      }));
    },
  });
  const commands = new Commands(server, requests, previews, results, pages, context.globalState);
  stop = () => server.stop();

  const restart = (): Promise<void> => server.restart();
  const own: Record<string, (...args: never[]) => unknown> = {
    ...commands.own,
    "kernelmate.restart": restart,
    "kernelmate.showLogs": () => log.show(),
    "kernelmate.debugInformation": () => showDebugInformation(context, server),
    "kernelmate.setKey": () => setKey(context.secrets),
    "kernelmate.forgetKeys": () => forgetKeys(context.secrets),
  };
  context.subscriptions.push(
    log,
    status,
    previews,
    results,
    pages,
    server,
    ...Object.entries(own).map(([name, run]) => vscode.commands.registerCommand(name, run)),
    vscode.workspace.onDidGrantWorkspaceTrust(restart),
    context.secrets.onDidChange(restart),
    vscode.workspace.onDidChangeConfiguration((event) => {
      if (AT_START.some((name) => event.affectsConfiguration(name))) {
        void restart();
      }
    }),
  );
  const selected = await onInterpreterSelected(restart);
  context.subscriptions.push(...(selected === undefined ? [] : [selected]));
  await whenNeeded(context, restart);
}

/** Start the server with the first document that it is for: in a window of C++ files there may be none. */
async function whenNeeded(context: vscode.ExtensionContext, start: () => Promise<void>): Promise<void> {
  const served = (document: vscode.TextDocument): boolean => vscode.languages.match(SELECTOR, document) > 0;
  if (vscode.workspace.textDocuments.some(served)) {
    await start();
    return;
  }
  const waiting = vscode.workspace.onDidOpenTextDocument((document) => {
    if (served(document)) {
      waiting.dispose();
      void start();
    }
  });
  context.subscriptions.push(waiting);
}

export async function deactivate(): Promise<void> {
  await stop?.();
}
