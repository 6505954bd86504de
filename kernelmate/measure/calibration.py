"""Storage of measured peak rates, and their assignment to GPUs of the target table.

One JSON file in the user's data folder holds an entry for each GPU by its UUID; measuring again replaces it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from pathlib import Path

import msgspec

from kernelmate.compiler.targets import find_target
from kernelmate.errors import UsageError
from kernelmate.files import write_atomically
from kernelmate.measure.roofline import table_roofs
from kernelmate.records import Calibration, Roofs, Target

FORMAT = 1


def default_path() -> Path:
    """Returns the path of `calibration.json` in the user's data folder."""
    import platformdirs

    return platformdirs.user_data_path("kernelmate") / "calibration.json"


def load(path: Path | None = None) -> tuple[Calibration, ...]:
    """Returns all measurements, the newest first; unreadable entries are skipped."""
    try:
        document = json.loads((path or default_path()).read_text(encoding="utf-8"))
        entries = document["gpus"].values() if document["format"] == FORMAT else ()
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return ()
    found = []
    for entry in entries:
        with contextlib.suppress(msgspec.ValidationError):
            found.append(msgspec.convert(entry, Calibration))
    return tuple(sorted(found, key=lambda one: one.measured_at, reverse=True))


def save(calibration: Calibration, path: Path | None = None) -> Path:
    """Stores a measurement, replacing an earlier one of the same GPU, and returns the file's path.

    The file is replaced atomically.

    Raises:
        OSError: the file cannot be written.
    """
    path = path or default_path()
    known = {one.uuid: one for one in load(path)} | {calibration.uuid: calibration}
    gpus = {uuid: dataclasses.asdict(one) for uuid, one in known.items()}
    write_atomically(path, json.dumps({"format": FORMAT, "gpus": gpus}, indent=2, allow_nan=False))
    return path


def calibration_of(target: Target, path: Path | None = None) -> Calibration | None:
    """Returns the newest measurement of a GPU of this model.

    The result is None if no such GPU was measured; one of another variant, or a partition, does not count.
    """
    return next((one for one in load(path) if _is(one, target)), None)


def roofs_of(target: Target, path: Path | None = None) -> Roofs:
    """Returns a GPU's peak rates: measured on such a GPU if available, else those of the table."""
    measured = calibration_of(target, path)
    return table_roofs(target) if measured is None else measured.roofs


def _is(calibration: Calibration, target: Target) -> bool:
    try:
        named = find_target(calibration.gpu)
    except UsageError:
        return False
    return named.name == target.name and calibration.sms == target.sms
