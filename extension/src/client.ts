/** The language client: starts the server, starts it again where it dies, and hands it what it asks for. */

import * as vscode from "vscode";
import {
  CloseAction,
  ErrorAction,
  LanguageClient,
  type LanguageClientOptions,
  RevealOutputChannelOn,
  State,
} from "vscode-languageclient/node";
import { findServer, type Launch, type Missing } from "./finding";
import { looker, selectedInterpreter } from "./python";
import { Restarts } from "./restarts";
import { keysForServer } from "./secrets";
import { SELECTOR } from "./selector";
import { sentToServer } from "./settings";
import type { Status } from "./status";

export const SECTION = "kernelmate";
const WATCHED = "**/{*.cu,*.cuh,*.h,*.hpp,pyproject.toml,compile_commands.json}";

/** What the rest of the extension does for the client. */
export interface Hooks {
  middleware: NonNullable<LanguageClientOptions["middleware"]>;
  /** Called with each client before it is started. */
  prepare(client: LanguageClient): void;
}

export class Server implements vscode.Disposable {
  client: LanguageClient | undefined;
  /** What was started, or why nothing was. */
  launch: Launch | Missing | undefined;
  private readonly restarts = new Restarts();
  private turn: Promise<void> = Promise.resolve();

  constructor(
    private readonly context: vscode.ExtensionContext,
    private readonly log: vscode.LogOutputChannel,
    private readonly status: Status,
    private readonly hooks: Hooks,
  ) {}

  /** Start the server, or end it and start it again; calls wait for each other. */
  restart(): Promise<void> {
    this.turn = this.turn.then(() => this.restartNow()).catch((error: unknown) => this.failed(String(error)));
    return this.turn;
  }

  /** The client, where its server answers. */
  running(): LanguageClient | undefined {
    return this.client?.isRunning() ? this.client : undefined;
  }

  async stop(): Promise<void> {
    const client = this.client;
    this.client = undefined;
    if (client !== undefined) {
      await client.dispose().catch((error: unknown) => this.log.warn(String(error)));
    }
  }

  dispose(): void {
    void this.stop();
  }

  private async restartNow(): Promise<void> {
    await this.stop();
    this.restarts.forget();
    this.status.show("starting", "");
    const config = vscode.workspace.getConfiguration(SECTION);
    const launch = await findServer(
      {
        path: config.get<string[]>("path", []),
        interpreter: config.get<string[]>("interpreter", []),
        selected: await selectedInterpreter(),
        importStrategy: config.get<"fromEnvironment" | "fromPath">("importStrategy", "fromEnvironment"),
      },
      looker(this.context.extensionPath),
    );
    this.launch = launch;
    if (!("command" in launch)) {
      this.status.show("failed", launch.message);
      this.log.error(launch.message);
      void sayMissing(launch);
      return;
    }
    this.log.info(`Starting ${launch.described}: ${[launch.command, ...launch.args].join(" ")}`);
    const client = await this.made(launch, config);
    this.client = client;
    this.hooks.prepare(client);
    client.onDidChangeState(({ newState }) => {
      if (this.client === client && newState === State.Running) {
        this.status.show("running", launch.described);
      }
    });
    await client.start();
  }

  private async made(launch: Launch, config: vscode.WorkspaceConfiguration): Promise<LanguageClient> {
    const args = [...launch.args, "--log-level", config.get<string>("logLevel", "warning")];
    const env = { ...process.env, ...(await keysForServer(this.context.secrets)) };
    // Not the workspace: Python would take files of its current folder for modules.
    const executable = { command: launch.command, args, options: { cwd: this.context.extensionPath, env } };
    const options: LanguageClientOptions = {
      documentSelector: SELECTOR,
      outputChannel: this.log,
      revealOutputChannelOn: RevealOutputChannelOn.Never,
      initializationOptions: () => ({
        trusted: vscode.workspace.isTrusted,
        consent: true,
        settings: serverSettings(this.context),
      }),
      synchronize: {
        configurationSection: SECTION,
        fileEvents: vscode.workspace.createFileSystemWatcher(WATCHED),
      },
      middleware: {
        ...this.hooks.middleware,
        workspace: {
          configuration: (params) =>
            params.items.map(({ scopeUri }) =>
              serverSettings(this.context, scopeUri === undefined ? undefined : vscode.Uri.parse(scopeUri)),
            ),
        },
      },
      initializationFailedHandler: () => false,
      errorHandler: {
        error: () => ({ action: ErrorAction.Continue, handled: true }),
        closed: () => this.closed(),
      },
    };
    const client = new LanguageClient(SECTION, "KernelMate", executable, options);
    client.registerProposedFeatures();
    return client;
  }

  private closed(): { action: CloseAction; handled: true } {
    const { restart, tell } = this.restarts.died(Date.now());
    if (restart) {
      this.status.show("starting", "the server ended by itself and is started again");
      if (tell) {
        void sayWithLogs("KernelMate's server ended unexpectedly and was started again.");
      }
      return { action: CloseAction.Restart, handled: true };
    }
    this.failed("KernelMate's server keeps ending and is not started again.");
    return { action: CloseAction.DoNotRestart, handled: true };
  }

  private failed(message: string): void {
    this.status.show("failed", message);
    this.log.error(message);
    void sayWithLogs(message, "Restart");
  }
}

const CLANGD = "llvm-vs-code-extensions.vscode-clangd";

/** The settings that the server is sent, for a workspace folder, else for the window. */
export function serverSettings(context: vscode.ExtensionContext, folder?: vscode.Uri): Record<string, unknown> {
  const resource = folder ?? vscode.workspace.workspaceFolders?.[0]?.uri;
  const config = vscode.workspace.getConfiguration(SECTION, resource);
  const known = context.extension.packageJSON as { contributes: { configuration: { properties: object }[] } };
  const names = known.contributes.configuration
    .flatMap((group) => Object.keys(group.properties))
    .map((name) => name.slice(SECTION.length + 1));
  return sentToServer(
    names,
    (name) => {
      const it = config.inspect(name);
      const values = [it?.globalValue, it?.workspaceValue, it?.workspaceFolderValue];
      return { value: config.get(name), given: values.some((value) => value !== undefined) };
    },
    resource?.fsPath,
    vscode.extensions.getExtension(CLANGD) !== undefined,
  );
}

async function sayMissing(missing: Missing): Promise<void> {
  const { install } = missing;
  const choices = [...(install === undefined ? [] : ["Copy Command"]), "Open Settings"];
  const chosen = await vscode.window.showErrorMessage(missing.message, ...choices);
  if (chosen === "Copy Command" && install !== undefined) {
    await vscode.env.clipboard.writeText(install);
  } else if (chosen === "Open Settings") {
    await vscode.commands.executeCommand("workbench.action.openSettings", "kernelmate.interpreter");
  }
}

async function sayWithLogs(message: string, ...more: string[]): Promise<void> {
  const chosen = await vscode.window.showErrorMessage(message, "Show Logs", ...more);
  if (chosen === "Show Logs") {
    await vscode.commands.executeCommand("kernelmate.showLogs");
  } else if (chosen === "Restart") {
    await vscode.commands.executeCommand("kernelmate.restart");
  }
}
