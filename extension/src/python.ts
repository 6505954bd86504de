/** The Python that the server runs by: asked for, selected in the Python extension, or found on PATH. */

import { execFile } from "node:child_process";
import * as fs from "node:fs";
import * as path from "node:path";
import { promisify } from "node:util";
import * as vscode from "vscode";
import { type Looker, PROBE, type Probed } from "./finding";

const PYTHON_EXTENSION = "ms-python.python";
const PROBE_WAIT_MS = 20_000;

/** The part of the Python extension's public interface that is used. */
interface PythonApi {
  environments?: {
    getActiveEnvironmentPath(resource?: vscode.Uri): { path: string };
    resolveEnvironment(given: { path: string }): Promise<{ executable: { uri?: vscode.Uri } } | undefined>;
    onDidChangeActiveEnvironmentPath: vscode.Event<unknown>;
  };
}

/** Looks at this machine; runs interpreters in a folder that no workspace can put files into. */
export function looker(folder: string): Looker {
  return {
    exists: (file) => fs.existsSync(file),
    which,
    probe: async ([command, ...args]) => {
      if (command === undefined) {
        return undefined;
      }
      try {
        const options = { cwd: folder, timeout: PROBE_WAIT_MS };
        const { stdout } = await promisify(execFile)(command, [...args, "-c", PROBE], options);
        return JSON.parse(stdout) as Probed;
      } catch {
        return undefined;
      }
    },
  };
}

function which(name: string): string | undefined {
  const folders = (process.env["PATH"] ?? "").split(path.delimiter).filter((one) => path.isAbsolute(one));
  return folders.map((one) => path.join(one, name)).find(isExecutable);
}

function isExecutable(file: string): boolean {
  try {
    fs.accessSync(file, fs.constants.X_OK);
    return fs.statSync(file).isFile();
  } catch {
    return false;
  }
}

/**
 * The interpreter selected in the Python extension. In a workspace that is not trusted it is not asked: what it selects
 * may be a file of the workspace.
 */
export async function selectedInterpreter(): Promise<string | undefined> {
  if (!vscode.workspace.isTrusted) {
    return undefined;
  }
  const environments = (await pythonApi())?.environments;
  if (environments === undefined) {
    return undefined;
  }
  const resource = vscode.workspace.workspaceFolders?.[0]?.uri;
  const found = await environments.resolveEnvironment(environments.getActiveEnvironmentPath(resource));
  return found?.executable.uri?.fsPath;
}

/** Tells when another interpreter is selected there. */
export async function onInterpreterSelected(listener: () => void): Promise<vscode.Disposable | undefined> {
  return (await pythonApi())?.environments?.onDidChangeActiveEnvironmentPath(listener);
}

async function pythonApi(): Promise<PythonApi | undefined> {
  const extension = vscode.extensions.getExtension<PythonApi>(PYTHON_EXTENSION);
  try {
    return await extension?.activate();
  } catch {
    return undefined;
  }
}
