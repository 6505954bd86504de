"""`python -m kernelmate.suggest.local.starter FILE.gguf EXAM.json...`: make a trained model the one that comes with KernelMate.

`python -m kernelmate.suggest.local.starter --stamp "WHY"`: update, in the installed model, the record of the recipes among which it chooses.
"""

from __future__ import annotations

import sys
from pathlib import Path

from kernelmate.errors import KernelmateError
from kernelmate.suggest.local.starter import install, stamp


def main() -> int:
    """Runs the command; returns 0 once the file is in place."""
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        if sys.argv[1] == "--stamp":
            model = stamp(" ".join(sys.argv[2:]))
        else:
            model = install(Path(sys.argv[1]), exams=[Path(exam) for exam in sys.argv[2:]])
    except KernelmateError as error:
        print(f"error: {error.message} {error.hint or ''}".rstrip(), file=sys.stderr)
        return 2
    print(f"{model.path}: {model.size:,} bytes, codec {model.codec}, sha256 {model.sha256}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
