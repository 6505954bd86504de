"""Judges again, on a GPU, versions that were only promising without one.

The inputs of a judgement are kept in its JSON document, so that another machine can repeat it.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

import msgspec

from kernelmate.compiler.project_headers import folders_of
from kernelmate.decide.objective import read_objective
from kernelmate.decide.ranking import best_first
from kernelmate.errors import UsageError
from kernelmate.measure.statistics import undecided
from kernelmate.records import (
    Candidate,
    CompileOptions,
    Confirmation,
    ConfirmationReport,
    Contract,
    Judged,
    JudgingInputs,
    Kernel,
    Objective,
    ObjectiveResult,
    Outcome,
    PortableFile,
    PortableJudgement,
    Promise,
    Speedup,
    Timing,
    Unit,
    Verdict,
)
from kernelmate.session.candidates import verdict_on
from kernelmate.session.judging import JudgingContext
from kernelmate.source import find_kernels, same_kernel
from kernelmate.source.blocks import find_pipelines, kernel_named

LARGEST_CARRIED = 1 << 20
"""Size in bytes of the largest text that is included in addition to a kernel."""

_Record = TypeVar("_Record")
_HINT = "Give what `kernelmate optimize --json`, `compare --json` or `bench --json` printed."


def judging_inputs(
    kernel: Kernel, contract: Contract, options: CompileOptions, target: str, headers: Sequence[tuple[str, str]]
) -> JudgingInputs:
    """Returns the inputs of a kernel's judgement.

    Args:
        kernel: as it was judged.
        contract: in force.
        options: how it was compiled.
        target: the GPU that figures are for.
        headers: names and files of the project's headers that it includes.
    """
    path = Path(kernel.unit.path)
    directory = path.resolve().parent if path.is_file() else Path.cwd()
    needed = [directory / one for one in _python_files(contract)] + [Path(one) for _, one in headers]
    folders = [*(Path(one).resolve() for one in options.include_paths), *folders_of(headers, directory)]
    return JudgingInputs(
        file=kernel.unit.path,
        directory=str(directory),
        kernel=kernel.name,
        language=kernel.unit.language,
        source=kernel.unit.text,
        contract=contract,
        options=replace(options, include_paths=tuple(dict.fromkeys(map(str, folders)))),
        target=target,
        files=tuple(_carried(directory, needed)),
    )


def _python_files(contract: Contract) -> Iterator[str]:
    """Yields files from which the contract reads functions."""
    if contract.reference_kind == "function" and contract.reference is not None:
        yield contract.reference.rpartition(":")[0]
    for named in (contract.inputs, contract.torch):
        if named is not None:
            yield named.rpartition(":")[0]


def _carried(directory: Path, paths: Iterable[Path]) -> Iterator[PortableFile]:
    """Yields texts of files in or below the folder; other files must exist on the other machine."""
    for path in dict.fromkeys(Path(one).resolve() for one in paths):
        with contextlib.suppress(OSError, ValueError):
            if path.is_relative_to(directory) and path.stat().st_size <= LARGEST_CARRIED:
                yield PortableFile(path.relative_to(directory).as_posix(), path.read_text(encoding="utf-8"))


# ----------------------------------------------------------------------------------------------------- reading


def read_carried(text: str, name: str) -> PortableJudgement:
    """Reads a portable judgement from a document.

    Args:
        text: the document.
        name: where it came from, for messages.

    Raises:
        UsageError: it is not a KernelMate document, or carries no kernel.
    """
    try:
        document = json.loads(text)
    except ValueError as error:
        raise UsageError(f"{name} is not JSON: {error}.", hint=_HINT) from None
    if not isinstance(document, dict) or document.get("schema") != 1:
        raise UsageError(f"{name} is not a document of kernelmate.", hint=_HINT)
    if "error" in document:
        message = document["error"].get("message", "") if isinstance(document["error"], dict) else ""
        raise UsageError(f"{name} says why a command stopped: {message}", hint="Run that command again.")
    if document.get("given") is None:
        raise UsageError(f"{name} does not contain the kernel that it describes.", hint=_HINT)
    given = _convert(document["given"], JudgingInputs, name, "given")
    if "candidates" in document:
        return _of_optimize(document, given, name)
    return _of_verdicts(document, given, name)


def _of_optimize(document: Mapping[str, Any], given: JudgingInputs, name: str) -> PortableJudgement:
    objective = _convert(document.get("objective"), Objective, name, "objective")
    baseline = _part(document, "baseline", name)
    promises = [
        _promise(one, _part(one, "verdict", name), name, f"candidates[{index}]")
        for index, one in enumerate(document["candidates"])
    ]
    return PortableJudgement(
        given, objective, None, _seed(baseline), _optional(baseline, "timing", Timing), tuple(promises)
    )


def _of_verdicts(document: Mapping[str, Any], given: JudgingInputs, name: str) -> PortableJudgement:
    verdicts = document.get("verdicts")
    if not isinstance(verdicts, list) or not verdicts or not isinstance(verdicts[0], dict):
        raise UsageError(f"{name} holds no verdict.", hint=_HINT)
    candidate = document.get("candidate")
    if candidate is None:
        return PortableJudgement(given, None, None, _seed(verdicts[0]), _optional(verdicts[0], "timing", Timing), ())
    promise = _promise({"author": "user", "why": "", **candidate}, verdicts[0], name, "candidate")
    return PortableJudgement(given, None, candidate.get("prompt"), _seed(verdicts[0]), None, (promise,))


def _promise(candidate: Mapping[str, Any], verdict: Mapping[str, Any], name: str, where: str) -> Promise:
    parts = {key: candidate.get(key) for key in ("author", "why", "source")}
    wrong = [key for key, value in parts.items() if not isinstance(value, str)]
    if wrong:
        raise UsageError(f"{name}: {where} has no {wrong[0]}.", hint=_HINT)
    return Promise(
        author=str(parts["author"]),
        why=str(parts["why"]),
        source=str(parts["source"]),
        contract=_convert(candidate.get("contract"), Contract, name, f"{where}.contract"),
        timing=_optional(verdict, "timing", Timing),
        speedup=_optional(verdict, "speedup", Speedup),
        objective=_optional(verdict, "objective", ObjectiveResult),
        accepted=verdict.get("accepted"),
        sound=_sound(verdict),
    )


def _sound(verdict: Mapping[str, Any]) -> bool:
    findings = verdict.get("findings") or []
    return verdict.get("correct") is not False and not any(one.get("severity") == "error" for one in findings)


def _part(document: Mapping[str, Any], key: str, name: str) -> Mapping[str, Any]:
    part = document.get(key)
    if not isinstance(part, dict):
        raise UsageError(f"{name} has no {key}.", hint=_HINT)
    return part


def _seed(verdict: Mapping[str, Any]) -> int:
    seed = verdict.get("seed")
    return seed if isinstance(seed, int) else 0


def _convert(value: Any, kind: type[_Record], name: str, where: str) -> _Record:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise UsageError(f"{name}: {where} is invalid: {error}.", hint=_HINT) from None


def _optional(verdict: Mapping[str, Any], key: str, kind: type[_Record]) -> _Record | None:
    """Returns a part of a verdict; None also if it contained a non-finite number, which JSON cannot represent."""
    try:
        return msgspec.convert(verdict.get(key), kind | None)
    except msgspec.ValidationError:
        return None


# ------------------------------------------------------------------------------------------------------ placing


@contextlib.contextmanager
def placed_kernel(given: JudgingInputs) -> Iterator[Kernel]:
    """Context manager: the carried kernel in its own folder if this machine has it, else in a temporary folder with the carried files.

    Raises:
        UsageError: the text holds no such kernel.
    """
    directory = Path(given.directory)
    name = Path(given.file).name
    with contextlib.ExitStack() as stack:
        if not all((directory / one).is_file() for one in (name, *(file.path for file in given.files))):
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kernelmate-")))
            for path, text in ((name, given.source), *((file.path, file.text) for file in given.files)):
                _write(directory, path, text)
        yield kernel_of(given, str(directory / name))


def kernel_of(given: JudgingInputs, path: str) -> Kernel:
    """Returns the carried kernel within its unit.

    Raises:
        UsageError: the text holds no such kernel.
    """
    unit = Unit(path=path, text=given.source, language=given.language, file_text=given.source)
    found = next((one for one in (*find_kernels(unit), *find_pipelines(unit)) if one.name == given.kernel), None)
    if found is None:
        raise UsageError(f"The document's text holds no kernel {given.kernel}.", hint=_HINT)
    return found


def _write(directory: Path, name: str, text: str) -> None:
    """Writes a carried text below the folder; other paths are refused.

    Raises:
        UsageError: its path is outside the folder.
    """
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise UsageError(f"The carried file {name!r} would be written outside of its folder.", hint=_HINT)
    place = directory.joinpath(*path.parts)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text, encoding="utf-8")


OnConfirmed = Callable[[Confirmation], None]


def confirm(
    context: JudgingContext, carried: PortableJudgement, promises: Sequence[Promise], on_judged: OnConfirmed | None
) -> ConfirmationReport:
    """Judges the kernel and each promising version on the GPU, and compare with the earlier results.

    Args:
        context: for the carried kernel, on the GPU.
        carried: the document with the earlier results.
        promises: the versions to judge.
        on_judged: called with each as soon as it is judged.

    Raises:
        InputError: the reference cannot be used, or the prompt cannot be read.
        CompileTimeout: the kernel's compilation did not end.
        EnvironmentFailed: the compiler or the worker is unavailable.
    """
    baselines = context.baselines()
    baseline = baselines[0].verdict
    objective = carried.objective
    if objective is None and carried.prompt is not None:
        objective = read_objective(carried.prompt, baseline)
    found: dict[int, Confirmation] = {}
    judged: list[Judged] = []
    for promise in promises:
        version = candidate_kernel(context.kernel, promise)
        candidate = Candidate(promise.author, promise.why, version, promise.contract)
        verdict = verdict_on(context, candidate, baselines, objective)
        confirmation = Confirmation(promise, verdict, outcome_of(verdict))
        judged.append(Judged(candidate, verdict))
        found[id(judged[-1])] = confirmation
        if on_judged is not None:
            on_judged(confirmation)
    if objective is not None:
        judged = best_first(judged, objective, context.kernel, context.contract)
    confirmations = tuple(found[id(one)] for one in judged)
    return ConfirmationReport(
        carried.given, objective, baseline, carried.timing, confirmations, _notes(context, carried)
    )


def candidate_kernel(kernel: Kernel, promise: Promise) -> Kernel:
    """Returns the promising version within the carried unit."""
    unit = replace(kernel.unit, text=promise.source, file_text=promise.source)
    fused = kernel_named(find_kernels(unit), promise.contract.kernel) if kernel.parts else None
    return same_kernel(kernel, unit) if fused is None else fused


def outcome_of(verdict: Verdict) -> Outcome:
    """Classifies the GPU's verdict; a right version that is neither faster nor slower remains undecided."""
    if verdict.accepted:
        return "confirmed"
    if verdict.accepted is None:
        return "undecided"
    sound = verdict.correct is not False and not any(finding.severity == "error" for finding in verdict.findings)
    timed = verdict.objective is None or verdict.objective.name == "time"
    if sound and timed and verdict.speedup is not None and undecided(verdict.speedup):
        return "undecided"
    return "refuted"


def _notes(context: JudgingContext, carried: PortableJudgement) -> tuple[str, ...]:
    if context.target.name == carried.given.target:
        return ()
    return (
        f"Times were predicted for {carried.given.target} and measured on {context.target.name}: ratios between versions may "
        "be compared, times may not.",
    )
