"""Tuning: searches at every listed size, and times all versions at all sizes to choose the one to launch."""

from __future__ import annotations

import itertools
import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from kernelmate.compiler.device_part import device_part
from kernelmate.config import Settings
from kernelmate.errors import UsageError
from kernelmate.records import Contract, DispatchRule, Kernel, Size, Tuned, TunedVersion, Verdict
from kernelmate.session.candidates import content_key
from kernelmate.session.preparing import options_for
from kernelmate.session.searching import OnJudged, OnTrying
from kernelmate.session.session import Session, Sizes
from kernelmate.source import contract_for, parse_contract
from kernelmate.source.dispatch import DispatchedVersion, dispatch_text
from kernelmate.suggest.base import Suggester

NEAR = 0.03
"""A version within this fraction of the fastest one at a size counts as equally fast."""


def few_versions(times_us: Sequence[Sequence[float | None]]) -> tuple[int | None, ...]:
    """Returns the version to launch at each size.

    A greedy set cover keeps the number of versions small, with each size within `NEAR` of its fastest time. Among
    versions that cover equally many sizes the earlier one wins, so that the kernel itself stays if nothing is gained.

    Args:
        times_us: by version, then by size; None where a version has no time at a size.
    """
    sizes = range(len(times_us[0]))
    good = {size: _near_fastest([times[size] for times in times_us]) for size in sizes}
    left = {size for size in sizes if good[size]}
    taken: list[int] = []
    while left:
        taken.append(max(range(len(times_us)), key=lambda v: (sum(v in good[size] for size in left), -v)))
        left -= {size for size in left if taken[-1] in good[size]}
    return tuple(next((v for v in taken if v in good[size]), None) for size in sizes)


def _near_fastest(times: Sequence[float | None]) -> frozenset[int]:
    known = [time for time in times if time is not None]
    if not known:
        return frozenset()
    return frozenset(v for v, time in enumerate(times) if time is not None and time <= (1 + NEAR) * min(known))


def dispatch_rule(sizes: Sequence[Mapping[str, int]], chosen: Sequence[int | None]) -> DispatchRule | None:
    """Returns the simplest rule that makes these choices.

    Fewest intervals first, then one size before a product of several.

    Returns None if no measure separates the versions, or nothing was chosen.
    """
    known = [(size, version) for size, version in zip(sizes, chosen, strict=True) if version is not None]
    if not known:
        return None
    rules = [_intervals(names, known) for names in _measures(sizes)]
    found = [rule for rule in rules if rule is not None]
    return min(found, key=lambda rule: len(rule.versions), default=None)


def _measures(sizes: Sequence[Mapping[str, int]]) -> list[tuple[str, ...]]:
    """Returns the names that vary over the sizes: single names first, then products."""
    names = [name for name in sizes[0] if len({size[name] for size in sizes}) > 1] or list(sizes[0])[:1]
    return [some for count in range(1, len(names) + 1) for some in itertools.combinations(names, count)]


def _intervals(names: tuple[str, ...], known: Sequence[tuple[Mapping[str, int], int]]) -> DispatchRule | None:
    """Returns the dispatch rule over the product of the given sizes; None if one value would need several versions."""
    by_value: dict[int, int] = {}
    for size, version in known:
        if by_value.setdefault(math.prod(size[name] for name in names), version) != version:
            return None
    values = sorted(by_value)
    starts = [v for i, v in enumerate(values) if i == 0 or by_value[v] != by_value[values[i - 1]]]
    return DispatchRule(" * ".join(names), tuple(by_value[v] for v in starts), tuple(starts[1:]))


PROMPT = "make it faster"
MOST_SHOWN = 6
"""Maximum number of versions in a table: the kernel itself, chosen versions, then the next fastest."""


@dataclass(slots=True)
class _FoundSettings:
    """Correct versions so far, by content, with their times at each size."""

    sizes: tuple[Size, ...]
    versions: dict[str, TunedVersion] = field(default_factory=dict)

    def add(self, author: str | None, why: str, kernel: Kernel, contract: Contract, verdict: Verdict) -> None:
        """Adds a version that was judged right; for a known version, fills in missing times."""
        if verdict.correct is False or not verdict.compiled or any(f.severity == "error" for f in verdict.findings):
            return
        seen = {_key(case.size): case.median_us for case in verdict.cases if case.correct is not False}
        times = [seen.get(_key(size)) for size in self.sizes]
        key = content_key(kernel, contract)
        known = self.versions.get(key)
        if known is not None:
            times = [new if old is None else old for old, new in zip(known.times_us, times, strict=True)]
        self.versions[key] = TunedVersion(author, why, kernel, contract, tuple(times))


def tune(
    session: Session,
    kernel: Kernel,
    sizes: Sizes = (),
    *,
    suggesters: Callable[[], Sequence[Suggester]] | None = None,
    max_candidates: int = 16,
    budget_s: float | None = None,
    reference: str | None = None,
    on_judged: OnJudged | None = None,
    on_trying: OnTrying | None = None,
    stop: Callable[[], bool] | None = None,
) -> Tuned:
    """Search for faster versions with each size as the headline in turn, and time every right one at all sizes.

    Args:
        session: judges.
        kernel: the baseline.
        sizes: in place of the contract's.
        suggesters: gives fresh suggesters for each search; None for synthesis and the built-in recipes.
        max_candidates: most candidates that are judged in each search.
        budget_s: seconds for all searches together.
        reference: in place of the contract's and the settings'.
        on_judged: called with each candidate once it is judged.
        on_trying: called with the state of the search before each evaluation.
        stop: called between candidates; if it returns True, the search ends with the candidates judged so far.

    Raises:
        KernelmateError: as `Session.optimize`; UsageError where the kernel itself is not right.
    """
    contract = contract_for(kernel)
    listed = _ascending(tuple(sizes) or contract.sizes)
    found, notes = _FoundSettings(listed), dict[str, None]()
    began = time.monotonic()
    baseline: Verdict | None = None
    # The largest size first: most time is spent on it, and a short budget must not miss it.
    for done, headline in enumerate(reversed(listed)):
        if stop is not None and stop():
            break
        left_s = None if budget_s is None else (budget_s - (time.monotonic() - began)) / (len(listed) - done)
        if baseline is not None and left_s is not None and left_s <= 0:
            notes[f"Ended where no other search fits into {budget_s:g} s, the time that was allowed."] = None
            break
        searched = session.optimize(
            kernel, PROMPT, (headline, *(size for size in listed if size != headline)), max_candidates, on_judged, stop,
            budget_s=left_s, suggesters=suggesters and suggesters(),
            reference=reference, on_trying=on_trying,
        )  # fmt: skip
        baseline = baseline or searched.baseline
        _require_right(kernel, searched.baseline)
        found.add(None, "", kernel, contract, searched.baseline)
        for one in searched.candidates:
            found.add(
                one.candidate.author, one.candidate.why, one.candidate.kernel, one.candidate.contract, one.verdict
            )
        notes |= dict.fromkeys(searched.notes)
    if baseline is None:
        raise UsageError("The search was stopped before anything was judged.", hint="Run it again.")
    return _tuned(found, baseline, tuple(notes))


def sweep(
    session: Session,
    kernel: Kernel,
    sizes: Sizes,
    others: Sequence[Kernel] = (),
    *,
    reference: str | None = None,
) -> Tuned:
    """Times a kernel and other versions of it at many sizes.

    Args:
        session: judges.
        kernel: the baseline; its contract decides.
        sizes: all that are judged and timed.
        others: versions of the kernel in other files.
        reference: in place of the contract's and the settings'.

    Raises:
        KernelmateError: as `Session.compare`; UsageError where the kernel itself is not right.
    """
    contract = contract_for(kernel)
    listed = _ascending(tuple(sizes))
    found, asked = _FoundSettings(listed), tuple(reversed(listed))
    baseline, *_ = session.bench(kernel, asked, reference)
    _require_right(kernel, baseline)
    found.add(None, "", kernel, contract, baseline)
    notes = []
    for other in others:
        (verdict, *_) = session.compare(kernel, other, None, asked, reference).candidate
        count = len(found.versions)
        found.add(other.unit.path, "", other, parse_contract(other, contract) or contract, verdict)
        if len(found.versions) == count:
            why = next((f"{f.code}: {f.message}" for f in verdict.findings if f.severity == "error"), "not right")
            notes.append(f"{other.unit.path} is left out: {why}")
    return _tuned(found, baseline, tuple(notes))


def sweep_sizes(base: Mapping[str, int], name: str, first: int, last: int) -> tuple[dict[str, int], ...]:
    """Returns sizes that differ in one name: its first and last value and every power of two between them.

    Raises:
        UsageError: there is no size of that name, or no value in the range.
    """
    if name not in base:
        raise UsageError(f"There is no size {name}.", hint=f"Sizes of this contract: {', '.join(base)}.")
    if not 0 < first <= last:
        raise UsageError(
            f"{name}={first}..{last} contains no size.", hint="Write the smaller one first: rows=1..65536."
        )
    powers = [1 << bit for bit in range(last.bit_length()) if first < 1 << bit < last]
    return tuple({**base, name: value} for value in dict.fromkeys([first, *powers, last]))


def _tuned(found: _FoundSettings, baseline: Verdict, notes: tuple[str, ...]) -> Tuned:
    versions = tuple(found.versions.values())
    chosen = few_versions([version.times_us for version in versions])
    kept = _shown(versions, chosen)
    number = {old: new for new, old in enumerate(kept)}
    again = tuple(None if one is None else number[one] for one in chosen)
    return Tuned(
        "measured" if baseline.backend == "cuda" else "predicted", baseline.target, found.sizes, tuple(versions[one] for one in kept), again,
        dispatch_rule(found.sizes, again), notes,
    )  # fmt: skip


def _shown(versions: Sequence[TunedVersion], chosen: Sequence[int | None]) -> list[int]:
    """Returns the versions that a table shows, in order.

    The kernel itself, chosen ones, then the fastest over all sizes.
    """
    kept = dict.fromkeys([0, *(one for one in chosen if one is not None)])

    def mean(number: int) -> float:
        times = [math.log(time) for time in versions[number].times_us if time]
        return sum(times) / len(times) if times else math.inf

    kept |= dict.fromkeys(sorted(range(len(versions)), key=mean)[: max(MOST_SHOWN - len(kept), 0)])
    return sorted(kept)


def _require_right(kernel: Kernel, verdict: Verdict) -> None:
    """Refuses a kernel that is not correct.

    Raises:
        UsageError: it does not compile, or is not right.
    """
    if verdict.compiled and verdict.correct is not False and not any(f.severity == "error" for f in verdict.findings):
        return
    raise UsageError(
        f"{kernel.name} itself is not right, so no version can be compared with it.",
        hint=f"Run: kernelmate bench {kernel.unit.path}, then kernelmate fix {kernel.unit.path}",
    )


def _ascending(sizes: Sequence[Size]) -> tuple[Size, ...]:
    """Returns each size once, from the smallest problem to the largest."""
    once = {_key(size): size for size in sizes}
    return tuple(sorted(once.values(), key=lambda size: (math.prod(size.values()), tuple(size.values()))))


def _key(size: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(size.items()))


def dispatch_file(tuned: Tuned, kernel: Kernel, settings: Settings, heading: str) -> str:
    """Returns a CUDA file with the versions of the rule and a host function that launches the right one.

    Args:
        tuned: the result of `tune`, with a rule.
        kernel: the baseline.
        settings: for include paths.
        heading: comment above the host function, one line.

    Raises:
        UsageError: there is no rule, or one version is the best at every size.
        SourceError: a version cannot be launched from host code.
    """
    rule = tuned.rule
    if rule is None:
        raise UsageError(
            "No single size, and no product of sizes, separates the versions, so no dispatch is written.",
            hint="Choose sizes that lie closer together, or launch the chosen versions from your own code.",
        )
    if len(rule.versions) == 1:
        author = tuned.versions[rule.versions[0]].author or "the kernel itself"
        raise UsageError(
            f"One version ({author}) is the best at every size, so no dispatch is needed.",
            hint=f'kernelmate optimize {kernel.unit.path} "{PROMPT}" --accept writes a faster version.',
        )
    used = sorted(set(rule.versions))
    paths = options_for(settings, Path(kernel.unit.path)).include_paths
    versions = [_dispatched(tuned.versions[one], number, kernel, paths) for number, one in enumerate(used)]
    placed = replace(rule, versions=tuple(used.index(one) for one in rule.versions))
    return dispatch_text(kernel, versions, placed, heading)


def _dispatched(version: TunedVersion, number: int, kernel: Kernel, include_paths: Sequence[str]) -> DispatchedVersion:
    """Returns the device code of a version, without its contract, for a separate namespace."""
    one = version.kernel
    part = device_part(
        one.unit.text,
        Path(kernel.unit.path).resolve().parent,
        tuple(Path(path).resolve() for path in include_paths),
        kernel=one.name,
    )
    text = re.sub(r"^// /// kernelmate$.*?^// ///$\n?", "", part.text, flags=re.MULTILINE | re.DOTALL)
    label = "baseline" if version.author is None else re.sub(r"\W+", "_", version.author.partition(":")[2] or "other")
    return DispatchedVersion(f"{kernel.name.rpartition('::')[2]}_{label}_{number}", text, version.contract)
