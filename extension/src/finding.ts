/** Finds what starts the language server: the VSIX carries no Python, so KernelMate must be installed somewhere. */

/** A Python or an executable, as one looks from outside. */
export interface Looker {
  /** Whether a file is there. */
  exists(path: string): boolean;
  /** The path of an executable on PATH. */
  which(name: string): string | undefined;
  /** What an interpreter says of itself; undefined where it cannot be run. */
  probe(interpreter: readonly string[]): Promise<Probed | undefined>;
}

/** What `PROBE` prints. */
export interface Probed {
  /** As in "3.11.9". */
  python: string;
  /** Of the installed package; null where there is none. */
  kernelmate: string | null;
  /** Whether the server's own dependency is there. */
  pygls: boolean;
}

export interface Wanted {
  /** Executables in place of `kernelmate-lsp`; the first that exists is taken. */
  path: readonly string[];
  /** The user's choice, with arguments; empty for none. */
  interpreter: readonly string[];
  /** What the Python extension has selected. */
  selected: string | undefined;
  importStrategy: "fromEnvironment" | "fromPath";
}

export interface Launch {
  command: string;
  args: string[];
  /** For the log and the debug information. */
  described: string;
}

/** No server was found, and what the user can do about it. */
export interface Missing {
  message: string;
  /** For a terminal; undefined where installing is not what is missing. */
  install: string | undefined;
}

export const OLDEST = [3, 11] as const;

/** Imports nothing of KernelMate, which would be slow; prints one line of JSON. */
export const PROBE = `
import importlib.metadata, importlib.util, json, sys
try: version = importlib.metadata.version("kernelmate")
except importlib.metadata.PackageNotFoundError: version = None
if version is None and importlib.util.find_spec("kernelmate_lsp"): version = "unknown"
print(json.dumps({"python": sys.version.split()[0], "kernelmate": version, "pygls": bool(importlib.util.find_spec("pygls"))}))
`;

const EXECUTABLE = "kernelmate-lsp";
const PACKAGE = "kernelmate[lsp,report]";

/** The server to start, else what is missing. */
export async function findServer(wanted: Wanted, look: Looker): Promise<Launch | Missing> {
  if (wanted.path.length > 0) {
    const found = wanted.path.find((one) => look.exists(one));
    return found === undefined
      ? { message: `kernelmate.path names no file that exists: ${wanted.path.join(", ")}.`, install: undefined }
      : executable(found, "kernelmate.path");
  }
  const onPath = look.which(EXECUTABLE);
  if (wanted.importStrategy === "fromPath" && onPath !== undefined) {
    return executable(onPath, "PATH");
  }
  const tried = await ofInterpreters(wanted, look);
  if ("command" in tried || onPath === undefined || wanted.interpreter.length > 0) {
    return tried;
  }
  return executable(onPath, "PATH");
}

function executable(path: string, from: string): Launch {
  return { command: path, args: [], described: `${path} (${from})` };
}

async function ofInterpreters(wanted: Wanted, look: Looker): Promise<Launch | Missing> {
  const names = ["python3", "python"].map((name) => look.which(name)).filter((path) => path !== undefined);
  const found = wanted.selected === undefined ? names : [wanted.selected, ...names];
  const all = wanted.interpreter.length > 0 ? [[...wanted.interpreter]] : found.map((path) => [path]);
  let first: Missing | undefined;
  for (const interpreter of all) {
    const probed = await look.probe(interpreter);
    const missing = lack(interpreter, probed);
    if (missing === undefined) {
      const [command, ...args] = interpreter as [string, ...string[]];
      // -P: a file of the folder that the server is started in is never taken for a module.
      const started = [...args, "-P", "-m", "kernelmate_lsp"];
      const described = `${interpreter.join(" ")} (Python ${probed?.python}, KernelMate ${probed?.kernelmate})`;
      return { command, args: started, described };
    }
    first ??= missing;
  }
  return first ?? { message: "No Python was found. KernelMate needs Python 3.11 or newer.", install: undefined };
}

/** What an interpreter lacks to run the server. */
function lack(interpreter: readonly string[], probed: Probed | undefined): Missing | undefined {
  const shown = interpreter.join(" ");
  if (probed === undefined) {
    return { message: `${shown} cannot be run. Set kernelmate.interpreter to a Python that can.`, install: undefined };
  }
  const [major = 0, minor = 0] = probed.python.split(".").map(Number);
  if (major < OLDEST[0] || (major === OLDEST[0] && minor < OLDEST[1])) {
    return {
      message: `${shown} is Python ${probed.python}, and KernelMate needs ${OLDEST.join(".")} or newer. Select another one.`,
      install: undefined,
    };
  }
  const install = `${interpreter.map(quoted).join(" ")} -m pip install ${quoted(PACKAGE)}`;
  if (probed.kernelmate === null) {
    return { message: `KernelMate is not installed for ${shown} (Python ${probed.python}). Run: ${install}`, install };
  }
  if (!probed.pygls) {
    return { message: `${shown} has KernelMate without its language server. Run: ${install}`, install };
  }
  return undefined;
}

/** A word for a shell, in quotes where it needs them. */
export function quoted(word: string): string {
  return /^[\w./:+-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}
