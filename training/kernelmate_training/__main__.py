"""Trains, exports and samples one model in a process of its own: `python -m kernelmate_training CONFIG.toml MODEL`.

`kernelmate upskill run` starts it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def main() -> int:
    """Trains, exports and samples one model; returns 0 if all steps succeeded."""
    parser = argparse.ArgumentParser(prog="python -m kernelmate_training", description=__doc__)
    parser.add_argument("config", type=Path)
    parser.add_argument("model")
    parser.add_argument("--seconds", type=float, help="seconds of training, at most")
    parser.add_argument(
        "--play", action="store_true", help="play rounds with the present model, without training it first"
    )
    parser.add_argument("--finish", type=float, default=60.0, help="seconds of sampling, at most")
    parser.add_argument("--answer", action="store_true", help="only draw answers to the exam's prompts, and keep them")
    given = parser.parse_args()
    from kernelmate_training.settings import read_settings
    from kernelmate_training.training_job import run_training_job

    settings = read_settings(given.config)

    def told(line: str) -> None:
        print(line, flush=True)

    if given.answer:
        from kernelmate_training.training_job import sample_prompts

        return 0 if sample_prompts(settings, given.model, seconds=given.finish, told=told) else 1
    if given.play:
        from kernelmate_training.round_process import run_rounds

        return 1 if run_rounds(settings, given.model, seconds=given.seconds, finish=given.finish, told=told) else 0
    result = run_training_job(
        settings, settings.model(given.model), seconds=given.seconds, finish=given.finish, told=told
    )
    return 1 if result.problems else 0


if __name__ == "__main__":
    sys.exit(main())
