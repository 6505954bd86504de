/** What the server is asked for by its commands. */

import { ExecuteCommandRequest, type LanguageClient } from "vscode-languageclient/node";

/** A kernel by its document and its name there. */
export interface Kernel {
  uri: string;
  kernel: string;
}

export interface Search {
  best: number | null;
  /** What was kept of a search that its user ended, in words. */
  stopped?: string;
  /** Why there is no best one, in words. */
  nothing?: string;
}

/** The answer to a question about a kernel, as a page of text. */
export interface Explanation {
  explained: unknown[];
  text: string;
}

export interface Versions {
  lines: { version: number; label: string }[];
}

/** How a result relates to the present text. */
export interface Judged {
  ago: string;
  of: "search" | "benchmark";
  /** False for a kernel that is not right. */
  good: boolean;
  stale: boolean;
  /** The number of the candidate that the text is, from 0. */
  taken: number | null;
  /** False for a pipeline: repairs change one kernel. */
  repairable: boolean;
}

/** The page about a kernel: the notebook's result view as HTML in which all text is escaped, and Plotly's charts. */
export interface View {
  kernel: string;
  judged: Judged | null;
  html: string;
  style: string;
  figures: Record<string, { data: unknown[]; layout: Record<string, unknown> }>;
  templates: { light: unknown; dark: unknown };
}

/** What the server answers where something is in its user's hands; it has told them. */
interface Refusal {
  error: { message: string };
}

export class Requests {
  /**
   * @param client the client, where its server answers.
   * @param failed told of what no server should answer by.
   */
  constructor(
    private readonly client: () => LanguageClient | undefined,
    private readonly failed: (message: string) => void,
  ) {}

  view(kernel: Kernel): Promise<View | undefined> {
    return this.send<View>("view", { ...kernel });
  }

  /** What a prompt leads to: a search, an answer, or a candidate of the last search, which the server sends as an edit. */
  optimize(kernel: Kernel, prompt: string, more: object = {}): Promise<Search | Explanation | { applied: boolean } | undefined> {
    return this.send("optimize", { ...more, ...kernel, prompt, propose: false });
  }

  /** The judged versions of a kernel, the newest first. */
  history(kernel: Kernel): Promise<Versions | undefined> {
    return this.send<Versions>("history", { ...kernel });
  }

  /** Have a candidate sent as an edit, which is shown as a comparison. */
  apply(kernel: Kernel, candidate: number): Promise<unknown> {
    return this.send("apply", { ...kernel, candidate });
  }

  /** Any command; undefined where the server does not run, refused or was told to stop. */
  async send<T>(command: string, given: object): Promise<T | undefined> {
    const client = this.client();
    if (client === undefined) {
      return undefined;
    }
    const params = { command: `kernelmate.${command}`, arguments: [given] };
    let answer: T | Refusal | null;
    try {
      answer = (await client.sendRequest(ExecuteCommandRequest.type, params)) as T | Refusal | null;
    } catch (error) {
      this.failed(`${params.command}: ${String(error)}`);
      return undefined;
    }
    return answer === null || (typeof answer === "object" && "error" in (answer as object)) ? undefined : (answer as T);
  }
}
