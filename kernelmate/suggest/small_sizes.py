"""Sizes at which a rewrite costs more than it brings keep the kernel as it was.

What a rewrite adds (a barrier, more threads, code to fetch) is paid at every size, and gained back where there is work. At a
contract's edges there is none, and no listed size may get slower. So a version that loses there becomes one that decides by
size: below some length it does what the kernel did before, in the launch that it had, above it what the rewrite does. Where
only the launch differs, only the launch is decided by size.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from kernelmate.errors import KernelmateError
from kernelmate.records import Candidate, Contract, Judged, Kernel, Size, Verdict
from kernelmate.source import apply_edits, change_launch

NAME = "small-sizes"
"""What the author of such a version ends in."""

LOST = {"measured": 0.985, "predicted": 0.995}
"""A size whose ratio (before over after) is below is lost: the rule's two per cent less noise; a prediction has no noise,
and sees a launch's fixed costs well, up to code that must be fetched."""
GAINS = 1.02
"""A predicted ratio below this says of a size with more code to fetch that the rewrite brings it nothing."""
MORE_CODE = 256
"""Bytes of code beyond the baseline's from which fetching them shows in a launch of a few threads.

Of 50 versions with that much more code that were promised without a GPU, 45 took 2 to 26 % longer on an H100 at a listed size
other than the headline, most of them more than was predicted (`benchmarks/results/recipes_gpu.json`).
"""

NEXT_TO_NOTHING = 1.03
"""What a version may cost at the headline size, as a share of the best's time, so that small sizes stay as they were."""


@dataclass(frozen=True, slots=True)
class Split:
    """Sizes stay as they were where each of these lengths is less than the number that goes with it."""

    least: tuple[tuple[str, int], ...]

    @property
    def asked(self) -> str:
        """What is so at the other sizes, in CUDA."""
        return " || ".join(f"{name} >= {number}" for name, number in self.least)

    @property
    def large(self) -> str:
        """What is so at the other sizes, in the contract's language."""
        return self.asked.replace("||", "or")

    def __str__(self) -> str:
        return " and ".join(f"{name} = {number}" for name, number in self.least)


def spared(
    kernel: Kernel, contract: Contract, before: Verdict, candidate: Candidate, after: Verdict
) -> Candidate | None:
    """The candidate, but as before where it loses; None where it loses nowhere or sizes cannot be told apart so.

    Args:
        kernel: the baseline.
        contract: its contract.
        before: its verdict.
        candidate: right, and better at the headline size.
        after: the candidate's verdict, over all sizes.
    """
    split = find_split(contract, before, after)
    if split is None:
        return None
    same_code = before.binary is not None and before.binary == after.binary
    try:
        version = candidate.kernel if same_code else _both(kernel, candidate.kernel, split)
        if version is None:
            return None
        launch = _launch_by_size(contract, candidate.contract, split)
        version = change_launch(
            version, grid=launch.grid, block=launch.block, shared=launch.shared, contract=candidate.contract
        )
    except (KernelmateError, RecursionError):
        return None
    part = "its launch" if same_code else "what it did"
    why = f"{candidate.why} Below {split} that does not pay, and the kernel keeps {part} before."
    return Candidate(f"{candidate.author}+{NAME}", why, version, launch)


def find_split(contract: Contract, before: Verdict, after: Verdict) -> Split | None:
    """Which sizes should stay as they were: those that lose, and in doubt those that gain nothing; never the headline."""
    ratios = _ratios(before, after)
    if len(ratios) < 2 or before.timing is None:
        return None
    lost = LOST[before.timing.kind]
    least = [lost]
    if before.timing.kind == "predicted" and _code(after) - _code(before) >= MORE_CODE:
        least.insert(0, GAINS)
    for bound in least:
        losing = [size for size, ratio in ratios[1:] if ratio < bound]
        staying = [size for size, ratio in [(ratios[0][0], math.inf), *ratios[1:]] if ratio >= bound]
        split = _between(contract, losing, staying)
        if split is not None:
            return split
    return None


def best_first(ranked: Sequence[Judged]) -> list[Judged]:
    """Versions in their order, but a promising one that spares small sizes before the first, if it costs next to nothing more.

    A prediction does not see all that a small launch loses to, and no listed size may get slower once times are measured.
    """
    first = next(iter(ranked), None)
    if first is None or first.verdict.timing is None or first.verdict.timing.kind != "predicted":
        return list(ranked)
    if not first.verdict.worth_taking:
        return list(ranked)
    most = NEXT_TO_NOTHING * first.verdict.timing.median_us
    for one in ranked:
        timing = one.verdict.timing
        spares = one.candidate.author.endswith(f"+{NAME}") and one.verdict.accepted == first.verdict.accepted
        if spares and one.verdict.worth_taking and timing is not None and timing.median_us <= most:
            return [one, *(other for other in ranked if other is not one)]
    return list(ranked)


def _ratios(before: Verdict, after: Verdict) -> list[tuple[Size, float]]:
    """Each listed size with the baseline's time over the version's, where both are known; the headline first."""
    times = {tuple(sorted(case.size.items())): case.median_us for case in after.cases if case.origin == "contract"}
    found = []
    for case in before.cases:
        other = times.get(tuple(sorted(case.size.items())))
        if case.origin == "contract" and case.median_us and other:
            found.append((case.size, case.median_us / other))
    return found


def _code(verdict: Verdict) -> int:
    return 0 if verdict.resources is None else verdict.resources.code_bytes


def _between(contract: Contract, losing: Sequence[Size], staying: Sequence[Size]) -> Split | None:
    """The lengths that the kernel is told by which the two kinds of sizes lie apart, each split in the middle.

    All of them must be small for a size to stay as it was: few rows that are long have enough to do.
    """
    told = [a.name for a in contract.args if a.shape is None and a.value is None and "int" in a.dtype]
    least: list[tuple[str, int]] = []
    for name in told if losing else ():
        below, above = max(size[name] for size in losing), min(size[name] for size in staying)
        if below < above:
            middle = 2 ** round(math.log2(max(below, 1) * above) / 2)
            least.append((name, middle if below < middle <= above else above))
    return Split(tuple(least)) if least else None


def _launch_by_size(old: Contract, new: Contract, split: Split) -> Contract:
    """The new contract, whose launch is the old one's below the split."""

    def sides(new_sides: tuple[str, ...], old_sides: tuple[str, ...]) -> tuple[str, ...]:
        pairs = zip_longest(new_sides, old_sides, fillvalue="1")
        return tuple(_by_size(one, other, split) for one, other in pairs)

    return replace(
        new,
        grid=sides(new.grid, old.grid),
        block=sides(new.block, old.block),
        shared=_by_size(new.shared, old.shared, split),
    )


def _by_size(new: str, old: str, split: Split) -> str:
    if new.split() == old.split():
        return new
    return f"{f'({new})' if ' if ' in new else new} if {split.large} else {old}"


def _both(old: Kernel, new: Kernel, split: Split) -> Kernel | None:
    """The old kernel, which from the split on calls the new one as a function; None where that cannot be written.

    This way round the compiler lays the old code out first, so that a small launch fetches what it always did.
    """
    # Sorting versions needs this module too, and does without the grammar that reading text loads.
    from kernelmate.suggest.syntax import read_tree

    before, after = read_tree(old), read_tree(new)
    if before is None or after is None:
        return None
    header = after.text_before_function()
    if "..." in header or not re.fullmatch(r'\s*(?:extern\s*"C"\s*)?(?:template\s*<.*>\s*)?', header, re.DOTALL):
        return None
    names = [parameter.name for parameter in new.signature.parameters]
    told = {name for name, _ in split.least}
    if names != [parameter.name for parameter in old.signature.parameters] or not told <= set(names):
        return None
    function = _free_name(f"{new.name.rpartition('::')[2]}_large", new.unit.text)
    parameters = next(after.walk("parameter_list", under=after.function))
    template = re.sub(r'extern\s*"C"', "", header).strip()
    text = f"static __device__ __forceinline__ void {function}{after.text(parameters)} {after.text(after.body)}\n\n"
    if template:
        text = f"{template}\n{text}"
    kinds = f"<{', '.join(new.signature.template_parameters)}>" if template else ""
    call = f"\n  if ({split.asked}) return {function}{kinds}({', '.join(names)});  // below, it does not pay"
    body = "{" + call + _with_old_constants(before.text(before.body), old, new)[1:]
    place = _above(new)
    return apply_edits(new, [(place, place, text), after.replace(after.body, body)])


def _with_old_constants(body: str, old: Kernel, new: Kernel) -> str:
    """The old body, with the old numbers where a name of the unit stands for another one now."""
    from kernelmate.suggest.syntax import integer_constants

    were: Mapping[str, int] = {name: one.value for name, one in integer_constants(old.unit.text).items()}
    are = integer_constants(new.unit.text)
    for name, value in were.items():
        if name in are and are[name].value != value:
            body = re.sub(rf"\b{name}\b", str(value), body)
    return body


def _free_name(name: str, text: str) -> str:
    number = 1
    while re.search(rf"\b{name}\b", text):
        number += 1
        name = re.sub(r"\d*$", str(number), name)
    return name


def _above(kernel: Kernel) -> int:
    """Where a function goes that the kernel calls: above its contract and their comments, unless code lies in between."""
    text = kernel.unit.text
    place = kernel.start
    if kernel.contract_span is not None and kernel.contract_span[1] <= place:
        between = text[kernel.contract_span[1] : place]
        place = kernel.contract_span[0] if _only_comments(between) else place
    line = text.rfind("\n", 0, place) + 1
    if text[line:place].strip():
        return place
    place = line
    while place > 0:
        previous = text.rfind("\n", 0, place - 1) + 1
        if not text[previous:place].lstrip().startswith("//"):
            break
        place = previous
    return place


def _only_comments(text: str) -> bool:
    return all(not line.strip() or line.lstrip().startswith("//") for line in text.split("\n"))
