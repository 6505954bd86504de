"""The process that runs the user's module, `python -m kernelmate_torch.child SCRATCH FOLDER [SERVER [gpu]]`.

It is confined before the module's file is loaded, as the process of references is, and answers requests of one line of JSON
each on its standard output; what the module prints goes to standard error.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any

import msgspec

from kernelmate.backends.processes import die_with_parent
from kernelmate.confinement import ancestors, confine
from kernelmate_torch.program import ModuleFailure

MISSING = "PyTorch is not installed, and the file holds a PyTorch module."
INSTALL = "Run: pip install 'kernelmate[torch]'"
SERVERS = {
    "port": "kernelmate_torch.serving:ModuleServer",
    "kernelbench": "kernelmate_torch.kernelbench.server:BenchmarkServer",
}
"""Classes that answer the requests, by the third argument."""
CACHES = ("TMPDIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TORCH_EXTENSIONS_DIR", "CUPY_CACHE_DIR", "CUDA_CACHE_PATH", "MPLCONFIGDIR")  # fmt: skip
"""Variables with folders to which libraries write; the process may write only in its scratch folder."""


def main() -> int:
    """Serves requests until the input ends. The first argument names the folder that the process may write to."""
    die_with_parent()
    scratch, folder = sys.argv[1], sys.argv[2]
    server_module, _, server_class = SERVERS[sys.argv[3] if len(sys.argv) > 3 else "port"].partition(":")
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    os.environ |= dict.fromkeys(CACHES, scratch)
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # its pool of processes needs sockets
    missing: ModuleFailure | None = None
    try:
        # Before the process is confined: a library may write where it is installed when it is first imported.
        import torch
        import torch.export
    except Exception as error:  # noqa: BLE001 -- a missing library shows in many ways, and all mean the same
        text = MISSING if isinstance(error, ModuleNotFoundError) else f"PyTorch cannot be imported: {error}."
        missing = ModuleFailure(text, hint=INSTALL, kind="environment")
    else:
        torch.set_num_threads(1)  # threads are started on first use, and would not be confined
    confine(Path(scratch), ancestors(), _open_gpu if sys.argv[4:] == ["gpu"] and missing is None else None)
    sys.path.insert(0, folder)
    server = None
    for line in sys.stdin:
        request = msgspec.json.decode(line)
        try:
            if missing is None and server is None:
                server = getattr(importlib.import_module(server_module), server_class)()
            answer: Any = missing if server is None else server.answer(request)
        except Exception as error:  # noqa: BLE001 -- the parent shows it; a traceback here would be lost
            answer = ModuleFailure(f"{type(error).__name__}: {error}")
        failed = isinstance(answer, ModuleFailure)
        answers.write(msgspec.json.encode({"failure" if failed else "answer": answer}).decode() + "\n")
        answers.flush()
    return 0


def _open_gpu() -> None:
    import torch

    if torch.cuda.is_available():
        torch.zeros(1, device="cuda")


if __name__ == "__main__":
    sys.exit(main())
