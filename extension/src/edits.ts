/** Edits that the server asks for: those that need their user's word are shown as a comparison first. */

import * as vscode from "vscode";
import type { ApplyWorkspaceEditParams, ApplyWorkspaceEditResult, LanguageClient } from "vscode-languageclient/node";
import { TextDocumentEdit, type WorkspaceEdit } from "vscode-languageserver-protocol";
import type { OtherChange, Previews, Suggestion } from "./preview";
import { changed } from "./texts";

/** Apply what the server asks for, after its user agreed where that is asked for too. */
export async function applyEdit(
  client: LanguageClient,
  previews: Previews,
  params: ApplyWorkspaceEditParams,
): Promise<ApplyWorkspaceEditResult> {
  const suggestion = await suggestionOf(client, params.edit);
  if (suggestion !== undefined) {
    return { applied: await previews.show(suggestion) };
  }
  for (const one of params.edit.documentChanges ?? []) {
    if (TextDocumentEdit.is(one) && one.textDocument.version !== null) {
      const uri = client.protocol2CodeConverter.asUri(one.textDocument.uri);
      const document = vscode.workspace.textDocuments.find((open) => open.uri.toString() === uri.toString());
      if (document !== undefined && document.version !== one.textDocument.version) {
        return { applied: false, failureReason: "the document was changed meanwhile" };
      }
    }
  }
  const edit = await client.protocol2CodeConverter.asWorkspaceEdit(params.edit);
  return { applied: edit !== undefined && (await vscode.workspace.applyEdit(edit)) };
}

/** An edit that needs confirmation, as the texts that it leads to, the kernel's document first; undefined for any other. */
export async function suggestionOf(client: LanguageClient, edit: WorkspaceEdit): Promise<Suggestion | undefined> {
  const annotation = Object.values(edit.changeAnnotations ?? {}).find((one) => one.needsConfirmation);
  const edits = (edit.documentChanges ?? []).filter((one) => TextDocumentEdit.is(one));
  if (annotation === undefined || edits.length === 0 || edits.length !== edit.documentChanges?.length) {
    return undefined;
  }
  const changes: OtherChange[] = [];
  for (const one of edits) {
    const uri = client.protocol2CodeConverter.asUri(one.textDocument.uri);
    const document = await vscode.workspace.openTextDocument(uri);
    const version = one.textDocument.version;
    if (version !== null && version !== document.version) {
      return undefined; // the edit's places are those of an earlier text
    }
    const before = document.getText();
    changes.push({ uri, before, text: changed(before, one.edits as Parameters<typeof changed>[1]) });
  }
  const [own, ...others] = changes as [OtherChange, ...OtherChange[]];
  return { uri: own.uri, text: own.text, label: annotation.label, description: annotation.description ?? "", others };
}
