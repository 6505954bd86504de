"""Demonstration of two searches.

A counted objective, decided on this machine, and a time objective, which a GPU must confirm.

Then only the shipped model searches, if it and llama.cpp are installed. It works on copies in `demo-out/`, so that the
examples stay unchanged. Run by `make demo`.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parent
OUT = EXAMPLES.parent / "demo-out"


def kernelmate(*arguments: str) -> int:
    """Runs the command line and prints the command."""
    print(f"\n$ kernelmate {' '.join(json.dumps(a) if ' ' in a else a for a in arguments)}", flush=True)
    return subprocess.run([sys.executable, "-m", "kernelmate", *arguments], cwd=OUT, check=False).returncode


def show_model() -> None:
    """Searches with the small model, without recipes; finding nothing is not an error of the demo."""
    from kernelmate.suggest.local.engines import engine_name
    from kernelmate.suggest.local.starter import MISSING, shipped

    if shipped() is None or engine_name() is None:
        print(f"\n{MISSING if shipped() is None else 'No llama.cpp is installed, so the starter model is not asked.'}")
        return
    kernelmate("model", "list")
    kernelmate("optimize", "transpose.cu", "make it faster", "--author", "local")


def main() -> int:
    """Exit 0 when the first prompt led to an accepted candidate and the second to a promising one."""
    shutil.rmtree(OUT, ignore_errors=True)
    shutil.copytree(EXAMPLES, OUT, ignore=shutil.ignore_patterns("demo.py", "__pycache__"))
    failed = []
    for file, prompt, page, extra in (
        ("softmax.cu", "reduce memory usage", "softmax-memory.html", ("--accept",)),
        ("transpose.cu", "make it faster", "transpose-time.html", ()),
    ):
        if kernelmate("optimize", file, prompt, "--html", page, *extra) != 0:
            failed.append(f"{file}: {prompt}")
    if failed:
        print(f"\nNo candidate worth taking for {'; '.join(failed)}", file=sys.stderr)
        return 1
    show_model()
    print(f"\nThe charts stand in {OUT.name}/softmax-memory.html and {OUT.name}/transpose-time.html;")
    print("the accepted kernel and its backup in demo-out/softmax.cu and demo-out/softmax.cu.kernelmate-backup.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
