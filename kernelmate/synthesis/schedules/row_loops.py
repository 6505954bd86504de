"""Loops over the elements of a row: packs of 16 bytes, read again for each pass or kept in registers in between."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kernelmate.source import evaluate
from kernelmate.synthesis.kernel_text import ITEM_BYTES, block_of, indented
from kernelmate.synthesis.plan import Key, Refused
from kernelmate.synthesis.reductions import Team
from kernelmate.synthesis.row_ends import RowEnd
from kernelmate.synthesis.schedules.row_elements import RowElements

MOST_KEPT = 64
"""Maximum registers per thread for elements of its row."""

ALL_KEPT = 32768
"""Maximum registers per block for elements of its row: half of a multiprocessor's."""


class RowLoops(RowElements):
    """Loops of one team over a row's elements.

    Attributes:
        team: the threads that compute a row. outputs: names of the results.
        last: end of the part of a row that a pass reads. end: end of a row by a mask; None without one.
        ahead: number of elements whose loads are in flight at once; 0 for one pack.
        kept: arrays whose packs stay in registers for the next pass, if all threads together can keep a row.
        registers: registers of a thread for kept values.
        full: for each result, whether it has an element for each of a row's.
        constants: declarations before the functions.
    """

    team: Team
    outputs: list[str]
    last: str
    end: RowEnd | None
    ahead: int
    kept: list[str]
    full: dict[str, bool]
    constants: list[str]
    registers: int = 0

    def keep(self, passes: Sequence[Sequence[Key]]) -> None:
        """Keep values that several passes read in registers.

        Raises:
            Refused: each array is read once, or a thread has too few registers.
        """
        roots = [[self.plan.operands(key)[0] for key in keys] for keys in passes]
        roots += [[key for key, name in zip(self.plan.outputs, self.outputs, strict=True) if self.full[name]]]
        reads = [self.read(some) for some in roots]
        several = {one for some in reads for one in some if sum(one in other for other in reads) > 1}
        self.kept = [one for one in self.packs.arrays if one in several and self.inputs[one] in ("flat", "slab")]
        if not self.kept:
            raise Refused("no pass reads again what one before it has read")
        columns = int(evaluate(self.plan.columns, self.kernel.contract.sizes[0]))
        pack = self.team.threads * self.packs.width
        self.ahead = max(1, -(-columns // pack)) * self.packs.width
        self.registers = each = self.ahead * sum(ITEM_BYTES[self.kernel.arguments[one].dtype] for one in self.kept) // 4
        if each > min(MOST_KEPT, ALL_KEPT // self.team.threads):
            raise Refused("a thread has too few registers for its part of a row")
        names = self.kernel.names
        comment = f"elements of a {self.over} that a thread keeps in registers"
        self.names.kAhead, declared = self.kernel.constant("Kept", self.ahead, comment)
        self.constants += declared
        for one in ("loaded", "first", "load_part", "i", "kRow"):
            setattr(self.names, one, names.fresh(one))
        for one in self.kept:
            self.packs.locals[one] = f"{names.fresh(f'{one}_packs')}[{self.names.i}]"

    @property
    def _kpack(self) -> str:
        return self.names.kPack if self.packs.width > 1 else "1"

    @property
    def threads(self) -> str:
        """Returns the number of threads that share a row."""
        return str(self.team.threads) if self.team.name == "warp" else str(self.names.kThreads)

    def kept_lines(self) -> list[str]:
        """Returns declarations of kept values, and of the loops over a thread's packs."""
        if not self.kept:
            return []
        names, packs, kpack = self.names, self.packs, self._kpack
        count = names.kAhead if kpack == "1" else f"{names.kAhead} / {kpack}"
        loads = [
            f"{packs.locals[one]} = *reinterpret_cast<const {packs.type_of(one)}*>({self.pointers[one]} + {names.c});"
            for one in self.kept
        ]
        return [
            f"constexpr int {names.kRow} = {self.threads} * {names.kAhead};",
            *(f"{packs.type_of(one)} {packs.locals[one].partition('[')[0]}[{count}];" for one in self.kept),
            f"// All passes share the part that was read last: a row of up to {names.kRow} elements is read once, a longer one by each pass.",
            f"int {names.loaded} = -1;",
            f"const auto {names.load_part} = [&](int {names.first}) {{",
            f"  if ({names.loaded} == {names.first}) return;",
            f"  {names.loaded} = {names.first};",
            *indented(self._each_kept(self._most(), loads)),
            "};",
        ]

    def _each_kept(self, last: str, lines: Sequence[str]) -> list[str]:
        """Returns a loop over this thread's packs of a part of the row, which ends at column `last` at most."""
        names, kpack = self.names, self._kpack
        count = names.kAhead if kpack == "1" else f"{names.kAhead} / {kpack}"
        turn = f"{names.i} * {self.threads} + {names.rank}"
        place = turn if kpack == "1" else f"({turn}) * {kpack}"
        return [
            "#pragma unroll",
            *block_of(
                f"for (int {names.i} = 0; {names.i} < {count}; ++{names.i})",
                [f"const int {names.c} = {names.first} + {place};", *block_of(f"if ({names.c} < {last})", lines)],
            ),
        ]

    def _most(self) -> str:
        """Returns the end of the longest part of a row that a pass reads."""
        ends = [self.end is not None and self.end.skips(self.plan, keys) for keys in self.passes()]
        ends += [all(self.beyond(key) is not None for key, name in zip(self.plan.outputs, self.outputs, strict=True) if self.full[name])]  # fmt: skip
        return str(self.names.end if all(ends) else self.names.columns)

    def passes(self) -> list[list[Key]]:
        """Returns the reductions of each pass."""
        raise NotImplementedError

    def loop(
        self, roots: Sequence[Key], body: list[str], stores: Sequence[str], before: Sequence[str] = ()
    ) -> list[str]:
        """Returns a pass over a row: loads of the roots' packs, the work per element, and `stores`."""
        outer, self.expressions.outer = self.expressions.outer, []
        lines = self._pack_lines(roots, body, stores)
        known = self.expressions.known
        self.expressions.known = {
            key: name for key, name in known.items() if self.stays(key) or not self.expressions.varies(key)
        }
        for name in {*known.values()} - {*self.expressions.known.values()}:  # the next pass may use it again
            if any(re.match(rf"const [\w ]+ {name} = ", line) for line in body):
                self.kernel.names.release(name)
        passing = self._kept_pass if self.kept else self._pass
        return [*outer, *passing(lines, stores, before)]

    def _pack_lines(self, roots: Sequence[Key], body: list[str], stores: Sequence[str]) -> list[str]:
        """Returns the work on a pack of each array."""
        names, packs = self.names, self.packs
        places = [
            f"const int {name} = {first} + ({names.c} + {names.j}) / {behind};"
            for name, first, behind in self.firsts.values()
            if any(re.search(rf"\b{name}\b", line) for line in body)
        ]
        read = [one for one in self.read(roots) if one not in self.kept]
        lines = [packs.load(one, f"{self.pointers.get(one, one)} + {names.c}") for one in read]
        lines += [f"{packs.type_of(one)} {self.stored_pack(one)};" for one in stores]
        lines += ["#pragma unroll"] if packs.width > 1 else []
        lines += block_of(f"for (int {names.j} = 0; {names.j} < {self._kpack}; ++{names.j})", [*places, *body])
        return [
            *lines,
            *(
                f"*reinterpret_cast<{packs.type_of(one)}*>({self.pointers[one]} + {names.c}) = {self.stored_pack(one)};"
                for one in stores
            ),
        ]

    def _kept_pass(self, lines: Sequence[str], stores: Sequence[str], before: Sequence[str]) -> list[str]:
        """Returns a pass over kept values."""
        names, last = self.names, self.last
        if stores and last != names.columns:
            declared, filled = self._filled(stores)
            before = [*before, *declared]
            lines = [*block_of(f"if ({names.c} < {last})", lines)[:-1], *block_of("} else", filled)]
            last = names.columns
        head = f"for (int {names.first} = 0; {names.first} < {last}; {names.first} += {names.kRow})"
        return [
            *before,
            *block_of(head, [f"{names.load_part}({names.first});", *self._each_kept(last, lines)]),
        ]

    def _pass(self, lines: Sequence[str], stores: Sequence[str], before: Sequence[str]) -> list[str]:
        """Returns a pass that reads the row."""
        names, kpack = self.names, self._kpack
        step = f"{self.threads} * {kpack}" if kpack != "1" else self.threads
        start = f"{names.rank} * {kpack}" if kpack != "1" else names.rank
        skips = stores and self.last != names.columns
        first = "" if skips else f"int {names.c} = {start}"
        head = f"for ({first}; {names.c} < {self.last}; {names.c} += {step})"
        if skips:
            before = [*before, f"int {names.c} = {start};"]
        unroll = []
        if self.ahead:
            unroll = [f"#pragma unroll {f'({names.kAhead} / {kpack})' if kpack != '1' else f'({names.kAhead})'}"]
        rest: list[str] = []
        if skips:
            declared, filled = self._filled(stores)
            rest = [*declared, *block_of(f"for (; {names.c} < {names.columns}; {names.c} += {step})", filled)]
        return [*before, *unroll, *block_of(head, lines), *rest]

    def _filled(self, stores: Sequence[str]) -> tuple[list[str], list[str]]:
        """Returns stores of constant packs to the irrelevant part of a row."""
        names, packs = self.names, self.packs
        lines, body = [], []
        for key, name in zip(self.plan.outputs, self.outputs, strict=True):
            if name not in stores:
                continue
            value = float(self.beyond(key) or 0)
            pack = packs.type_of(name)
            filled = f"{pack}{{}}"
            if value:
                filled = self.kernel.names.fresh(f"{name}_rest")
                text = self.kernel.stored(name, self.expressions.number(value), self.plan.node(key).dtype)
                element = self.kernel.names.fresh("element")
                each = block_of(f"for ({self.kernel.element(name)}& {element} : {filled}.at)", [f"{element} = {text};"])
                lines += [f"{pack} {filled};", *each]
            body.append(f"*reinterpret_cast<{pack}*>({self.pointers[name]} + {names.c}) = {filled};")
        return lines, body

    def beyond(self, output: Key) -> float | None:
        """Returns the constant value of an output in the irrelevant part; None if it is not constant."""
        return None if self.end is None else self.end.values[output]

    def stays(self, key: Key) -> bool:
        """Returns True if a per-element value has the same text in every pass."""
        return key[0] < 0 or (self.end is not None and key in self.end.conditions)

    def stored_pack(self, output: str) -> str:
        """Returns the local of the pack that is stored."""
        local = self.packs.locals[output]
        return local if output not in self.inputs else f"{local.partition('s[')[0]}_next"

    def read(self, roots: Sequence[Key]) -> list[str]:
        """Returns the arrays whose packs some values need, in the parameters' order."""
        needed: set[str] = set()
        seen: set[Key] = set()
        stack = list(roots)
        while stack:
            key = stack.pop()
            node = self.plan.node(key)
            outside = key in self.expressions.known and not self.expressions.varies(key)
            if key in seen or outside or node.op == "reduce":
                continue
            seen.add(key)
            if node.op == "input" and self.plan.access(key) in ("flat", "slab", "column"):
                needed.add(str(node.data[0]))
            stack += self.plan.operands(key)
        return [one for one in self.packs.arrays if one in needed]
