/** Progress of the server's work as messages with a button that ends it; the client's own, in the status bar, has none. */

import * as vscode from "vscode";
import {
  type LanguageClient,
  type Middleware,
  type ProgressToken,
  type WorkDoneProgressReport,
  WorkDoneProgressCancelNotification,
} from "vscode-languageclient/node";

interface Work {
  report: (params: WorkDoneProgressReport) => void;
  end: () => void;
}

export class Progress {
  private readonly running = new Map<ProgressToken, Work>();

  constructor(private readonly client: () => LanguageClient | undefined) {}

  /** The client's middleware: work that can be ended is shown here, other work as the client does. */
  readonly handle: NonNullable<Middleware["handleWorkDoneProgress"]> = (token, params, next) => {
    if (params.kind === "begin" && params.cancellable === true) {
      this.begin(token, params.title);
      return;
    }
    const work = this.running.get(token);
    if (params.kind === "report" && work !== undefined) {
      work.report(params);
      return;
    }
    work?.end();
    next(token, params); // at the end the client frees what it holds of the token
  };

  private begin(token: ProgressToken, title: string): void {
    const options = { location: vscode.ProgressLocation.Notification, cancellable: true, title };
    void vscode.window.withProgress(options, (progress, cancelled) => {
      cancelled.onCancellationRequested(
        () => void this.client()?.sendNotification(WorkDoneProgressCancelNotification.type, { token }),
      );
      return new Promise<void>((resolve) => {
        this.running.set(token, {
          report: ({ message }) => progress.report(message === undefined ? {} : { message }),
          end: () => {
            this.running.delete(token);
            resolve();
          },
        });
      });
    });
  }

  /** No work is left: its server has ended. */
  forget(): void {
    [...this.running.values()].forEach((work) => work.end());
  }
}
