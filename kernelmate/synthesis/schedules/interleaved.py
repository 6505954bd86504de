"""Results that are interleaved in memory: channels of pixels, parts of complex numbers, blocks that are pooled.

A thread loads whole packs of the elements that several adjacent results need, and stores theirs in packs. Traffic: each
array is read and written once, 16 bytes at a time. Arithmetic: that of the graph for each element.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from kernelmate.synthesis.graph import Graph
from kernelmate.synthesis.index_maps import AxisMap, Linear, existing
from kernelmate.synthesis.kept_text import own_position
from kernelmate.synthesis.kernel_text import (
    ITEM_BYTES,
    WIDEST,
    KernelText,
    WrittenKernel,
    block_of,
    fresh_names,
    type_word,
)
from kernelmate.synthesis.matrix_text import looped, summed
from kernelmate.synthesis.names import position_name
from kernelmate.synthesis.packs import ALIGNED
from kernelmate.synthesis.plan import Key, Refused
from kernelmate.synthesis.window_plan import (
    OutputShapes,
    StoreTarget,
    Windows,
    output_shapes,
    parsed,
    refuse_others_reads,
    walked,
    window_plan,
)
from kernelmate.synthesis.window_text import WindowText

ACROSS, DOWN = 32, 8
"""Threads per block along a row and over rows."""

MOST_RESULTS = 16
"""Maximum number of adjacent results per thread, and of statements that store them."""

MOST_BYTES = 320
"""Maximum bytes of all arrays per thread: 80 registers."""


@dataclass(frozen=True, slots=True)
class _Group:
    """Adjacent elements of one row of an array: `step` of them for each result."""

    name: str
    shape: tuple[str, ...]
    outer: tuple[str, ...]
    step: int


def is_of_small_matrices(graph: Graph) -> bool:
    """True if results end in axes of few elements in all, which are sums of few terms: one thread computes such a matrix."""
    for output in graph.outputs:
        shape = list(graph.nodes[output].shape)
        count = 1
        while shape and shape[-1].isdigit():
            count *= int(shape.pop())
        if not shape or not 1 < count <= MOST_RESULTS:
            return False
    reduced = [node for node in graph.nodes if node.op == "reduce"]
    lengths = [graph.nodes[node.args[0]].shape[int(node.data[1] or 0)] for node in reduced]
    return bool(reduced) and all(one.isdigit() and int(one) <= MOST_RESULTS for one in lengths)


def written(graph: Graph, kernel: KernelText, shapes: OutputShapes | None = None) -> Iterator[WrittenKernel]:
    """Yields the generated kernel. `shapes` replaces the contract's shapes, with as many elements.

    Raises:
        Refused: elements of neighbouring results are not adjacent, or some are beyond a border.
    """
    names, sides = output_shapes(kernel) if shapes is None else shapes
    plan = _divided(window_plan(graph, kernel.contract.sizes, names, sides, together=True))
    refuse_others_reads(plan, names)
    yield _Interleaved(plan, kernel.again()).written()


def _divided(plan: Windows) -> Windows:
    """Returns the plan whose thread computes all interleaved results.

    For example those of `out[0::2] = a` and `out[1::2] = b`, or of `out[:, 0]` and `out[:, 1]`.
    """
    while plan.domain and plan.domain[-1].isdigit() and int(plan.domain[-1]) <= MOST_RESULTS:
        plan = _spread(plan, int(plan.domain[-1]), None)
    plan = _in_order_of_places(plan)
    windows = [plan.graph.nodes[key[0]] for key in walked(plan) if plan.node(key).op == "window"]
    steps = {one.every for node in windows for one in map(AxisMap.of, node.data) if one.every > 1}
    if not steps:
        return plan
    step, *others = steps
    side = existing(plan.domain[-1])
    if others or side.constant % step or any(factor % step for _, factor in side.terms):
        raise Refused("it interleaves parts of different lengths")
    each = Linear(tuple((name, factor // step) for name, factor in side.terms), side.constant // step)
    return _spread(plan, step, each)


def _in_order_of_places(plan: Windows) -> Windows:
    """Returns the plan with the results of each array in the order of their places in memory."""
    names = list(dict.fromkeys(one.name for one in plan.targets))
    targets = sorted(
        plan.targets, key=lambda one: (names.index(one.name), [parsed(str(at)).constant for at in one.place])
    )
    return replace(plan, targets=tuple(targets), outputs=tuple(one.key for one in targets))


def _spread(plan: Windows, step: int, each: Linear | None) -> Windows:
    """Returns the plan with `step` results per position along the last axis.

    That axis then has `each` positions; None drops it.
    """
    last = len(plan.domain) - 1
    plan.ranges[f"__{last}"] = each or Linear((), 1)

    def moved(text: object, number: int) -> str:
        at = parsed(str(text))
        own = dict(at.terms).get(f"__{last}", 0)
        rest = Linear(tuple(term for term in at.terms if term[0] != f"__{last}"), at.constant + own * number)
        return rest.plus(Linear(((f"__{last}", own * step),) if own and each else ())).text()

    targets = [
        StoreTarget(
            one.name,
            (one.key[0], tuple(moved(at, number) for at in one.key[1])),
            one.shape,
            tuple(moved(at, number) for at in one.place),
        )
        for one in plan.targets
        for number in range(step)
    ]
    domain = (*plan.domain[:last], *([each.text()] if each else []))
    return replace(plan, domain=domain, targets=tuple(targets), outputs=tuple(one.key for one in targets))


class _Interleaved(WindowText):
    """Writer of the kernel's text."""

    def __init__(self, plan: Windows, kernel: KernelText) -> None:
        if not plan.domain or plan.domain[-1].isdigit():
            raise Refused("its results are not along an axis whose length is a size")
        super().__init__(plan, kernel, {})
        self.kernel = kernel
        self.last = f"__{len(plan.domain) - 1}"
        source = kernel.kernel.source
        own = (
            [own_position(source, side) for side in "xy"] if len(kernel.contract.grid) == len(plan.domain) == 2 else []
        )
        along, down = (kernel.names.fresh(one) for one in own) if all(own) and own else ("", "")
        self.local = fresh_names(
            kernel,
            "kResults",
            "kAligned",
            "j",
            "k",
            "row",
            "across",
            "aligned",
            "columns",
            **({} if along else {"i": "i"}),
        )
        self.local.i = along or self.local.i
        self.bytes = kernel.names.outermost("kAccessBytes")
        self.across, self.down = "", ""
        self.outer_names = (
            [down]
            if down
            else [
                kernel.names.position("row" if len(plan.domain) == 2 else position_name(side))
                for side in plan.domain[:-1]
            ]
        )
        self.names_of: dict[_Group, str] = {}
        self.offsets: dict[Key, tuple[_Group, int]] = {}
        for key in dict.fromkeys(self._reads()):
            self._meet(key)
        self.stored = [self._target(one) for one in plan.targets]
        self._check()
        self.count = self._results()

    def _chooses(self, key: Key, variable: str) -> bool:
        """Returns True, so that reductions over few elements are unrolled, with each element from a pack."""
        return True

    def _point(self, keys_read: Sequence[Key], lines: list[str]) -> None:
        self._lines = lines

    def _split_row(self, shape: Sequence[str], index: Sequence[object]) -> tuple[_Group, int] | None:
        """Returns an element's group and its offset in the group; None if all results of a thread share the element."""
        flat, inner, axis = Linear(), 1, len(shape) - 1
        while axis >= 0:
            if shape[axis] != "1":
                flat = flat.plus(parsed(str(index[axis])), inner)
                if not shape[axis].isdigit():
                    break
                inner *= int(shape[axis])
            axis -= 1
        step = dict(flat.terms).get(self.last, 0)
        outer = tuple(parsed(str(one)).text() for one in index[: max(axis, 0)])
        if any(self.last in one for one in outer):
            raise Refused("neighbouring results need elements of different rows")
        if step == 0:
            if any(self.last in name for name, _ in flat.terms):
                raise Refused("neighbouring results need elements that are not adjacent in memory")
            return None
        if len(flat.terms) != 1 or not 0 <= flat.constant < step:
            raise Refused("neighbouring results need elements that are not adjacent in memory")
        pitch = "1" if axis < 0 else shape[axis] if inner == 1 else f"({inner} * {shape[axis]})"
        return _Group("", (*shape[: max(axis, 0)], pitch), outer, step), flat.constant

    def _meet(self, key: Key) -> None:
        if any(call in str(one) for one in key[1] for call in ("value(", "edge(", "wrap(", "reflect(", "symmetric(")):
            raise Refused("it selects elements by index, or beyond a border, beside adjacent ones")
        found = self._split_row(self.plan.node(key).shape, key[1])
        if found is not None:
            group = replace(found[0], name=self.plan.name(key))
            self.offsets[key] = group, found[1]

    def _target(self, target: StoreTarget) -> tuple[_Group, int]:
        found = self._split_row(target.shape, target.place)
        if found is None:
            raise Refused("its results are not adjacent in memory")
        return replace(found[0], name=target.name), found[1]

    def _check(self) -> None:
        """Checks that the results have no gaps and no bordered elements, and that something is interleaved."""
        groups = [group for group, _ in self.stored]
        for group in groups:
            places = [place for one, place in self.stored if one == group]
            if sorted(places) != list(range(group.step)):
                raise Refused("its results have gaps between them")
        if all(group.step == 1 for group in [*groups, *(group for group, _ in self.offsets.values())]):
            raise Refused("neighbouring results need no elements that are adjacent in memory")
        for key in walked(self.plan):
            if self.plan.node(key).op == "window" and self.plan.guards(key):
                raise Refused("it has a border beside adjacent elements")

    def _groups(self) -> list[_Group]:
        found = [*(group for group, _ in self.offsets.values()), *(group for group, _ in self.stored)]
        return list(dict.fromkeys(found))

    def _item(self, group: _Group) -> int:
        return ITEM_BYTES[self.kernel.arguments[group.name].dtype]

    def _results(self) -> int:
        """Returns the number of adjacent results per thread for which each array is read in whole packs."""
        needed = [WIDEST // math.gcd(WIDEST, group.step * self._item(group)) for group in self._groups()]
        count = math.lcm(*needed)
        held = sum(count * group.step * self._item(group) for group in self._groups())
        if max(count, len(self.stored)) > MOST_RESULTS or held > MOST_BYTES:
            raise Refused("whole packs are those of too many results for a thread")
        if count == 1:
            count = 2 if 2 * held <= MOST_BYTES else 1
        return count

    def _element(self, key: Key) -> str:
        if self.plan.node(key).op in ("scalar", "iota") or key not in self.offsets:
            return super()._element(key)
        group, place = self.offsets[key]
        return self.kernel.loaded(group.name, f"{self.names_of[group]}.at[{self._at(group, place)}]")

    def _hint(self, key: Key) -> None:
        """Names an element after its array, and its position if a result needs several elements of it."""
        if key in self.offsets:
            group, place = self.offsets[key]
            several = len({one for other, one in self.offsets.values() if other == group}) > 1
            self.hints.setdefault(key, f"{group.name}{place}" if several else f"{group.name}_i")
        else:
            super()._hint(key)

    def _at(self, group: _Group, place: int) -> str:
        if self.count == 1:
            return str(place)
        text = self.local.j if group.step == 1 else f"{group.step} * {self.local.j}"
        return f"{text} + {place}" if place else text

    def written(self) -> WrittenKernel:
        """Returns the generated kernel."""
        kernel, local, plan = self.kernel, self.local, self.plan
        bare = kernel.base_name
        function = kernel.names.outermost(f"{bare}_results")
        single = self.count == 1
        width, declared = kernel.constant("PerThread", self.count, "neighbouring results per thread")
        outer = [f"int {name}" for name in self.outer_names]
        kind = "long long" if len(plan.domain) == 1 else "int"
        inner = self._function()
        passed = kernel.used(inner)
        head = kernel.wrapped(
            f"static __device__ __forceinline__ void {function}(",
            [*kernel.declared(passed), *outer, f"{kind} {local.i}"],
        )
        comment = f"// Computes {local.kResults} neighbouring results: several of them from whole packs of each array."
        comment = f"// Computes one result, from whole packs of each array if {local.kAligned}." if single else comment
        parameter = f"bool {local.kAligned}" if single else f"int {local.kResults}"
        helper = kernel.definition(f"template <{parameter}>\n{head}", inner)
        constant = "" if single else f"{declared[0]}\n"
        constant += f"constexpr int {self.bytes} = {WIDEST};  // bytes of the widest access"
        bounds, constants = self._block()
        blocks, body = self._launched(function, passed, width)
        several = ", ".join(dict.fromkeys(f"{self.count * one.step * self._item(one)}" for one in self._groups()))
        return WrittenKernel(
            "interleaved",
            f"Written from the reference: a thread for {'each position' if single else f'{self.count} neighbouring positions'}, "
            f"whose elements it loads and stores in packs of 16 bytes ({several} bytes of a row at a time), and singly at the end and where addresses are not aligned."
            + kernel.promise(dict.fromkeys(self.plan.name(key) for key in self._reads())),
            kernel.definition(kernel.head(f"__launch_bounds__({bounds}) "), body),
            "\n\n".join(["\n".join([constant, *constants]), f"{comment}\n{helper}"]),
            blocks,
            (ACROSS, DOWN) if len(plan.domain) > 1 else ACROSS * DOWN,
        )

    def _block(self) -> tuple[str, list[str]]:
        """Returns the number of threads per block, and the declarations of the constants that give it."""
        if len(self.plan.domain) == 1:
            return self.kernel.threads(ACROSS * DOWN)
        self.across, across = self.kernel.constant("ThreadsX", ACROSS, "threads of a block along a row")
        self.down, down = self.kernel.constant("ThreadsY", DOWN, "threads of a block, one per row")
        return f"{self.across} * {self.down}", [*across, *down]

    def _function(self) -> list[str]:
        """Returns the lines of the function that computes several results."""
        local, kernel = self.local, self.kernel
        self._positions = {f"__{axis}": name for axis, name in enumerate(self.outer_names)} | {self.last: local.i}
        types: dict[tuple[str, int], str] = {}
        lines, loads, stores = list[str](), list[str](), list[str]()
        reading = dict.fromkeys(group for group, _ in self.offsets.values())
        writing = dict.fromkeys(group for group, _ in self.stored)
        elements = {kernel.element(group.name) for group in self._groups()}
        for group in self._groups():
            element = kernel.element(group.name)
            if (element, group.step) not in types:
                front, many = (
                    "" if len(elements) == 1 else type_word(element),
                    "" if group.step == 1 else f"{group.step}",
                )
                types[element, group.step] = kernel.names.fresh(f"{front}Pack{many}")
                count = local.kResults if group.step == 1 else f"{group.step} * {local.kResults}"
                align = f"{local.kResults} == 1 ? sizeof({element}) : {self.bytes}"
                if self.count == 1:
                    count, align = f"{group.step}", f"{local.kAligned} ? {self.bytes} : sizeof({element})"
                lines += [f"struct alignas({align}) {types[element, group.step]} {{", f"  {element} at[{count}];", "};"]
        places: dict[_Group, str] = {}
        for group in self._groups():
            index = [*map(parsed, group.outer), Linear(((self.last, group.step),))]
            places[group] = f"{group.name} + {self.address((*group.shape[:-1], group.shape[-1]), index)}"
        for group in reading:
            pack = types[kernel.element(group.name), group.step]
            alike = [one for one in reading if one.name == group.name]
            number = ("first_", "second_")[alike.index(group)] if len(alike) == 2 else ""
            self.names_of[group] = kernel.names.fresh(f"{group.name}_{number}pack")
            loads.append(f"const {pack} {self.names_of[group]} = *reinterpret_cast<const {pack}*>({places[group]});")
        results: dict[_Group, str] = {}
        for group in writing:
            pack = types[kernel.element(group.name), group.step]
            results[group] = kernel.names.fresh(f"{group.name}_{'next' if group in reading else 'pack'}")
            loads.append(f"{pack} {results[group]};")
            stores.append(f"*reinterpret_cast<{pack}*>({places[group]}) = {results[group]};")
        self._positions[self.last] = f"({local.i} + {local.j})" if self.count > 1 else local.i
        body: list[str] = []
        texts = self.values(body)
        for target, (group, place), text in zip(self.plan.targets, self.stored, texts, strict=True):
            value = kernel.stored(target.name, text, self.plan.node(target.key).dtype)
            body.append(f"{results[group]}.at[{self._at(group, place)}] = {value};")
        body = looped(summed(body), lambda: (self.names.fresh("row"), self.names.fresh("col")))
        if self.count == 1:
            return [*lines, *loads, *body, *stores]
        loop = block_of(f"for (int {local.j} = 0; {local.j} < {local.kResults}; ++{local.j})", body)
        return [*lines, *loads, "#pragma unroll", *loop, *stores]

    def _launched(self, function: str, parameters: Sequence[str], width: str) -> tuple[tuple[str, ...], list[str]]:
        """Returns the grid, and the kernel's own lines."""
        kernel, local, domain = self.kernel, self.local, self.plan.domain
        side = domain[-1]
        length = kernel.size(existing(side).bare())
        lines: list[str] = []
        if not length.isidentifier():
            lines.append(f"const int {local.columns} = {length};")
            length = local.columns
        passed = [*parameters, *self.outer_names]
        if len(domain) == 1:
            blocks = f"cdiv({_bare(side)}, block * {self.count})"
            start = "static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x"
            lines += [f"const long long {local.i} = {start if self.count == 1 else f'({start}) * {width}'};"]
            kind = "long long"
        else:
            rows = kernel.count(domain[:-1]) if len(domain) > 2 else kernel.size(domain[0])
            across = f"cdiv({_bare(side)}, {ACROSS * self.count})"
            each = f"{self.across} * {width}" if self.count > 1 else self.across
            blocks = f"{across} * cdiv({' * '.join(domain[:-1]) if len(domain) > 2 else _bare(domain[0])}, {DOWN})"
            row = self.outer_names[0] if len(domain) == 2 else local.row
            lines += [
                f"const int {local.across} = ({length} + {each} - 1) / {each if self.count == 1 else f'({each})'};",
                f"const int {row} = blockIdx.x / {local.across} * {self.down} + threadIdx.y;",
                f"if ({row if rows.isidentifier() else f'static_cast<size_t>({row})'} >= {rows}) return;",
            ]
            if len(domain) > 2:
                left = row
                several: list[str] = []
                for axis in range(len(domain) - 2, -1, -1):
                    inner = kernel.size(domain[axis]) if axis else ""
                    inner = inner if inner.isidentifier() or not inner else f"({inner})"
                    several.append(f"const int {self.outer_names[axis]} = {left}{f' % {inner}' if axis else ''};")
                    left = f"{left} / {inner}"
                lines += several
            start = f"blockIdx.x % {local.across} * {self.across} + threadIdx.x"
            lines.append(f"const int {local.i} = {start if self.count == 1 else f'({start}) * {width}'};")
            kind = "int"
        arguments = ", ".join(passed)
        i, k = local.i, local.k
        aligned = self._aligned(width)
        if self.count == 1:
            calls = [f"{function}<{one}>({arguments}, {i});" for one in ("true", "false")]
            condition = ALIGNED.replace("other arrays, and the tail,", "others")
            return (blocks.replace("block * 1", "block"),), [
                *lines,
                f"if ({i} >= {length}) return;",
                condition,
                *block_of(f"if ({aligned})", [calls[0]])[:-1],
                "} else {",
                f"  {calls[1]}",
                "}",
            ]
        single = f"for ({kind} {k} = {i}; {k} < {i} + {width} && {k} < {length}; ++{k})"
        lines += [
            ALIGNED,
            f"const bool {local.aligned} = {aligned};",
            *block_of(
                f"if ({local.aligned} && {i} + {width} <= {length})", [f"{function}<{width}>({arguments}, {i});"]
            )[:-1],
            "} else {",
            *[f"  {line}" for line in block_of(single, [f"{function}<1>({arguments}, {k});"])],
            "}",
        ]
        return (blocks,), lines

    def _aligned(self, width: str) -> str:
        """Returns the condition that every row of every array begins at a whole pack of `width` results."""
        tests: list[str] = []
        pointers = [
            f"reinterpret_cast<size_t>({one})"
            for one in dict.fromkeys(group.name for group in self._groups())
            if (self.kernel.arguments[one].align or 1) % WIDEST
        ]
        if pointers:
            joined = f"({' | '.join(pointers)})" if len(pointers) > 1 else pointers[0]
            tests.append(f"{joined} % {self.bytes} == 0")
        pitches: dict[str, int] = {}
        for group in self._groups():
            if group.outer:
                pitch = self.number_text(parsed(group.shape[-1]))[0]
                pitches[pitch] = math.lcm(pitches.get(pitch, 1), WIDEST // self._item(group))
        for pitch, count in _without_implied(pitches).items():
            times, rest = divmod(count, self.count)
            number = f"{count}" if rest or self.count == 1 else width if times == 1 else f"({times} * {width})"
            tests.append(f"{pitch if pitch.isidentifier() else f'({pitch})'} % {number} == 0")
        return " && ".join(tests) or "true"


def _without_implied(pitches: Mapping[str, int]) -> dict[str, int]:
    """Returns the divisors of row pitches without tests that others imply, as of `2 * n` and of `n / 2` beside `n`."""
    found = dict(pitches)
    for pitch, count in pitches.items():
        product, quotient = re.fullmatch(r"\d+ \* (\w+)", pitch), re.fullmatch(r"(\w+) / (\d+)", pitch)
        if product is not None and found.get(product[1], 1) % count == 0 and count > 1:
            del found[pitch]
        elif quotient is not None and found.get(quotient[1], 1) % int(quotient[2]) == 0:
            del found[pitch]
            found[quotient[1]] = math.lcm(found[quotient[1]], int(quotient[2]) * count)
    return found


def _bare(side: str) -> str:
    return side[1:-1] if side.startswith("(") and side.endswith(")") and side.count("(") == 1 else side
