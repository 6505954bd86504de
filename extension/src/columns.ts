/** Where a document is open, so that what belongs to it opens there and not over the panel beside it. */

import * as vscode from "vscode";

/** The group with a tab of a document, else the one that is given. */
export function columnOf(uri: vscode.Uri, otherwise: vscode.ViewColumn): vscode.ViewColumn {
  const holds = ({ input }: vscode.Tab): boolean =>
    input instanceof vscode.TabInputText && input.uri.toString() === uri.toString();
  return vscode.window.tabGroups.all.find((group) => group.tabs.some(holds))?.viewColumn ?? otherwise;
}
