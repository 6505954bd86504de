"""Reductions along rows and operations on their results: a warp or a block per row, with as many passes as needed.

A row that is read again comes from the L1 cache; each pass loads packs of 16 bytes where rows and addresses allow it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from kernelmate.source import evaluate
from kernelmate.synthesis.expressions import Expressions
from kernelmate.synthesis.kept_text import own_row
from kernelmate.synthesis.kernel_text import (
    MULTIPROCESSORS,
    KernelText,
    WrittenKernel,
    block_of,
    fresh_names,
    those_written,
)
from kernelmate.synthesis.online import online_of
from kernelmate.synthesis.packs import ALIGNED_ROWS, Packs
from kernelmate.synthesis.plan import Key, Plan, Refused, walk
from kernelmate.synthesis.reductions import WARP, Reductions, Team
from kernelmate.synthesis.schedules.row_elements import RowEnd, ends_of
from kernelmate.synthesis.schedules.row_loops import RowLoops

ROWS_PER_BLOCK = 8
"""Rows per block, with a warp per row."""

SHORT_ROW = 1024
"""Maximum row length for a warp per row: 32 elements per thread."""


LONG_ROW = 8192
"""Row length above which blocks of 512 threads are tried as well."""

KEPT = 32
"""Desired registers per thread for elements of its row: enough loads in flight, and enough threads fit."""

LONGEST_KEPT = 32768
"""Maximum row length for which a block of 1024 threads keeps 32 elements each."""

WARPS_THAT_KEEP = 4
"""Warps per block if each keeps its own row."""

EACH_OF_LANES = 8
"""Elements per thread if rows share a warp: two packs of four."""

FEWEST = 4
"""Minimum elements per thread for which a block per row is tried."""


def written(plan: Plan, kernel: KernelText, text: type[Rows] | None = None) -> Iterator[WrittenKernel]:
    """Yields generated kernels, the most promising first.

    Args:
        plan: of the kernel.
        kernel: the context of its text.
        text: a class of text in place of `Rows`.

    Raises:
        Refused: the schedule does not apply.
    """
    text = text or Rows
    headline = int(evaluate(plan.columns, kernel.contract.sizes[0]))
    warp = Team("warp", WARP, WARP * ROWS_PER_BLOCK)
    blocks = [Team("block", threads, threads) for threads in block_sizes(headline)]
    teams = [warp, *blocks[:1]] if headline <= SHORT_ROW else [*blocks, warp]
    if 2 * EACH_OF_LANES < headline <= WARP * EACH_OF_LANES // 2:
        lanes = 1 << (headline // EACH_OF_LANES).bit_length() - 1
        teams.insert(0, Team("warp", lanes, WARP * ROWS_PER_BLOCK))
    # Threads without a pack of their own only wait: on an H200, 512 for a row of 1024 took twice as long as 128.
    more = [Team("block", threads, threads) for threads in (64, 128, 256, 512, 1024) if threads * FEWEST <= headline]
    others = [team for team in more if team not in teams[:3]]
    kept = _kept(plan, kernel, headline, text)
    again = [partial(_text, text, plan, kernel, team, online=headline > LONG_ROW) for team in [*teams, *others]]
    if not kept:
        yield from those_written(again[: len(teams[:3])], again[len(teams[:3]) :])
        return
    yield from kept[:2]
    yield from those_written([], [*again[:1], *(partial(replace, one) for one in kept[2:]), *again[1:]])


def _text(text: type[Rows], plan: Plan, kernel: KernelText, team: Team, *, online: bool) -> WrittenKernel:
    return text(plan, kernel.again(), team, online=online).written()


def _kept(plan: Plan, kernel: KernelText, columns: int, text: type[Rows]) -> list[WrittenKernel]:
    """Returns kernels that keep rows in registers, for up to three team sizes, best first.

    The first team is the smallest with at most `KEPT` registers per thread, except for few or short rows.
    """
    found: list[tuple[int, WrittenKernel]] = []
    if columns > LONGEST_KEPT:
        return []
    for threads in (4, 8, 16, 32, 64, 128, 256, 512, 1024):
        if threads > 4 and threads * 2 > columns:
            break
        team = Team("block", threads, threads) if threads > WARP else Team("warp", threads, WARP * WARPS_THAT_KEEP)
        try:
            rows = text(plan, kernel.again(), team, keeps=True)
            found.append((rows.registers, rows.written()))
        except Refused:
            continue
    # Where multiprocessors have a block each at most, the time of one row counts.
    alone = int(evaluate(plan.row_count, kernel.contract.sizes[0])) <= MULTIPROCESSORS
    enough = [place for place, (registers, _) in enumerate(found) if registers <= (KEPT // 4 if alone else KEPT)]
    # Short rows share a warp: two packs for each of a row's threads.
    paired = [place for place in enough if found[place][0] >= 8 and columns <= 8 * WARP]
    first = paired[-1] if paired else (enough or [0])[0]
    order = [place for place in (first, first + 1, first - 1) if 0 <= place < len(found)]
    return [found[place][1] for place in order]


def block_sizes(columns: int) -> list[int]:
    """Returns block sizes for a row length: about two packs of four per thread."""
    fitting = 64
    while fitting < 256 and fitting * 8 < columns:
        fitting *= 2
    return [fitting, 512] if columns > LONG_ROW else [fitting]


class Rows(RowLoops):
    """Text of a kernel in which each team (part of a warp, a warp or a block) takes a row."""

    schedule = "rows"
    over = "row"

    def __init__(
        self, plan: Plan, kernel: KernelText, team: Team, *, online: bool = False, keeps: bool = False
    ) -> None:
        self.plan, self.kernel, self.team = plan, kernel, team
        self.online = online_of(plan, self.levels()) if online else {}
        if kernel.kernel.signature.extern_c and 'extern "C"' not in kernel.kernel.source:
            raise Refused('the kernel stands in an extern "C" block, where helpers may not be templates')
        self.over = self._row_noun()
        self.names = fresh_names(
            kernel,
            "kPack",
            "j",
            "packed",
            "end",
            c="col",
            row=self._row_name(),
            rank="tid" if team.name == "block" else "lane",
        )
        self.names.kThreads, self.constants = kernel.threads(team.block)
        self.names.columns = kernel.size_name(kernel.size(plan.columns), "columns")
        self.function = kernel.part_name(self.over)
        self.outputs = [one.name for one in kernel.outputs()]
        self.inputs = self.accesses(self.outputs, "row")
        self.slabs = self._slabs()
        for key in walk(plan):
            if plan.node(key).op == "iota" and plan.access(key) == "flat":
                raise Refused("it uses positions along other axes than a row's")
        self.full = {name: self.is_whole(key) for key, name in zip(plan.outputs, self.outputs, strict=True)}
        self.rowed = [
            one.name
            for one in kernel.contract.args
            if self.inputs.get(one.name) in ("flat", "slab") or self.full.get(one.name)
        ]
        columns = [name for name, access in self.inputs.items() if access == "column"]
        self.packs = Packs(kernel, [*self.rowed, *columns], kernel.names, self.names.kPack)
        self.pointers = {name: kernel.names.fresh(f"{name}_{self.over}") for name in self.rowed}
        self.firsts: dict[str, tuple[str, str, str]] = {}
        sizes = {name: kernel.size(side) for name, side in plan.pitches}
        self.pitches = {name: one if re.fullmatch(r"\w+", one) else f"({one})" for name, one in sizes.items()}
        if any(name not in self.rowed for name in self.pitches):
            raise Refused("it takes the beginnings of rows of an array that it reads along single axes")
        for key in walk(plan):
            if plan.node(key).op in ("input", "iota") and plan.access(key) == "across":
                self._meet_across(key)
        self.kept: list[str] = []
        self.ahead = 0 if keeps else self._ahead()
        if self.ahead:
            comment = "elements per thread whose loads overlap"
            self.names.kAhead, declared = kernel.constant("Ahead", self.ahead, comment)
            self.constants += declared
        self.expressions = Expressions(plan, kernel, self._leaf, frozenset({"flat", "slab", "column", "across"}))
        self.reductions = Reductions(plan.graph, kernel, team, self.names.kThreads)
        if self.reductions.team.noun == "lanes":
            self.reductions.lanes, declared = kernel.constant("Lanes", team.threads, "threads that share a row")
            self.constants += declared
        self.end = self._end()
        self.last = self.names.columns
        if keeps:
            self.keep(self.passes())

    def _slabs(self) -> dict[str, Key]:
        """Returns the inputs that are read at rows other than the thread's own, by array."""
        found: dict[str, Key] = {}
        for key in walk(self.plan):
            node = self.plan.node(key)
            if node.op != "input" or self.plan.access(key) != "slab":
                continue
            if found.setdefault(str(node.data[0]), key) != key:
                raise Refused(f"it reads {node.data[0]} along different axes")
        return found

    def _slab_row(self, name: str, lines: list[str]) -> str:
        """Returns the row index of an array whose rows are reduced: part of the thread's own, or an element of an index array."""
        key = self.slabs[name]
        front = [one for one in key[1] if isinstance(one, str) or (one is not None and one < self.plan.split)]
        if isinstance(front[0], int):
            part = self._part((key[0], tuple(front)))
            return f"({part})" if " " in part else part
        taken = next(
            one for one in walk(self.plan) if self.plan.node(one).op == "take" and key in self.plan.operands(one)
        )
        chosen = self.expressions.bare_number(self.plan.operands(taken)[1])
        if self.plan.node(chosen).op != "input":
            raise Refused("it reduces rows of an array that computed indices select")
        (text,) = self.expressions.locals_for([chosen], lines)
        return f"static_cast<size_t>({text})"

    def _row_noun(self) -> str:
        """Returns the word for a row: the contract's where rows are groups of several axes, such as `group` for `groups`."""
        plan = self.plan
        side = plan.domain[plan.split - 1] if plan.split else ""
        across = any(plan.access(key) == "across" for key in walk(plan) if plan.node(key).op in ("input", "iota"))
        return side[:-1] if across and re.fullmatch(r"[a-z]+[^s]s", side) else "row"

    def _row_name(self) -> str:
        """Returns the baseline's name for the number of a row, as `token`; else the word for a row."""
        kernel, plan = self.kernel, self.plan
        own = own_row(kernel.kernel.source, plan.domain[0], kernel.contract.grid) if plan.split == 1 else ""
        return own if own and self.over == "row" else self.over

    def _end(self) -> RowEnd | None:
        """Returns the end of the relevant part of a row if it depends on the row alone."""
        found = [one for one in ends_of(self.plan) if one.skips(self.plan, self.levels()[0])]
        return found[0] if found else None

    def _ahead(self) -> int:
        """Returns the number of loads in flight: a thread's elements at the first size; 0 for a single pack.

        By default the compiler unrolls beyond a thread's elements, and loads the remaining packs one by one.
        """
        share = int(evaluate(self.plan.columns, self.kernel.contract.sizes[0])) // self.team.threads
        ahead = min(self.most_ahead(), 1 << max(0, share.bit_length() - 1))
        return ahead if ahead >= 2 * self.packs.width else 0

    def written(self) -> WrittenKernel:
        """Returns the generated kernel."""
        kernel, plan, team, names = self.kernel, self.plan, self.team, self.names
        length = kernel.size(plan.columns)
        body = self._opening(length)
        for keys in self.passes():
            self.last = names.end if self.end is not None and self.end.skips(plan, keys) else names.columns
            body += ["", *self.reduction(keys)]
        self.last = names.columns
        body += ["", *self.results()]
        if names.columns != length:  # its expression is not written again
            body = [
                one.replace(f"({length})", names.columns).replace(f"max({length},", f"max({names.columns},")
                for one in body
            ]
        width = self.packs.width
        passed = kernel.used(body)
        template = [f"template <int {names.kPack}>"] if width > 1 else []
        inline = "static __device__ __forceinline__ void "
        head = "\n".join(
            [*template, kernel.wrapped(f"{inline}{self.function}(", [*kernel.declared(passed), f"size_t {names.row}"])]
        )
        team_text = team.noun if team.threads >= WARP else f"{team.threads} neighbouring threads"
        comment = f"// One {self.over} by {'a ' * (team.threads >= WARP)}{team_text}"
        comment += f", {names.kPack} neighbouring elements per access." if width > 1 else "."
        helpers = [
            *self.constants,
            "",
            *(line for one in self.packs.shared for line in (one, "")),
            *self.reductions.texts(),
            *self.helpers(),
            *self.kept_helper(),
            "\n".join([comment, kernel.definition(head, body)]),
        ]
        grid = (plan.row_count,) if team.name == "block" else (f"cdiv({plan.row_count}, block // {team.threads})",)
        return WrittenKernel(
            f"{self.schedule}-{team.name if team.threads == WARP else f'{team.noun}-{team.threads}'}{'-kept' * bool(self.kept)}",
            self.why(),
            kernel.definition(kernel.head(), self._dispatch(passed, length)),
            "\n".join(helpers).lstrip(),
            grid,
            team.block,
        )

    def passes(self) -> list[list[Key]]:
        """Returns the reductions of each pass."""
        found: list[list[Key]] = []
        for keys in self.levels():
            if keys[0][0] in self.online:
                found[-1] += keys
            else:
                found.append(keys)
        return found

    def helpers(self) -> list[str]:
        """Returns the device functions, each followed by an empty line."""
        return []

    def _opening(self, length: str) -> list[str]:
        names, lines = self.names, []
        if re.fullmatch(r"\w+", length):
            names.columns = length
        else:
            lines.append(f"const int {names.columns} = {length};")
        rank = "threadIdx.x" if self.team.name == "block" else f"threadIdx.x % {self.threads}"
        count = names.kPack if self.packs.width > 1 else "1"
        lines += self.packs.structs(count)
        lines.append(f"const int {names.rank} = {rank};")
        for axis, (_, first, behind) in self.firsts.items():
            lines.append(f"const int {first} = {self._first_across(axis, behind)};")
        for name in self.rowed:
            const = "const " if self.kernel.arguments[name].direction == "in" else ""
            pitch = self.pitches.get(name, names.columns)
            row = names.row if name not in self.slabs else self._slab_row(name, lines)
            lines.append(f"{const}{self.kernel.element(name)}* {self.pointers[name]} = {name} + {row} * {pitch};")
        return [*lines, *self._end_lines(), *self.kept_lines()]

    def _end_lines(self) -> list[str]:
        """Returns the declaration of the relevant part's end."""
        if self.end is None:
            return []
        lines: list[str] = []
        (text,) = self.expressions.locals_for([self.end.bound], lines)
        text = re.sub(r"^static_cast<long long>\((\w+)\)$", r"\1", text)
        columns, more = self.names.columns, f" + {self.end.more}" * bool(self.end.more)
        node = self.plan.node(self.end.bound)
        if node.op == "iota" and self.kernel.arguments.get(node.shape[0], node).dtype == "int32":
            end = f"min({columns}, static_cast<int>({text}){more})"
        elif not more and node.dtype == "int32":
            end = f"min({columns}, {text})"
        else:
            end = f"static_cast<int>(min(static_cast<long long>({columns}), static_cast<long long>({text}){more}))"
        sign = ">=" if self.end.beyond else "<"
        self.expressions.known |= dict.fromkeys(self.end.conditions, f"({self.position()[0]} {sign} {self.names.end})")
        return [*lines, f"const int {self.names.end} = {end};  // columns from there on are masked"]

    def position(self) -> tuple[str, str]:
        """Returns the index of an element in its row, and its type."""
        return f"{self.names.c} + {self.names.j}", "int"

    def results(self) -> list[str]:
        """Returns the outputs: those of whole rows in a last pass, one element per row by one thread."""
        plan = self.plan
        pairs = list(zip(plan.outputs, self.outputs, strict=True))
        lines: list[str] = []
        single = [(key, name) for key, name in pairs if not self.full[name]]
        shared = [
            (key, name)
            for key, name in single
            if any(self._needs(one, key) for one, other in pairs if self.full[other])
        ]
        kept = {self.expressions.named(key, lines, f"row_{name}") for key, name in shared}
        if single:
            body = self.stores(single, lambda name: self.kernel.at(name, self.names.row))
            lines += block_of(f"if ({self.names.rank} == 0)", body)
            self.expressions.known = {key: name for key, name in self.expressions.known.items() if plan.node(key).op == "reduce" or self.stays(key) or name in kept}  # fmt: skip
        whole = [(key, name) for key, name in pairs if self.full[name]]
        if whole:
            body = self.stores(whole, lambda name: f"{self.stored_pack(name)}.at[{self.names.j}]")
            self.last = self.names.end if all(self.beyond(key) is not None for key, _ in whole) else self.names.columns
            lines += self.loop([key for key, _ in whole], body, [name for _, name in whole])
        return lines

    def _needs(self, key: Key, value: Key) -> bool:
        """Returns True if an output is computed from a value that is neither a reduction nor an array."""
        value = self.expressions.bare(value)
        if self.plan.node(value).op in ("reduce", "input"):
            return False
        stack = [key]
        while stack:
            one = self.expressions.bare(stack.pop())
            if one == value:
                return True
            stack += self.plan.operands(one)
        return False

    def _dispatch(self, passed: Sequence[str], length: str) -> list[str]:
        """Returns the kernel's body, which selects the row and the function for whole packs or single elements."""
        names, width = self.names, self.packs.width
        arguments = ", ".join([*passed, names.row])
        if self.team.name == "warp":
            rows = self.kernel.count(self.plan.domain[: self.plan.split])
            lines = [
                f"const size_t {names.row} = static_cast<size_t>(blockIdx.x) * ({names.kThreads} / {self.threads}) + threadIdx.x / {self.threads};",
                f"if ({names.row} >= {rows}) return;{'  // by whole warps, so that shuffles find all lanes' * (self.team.threads == WARP)}",
            ]
        else:
            sides = self.plan.domain[: self.plan.split]
            guard_lines = self.kernel.row_guard(names.row, sides, passed)
            count = self.kernel.arguments.get(self.kernel.count(sides)) if guard_lines else None
            # A comparison of size_t with an int converts a negative number of rows to a large one.
            kind = "int" if count is not None and count.dtype == "int32" else "size_t"
            note = "" if self.over == "row" or len(sides) < 2 else f"  // of all {' * '.join(sides)}"
            lines = [f"const {kind} {names.row} = blockIdx.x;{note}", *guard_lines]
        if width == 1:
            return [*lines, f"{self.function}({arguments});"]
        columns = length if re.fullmatch(r"\w+", length) else f"({length})"
        behind = [one for _, _, one in self.firsts.values()]
        # A row is several whole positions of another shape's axis.
        whole = [*self.pitches.values(), *behind] if behind else [columns, *self.pitches.values()]
        lengths = [f"{one} % {self.packs.wide} == 0" for one in dict.fromkeys(whole)]
        comment = ALIGNED_ROWS.replace("rows", f"{self.over}s")
        if behind:
            parts = " and ".join(
                dict.fromkeys(name if len(name) > 2 else "part" for name, _, _ in self.firsts.values())
            )
            comment = f"// Packs need aligned {self.over}s and lie within one {parts}; other {self.over}s go element by element."
        guard = " && ".join(filter(None, [*lengths, self.packs.aligned(self.packs.wide)]))
        return [
            *lines,
            self.packs.constant(),
            comment,
            f"const bool {names.packed} = {guard};",
            *[f"if ({names.packed}) {{", f"  {self.function}<{self.packs.wide}>({arguments});", "} else {"],
            *[f"  {self.function}<1>({arguments});", "}"],
        ]

    def why(self) -> str:
        """Returns an explanation of the schedule in one or two sentences."""
        passes = len(self.passes()) + any(self.full.values())
        several = _TIMES.get(passes, f"{passes} times")
        times = "once" if passes == 1 else f"{several}, from the cache after the first"
        count = self.team.threads
        team = f"one block of {count} threads" if self.team.name == "block" else "one warp"
        team = f"{count} neighbouring threads" if count < WARP else team
        verbs = ("read", "keep", "combine") if count < WARP else ("reads", "keeps", "combines")
        packs = f" in packs of {self.packs.bytes_at_once()} bytes" * (self.packs.width > 1)
        read = f"{verbs[0]} it {times},{packs}" if packs else f"{verbs[0]} it {times}"
        after = ""
        if self.kept:
            read = f"{verbs[0]} it once{packs} and {verbs[1]} it in registers for {_COUNTS.get(passes, passes)} passes"
            after = f"; elements after the first {count * self.ahead} are read again in each"
        return (
            f"Written from the reference: {team} per {self.over} {read}, and {verbs[2]} partial results by shuffles{after}."
            + self.kernel.promise(self.inputs)
        )


_TIMES = {2: "twice", 3: "three times", 4: "four times"}
_COUNTS = {2: "two", 3: "three", 4: "four"}
