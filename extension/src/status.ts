/** What the editor's language status says of the server. */

import * as vscode from "vscode";
import { SELECTOR } from "./selector";

export type State = "starting" | "running" | "stopped" | "failed";

export class Status implements vscode.Disposable {
  private readonly item = vscode.languages.createLanguageStatusItem("kernelmate.status", SELECTOR);
  /** Each line of the menu has one command. */
  private readonly machine = vscode.languages.createLanguageStatusItem("kernelmate.machine", SELECTOR);

  constructor() {
    this.machine.name = "KernelMate: this machine";
    this.machine.text = "Compiler, GPU and model of this machine";
    this.machine.command = { title: "Check", command: "kernelmate.doctor" };
    this.item.name = "KernelMate";
    this.item.command = { title: "Show Logs", command: "kernelmate.showLogs" };
    this.show("starting", "");
  }

  /** Show a state with one line of detail. */
  show(state: State, detail: string): void {
    const limited = vscode.workspace.isTrusted ? "" : " (restricted: nothing is run)";
    this.item.text = state === "running" ? `KernelMate${limited}` : `KernelMate: ${state}${limited}`;
    this.item.detail = detail;
    this.item.busy = state === "starting";
    this.item.severity =
      state === "failed" ? vscode.LanguageStatusSeverity.Error : vscode.LanguageStatusSeverity.Information;
    void vscode.commands.executeCommand("setContext", "kernelmate.running", state === "running");
  }

  dispose(): void {
    this.item.dispose();
    this.machine.dispose();
  }
}
