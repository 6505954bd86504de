"""The report of a traced program: kernels, launches, shares and findings, as text and as a JSON document.

By Amdahl's law, a kernel's share of the program's time bounds the gain of a faster one.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from kernelmate.cli.programs import program_name
from kernelmate_torch.tracing.findings import find
from kernelmate_torch.tracing.loading_records import TracedProcess
from kernelmate_torch.tracing.visits import TraceFinding

FASTER = 3.0
"""Factor for which a kernel's worth is shown."""


@dataclass(frozen=True, slots=True)
class TimeShare:
    """A kernel's part of the program's time.

    Attributes:
        share: its part, from 0 to 1.
        us: its time, in microseconds.
        total_us: time of all kernels and copies on the GPU, or of all operators on the CPU.
        device: `gpu`, or `cpu` where no GPU was used: of the CPU's operators, which says nothing about a GPU.
        first_calls: True if only first calls were seen, which load and compile code.
    """

    share: float
    us: float
    total_us: float
    device: str
    first_calls: bool = False

    def worth(self, factor: float = FASTER) -> float:
        """Returns the part of the time that a kernel faster by a factor saves, by Amdahl's law (Amdahl, AFIPS 1967)."""
        return self.share * (1 - 1 / factor)


def share_of(kernel: Mapping[str, Any], times: Mapping[str, Any]) -> TimeShare | None:
    """Returns a kernel's share; None if no time of it was seen.

    Args:
        kernel: the kernel's record.
        times: the times of its process, as `recording.timing.Times` has them.
    """
    if times["device_us"]:
        us = _device_us(kernel, times)
        return None if us is None else TimeShare(us / times["device_us"], us, times["device_us"], "gpu")
    name = kernel["name"]
    if times["cpu_us"] and name in times["operators"]:
        us = times["operators"][name][1]
        return TimeShare(min(us / times["cpu_us"], 1.0), us, times["cpu_us"], "cpu")
    if times["first_us"] and name in times["first"]:
        us = times["first"][name][1]
        return TimeShare(min(us / times["first_us"], 1.0), us, times["first_us"], "cpu", first_calls=True)
    return None


def _device_us(kernel: Mapping[str, Any], times: Mapping[str, Any]) -> float | None:
    """Returns device time: of an operator, that of the GPU kernels that it launched, in replays of CUDA graphs too."""
    if kernel["kind"] != "operator":
        mine = [total[1] for name, total in times["kernels"].items() if is_named(name, kernel["name"])]
        return sum(mine) if mine else None
    found = None
    for name, owners in times["owners"].items():
        others = [one for one in owners if one]
        if kernel["name"] not in others:
            continue
        # A replay launches kernels without their operator: they are its own, if no other operator launches them.
        alone = others == [kernel["name"]] and _is_own(name)
        found = (found or 0.0) + (sum(owners.values()) if alone else owners[kernel["name"]])
    return found


def _is_own(name: str) -> bool:
    """Returns True for a kernel that PyTorch itself does not launch for other operators."""
    return not re.search(r"at::|cutlass|cublas|cudnn|Memcpy|Memset|gemm|^ampere_|^sm\d\d_", name)


def is_named(shown: str, name: str) -> bool:
    """Returns True if a GPU kernel's name is `name`, apart from inductor's number or C++ parameters after it."""
    plain = re.sub(r"^(?:void )?(?:\(anonymous namespace\)::)?", "", shown).partition("(")[0].partition("<")[0]
    return re.sub(r"_\d+$", "", plain) == name or plain == name or plain.rpartition("::")[2] == name


def launches_of(kernel: Mapping[str, Any], times: Mapping[str, Any]) -> int:
    """Returns the launches that the profiler counted on the GPU, replays of CUDA graphs included; 0 for an operator."""
    if kernel["kind"] == "operator":
        return 0
    return int(sum(total[0] for name, total in times["kernels"].items() if is_named(name, kernel["name"])))


@dataclass(frozen=True, slots=True)
class TracedKernel:
    """A kernel of the report.

    Attributes:
        key: its key in the record.
        name: its name.
        kind: `operator`, `triton`, `cupy` or `gpu`, a kernel of another origin that was required.
        file: where it is defined.
        line: the line there.
        code: hash of its text.
        launches: launches by phase.
        device_launches: launches that the profiler counted on the GPU, replays of CUDA graphs included.
        share: its part of the time; None if none was seen.
        exact: False if launches are a lower bound.
        errors: what it raised: type, message and count.
    """

    key: str
    name: str
    kind: str
    file: str
    line: int
    code: str
    launches: Mapping[str, int]
    device_launches: int
    share: TimeShare | None
    exact: bool
    errors: Sequence[Sequence[Any]]

    @property
    def ran(self) -> bool:
        """Returns True if it was launched."""
        return bool(sum(self.launches.values()) or self.device_launches)


@dataclass(frozen=True, slots=True)
class ProcessReport:
    """Kernels and findings of one process.

    Attributes:
        process: its record.
        kernels: the expected kernels.
        findings: the reasons why kernels were bypassed.
    """

    process: TracedProcess
    kernels: tuple[TracedKernel, ...]
    findings: tuple[TraceFinding, ...]


@dataclass(frozen=True, slots=True)
class RequiredKernel:
    """A kernel that `--require` names.

    Attributes:
        name: as it was given.
        met: True if it ran with the share that was asked for.
        message: why or why not, a sentence without full stop.
    """

    name: str
    met: bool
    message: str


def reports(processes: Sequence[TracedProcess], required: Sequence[str]) -> list[ProcessReport]:
    """Returns a report of each process that imported PyTorch, or that launched a kernel without it.

    Args:
        processes: the records.
        required: names of kernels that are expected even where no file of the program defines them.
    """
    made = []
    for one in processes:
        if not one.torch and not one.kernels:
            continue
        expected = [
            key
            for key, kernel in one.kernels.items()
            if kernel["user"] or any(matches(name, kernel) for name in required)
        ]
        kernels = [_kernel(one, one.kernels[key]) for key in expected] + list(_of_other_origin(one, required, expected))
        made.append(ProcessReport(one, tuple(kernels), tuple(find(one, expected)) if one.lines or one.kernels else ()))
    return made


def matches(name: str, kernel: Mapping[str, Any]) -> bool:
    """Returns True if a kernel has a name: `my::softmax`, `softmax` or a pattern such as `my::*`."""
    whole = str(kernel["name"])
    last = whole.rpartition("::")[2]
    return name in (whole, last) or fnmatch.fnmatchcase(whole, name) or fnmatch.fnmatchcase(last, name)


def _kernel(process: TracedProcess, kernel: Mapping[str, Any]) -> TracedKernel:
    times = process.document["times"]
    launches, share, exact = process.launches(kernel["key"]), share_of(kernel, times), kernel["exact"]
    if launches.keys() - kernel["launches"].keys():
        exact = False
        share = _joint([share_of(process.kernels[one], times) for one in kernel["inner"] if one in process.kernels]) or share  # fmt: skip
    return TracedKernel(
        kernel["key"], kernel["name"], kernel["kind"], kernel["file"], kernel["line"], kernel["code"], launches,
        launches_of(kernel, times), share, exact, kernel["errors"],
    )  # fmt: skip


def _joint(shares: Sequence[TimeShare | None]) -> TimeShare | None:
    """Returns the share of several kernels together; None if none was seen."""
    seen = [one for one in shares if one is not None]
    if not seen:
        return None
    us = sum(one.us for one in seen)
    return replace(seen[0], us=us, share=min(us / seen[0].total_us, 1.0))


def _of_other_origin(
    process: TracedProcess, required: Sequence[str], expected: Sequence[str]
) -> Iterator[TracedKernel]:
    """Yields required kernels that only the profiler recorded: GPU kernels of libraries, and PyTorch's own operators."""
    times = process.document["times"]
    for name in required:
        if any(matches(name, process.kernels[key]) for key in expected):
            continue
        found = {
            shown: total
            for shown, total in times["kernels"].items()
            if is_named(shown, name) or fnmatch.fnmatchcase(shown, name)
        }
        if found:
            us = sum(total[1] for total in found.values())
            count = int(sum(total[0] for total in found.values()))
            yield TracedKernel(
                f"gpu:{name}",
                name,
                "gpu",
                "",
                0,
                "",
                {},
                count,
                TimeShare(us / times["device_us"], us, times["device_us"], "gpu"),
                True,
                (),
            )
        elif name in times["operators"] or name in times["first"]:
            count = int(sum(table[name][0] for table in (times["operators"], times["first"]) if name in table))
            share = share_of({"kind": "operator", "name": name}, {**times, "device_us": 0.0})
            yield TracedKernel(f"operator:{name}", name, "operator", "", 0, "", {"forward": count}, 0, share, False, ())


def check_required(made: Sequence[ProcessReport], required: Sequence[str], share: float) -> list[RequiredKernel]:
    """Returns for each required kernel whether it ran, in any process, with the share.

    Args:
        made: the reports.
        required: names.
        share: the least part of the time, from 0 to 1; 0 for any.
    """
    return [_check(made, name, share) for name in required]


def _check(made: Sequence[ProcessReport], name: str, share: float) -> RequiredKernel:
    known = [
        kernel
        for one in made
        for kernel in one.kernels
        if kernel.key.endswith(f":{name}") or matches(name, {"name": kernel.name})
    ]
    ran = [one for one in known if one.ran]
    if not known:
        return RequiredKernel(
            name, False, "it was never launched, and no operator, Triton function or GPU kernel has this name"
        )
    if not ran:
        return RequiredKernel(name, False, "it was never launched")
    shares = [one.share for one in ran if one.share is not None]
    if not share:
        return RequiredKernel(name, True, "it was launched")
    if not shares:
        return RequiredKernel(
            name, False, "it was launched, and no time of it was seen, so that its share is not known"
        )
    best = max(shares, key=lambda one: one.share)
    of = "of the GPU's time" if best.device == "gpu" else "of the CPU time of the operators"
    message = f"it has {_percent(best.share)} {of}, and {_percent(share)} is required"
    return RequiredKernel(name, best.share >= share, message)


def document(
    made: Sequence[ProcessReport], required: Sequence[RequiredKernel], program: Mapping[str, Any], notes: Sequence[str]
) -> dict[str, Any]:
    """Returns the JSON document of `kernelmate trace`.

    Args:
        made: the reports.
        required: the required kernels.
        program: command, exit status and signal.
        notes: remarks.
    """
    return {
        "traced": {
            "program": dict(program),
            "processes": [_process_document(one) for one in made],
            "required": [asdict(one) for one in required],
            "findings": sum(len(one.findings) for one in made),
            "notes": list(notes),
        }
    }


def _process_document(one: ProcessReport) -> dict[str, Any]:
    process = one.process
    return {
        "pid": process.pid, "role": process.document["role"] or None, "arguments": list(process.arguments), "torch": process.torch, "complete": process.complete,
        "kernels": [_kernel_document(kernel) for kernel in one.kernels],
        "findings": [asdict(finding) for finding in one.findings],
        "graphs": process.document["compiled"]["graphs"],
        "graph_breaks": process.document["compiled"]["breaks"],
        "gpu_kernels": {name: {"launches": int(total[0]), "us": total[1]} for name, total in process.document["times"]["kernels"].items()},
        "notes": process.document["notes"],
    }  # fmt: skip


def _kernel_document(kernel: TracedKernel) -> dict[str, Any]:
    share = kernel.share
    held = {name: value for name, value in asdict(kernel).items() if name not in ("share", "key")}
    held["share"] = (
        None
        if share is None
        else {**asdict(share), "worth": share.worth() if share.device == "gpu" else None, "factor": FASTER}
    )
    held["ran"] = kernel.ran
    return held


def lines(
    made: Sequence[ProcessReport],
    required: Sequence[RequiredKernel],
    program: str,
    notes: Sequence[str],
    *,
    quiet: bool = False,
) -> list[str]:
    """Returns the report as text, a line each.

    Args:
        made: the reports.
        required: the required kernels.
        program: how the program ended.
        notes: remarks.
        quiet: give only the findings and the required kernels.
    """
    shown = [] if quiet else [f"traced: {program}"]
    several = len(made) > 1
    for one in made:
        if several and (one.kernels or one.findings):
            shown.append(f"process {one.process.pid}: {_process_words(one.process)}")
        if not quiet:
            shown += [text for kernel in one.kernels for text in _kernel_lines(kernel)]
        shown += [text for finding in one.findings for text in _finding_lines(finding)]
    if made and not any(one.kernels for one in made) and not quiet:
        shown.append("no operator of torch.library and no Triton function is defined in the program's files")
    if (
        any(kernel.share is not None and kernel.share.device == "cpu" for one in made for kernel in one.kernels)
        and not quiet
    ):
        shown.append("note: shares are of the CPU time of the operators; they say nothing about a GPU")
    shown += [f"required: {one.name}: {'met' if one.met else 'NOT MET'}: {one.message}" for one in required]
    return shown + [
        f"note: {one}"
        for one in (
            *notes,
            *(f"process {each.process.pid}: {text}" for each in made for text in each.process.document["notes"]),
        )
    ]


def _process_words(process: TracedProcess) -> str:
    """Returns a process's program with its rank, or the kind of worker, whose command line would not identify it."""
    role, program = process.document["role"], program_name(process.arguments)
    return role if role.startswith("pytest-xdist") else f"{role}, {program}" if role else program


def _kernel_lines(kernel: TracedKernel) -> Iterator[str]:
    place = f" ({short_path(kernel.file)}:{kernel.line})" if kernel.file else ""
    code = f", code {kernel.code}" if kernel.code else ""
    counts = ", ".join(f"{phase} {count}" for phase, count in kernel.launches.items() if count)
    more = "" if kernel.exact else "at least "
    if kernel.device_launches and kernel.device_launches != sum(kernel.launches.values()):
        counts += f"{', ' if counts else ''}{kernel.device_launches} on the GPU with replays"
    yield f"{kernel.name}{place}: {f'launched {more}({counts})' if counts else 'never launched'}{code}"
    if kernel.share is not None:
        share = kernel.share
        of = "the GPU's time" if share.device == "gpu" else "the CPU time of the operators"
        first = ", first calls alone" if share.first_calls else ""
        worth = f": a kernel {FASTER:.0f} times as fast is worth {_percent(share.worth())} here, no kernel more than {_percent(share.share)}"
        yield f"  {_percent(share.share)} of {of}{first}{worth if share.device == 'gpu' else ''}"
    for name, message, count in kernel.errors:
        yield f"  raised {count} time{'s' * (count != 1)}: {name}: {message}"


def _finding_lines(finding: TraceFinding) -> Iterator[str]:
    where = f"{short_path(finding.file)}:{finding.line}: " if finding.file else ""
    count = f", {finding.count} time{'s' * (finding.count != 1)}" if finding.count else ""
    compiled = ", while torch.compile traced it" if finding.where == "compiled" and finding.kind == "guard" else ""
    cause = f" [{finding.cause}]" if finding.cause else ""
    yield f"{where}{', '.join(finding.kernels)} did not run here: {finding.message}{count}{compiled}{cause}"
    for facts in finding.facts[:2]:
        if facts:
            yield f"    with {'; '.join(facts)}"


def short_path(name: str) -> str:
    """Returns a path relative to the current folder, if it is below that."""
    relative = os.path.relpath(name) if os.path.isabs(name) else name
    return name if relative.startswith("..") else relative


def _percent(part: float) -> str:
    return f"{100 * part:.1f} %"
