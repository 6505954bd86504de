"""Tests that take long, of which `make test` runs a part: `python -m benchmarks.slow_tests LOG` writes tests/slow.txt.

`LOG` is what `python -m pytest -v -n auto --durations=0` printed on a quiet machine. A test function is slow if all of its cases together
take `SLOW_S` seconds or more; those that carry `@pytest.mark.exhaustive` have their own share.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from pathlib import Path

SLOW_S = 1.5
KEPT = Path(__file__).resolve().parents[1] / "tests" / "slow.txt"
_LINE = re.compile(r"([\d.]+)s (?:call|setup|teardown) +(\S+::[^\[\s]+)")


def main() -> int:
    """Write the list, sorted by name, with seconds."""
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print(__doc__)
        return 2
    seconds: defaultdict[str, float] = defaultdict(float)
    for line in Path(sys.argv[1]).read_text(encoding="utf-8", errors="replace").splitlines():
        if (found := _LINE.match(line)) is not None:
            seconds[found[2]] += float(found[1])
    slow = sorted((name, spent) for name, spent in seconds.items() if spent >= SLOW_S)
    if not slow:
        print(f"{sys.argv[1]} has no durations. Run pytest with --durations=0.", file=sys.stderr)
        return 1
    KEPT.write_text("".join(f"{spent:.1f} {name}\n" for name, spent in slow), encoding="utf-8")
    print(
        f"{len(slow)} of {len(seconds)} functions, {sum(spent for _, spent in slow):.0f} of {sum(seconds.values()):.0f} s: {KEPT}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
