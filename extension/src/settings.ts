/** Settings as the user gave them, and the part of them that the server is sent. */

import * as os from "node:os";
import * as path from "node:path";

/** Keys that only this extension reads. */
export const CLIENT_ONLY = new Set(["interpreter", "importStrategy", "path", "logLevel", "trace"]);

/** Settings that hold a path or a list of paths. */
const PATHS = new Set(["includePaths", "build", "cacheDir", "historyFile", "modelsDir", "calibrationFile"]);

/** One setting, as the editor tells of it. */
export interface Inspected {
  value: unknown;
  /** Somebody set it, so that it is not merely the default. */
  given: boolean;
}

/**
 * The section that the server is sent: what was set and nothing else, so that a default here does not outweigh a
 * project's own pyproject.toml.
 *
 * @param clangd clangd's extension is there, which reports errors of device code too: those of NVRTC are left to it
 *   unless somebody set that they are wanted.
 */
export function sentToServer(
  names: readonly string[],
  inspect: (name: string) => Inspected,
  folder: string | undefined,
  clangd = false,
): Record<string, unknown> {
  const sent: Record<string, unknown> = clangd ? { compilerProblems: false } : {};
  for (const name of names) {
    const [first = name] = name.split(".");
    const { value, given } = inspect(name);
    if (!CLIENT_ONLY.has(first) && given && value !== null) {
      sent[name] = PATHS.has(name) ? resolvedPaths(value, folder) : value;
    }
  }
  return sent;
}

function resolvedPaths(value: unknown, folder: string | undefined): unknown {
  if (Array.isArray(value)) {
    return value.map((one) => resolvedPaths(one, folder));
  }
  return typeof value === "string" ? resolved(value, folder) : value;
}

/** A path with the editor's variables replaced; a relative one counts from the workspace folder. */
export function resolved(text: string, folder: string | undefined): string {
  const home = os.homedir();
  const named = text
    .replace(/^~(?=$|\/)/, home)
    .replaceAll("${userHome}", home)
    .replaceAll("${workspaceFolder}", folder ?? "");
  return folder !== undefined && named !== "" && !path.isAbsolute(named) ? path.join(folder, named) : named;
}
