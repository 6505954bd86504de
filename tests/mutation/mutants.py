"""Changes kernels in small ways that make them wrong, and sees whether the emulator notices.

`python tests/mutation/mutants.py FILE...` prints what became of every mutant of every kernel in the files.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kernelmate.backends.emulator import EmulatorBackend
from kernelmate.checks.case_launches import (
    FIRST,
    Bench,
    LaunchOutcome,
    PlannedLaunch,
    elements_of,
    errors_of,
    inputs_for,
)
from kernelmate.checks.sizes import own_sizes
from kernelmate.checks.styles import NORMAL
from kernelmate.compiler import compile_kernel, find_target
from kernelmate.records import CompileOptions, Contract, JudgeTask, Kernel, Size, Version
from kernelmate.source import apply_edits, argument_shapes, load_kernels, parse_contract
from kernelmate.source.rewrite import Edit
from kernelmate.source.tokens import closing, lex
from kernelmate.suggest.syntax import Node, Tree, read_tree

TARGET = find_target("H100 SXM")
SCHEDULES = (0, 1, 2)
"""Orders of warps and blocks that a mutant is tried with; the first is the natural one."""
LARGEST = 1 << 15
"""Elements over all arrays at a size that mutants are run at."""
SEED = 20261121

_CALLS = frozenset({"__syncthreads", "__syncwarp", "__threadfence", "__threadfence_block", "__threadfence_system"})
_ORDERING_ASM = re.compile(r"\b(bar|barrier|fence|membar)\.|cp\.async\.wait")
_WEAKER = {"st.release": "st.relaxed", "ld.acquire": "ld.relaxed"}
_UNEVEN = {"<": "<=", ">=": ">", "<=": "<", ">": ">="}


@dataclass(frozen=True, slots=True)
class Mutant:
    """A changed kernel: what was changed at which line of the file, and how that reads."""

    kernel: Kernel
    sort: str
    line: int
    text: str

    @property
    def key(self) -> str:
        """Name of the mutant in data files: the line's text, which stays valid if other lines of the file change."""
        return f"{self.kernel.name}: {self.text}"


# --------------------------------------------------------------------------------------------------- making


def _made(kernel: Kernel, sort: str, edit: Edit, text: str) -> Mutant:
    line = kernel.unit.text.count("\n", 0, edit[0]) + 1
    return Mutant(apply_edits(kernel, [edit]), sort, line, text)


def _line_at(kernel: Kernel, offset: int) -> str:
    text = kernel.unit.text
    end = text.find("\n", offset)
    return text[text.rfind("\n", 0, offset) + 1 : end if end >= 0 else len(text)].strip()


def without_order(kernel: Kernel) -> Iterator[Mutant]:
    """The kernel without one of its barriers, fences or waits, each in turn; those of other kernels are left alone."""
    text = kernel.unit.text
    others = [
        (other.start, other.end) for other in load_kernels(Path(kernel.unit.path or "")) if other.name != kernel.name
    ]
    tokens = lex(text).tokens
    seen: dict[str, int] = {}
    for index, token in enumerate(tokens):
        if any(start <= token.start < end for start, end in others):
            continue
        span = _ordering(tokens, index)
        if span is None:
            continue
        start, end, new = span
        described = _line_at(kernel, start)
        number = seen[described] = seen.get(described, 0) + 1
        yield _made(kernel, "order", (start, end, new), described if number == 1 else f"{described} #{number}")


def _ordering(tokens, index: int) -> tuple[int, int, str] | None:
    """The span of an ordering statement that begins at a token, and what takes its place."""
    token = tokens[index]
    after = tokens[index + 1 : index + 4]
    if token.text in _CALLS and after and after[0].text == "(":
        last = closing(tokens, index + 1)
        return None if last is None else (token.start, tokens[last].end, "")
    if [part.text for part in after] == [".", "sync", "("] and tokens[index - 1].text in {";", "{", "}"}:
        return token.start, tokens[index + 4].end, ""
    if token.text == "asm":
        opening = next(place for place in range(index, len(tokens)) if tokens[place].text == "(")
        last = closing(tokens, opening)
        assert last is not None
        body = "".join(part.text for part in tokens[opening:last])
        if _ORDERING_ASM.search(body):
            return token.start, tokens[last].end, ""
    if token.text.startswith('"'):
        for strong, weak in _WEAKER.items():
            if token.text.startswith(f'"{strong}'):
                return token.start, token.end, token.text.replace(strong, weak)
    return None


def with_other_bounds(kernel: Kernel) -> Iterator[Mutant]:
    """The kernel with one comparison of whole numbers off by one, in both directions."""
    tree = read_tree(kernel)
    assert tree is not None, kernel.name
    for node in tree.walk("binary_expression"):
        left, operator, right = node.child(0), node.child(1), node.child(2)
        if left is None or operator is None or right is None or operator.type not in _UNEVEN:
            continue
        if not (_is_whole(tree, left) and _is_whole(tree, right)) or tree.text(right) in {"0", "1"}:
            continue
        here = tree.text(node)
        for changed in (
            f"{tree.text(left)} {_UNEVEN[operator.type]} {tree.text(right)}",
            f"{tree.text(left)} {operator.type} {tree.text(right)} - 1",
        ):
            yield _made(kernel, "bound", tree.replace(node, changed), f"{here} -> {changed}")


def _is_whole(tree: Tree, node: Node) -> bool:
    """True if an expression has an integer type, as far as its names show."""
    for name in tree.walk("identifier", "call_expression", "subscript_expression", under=node):
        if name.type != "identifier":
            return False
        variable = tree.variable(tree.text(name))
        if variable is not None and (
            variable.pointers or not re.search(r"int|size_t|unsigned|long|short", variable.type)
        ):
            return False
    return True


def with_swapped_indices(kernel: Kernel) -> Iterator[Mutant]:
    """The kernel with two indices exchanged: `tile[y][x]` as `tile[x][y]`, `a[row * n + col]` as `a[col * n + row]`."""
    tree = read_tree(kernel)
    assert tree is not None, kernel.name
    for node in tree.walk("subscript_expression"):
        inner, outer = node.child_by_field_name("argument"), _index(node)
        if inner is not None and outer is not None and inner.type == "subscript_expression":
            first = _index(inner)
            if first is not None and tree.text(first) != tree.text(outer):
                name = tree.text(inner.child_by_field_name("argument"))
                changed = f"{name}[{tree.text(outer)}][{tree.text(first)}]"
                yield _made(kernel, "swap", tree.replace(node, changed), f"{tree.text(node)} -> {changed}")
        elif outer is not None and outer.type == "binary_expression":
            product, operator, rest = outer.child(0), outer.child(1), outer.child(2)
            assert product is not None
            assert operator is not None
            assert rest is not None
            if operator.type == "+" and product.type == "binary_expression" and tree.text(product.child(1)) == "*":
                row, stride = tree.text(product.child(0)), tree.text(product.child(2))
                changed = f"({tree.text(rest)}) * {stride} + {row}"
                if tree.text(rest) != row:
                    yield _made(kernel, "swap", tree.replace(outer, changed), f"{tree.text(outer)} -> {changed}")


def _index(node: Node) -> Node | None:
    found = node.child_by_field_name("indices") or node.child_by_field_name("index")
    if found is not None and found.type == "subscript_argument_list":
        found = found.named_children[0] if len(found.named_children) == 1 else None
    return found


# -------------------------------------------------------------------------------------------------- judging


@dataclass(frozen=True, slots=True)
class Fate:
    """Result of a mutant: the code of a finding, `wrong` for wrong outputs, None if nothing was noticed."""

    code: str | None
    message: str = ""


class Court:
    """One kernel as it should be, and the judging of its mutants. `sizes` are those at which it is clean."""

    def __init__(self, kernel: Kernel) -> None:
        contract = parse_contract(kernel)
        assert contract is not None, kernel.name
        self.kernel, self.contract = kernel, contract
        self._own = self._bench(kernel)
        self.findings = []
        self.sizes: list[Size] = []
        self._answers: dict[tuple[int, int], LaunchOutcome] = {}
        small = [size for size in contract.sizes if elements_of(argument_shapes(contract, size).values()) <= LARGEST]
        for size in (*sorted(small, key=_weight, reverse=True), *own_sizes(contract, contract.sizes)):
            outcomes = [self._run(self._own, size, schedule) for schedule in SCHEDULES]
            if errors := [error for outcome in outcomes for error in errors_of(outcome.result.findings)]:
                if size in contract.sizes:
                    self.findings += errors
                continue
            self._answers.update({(len(self.sizes), outcome.shot.schedule): outcome for outcome in outcomes})
            self.sizes.append(size)

    def _bench(self, kernel: Kernel, steps: int = 2_000_000) -> Bench:
        instance = self.contract.instances[-1] if self.contract.instances else None
        options = CompileOptions(extra=self.contract.options) if self.contract.options else CompileOptions()
        compiled = compile_kernel(kernel, (), instance=instance, target=TARGET, options=options)
        if not compiled.ok:
            raise NotAProgram(kernel.name)
        version = Version(compiled, self.contract, kernel.unit)
        task = JudgeTask("emulator", TARGET, version, None, None, (), SEED, str(self._folder), step_limit=steps)
        return Bench(EmulatorBackend(), task, version)

    @property
    def _folder(self) -> Path:
        return Path(self.kernel.unit.path or ".").resolve().parent

    def _run(self, bench: Bench, size: Size, schedule: int) -> LaunchOutcome:
        shot = PlannedLaunch(FIRST, NORMAL, 0, schedule)
        given = inputs_for(self.contract, size, shot, SEED, self._folder)
        return bench.run(size, shot, given)

    def judge(self, mutant: Mutant) -> Fate:
        """Run a mutant at one size after the other until something is noticed.

        Raises:
            NotAProgram: it does not compile, so that nobody could run it by mistake.
        """
        longest = max(outcome.result.longest_thread or 0 for outcome in self._answers.values())
        bench = self._bench(mutant.kernel, 20 * longest + 10_000)
        for schedule, (number, size) in itertools.product(SCHEDULES, enumerate(self.sizes)):
            outcome = self._run(bench, size, schedule)
            if errors := errors_of(outcome.result.findings):
                return Fate(errors[0].code, errors[0].message)
            if not _same(self.contract, outcome, self._answers[number, schedule]):
                return Fate("wrong", f"another answer at {dict(size)}")
        return Fate(None)


class NotAProgram(Exception):
    """A mutant that does not compile."""


def _weight(size: Size) -> int:
    return int(np.prod(list(size.values()), dtype=np.int64))


def _same(contract: Contract, got: LaunchOutcome, want: LaunchOutcome) -> bool:
    for argument in contract.args:
        if argument.direction == "in" or argument.shape is None:
            continue
        have, should = got.result.arrays[argument.name], want.result.arrays[argument.name]
        if have.dtype.kind in "iub":
            if not np.array_equal(have, should):
                return False
        elif not np.allclose(have.astype(np.float64), should.astype(np.float64), 1e-3, 1e-6, equal_nan=True):
            return False
    return True


def mutants_of(kernel: Kernel) -> Iterator[Mutant]:
    """All of them."""
    yield from without_order(kernel)
    yield from with_other_bounds(kernel)
    yield from with_swapped_indices(kernel)


def main(paths: list[str]) -> None:
    """Print what became of the mutants of the kernels in some files."""
    for path in paths:
        for kernel in load_kernels(Path(path)):
            context = Court(kernel)
            print(
                f"{kernel.name}: {len(context.sizes)} sizes, findings {[finding.code for finding in context.findings]}"
            )
            for mutant in mutants_of(kernel):
                try:
                    fate = context.judge(mutant)
                except NotAProgram:
                    fate = Fate("does not compile")
                print(f"  {mutant.sort:6} line {mutant.line:3} {fate.code or 'NOT NOTICED':24} {mutant.text}")


if __name__ == "__main__":
    main(sys.argv[1:])
