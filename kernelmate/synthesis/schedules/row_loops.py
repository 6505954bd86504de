"""Loops over the elements of a row: packs of 16 bytes, read again for each pass or kept in registers in between."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kernelmate.source import evaluate
from kernelmate.source.folding import folded
from kernelmate.synthesis.kernel_text import ITEM_BYTES, block_of
from kernelmate.synthesis.plan import Key, Refused, walk
from kernelmate.synthesis.reductions import Team
from kernelmate.synthesis.schedules.passes import FEWEST_AHEAD
from kernelmate.synthesis.schedules.row_elements import RowElements, RowEnd

MOST_KEPT = 64
"""Maximum number of a thread's registers that hold elements of its row."""

ALL_KEPT = 32768
"""Maximum number of a block's registers that hold elements of its row: half of a multiprocessor's."""

COSTLY = frozenset({"divide", "exp", "log", "sqrt", "tanh", "power", "remainder"})
"""Operations of many instructions, whose results are kept rather than computed in each pass."""


class RowLoops(RowElements):
    """Loops of one team over a row's elements.

    Attributes:
        team: the threads that compute a row.
        outputs: names of the results.
        last: end of the part of a row that a pass reads.
        end: end of a row by a mask; None if there is none.
        ahead: number of elements whose loads are in flight at once; 0 for one pack.
        kept: arrays whose packs stay in registers for the next pass, if all threads together can keep a row.
        registers: registers of a thread for kept values.
        derived: the value that is kept in place of the arrays from which it is computed; None if these are kept.
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
    derived: Key | None = None

    def keep(self, passes: Sequence[Sequence[Key]]) -> None:
        """Keeps values that several passes read in registers.

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
        self.derived = self._derived([key for some in roots for key in some])
        widths = [ITEM_BYTES[self.kernel.arguments[one].dtype] for one in self.kept]
        self.registers = each = self.ahead * (4 if self.derived is not None else sum(widths)) // 4
        if each > min(MOST_KEPT, ALL_KEPT // self.team.threads):
            raise Refused("a thread has too few registers for its part of a row")
        names = self.kernel.names
        self.names.kAhead, declared = self.kernel.constant(
            "Kept", self.ahead, f"elements of a {self.over} that a thread keeps in registers"
        )
        self.constants += declared
        self.names.load, self.names.i, self.names.data = names.fresh("load"), names.fresh("i"), names.fresh("row_data")
        self.names.for_each_pack = names.outermost("for_each_pack")
        if self.derived is not None:
            word = self.plan.node(self.derived).name
            word = word if word and names.is_free(f"{word}_pack") else "value"
            self.names.kept, self.names.given = names.fresh(f"{word}_packs"), names.fresh(f"{word}_pack")
            return
        if len(self.kept) == 1:
            self.names.kept, self.names.given = names.fresh(f"{self.kept[0]}_packs"), self.packs.locals[self.kept[0]]
            self.packs.share(self.names.kPack)
            return
        self.names.kept, self.names.given = names.fresh("kept_packs"), names.fresh("kept")
        self.names.Kept = names.fresh("Kept")
        for one in self.kept:
            self.packs.locals[one] = f"{self.names.given}.{one}"

    def _derived(self, roots: Sequence[Key]) -> Key | None:
        """Returns the value that replaces all kept arrays if passes use nothing else: a sum with a residual, say.

        A single array is replaced only by a value that is costly to compute in each pass.
        """
        plan, bare = self.plan, self.expressions.bare
        kept = {*self.kept}
        if self.kernel.real != "float" or "float" not in self.packs.types:
            return None

        def reaches(start: Sequence[Key], blocked: Key | None) -> set[str]:
            """Returns the arrays that are needed without a reduction or the blocked value in between."""
            found, seen, stack = set[str](), set[Key](), list(start)
            while stack:
                key = bare(stack.pop())
                if key in seen or key == blocked or plan.node(key).op == "reduce":
                    continue
                seen.add(key)
                if plan.node(key).op == "input" and plan.access(key) in ("flat", "slab", "column"):
                    found.add(str(plan.node(key).data[0]))
                stack += plan.operands(key)
            return found

        for key in reversed([bare(one) for one in walk(plan)]):  # the last one first
            node = plan.node(key)
            if node.op != "map" or not node.dtype.startswith("float") or reaches([key], None) != kept:
                continue
            if len(kept) == 1 and node.data[0] not in COSTLY:
                continue
            depends = any(plan.node(one).op == "reduce" for one in self._below(key))
            if not depends and not reaches(roots, key) & kept:
                return key
        return None

    def _below(self, key: Key) -> set[Key]:
        """Returns a value and all values from which it is computed."""
        found, stack = set[Key](), [key]
        while stack:
            one = stack.pop()
            if one not in found:
                found.add(one)
                stack += self.plan.operands(one)
        return found

    @property
    def _kpack(self) -> str:
        return self.names.kPack if self.packs.width > 1 else "1"

    @property
    def threads(self) -> str:
        """Returns the number of threads that share a row."""
        return self.reductions.lanes if self.team.name == "warp" else str(self.names.kThreads)

    def kept_lines(self) -> list[str]:
        """Returns the declarations of kept values, and their loads."""
        if not self.kept:
            return []
        names, packs = self.names, self.packs
        if self.derived is not None:
            return self._derived_lines(self.derived)
        loads = [self._loaded(packs.type_of(one), f"{self.pointers[one]} + {names.c}") for one in self.kept]
        held = self._held_type()
        if self._keeps_array:
            return [
                f"{held} {names.kept}[{self._count()}];",
                *self._each_kept(self._most(), f"{names.kept}[{names.i}] = {loads[0]};"),
            ]
        return [
            *[f"struct {held} {{", *(f"  {packs.type_of(one)} {one};" for one in self.kept), "};"],
            f"const auto {names.load} = [&](int {names.c}) {{ return {held}{{{', '.join(loads)}}}; }};",
            f"{held} {names.kept}[{self._count()}];",
            *self._each_kept(self._most(), f"{names.kept}[{names.i}] = {names.load}({names.c});"),
        ]

    @property
    def _keeps_array(self) -> bool:
        """Returns True if the kept packs are those of one array, whose type is declared beside the functions."""
        return len(self.kept) == 1 and self.derived is None

    @staticmethod
    def _loaded(pack: str, at: str) -> str:
        """Returns the expression that loads a pack."""
        return f"*reinterpret_cast<const {pack}*>({at})"

    def _derived_lines(self, derived: Key) -> list[str]:
        """Returns the declarations of kept values that are computed from several arrays."""
        names, packs, held = self.names, self.packs, self._held_type()
        body: list[str] = []
        (text,) = self.expressions.locals_for([derived], body)
        outer, self.expressions.outer = self.expressions.outer, []
        inner = [*body, f"{names.given}.at[{names.j}] = {text};"]
        self.expressions.known = {
            key: name for key, name in self.expressions.known.items() if not self.expressions.varies(key)
        }
        self.expressions.known[derived] = f"{names.given}.at[{names.j}]"
        return [
            *outer,
            *block_of(
                f"const auto {names.load} = [&](int {names.c})",
                [
                    *(packs.load(one, f"{self.pointers[one]} + {names.c}") for one in self.kept),
                    f"{held} {names.given};",
                    *(["#pragma unroll"] if packs.width > 1 else []),
                    *block_of(f"for (int {names.j} = 0; {names.j} < {self._kpack}; ++{names.j})", inner),
                    f"return {names.given};",
                ],
            )[:-1],
            "};",
            f"{held} {names.kept}[{self._count()}];",
            *self._each_kept(self._most(), f"{names.kept}[{names.i}] = {names.load}({names.c});"),
        ]

    def _held_type(self) -> str:
        """Returns the type of the pack that a thread keeps."""
        if self.derived is not None:
            return self.packs.types["float"]
        return self.packs.type_of(self.kept[0]) if len(self.kept) == 1 else str(self.names.Kept)

    def _count(self) -> str:
        """Returns the number of packs that a thread keeps."""
        return f"{self.names.kAhead} / {self._kpack}" if self.packs.width > 1 else str(self.names.kAhead)

    def _place(self, turn: str) -> str:
        """Returns the column of a thread's pack in an iteration."""
        place = f"{turn} * {self.threads} + {self.names.rank}"
        return f"({place}) * {self._kpack}" if self.packs.width > 1 else place

    def _each_kept(self, last: str, statement: str) -> list[str]:
        """Returns a loop over a thread's kept packs, up to column `last`."""
        names = self.names
        inner = [f"const int {names.c} = {self._place(names.i)};", f"if ({names.c} < {last}) {statement}"]
        head = f"for (int {names.i} = 0; {names.i} < {self._count()}; ++{names.i})"
        return ["#pragma unroll", *block_of(head, inner)]

    def kept_helper(self) -> list[str]:
        """Returns the device function that calls another one with each pack of a thread, and an empty line."""
        if not self.kept:
            return []
        kernel, names = self.kernel, self.names
        wide = self.packs.width > 1
        # Not a lambda with a parameter of any type, which NVRTC 13.0 takes for a host function.
        types, kept, given = ["typename Kept", "typename Load", "typename Body"], "Kept", ["const Load& load"]
        again = f"load({names.c})"
        if self._keeps_array:
            (array,), kept = self.kept, self._held_type()
            types, given = ["typename Body"], [f"const {kernel.element(array)}* {names.data}"]
            again = self._loaded(kept, f"{names.data} + {names.c}")
        template = ", ".join([*[f"int {names.kPack}"] * wide, *types])
        head = kernel.wrapped(
            f"static __device__ __forceinline__ void {names.for_each_pack}(",
            [f"const {kept} (&kept)[{self._count()}]", *given, "int end", "const Body& body"],
        )
        rank = "threadIdx.x" if self.team.name == "block" else f"threadIdx.x % {self.threads}"
        step = f"{self.threads} * {names.kPack}" if wide else self.threads
        first = f"{self.threads} * {names.kAhead} + {names.rank}{f' * {names.kPack}' * wide}"
        rest = f"for (int {names.c} = {first}; {names.c} < end; {names.c} += {step})"
        body = [
            f"const int {names.rank} = {rank};",
            *self._each_kept("end", f"body(kept[{names.i}], {names.c});"),
            f"#pragma unroll {FEWEST_AHEAD}",
            *block_of(rest, [f"body({again}, {names.c});"]),
        ]
        comment = f"// Calls body(pack, col) for each pack of the thread: those in registers, then those of a longer {self.over}, which it loads again."
        comments = folded(comment, kernel.width)
        return ["\n".join([*comments, f"template <{template}>", kernel.definition(head, body)]), ""]

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
        # A pack lies within one position of such an axis: `Rows` tests it.
        places = [
            f"const int {name} = {first} + {names.c} / {behind};{'  // the same for the whole pack' * (packs.width > 1)}"
            for name, first, behind in self.firsts.values()
            if any(re.search(rf"\b{name}\b", line) for line in body)
        ]
        read = [one for one in self.read(roots) if one not in self.kept]
        lines = [packs.load(one, f"{self.pointers.get(one, one)} + {names.c}") for one in read]
        body, whole = self._whole_packs(body, stores)
        lines += [f"{packs.type_of(one)} {self.stored_pack(one)};" for one in stores if one not in whole]
        lines += places
        if body:
            lines += ["#pragma unroll"] if packs.width > 1 else []
            lines += block_of(f"for (int {names.j} = 0; {names.j} < {self._kpack}; ++{names.j})", body)
        return [
            *lines,
            *(
                f"*reinterpret_cast<{packs.type_of(one)}*>({self.pointers[one]} + {names.c}) = {whole.get(one, self.stored_pack(one))};"
                for one in stores
            ),
        ]

    def _whole_packs(self, body: Sequence[str], stores: Sequence[str]) -> tuple[list[str], dict[str, str]]:
        """Returns the statements without copies of the kept pack, and the results that are that pack."""
        whole: dict[str, str] = {}
        if self.kept:
            for one in stores:
                copied = f"{self.stored_pack(one)}.at[{self.names.j}] = {self.names.given}.at[{self.names.j}];"
                if body.count(copied) == 1 and self.packs.type_of(one) == self._held_type():
                    whole[one] = self.names.given
                    body = [line for line in body if line != copied]
        return list(body), whole

    def _kept_pass(self, lines: Sequence[str], stores: Sequence[str], before: Sequence[str]) -> list[str]:
        """Returns a pass over kept values."""
        names, last = self.names, self.last
        if stores and last != names.columns:
            declared, filled = self._filled(stores)
            before = [*before, *declared]
            lines = [*block_of(f"if ({names.c} < {last})", lines)[:-1], *block_of("} else", filled)]
            last = names.columns
        kpack = f"<{names.kPack}>" if self.packs.width > 1 else ""
        given = f"const {self._held_type()}& {names.given}, int"
        given += f" {names.c}" * any(re.search(rf"\b{names.c}\b", line) for line in lines)
        source = self.pointers[self.kept[0]] if self._keeps_array else names.load
        call = f"{names.for_each_pack}{kpack}({names.kept}, {source}, {last}, [&]({given})"
        return [*before, *block_of(call, lines)[:-1], "});"]

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
        """Returns the stores of constant packs to the irrelevant part of a row."""
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
        return key[0] < 0 or key == self.derived or (self.end is not None and key in self.end.conditions)

    def stored_pack(self, output: str) -> str:
        """Returns the local of the pack that is stored."""
        local = self.packs.locals[output]
        return local if output not in self.inputs else f"{local.rpartition('.')[2].removesuffix('_pack')}_pack_next"

    def read(self, roots: Sequence[Key]) -> list[str]:
        """Returns the arrays whose packs some values need, in the parameters' order."""
        needed: set[str] = set()
        seen: set[Key] = set()
        stack = list(roots)
        while stack:
            key = stack.pop()
            node = self.plan.node(key)
            outside = key in self.expressions.known and not self.expressions.varies(key)
            if key in seen or outside or node.op == "reduce" or self.expressions.bare(key) == self.derived:
                continue
            seen.add(key)
            if node.op == "input" and self.plan.access(key) in ("flat", "slab", "column"):
                needed.add(str(node.data[0]))
            stack += self.plan.operands(key)
        return [one for one in self.packs.arrays if one in needed]
