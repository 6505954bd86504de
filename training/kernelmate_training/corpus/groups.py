"""Groups: one problem, versions of its kernel that are worth comparing, and the pairs of versions to learn from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from kernelmate.records import MetricName, Size
from kernelmate_training.corpus.drafting import Flaws, Problem
from kernelmate_training.corpus.flaws import FLAWS, MistakenText, break_text, fixes, metrics_of

PROMPTS: Mapping[MetricName, tuple[str, ...]] = {
    "time": (
        "make it faster", "speed this up", "this kernel is too slow", "optimize for speed", "reduce the runtime", "improve performance",
        "optimize this kernel", "make it run faster on an H100", "lower the latency", "get more throughput", "faster please",
        "why is this slow? make it fast", "better performance", "cut the execution time", "increase memory bandwidth utilisation",
        "it takes most of the step time, speed it up", "faster", "speed", "mach das schneller", "bitte beschleunigen", "rends ce kernel plus rapide",
        "让它更快", "优化性能", "速くして", "hazlo más rápido", "use fewer instructions and make it fast",
    ),
    "shared_bytes": (
        "reduce shared memory", "use less shared memory", "lower shared memory usage", "it needs too much smem", "reduce memory usage",
        "less shared memory per block", "weniger gemeinsamen Speicher", "减少共享内存", "moins de mémoire partagée", "shared memory", "shrink the shared memory footprint", "cut static shared memory",
    ),
    "registers": (
        "use fewer registers", "reduce register usage", "lower register pressure", "fewer registers per thread",
        "reduce registers", "weniger Register", "减少寄存器", "registers", "it uses too many registers",
    ),
    "local_bytes": (
        "avoid register spills", "get rid of the spills", "reduce local memory", "no local memory please", "it spills, fix the spills",
        "use less local memory",
    ),
    "global_bytes": (
        "reduce global memory traffic", "fewer memory transactions", "move fewer bytes", "coalesce the memory accesses",
        "reduce DRAM traffic", "cut the number of sectors", "make the global loads coalesced", "coalesce the accesses", "weniger globale Speicherzugriffe", "减少全局内存访问", "fewer sectors", "less global memory traffic",
    ),
    "occupancy": (
        "increase occupancy", "raise the occupancy", "more active warps per SM", "improve occupancy", "提高占用率", "höhere Auslastung", "occupancy is too low",
    ),
    "accuracy": (
        "make it more accurate", "improve the accuracy", "reduce the numerical error", "it loses precision, make it more precise", "genauer bitte", "提高精度", "more accurate",
    ),
    "correct": (
        "fix it", "it does not work, fix the kernel", "find and fix the bug", "wrong results, fix it", "fix the error",
        "make it correct", "it does not compile or gives wrong values, repair it", "debug this kernel", "fix the bug", "repariere den Kernel", "修复错误", "corrige ce kernel", "make it work", "fix",
    ),
}  # fmt: skip


def draw_prompt(metric: MetricName, rng: Random) -> str:
    """Returns a random prompt for a metric."""
    return rng.choice(PROMPTS[metric])


@dataclass(frozen=True, slots=True)
class Pair:
    """A version to be improved, a version that is better for a metric, and the flaws removed between them.

    Attributes:
        before, after: indices into the group's texts.
        metric: the metric.
        flaws: flaws of `before` that `after` lacks, the most important first.
        prompt: a prompt for the metric.
        steps: rewrites with their variants that make the better version from `before`; `after` then equals `before`.
        whys: the reason of each step.
        rank: rank among the versions tried, from 1.
        offers: rewrites that apply to `before` for the metric, with their numbers of variants.
        size: size at which time was measured; None for the headline.
    """

    before: int
    after: int
    metric: MetricName
    flaws: tuple[str, ...]
    prompt: str
    steps: tuple[tuple[str, int], ...] = ()
    whys: tuple[str, ...] = ()
    rank: int = 0
    offers: tuple[tuple[str, int], ...] = ()
    size: Size | None = None


@dataclass(frozen=True, slots=True)
class Repair:
    """A broken version, and the index of the text that it was made from."""

    broken: MistakenText
    after: int
    prompt: str


@dataclass(frozen=True, slots=True)
class Group:
    """One problem with its versions, pairs and mistakes; `texts` are distinct units."""

    number: int
    seed: int
    problem: Problem
    texts: tuple[str, ...]
    pairs: tuple[Pair, ...]
    repairs: tuple[Repair, ...]

    @property
    def name(self) -> str:
        """Identifier that all rows of the problem share."""
        return f"{self.problem.family}-{self.number:06d}"


def make_group(problem: Problem, rng: Random, number: int, seed: int) -> Group:
    """Returns versions of a problem with many and with fewer flaws, and the pairs that promise a gain."""
    texts: dict[str, int] = {}

    def place(flaws: Flaws) -> int:
        return texts.setdefault(problem.text(flaws), len(texts))

    pairs: dict[tuple[int, int, str], Pair] = {}
    for flaws in _starts(problem, rng):
        before = place(flaws)
        for metric in _wished(flaws, rng):
            gone = fixes(flaws, metric)
            after = place(flaws - gone)
            if after != before:
                ordered = tuple(sorted(gone, key=lambda flaw: (FLAWS[flaw].minor, problem.flaws.index(flaw))))
                pairs.setdefault(
                    (before, after, metric), Pair(before, after, metric, ordered, draw_prompt(metric, rng))
                )
    known = tuple(texts)
    repairs = tuple(_repairs(known, rng))
    return Group(number, seed, problem, known, tuple(pairs.values()), repairs)


def _starts(problem: Problem, rng: Random) -> Iterator[Flaws]:
    """Yields a version with many flaws, and sometimes one with part of them."""
    chosen: set[str] = set()
    for others in problem.exclusive:
        if rng.random() < 0.8:
            chosen.add(rng.choice(sorted(others & set(problem.flaws)) or [""]))
    chosen.discard("")
    excluded = frozenset[str]().union(*problem.exclusive)
    free = [flaw for flaw in problem.flaws if flaw not in excluded]
    share = rng.choice((0.25, 0.5, 0.75))
    chosen.update(flaw for flaw in free if rng.random() < share)
    serious = [flaw for flaw in problem.flaws if not FLAWS[flaw].minor]
    if serious and not any(not FLAWS[flaw].minor for flaw in chosen):
        one = rng.choice(serious)
        chosen.add(one)
        chosen -= {other for others in problem.exclusive if one in others for other in others if other != one}
    yield frozenset(chosen)
    rest = sorted(flaw for flaw in chosen if not FLAWS[flaw].minor)
    if len(rest) > 1 and rng.random() < 0.75:
        kept = rng.sample(rest, rng.randint(1, len(rest) - 1))
        minor = [flaw for flaw in sorted(chosen) if FLAWS[flaw].minor and rng.random() < 0.5]
        yield frozenset((*kept, *minor))


def _wished(flaws: Flaws, rng: Random) -> Iterator[MetricName]:
    """Yields time if a flaw costs time, and one other metric that the flaws affect."""
    metrics = metrics_of(sorted(flaws))
    if "time" in metrics:
        yield "time"
    others = [metric for metric in metrics if metric != "time"]
    if others:
        yield rng.choice(others)


def _repairs(texts: Sequence[str], rng: Random) -> Iterator[Repair]:
    """Yields two to four mistakes, each in one of the texts."""
    known = set(texts)
    for _ in range(rng.choice((2, 3, 4))):
        after = rng.randrange(len(texts))
        broken = break_text(texts[after], rng)
        if broken is not None and broken.text not in known:
            known.add(broken.text)
            yield Repair(broken, after, draw_prompt("correct", rng))
