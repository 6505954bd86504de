"""Command `python -m kernelmate_training.corpus FOLDER`, which builds a corpus."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from kernelmate_training.corpus.building import Progress, Settings, build


def main() -> int:
    """Reads the command line and builds a corpus; returns 130 if interrupted."""
    parser = argparse.ArgumentParser(
        prog="python -m kernelmate_training.corpus", description="Generate and judge a corpus."
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=60_000, help="number of rows to generate")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--backend", choices=("cuda", "emulator"), default="emulator")
    parser.add_argument("--workers", type=int, default=None, help="processes; by default one per core")
    parser.add_argument("--devices", default="0", help="numbers of the GPUs, as 0,1,2,3")
    parser.add_argument("--target", default="H100 SXM")
    parser.add_argument("--families", default="", help="names separated by commas; by default all")
    parser.add_argument(
        "--limit-s", type=float, default=None, help="seconds after which the corpus is assembled from the rows so far"
    )
    given = parser.parse_args()
    settings = Settings(
        given.folder, given.count, given.seed, given.backend, given.workers,
        tuple(int(device) for device in given.devices.split(",")), given.target,
        tuple(name for name in given.families.split(",") if name), given.limit_s,
    )  # fmt: skip
    try:
        manifest = build(settings, _tell)
    except KeyboardInterrupt:
        sys.stderr.write("\nStopped. The same command goes on from here.\n")
        return 130
    sys.stderr.write(
        f"\n{manifest.rows} rows in {given.folder}: {dict(manifest.tasks)}, {manifest.about['seconds']} s\n"
    )
    return 0


def _tell(progress: Progress) -> None:
    if progress.groups % 20 == 0:
        rate = progress.rows / max(progress.seconds, 1e-9)
        sys.stderr.write(
            f"\r{progress.rows}/{progress.wanted} rows, {progress.groups} groups, {progress.lost} lost, {rate:.0f} rows/s "
        )
        sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
