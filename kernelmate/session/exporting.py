"""Export of a judged kernel as self-contained files: the kernel, its dependencies, its diff, its verdict, and a test."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path, PurePosixPath

from kernelmate.compiler.project_headers import folders_of
from kernelmate.config import Settings
from kernelmate.errors import SourceError, UsageError
from kernelmate.history import History
from kernelmate.records import CompileOptions, JudgingInputs, Kernel, RecordedJudgement, Verdict
from kernelmate.report.diff import diff_lines, whole_text
from kernelmate.report.json import dumps, verdicts_json
from kernelmate.session.devices import needed_files
from kernelmate.session.preparing import options_for
from kernelmate.session.recording import restored
from kernelmate.session.session import Session
from kernelmate.source import contract_for, file_text, load_kernel, load_single_kernel
from kernelmate.version import VERSION


def exported_test(
    *,
    name: str,
    file: str,
    baseline: str | None,
    prompt: str | None,
    settings: Mapping[str, object],
    includes: Sequence[str],
    verdict: str,
) -> str:
    """Returns the text of a test module that judges a kernel again.

    Args:
        name: the kernel's name.
        file: its file, relative to the test's folder.
        baseline: `FILE::KERNEL` of its baseline, likewise; None if there is none.
        prompt: the objective that it must meet beside being right.
        settings: settings for `kernelmate.bench` and `compare`.
        includes: header folders, likewise.
        verdict: the file with its verdict at export.
    """
    text = resources.files("kernelmate.report").joinpath("exported_test.txt").read_text(encoding="utf-8")
    values = {
        "NAME": name,
        "VERSION": VERSION,
        "TARGET": str(settings["target"]),
        "FILE": repr(file),
        "BASELINE": "None" if baseline is None else f"str(HERE / {baseline!r})",
        "PROMPT": repr(prompt),
        "SETTINGS": repr(dict(settings)),
        "INCLUDES": repr(list(includes)),
        "VERDICT": repr(verdict),
    }
    for key, value in values.items():
        text = text.replace(f"@{key}@", value)
    return text


MARK = ".baseline"
"""Infix of the baseline's file name, before the suffix."""


@dataclass(frozen=True, slots=True)
class ExportSelection:
    """The version to export.

    Attributes:
        kernel: the version.
        baseline: the version it was derived from; None if unknown.
        prompt: the prompt that led to it.
        notes: the origin of both.
    """

    kernel: Kernel
    baseline: Kernel | None
    prompt: str | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Export:
    """A judged version, and the files that it becomes.

    Attributes:
        verdicts: one per instance.
        baseline: the baseline's verdicts; empty without one.
        backward: verdicts of the backward kernel, of an operator that has one.
        files: texts by path relative to the target folder; empty if the version was rejected.
    """

    chosen: ExportSelection
    verdicts: tuple[Verdict, ...]
    baseline: tuple[Verdict, ...]
    files: Mapping[str, str] = field(default_factory=dict)
    backward: tuple[Verdict, ...] = ()

    @property
    def accepted(self) -> bool:
        """Returns True if no instance is rejected."""
        return all(verdict.clean and verdict.compiled for verdict in (*self.verdicts, *self.backward))


def choose(spec: str, version: int | None, baseline: str | None, history: History | None) -> ExportSelection:
    """Find the version to export and its baseline.

    Args:
        spec: `FILE` or `FILE::KERNEL`.
        version: of the history; None for the file's present one.
        baseline: `FILE` or `FILE::KERNEL`; None for what the history says it was made from.
        history: where versions are kept; None if none is.

    Raises:
        SourceError: a file or kernel cannot be used.
        UsageError: there is no such version, or it is another kernel's.
        HistoryUnavailable: the history cannot be read.
    """
    kernel = load_single_kernel(spec, "export")
    recorded: RecordedJudgement | None
    if version is None:
        recorded = None if history is None else _present(history, kernel)
    elif history is None:
        raise UsageError("No history is kept here (history = false), so there is no version.", hint="Leave out --version.")  # fmt: skip
    else:
        recorded = history.version(version)
        if recorded.kernel != history.find(kernel):
            raise UsageError(f"Version {version} is one of {recorded.name}, not of {kernel.name}.", hint=f"`kernelmate history {spec}` lists this kernel's.")  # fmt: skip
        kernel = restored(recorded, Path(kernel.unit.path)).after
    prompt = None if recorded is None else recorded.judged.prompt
    if baseline is not None:
        return ExportSelection(kernel, load_kernel(baseline), prompt)
    parent = None if recorded is None or history is None or recorded.judged.parent is None else recorded.judged.parent
    if parent is None or history is None:
        note = "what it was made from is not known (--baseline names it), so that there is no diff"
        return ExportSelection(kernel, None, None, (note,))
    before = _version_of(history.version(parent), kernel)
    if before is None or whole_text(before) == whole_text(kernel):
        return ExportSelection(
            kernel, None, None, (f"version {parent}, which it was made from, is no longer available",)
        )
    return ExportSelection(kernel, before, prompt, (f"its baseline is version {parent} of the history",))


def _present(history: History, kernel: Kernel) -> RecordedJudgement | None:
    """Returns the latest judgement of the file's present text that names a parent version."""
    number = history.find(kernel)
    if number is None:
        return None
    same = [one for one in history.judgements(number) if one.text == kernel.unit.text and one.name == kernel.name]
    made = [one for one in same if one.judged.parent is not None and one.judged.parent != one.version]
    return made[-1] if made else None


def _version_of(recorded: RecordedJudgement, kernel: Kernel) -> Kernel | None:
    try:
        return restored(recorded, Path(kernel.unit.path)).after
    except SourceError:
        return None


def export(session: Session, settings: Settings, chosen: ExportSelection) -> Export:
    """Judges a version again, and create its files unless it is rejected.

    Raises:
        InputError: a contract or the reference needs a change, or it is a Triton kernel.
        CompileTimeout: the compiler did not end.
        EnvironmentFailed: the compiler or the worker is unavailable.
    """
    if chosen.kernel.unit.language == "triton":
        raise UsageError(
            "The files of an export launch CUDA, and this is a Triton kernel.", hint="Its Python file is used as it is."
        )
    judged = judged_again(session, chosen)
    return replace(judged, files=_files(session, settings, judged)) if judged.accepted else judged


def judged_again(session: Session, chosen: ExportSelection) -> Export:
    """Judges a version, against its baseline if it has one; raises as `export`."""
    if chosen.baseline is None:
        return Export(chosen, session.bench(chosen.kernel), ())
    comparison = session.compare(chosen.baseline, chosen.kernel, chosen.prompt)
    return Export(chosen, comparison.candidate, comparison.baseline)


def _files(session: Session, settings: Settings, judged: Export) -> dict[str, str]:
    carried = carried_files(session, settings, judged)
    kernel, before = judged.chosen.kernel, judged.chosen.baseline
    test = exported_test(
        name=kernel.name,
        file=carried.place,
        baseline=None if before is None else f"{carried.baseline}::{before.name}",
        prompt=judged.chosen.prompt,
        settings=_settings(options_for(settings, Path(kernel.unit.path)), session.target.name),
        includes=list(carried.includes),
        verdict=f"{carried.stem}.verdict.json",
    )
    return {**carried.files, f"test_{carried.stem}.py": test}


@dataclass(frozen=True, slots=True)
class CarriedFiles:
    """Files handed over with a kernel: its own, those that it needs, its baseline, its diff and its verdict.

    Attributes:
        files: texts by path relative to the target folder.
        place: the kernel's file among them.
        baseline: the baseline's; None if there is none.
        stem: the kernel's name in names of files.
        root: the folder on this machine that the target folder stands for.
        includes: folders with headers, relative to the target folder.
    """

    files: Mapping[str, str]
    place: str
    baseline: str | None
    stem: str
    root: Path
    includes: tuple[str, ...]


def carried_files(session: Session, settings: Settings, judged: Export) -> CarriedFiles:
    """Returns the files that go along with a judged kernel.

    Raises:
        UsageError: a needed file is missing or is not text, or the settings name another reference.
    """
    kernel, before = judged.chosen.kernel, judged.chosen.baseline
    file = Path(kernel.unit.path).resolve()
    headers = _headers(session, kernel)
    needed = _needed(headers, kernel, settings)
    if before is not None:
        needed |= _needed(_headers(session, before), before, settings)
    root = Path(os.path.commonpath([str(file.parent), *(str(path.parent) for path in needed)]))
    place = file.relative_to(root).as_posix()
    stem = re.sub(r"\W+", "_", kernel.name).strip("_")
    files = {place: file_text(kernel)}
    files |= {path.relative_to(root).as_posix(): _read(path) for path in sorted(needed) if path != file}
    old_place = None
    if before is not None:
        old_place = PurePosixPath(place).with_suffix(MARK + file.suffix).as_posix()
        files[old_place] = file_text(before)
        files[f"{stem}.diff"] = "\n".join(diff_lines(whole_text(before), whole_text(kernel), place)) + "\n"
    given = _portable(session.given(kernel if before is None else before), place if old_place is None else old_place)
    contract = contract_for(kernel)
    document = verdicts_json(judged.verdicts, given, None if before is None else kernel, contract, judged.chosen.prompt)
    files[f"{stem}.verdict.json"] = dumps(document) + "\n"
    searched = options_for(settings, file).include_paths
    folders = [*(Path(one).resolve() for one in searched), *folders_of(headers, file.parent)]
    includes = dict.fromkeys(one.relative_to(root).as_posix() for one in folders if one.is_relative_to(root))
    return CarriedFiles(files, place, old_place, stem, root, tuple(includes))


def _headers(session: Session, kernel: Kernel) -> list[tuple[str, str]]:
    """Returns the names and files of the project's headers that a kernel includes."""
    return [header for one in session.prepare(kernel) for header in one.compiled.headers]


def _needed(headers: Sequence[tuple[str, str]], kernel: Kernel, settings: Settings) -> set[Path]:
    """Returns project headers that it includes, and files that its contract and the settings name.

    Raises:
        UsageError: a named reference does not exist.
    """
    directory = Path(kernel.unit.path).resolve().parent
    contract = contract_for(kernel)
    if settings.reference is not None:
        raise UsageError("The setting `reference` replaces the contract's reference, with which an exported kernel is tested.", hint="Write the reference into the contract, and remove the setting.")  # fmt: skip
    return {Path(path).resolve() for _, path in headers} | set(needed_files(contract, directory))


def _portable(given: JudgingInputs, place: str) -> JudgingInputs:
    """Returns the inputs without this machine's folders; `confirm` writes the carried files elsewhere."""
    return replace(given, file=PurePosixPath(place).name, directory="exported")


def _settings(options: CompileOptions, target: str) -> dict[str, object]:
    """Returns settings that compile and judge alike on any machine: no local folders, no history."""
    chosen: dict[str, object] = {"target": target, "std": options.std, "backend": "emulator", "history": False}
    others = {"defines": options.defines, "fast_math": options.fast_math, "max_registers": options.max_registers, "flags": options.flags}  # fmt: skip
    return chosen | {name: value for name, value in others.items() if value}


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError:
        raise UsageError(f"{path}, which the kernel needs, is not text, so it cannot be exported.", hint="Make the inputs by a function (inputs = ...).") from None  # fmt: skip
    except OSError as error:
        raise UsageError(f"{path}, which the kernel needs, cannot be read: {error.strerror}.") from None


def write_all(folder: Path, files: Mapping[str, str], *, force: bool) -> list[Path]:
    """Writes files into a folder: all of them, or none if one exists with other contents. Returns the written paths.

    Args:
        folder: created if missing.
        files: texts by relative path.
        force: True overwrites existing files.

    Raises:
        UsageError: a file would be overwritten, or cannot be written.
    """
    places = {folder / path: text.encode("utf-8") for path, text in files.items()}
    taken = [place for place, data in places.items() if _other(place, data)]
    if taken and not force:
        names = ", ".join(str(place) for place in taken)
        raise UsageError(f"{names} {'is' if len(taken) == 1 else 'are'} there already, with other contents; nothing was written.", hint="Give another folder, or --force to overwrite.")  # fmt: skip
    written: list[Path] = []
    try:
        for place, data in places.items():
            place.parent.mkdir(parents=True, exist_ok=True)
            new = place.with_name(f".{place.name}.{os.getpid()}.new")
            try:
                new.write_bytes(data)
                os.replace(new, place)
            finally:
                new.unlink(missing_ok=True)
            written.append(place)
    except OSError as error:
        raise UsageError(f"{place} cannot be written: {error.strerror or error}.", hint="Give another folder to --to.") from error  # fmt: skip
    return written


def _other(place: Path, data: bytes) -> bool:
    """Returns True if the file exists with other contents."""
    try:
        return place.read_bytes() != data
    except FileNotFoundError:
        return False
    except OSError:
        return True
