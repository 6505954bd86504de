/** What a report of a problem needs, with no key in it. */

import * as vscode from "vscode";
import { type Server, serverSettings } from "./client";

/** Open it as a document to copy from. */
export async function showDebugInformation(context: vscode.ExtensionContext, server: Server): Promise<void> {
  const { launch, client } = server;
  const packed = context.extension.packageJSON as { version: string };
  const found = launch === undefined ? "not looked for yet" : "command" in launch ? launch.described : launch.message;
  const information = {
    editor: `${vscode.env.appName} ${vscode.version}`,
    extension: packed.version,
    server: found,
    command: launch !== undefined && "command" in launch ? [launch.command, ...launch.args] : null,
    serverVersion: client?.initializeResult?.serverInfo ?? null,
    running: server.running() !== undefined,
    workspaceTrusted: vscode.workspace.isTrusted,
    remote: vscode.env.remoteName ?? null,
    platform: `${process.platform} ${process.arch}, Node ${process.versions.node}`,
    settings: serverSettings(context),
  };
  const content = JSON.stringify(information, null, 2);
  await vscode.window.showTextDocument(await vscode.workspace.openTextDocument({ language: "json", content }));
}
