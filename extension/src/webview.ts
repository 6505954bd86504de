/** What the extension's web views share: a page that runs its own scripts alone and asks the network for nothing. */

import { randomBytes } from "node:crypto";
import * as vscode from "vscode";

/** The page of a web view, whose scripts are files of dist/. */
export function page(webview: vscode.Webview, dist: vscode.Uri, title: string, scripts: readonly string[]): string {
  const nonce = randomBytes(16).toString("base64");
  const file = (name: string): string => webview.asWebviewUri(vscode.Uri.joinPath(dist, name)).toString();
  const policy = [
    "default-src 'none'",
    `script-src 'nonce-${nonce}'`,
    `style-src ${webview.cspSource} 'nonce-${nonce}'`,
    "img-src data: blob:",
    "base-uri 'none'",
    "form-action 'none'",
  ].join("; ");
  return [
    "<!doctype html>",
    '<html lang="en"><head><meta charset="utf-8">',
    `<meta http-equiv="Content-Security-Policy" content="${policy}">`,
    `<title>${title}</title>`,
    `<link rel="stylesheet" href="${file("view.css")}">`,
    // Plotly puts its rules into this sheet where it is there, which needs no permission for inline styles.
    `<style nonce="${nonce}" id="plotly.js-style-global"></style>`,
    '</head><body><main id="root"></main>',
    ...scripts.map((name) => `<script nonce="${nonce}" src="${file(name)}"></script>`),
    "</body></html>",
  ].join("\n");
}
