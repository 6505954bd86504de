/** Keys of other machines' models: kept in the editor's secret store, and handed to the server by its environment. */

import * as vscode from "vscode";

interface Key {
  label: string;
  variable: string;
  description: string;
}

const KEYS: readonly Key[] = [
  { label: "Claude", variable: "ANTHROPIC_API_KEY", description: "for reviews by Claude, where kernelmate.claude is on" },
  { label: "Model server", variable: "KERNELMATE_MODEL_KEY", description: "for the server of kernelmate.modelUrl" },
];

/** Environment variables for the server. In a workspace that is not trusted nothing is judged, so none is handed over. */
export async function keysForServer(secrets: vscode.SecretStorage): Promise<Record<string, string>> {
  const environment: Record<string, string> = {};
  for (const key of vscode.workspace.isTrusted ? KEYS : []) {
    const value = await secrets.get(key.variable);
    if (value) {
      environment[key.variable] = value;
    }
  }
  return environment;
}

/** Ask for a key and keep it. */
export async function setKey(secrets: vscode.SecretStorage): Promise<void> {
  const key = await vscode.window.showQuickPick(KEYS, { placeHolder: "Whose key?" });
  if (key === undefined) {
    return;
  }
  const value = await vscode.window.showInputBox({
    title: `Key of ${key.label}`,
    prompt: "Kept in the editor's secret store; an empty one forgets it.",
    password: true,
    ignoreFocusOut: true,
  });
  if (value === undefined) {
    return;
  }
  await (value === "" ? secrets.delete(key.variable) : secrets.store(key.variable, value));
}

/** Forget all keys. */
export async function forgetKeys(secrets: vscode.SecretStorage): Promise<void> {
  for (const key of KEYS) {
    await secrets.delete(key.variable);
  }
  void vscode.window.showInformationMessage("KernelMate's keys were forgotten.");
}
