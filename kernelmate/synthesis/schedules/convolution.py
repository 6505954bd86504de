"""Convolutions over channels and taps: the input with its halo and the weights in shared memory, results in registers.

Traffic: a block reads its part of the input once for all of its output channels, and the weights once for all of its
positions, from L2 if other blocks read them, too. Arithmetic: that of the graph; a thread's values from shared memory
serve several channels, taps and positions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from kernelmate.records import Size
from kernelmate.source import evaluate
from kernelmate.synthesis.convolutions import CHANNEL, Convolution, Spatial, convolution_of
from kernelmate.synthesis.graph import Graph
from kernelmate.synthesis.index_maps import Linear, existing
from kernelmate.synthesis.kernel_text import ITEM_BYTES, KernelText, WrittenKernel, block_of, fresh_names, those_written
from kernelmate.synthesis.plan import Refused
from kernelmate.synthesis.window_plan import Windows, laid_out, output_shapes, refuse_others_reads
from kernelmate.synthesis.window_text import WindowText

BLOCK = 256

SPAN = 4
"""Number of adjacent positions per thread."""


@dataclass(frozen=True, slots=True)
class ConvolutionTile:
    """A block's output channels (`out`) and positions along each spatial axis, and a thread's channels (`side`)."""

    out: int
    positions: tuple[int, ...]
    side: int

    @property
    def threads(self) -> int:
        """Number of threads per block."""
        return self.out // self.side * math.prod(self.positions) // SPAN


def tile_for(plan: Windows, found: Convolution, size: Size, side: int) -> ConvolutionTile:
    """Returns the tile, with `side` channels per thread, that fits the results at a size."""
    counts = {f"__{axis}": int(evaluate(one, size)) for axis, one in enumerate(plan.domain)}
    lengths = [counts[one.variable] for one in found.spatial]
    groups = min(power_above(-(-counts[found.out] // side)), 8 if len(lengths) == 1 else 4)
    left = BLOCK // groups * SPAN
    positions: list[int] = []
    for place, length in enumerate(reversed(lengths)):
        most = 128 if len(lengths) == 1 else 32
        positions.insert(0, max(SPAN if not place else 1, min(power_above(length), left, most)) if place < 2 else 1)
        left = max(1, left // positions[0])
    groups = min(power_above(-(-counts[found.out] // side)), max(1, BLOCK * SPAN // math.prod(positions)))
    return ConvolutionTile(groups * side, tuple(positions), side)


def power_above(count: int) -> int:
    """Returns the smallest power of two that is at least `count`."""
    return 1 << max(0, count - 1).bit_length()


SHARED = 32 * 1024
"""Bytes of shared memory per block, so that several blocks fit on a multiprocessor (228 KB on H100)."""

MOST_SHARED = 48 * 1024
"""Maximum bytes of static shared memory per block."""

DEEPEST = 16
"""Maximum number of input channels per step."""

LONGEST_LINE = 40
"""Maximum number of input values in a thread's registers."""

ENOUGH_BLOCKS = 264
"""Two blocks for each of the 132 multiprocessors of an H100."""

_WORDS = ("col", "row", "plane")
_PLURALS = {"col": "columns", "row": "rows", "plane": "planes", "position": "positions"}


def written(graph: Graph, kernel: KernelText) -> Iterator[WrittenKernel]:
    """Yields generated kernels, the most promising first.

    Raises:
        Refused: the schedule does not apply.
    """
    sizes = kernel.contract.sizes
    names, shapes = output_shapes(kernel)
    plan = laid_out(graph, sizes, names, shapes)
    refuse_others_reads(plan, names)
    found = convolution_of(plan)
    tiles = {side: tile_for(plan, found, sizes[0], side) for side in (8, 4)}
    counts = {axis: int(evaluate(side, sizes[0])) for axis, side in enumerate(plan.domain)}

    def blocks(tile: ConvolutionTile) -> int:
        taken = {one.variable: width for one, width in zip(found.spatial, tile.positions, strict=True)}
        taken[found.out] = tile.out
        return math.prod(-(-count // taken.get(f"__{axis}", 1)) for axis, count in counts.items())

    order = [8, 4] if blocks(tiles[8]) >= ENOUGH_BLOCKS else [4, 8]
    yield from those_written(partial(_text, plan, found, kernel, tiles[side]) for side in order)


def _text(plan: Windows, found: Convolution, kernel: KernelText, tile: ConvolutionTile) -> WrittenKernel:
    return _Convolving(plan, found, kernel.again(), tile).written()


class _Convolving:
    """Writer of the kernel's text for one tile."""

    def __init__(self, plan: Windows, found: Convolution, kernel: KernelText, tile: ConvolutionTile) -> None:
        self.plan, self.found, self.kernel, self.tile = plan, found, kernel, tile
        self.source, self.weights = plan.name(found.source), plan.name(found.weights)
        outputs = {one.name for one in kernel.outputs()}
        if {self.source, self.weights} & outputs or len(plan.targets) != len(plan.outputs):
            raise Refused("an array is read where another thread may have written it")
        if plan.node(found.root).dtype not in ("float32", "float64"):
            raise Refused(f"the sum of {plan.node(found.root).dtype}")
        self.names = fresh_names(
            kernel, "kOut", "kSide", "kSpan", "kDepth", "kLine", "sum", "line", "part", "total", "i", "j", "d", "o",
            "c", "inside", out="in_tile", o_first="first_o", o_thread="thread_o", c_first="first_c",
        )  # fmt: skip
        self.names.kThreads, self.constants = kernel.threads(tile.threads)
        words = [_WORDS[len(found.spatial) - 1 - place] for place in range(len(found.spatial))]
        self.words = [kernel.names.fresh(one if len(words) > 1 else "position") for one in words]
        self.firsts = [kernel.names.fresh(f"first_{one}") for one in self.words]
        self.own = [kernel.names.fresh(f"thread_{one}") for one in self.words]
        self.near = [kernel.names.fresh(f"{self.source}_{one}") for one in self.words]
        self.inner = [kernel.names.fresh(f"d{one}") for one in self.words]
        plurals = [kernel.names.fresh(f"k{one.capitalize()}s") for one in self.words]
        self.lengths = ["1" if width == 1 else name for name, width in zip(plurals, tile.positions, strict=True)]
        self.constants += self._for_launches()
        self.reach = [kernel.names.fresh(f"kPatch{one.capitalize()}s") for one in self.words]
        self.tap_names = [kernel.names.fresh(one) for one in reversed(("kx", "ky", "kz")[: len(found.taps)])]
        self.patch, self.packed = (kernel.names.fresh(f"{one}_tile") for one in (self.source, self.weights))
        self.batch = {one: kernel.names.position("batch") for one in found.batch}
        self.text = WindowText(plan, kernel, self._positions())
        last = found.spatial[-1]
        self.along = [axis for axis, step in enumerate(last.steps) if step]
        self.line = (SPAN - 1) * last.stride + last.span + 1
        if self.line > LONGEST_LINE:
            raise Refused("its windows are longer than a thread's registers hold")
        self.depth = self._depth()

    def _for_launches(self) -> list[str]:
        """Returns the declarations of the sides of a block's part of the results above the kernel, if launches divide by them."""
        if not self.kernel.kernel.launches:
            return []
        lines: list[str] = []
        for place, (word, width) in enumerate(zip(self.words, self.tile.positions, strict=True)):
            if width > 1:
                self.kernel.names.release(self.lengths[place])
                note = f"{_PLURALS.get(word, word)} of results of a block"
                self.lengths[place], declared = self.kernel.constant(f"{word.capitalize()}s", width, note)
                lines += declared
        self.kernel.names.release(self.names.kOut)
        self.names.kOut, declared = self.kernel.constant("Out", self.tile.out, "output channels of a block")
        return [*lines, *declared]

    def _positions(self) -> dict[str, str]:
        names, found = self.names, self.found
        positions = {CHANNEL: names.c, found.out: names.o, "__i": names.i, "__j": names.j, **self.batch}
        for place, one in enumerate(found.spatial):
            positions |= {
                one.variable: self.words[place],
                f"__n{place}": self.near[place],
                f"__d{place}": self.inner[place],
            }
            positions |= {f"__t{place}": self.own[place], f"__f{place}": self.firsts[place]}
        return positions | {f"__k{axis}": name for axis, name in enumerate(self.tap_names)}

    def _patch(self, place: int) -> int:
        one = self.found.spatial[place]
        return (self.tile.positions[place] - 1) * one.stride + one.span + 1

    def _depth(self) -> int:
        """Returns the number of channels per step that fits in shared memory."""
        last = -(-self._patch(-1) // SPAN) * SPAN
        patch = last * math.prod(self._patch(place) for place in range(len(self.words) - 1))
        each = (patch + math.prod(self.found.taps) * (self.tile.out + SPAN)) * (
            8 if self.kernel.real == "double" else 4
        )
        depth = DEEPEST
        while depth > 1 and depth * each > SHARED:
            depth //= 2
        side = self.plan.node(self.found.source).shape[self.found.channel]
        depth = min(depth, power_above(int(evaluate(side, self.kernel.contract.sizes[0]))))
        if depth * each > MOST_SHARED:
            raise Refused("its windows are larger than shared memory")
        return depth

    def _channels(self) -> Linear:
        return existing(self.plan.node(self.found.source).shape[self.found.channel])

    def _number(self, value: Linear) -> str:
        return self.text.number_text(value)[0]

    def written(self) -> WrittenKernel:
        """Returns the generated kernel."""
        kernel, names, tile, real = self.kernel, self.names, self.tile, self.kernel.real
        opening, grid = self._block()
        c_first, channels = names.c_first, self._number(self._channels())
        loop = f"for (int {c_first} = 0; {c_first} < {channels}; {c_first} += {names.kDepth})"
        results = self._results()
        body = [
            *self._constants(),
            *opening,
            f"{real} {names.sum}[{names.kSide}][{names.kSpan}] = {{}};",
            *block_of(loop, [*self._load_input(), *self._load_weights(), "__syncthreads();", *self._products(), "__syncthreads();"]),
            *results,
        ]  # fmt: skip
        sides = " x ".join(map(str, (tile.out, *tile.positions)))
        return WrittenKernel(
            f"convolution-{tile.out}x{math.prod(tile.positions)}-{tile.side}",
            f"Written from the reference: a block for {sides} channels and positions of the result; the input with its halo and the "
            f"weights lie in shared memory, and {tile.side} x {SPAN} results in the registers of each thread."
            + self._promise(),
            kernel.definition(kernel.head(), body),
            "\n".join(self.constants),
            (grid,),
            tile.threads,
        )

    def _promise(self) -> str:
        """Describes the arithmetic at the headline size, and the blocks' traffic from global memory and L2."""
        size, found = self.kernel.contract.sizes[0], self.found
        results = math.prod(int(evaluate(side, size)) for side in self.plan.domain)
        depth = int(evaluate(self.plan.node(found.source).shape[found.channel], size))
        flops = 2 * results * depth * math.prod(found.taps)
        patch = math.prod(self._patch(place) for place in range(len(self.words)))
        blocks = results / self.tile.out / math.prod(self.tile.positions)
        widths = [ITEM_BYTES[self.kernel.arguments[one].dtype] for one in (self.source, self.weights)]
        read = blocks * depth * (patch * widths[0] + math.prod(found.taps) * self.tile.out * widths[1])
        moved = self.kernel.promise([self.source, self.weights])
        return f"{moved} It computes {flops / 1e9:.3g} GFLOP, and reads {read / 1e6:.3g} MB, most of it from L2."

    def _constants(self) -> list[str]:
        names, tile, real, found = self.names, self.tile, self.kernel.real, self.found
        sides = [f"{name} = {width}" for name, width in zip(self.lengths, tile.positions, strict=True) if width > 1]
        block = f"constexpr int {', '.join([f'{names.kOut} = {tile.out}', *sides])};  // results of a block: channels and positions"
        reach = []
        for place, one in enumerate(found.spatial):
            before = self.lengths[place] if one.stride == 1 else f"({self.lengths[place]} - 1) * {one.stride} + 1"
            before = "1" if self.lengths[place] == "1" else before
            reach.append(f"{self.reach[place]} = {before}{f' + {one.span}' if one.span else ''}")
        pitch = f"({self.reach[-1]} + {names.kSpan} - 1) / {names.kSpan} * {names.kSpan}"
        inner = "".join(f"[{one}]" for one in self.reach[:-1])
        taps = "".join(f"[{one}]" for one in found.taps)
        threads = " * ".join([f"{names.kOut} / {names.kSide}", *(one for one in self.lengths[:-1] if one != "1")])
        return [
            *[block] * (not self.kernel.kernel.launches),
            f"constexpr int {names.kSide} = {tile.side}, {names.kSpan} = {SPAN};  // of a thread: channels, and neighbouring positions",
            f"constexpr int {names.kDepth} = {self.depth};  // input channels at a time",
            f'static_assert({names.kThreads} == {threads} * ({self.lengths[-1]} / {names.kSpan}), "a thread for each part of the results");',
            f"constexpr int {', '.join(reach)};  // what the taps of a block reach",
            f"constexpr int {names.kLine} = {self.line};  // what the taps of a thread reach in a row",
            "// Rows of the tiles are padded to whole packs of 16 bytes.",
            f"__shared__ {real} {self.patch}[{names.kDepth}]{inner}[{pitch}];",
            f"__shared__ {real} {self.packed}[{names.kDepth}]{taps}[{names.kOut} + {names.kSpan}];",
        ]

    def _block(self) -> tuple[list[str], str]:
        """Emits the block's results and the results of each thread, and returns the grid."""
        names, found, plan = self.names, self.found, self.plan
        places = {one.variable: place for place, one in enumerate(found.spatial)}
        axes = [found.out, *(one.variable for one in reversed(found.spatial)), *reversed(found.batch)]
        counts: list[str] = []
        grid, lines, decoded = [], [], []
        for number, axis in enumerate(axes):
            side = plan.domain[int(axis[2:])]
            width = self.tile.out if axis == found.out else self.tile.positions[places[axis]] if axis in places else 1
            name = names.kOut if axis == found.out else self.lengths[places[axis]] if axis in places else "1"
            first = (
                names.o_first
                if axis == found.out
                else self.firsts[places[axis]]
                if axis in places
                else self.batch[axis]
            )
            left = " / ".join(["blockIdx.x", *counts])
            grid.append(f"cdiv({_bare(side)}, {width})" if width > 1 else side)
            outermost = number + 1 == len(axes)
            if not outermost:
                length = self._number(existing(side))
                blocks = f"({length} + {name} - 1) / {name}" if width > 1 else length
                local = self.kernel.names.fresh(f"{first.removeprefix('first_')}_blocks" if width > 1 else "count")
                lines.append(f"const int {local} = {blocks};")
                counts.append(local)
                left += f" % {local}"
            decoded.append(f"const int {first} = {left}{f' * {name}' if width > 1 else ''};")
        left = f"threadIdx.x / ({self.lengths[-1]} / {names.kSpan})"
        mine = [f"const int {self.own[-1]} = threadIdx.x % ({self.lengths[-1]} / {names.kSpan}) * {names.kSpan};"]
        for place in reversed(range(len(self.words) - 1)):
            if self.lengths[place] != "1":
                mine.append(f"const int {self.own[place]} = {left} % {self.lengths[place]};")
                left = f"{left} / {self.lengths[place]}"
        mine.append(f"const int {names.o_thread} = {left} * {names.kSide};")
        return [*lines, *decoded, *mine], " * ".join(reversed(grid))

    def _filled(self, dims: Sequence[tuple[str, str]], body: Sequence[str]) -> list[str]:
        """Returns a loop in which the block's threads enumerate several dimensions, the last one fastest."""
        names, left, lines = self.names, self.names.i, []
        for place, (name, count) in enumerate(reversed(dims)):
            rest = "" if place + 1 == len(dims) else f" % {count}"
            lines.append(f"const int {name} = {left}{rest};")
            left = f"{left} / {count}"
        total = " * ".join(count for _, count in dims)
        head = f"for (int {names.i} = threadIdx.x; {names.i} < {total}; {names.i} += {names.kThreads})"
        return block_of(head, [*lines, *body])

    def _in_channels(self) -> list[str]:
        """Returns the test that a chunk's channel exists, if that is not certain."""
        channels = self._channels()
        whole = not channels.terms and channels.constant % self.depth == 0
        return [] if whole else [f"{self.names.c} < {self._number(channels)}"]

    def _load_input(self) -> list[str]:
        names, found, kernel = self.names, self.found, self.kernel
        shape = self.plan.node(found.source).shape
        axes = sorted([(found.channel, names.d, names.kDepth), *((one.axis, self.inner[p], self.reach[p]) for p, one in enumerate(found.spatial))])  # fmt: skip
        index = [*map(self._plain, found.source[1])]
        index[found.channel] = Linear(((CHANNEL, 1),))
        lines, tests = [f"const int {names.c} = {names.c_first} + {names.d};"], self._in_channels()
        for place, one in enumerate(found.spatial):
            index[one.axis] = Linear(((f"__n{place}", 1),))
            near = Linear.sum(((f"__f{place}", one.stride), (f"__d{place}", 1)), one.first)
            lines.append(f"const int {self.near[place]} = {self._number(near)};")
            tests += [f"{self.near[place]} >= 0"] if one.first < 0 else []
            tests.append(f"{self.near[place]} < {self._number(existing(shape[one.axis]))}")
        at = "".join(f"[{one}]" for one in (names.d, *self.inner))
        value = kernel.loaded(self.source, f"{self.source}[{self.text.address(shape, index)}]")
        lines.append(f"const bool {names.inside} = {' && '.join(tests)};")
        lines.append(f"{self.patch}{at} = {names.inside} ? {value} : {self.text.number(0.0)};")
        return self._filled([(name, count) for _, name, count in axes], lines)

    def _plain(self, entry: object) -> Linear:
        """Returns an entry of the input's index that is a batch axis, or none."""
        name = str(entry)
        return Linear(((name, 1),)) if name in self.batch else Linear()

    def _load_weights(self) -> list[str]:
        names, found, kernel = self.names, self.found, self.kernel
        shape = self.plan.node(found.weights).shape
        counts = {found.out: (names.out, names.kOut), CHANNEL: (names.d, names.kDepth)}
        counts |= {f"__k{axis}": (name, str(found.taps[axis])) for axis, name in enumerate(self.tap_names)}
        dims = [counts[name] for at in found.at for name, _ in at.terms if name in counts]
        out = existing(self.plan.domain[int(found.out[2:])])
        tests = [f"{names.o} < {self._number(out)}", *self._in_channels()]
        value = kernel.loaded(self.weights, f"{self.weights}[{self.text.address(shape, found.at)}]")
        place = "".join(f"[{one}]" for one in (names.d, *self.tap_names, names.out))
        return self._filled(
            dims,
            [
                f"const int {names.o} = {names.o_first} + {names.out}, {names.c} = {names.c_first} + {names.d};",
                f"{self.packed}{place} = {' && '.join(tests)} ? {value} : {self.text.number(0.0)};",
            ],
        )

    def _products(self) -> list[str]:
        """Returns the products of a chunk of channels, from registers."""
        names, found, real = self.names, self.found, self.kernel.real
        last = found.spatial[-1]
        place = "".join(f"[{self._near(place, one)}]" for place, one in enumerate(found.spatial))
        tap = last.tap(found.taps)
        along = [self.tap_names[axis] for axis in self.along]
        inside = Linear(
            tuple(term for term in tap.terms if term[0] in [f"__k{axis}" for axis in self.along]), tap.constant
        )
        held = self._number(Linear.sum((("__j", last.stride),)).plus(inside))
        weight = "".join(f"[{one}]" for one in (names.d, *self.tap_names))
        body = [
            f"{real} {names.part}[{names.kSide}];",
            *self._over(names.i, names.kSide, [f"{names.part}[{names.i}] = {self.packed}{weight}[{names.o_thread} + {names.i}];"]),
            *self._over(
                names.i,
                names.kSide,
                self._over(names.j, names.kSpan, [f"{names.sum}[{names.i}][{names.j}] += {names.part}[{names.i}] * {names.line}[{held}];"]),
            ),
        ]  # fmt: skip
        for axis, name in zip(self.along, along, strict=True):
            body = self._over(name, str(found.taps[axis]), body)
        body = [
            f"{real} {names.line}[{names.kLine}];",
            *self._over(names.j, names.kLine, [f"{names.line}[{names.j}] = {self.patch}[{names.d}]{place};"]),
            *body,
        ]
        for axis in reversed([axis for axis in range(len(found.taps)) if axis not in self.along]):
            name = self.tap_names[axis]
            body = block_of(f"for (int {name} = 0; {name} < {found.taps[axis]}; ++{name})", body)
        return block_of(f"for (int {names.d} = 0; {names.d} < {names.kDepth}; ++{names.d})", body)

    def _near(self, place: int, one: Spatial) -> str:
        """Returns a thread's position in the patch along a spatial axis, at the taps of the enclosing loops."""
        own = Linear(((f"__t{place}", one.stride),)) if self.lengths[place] != "1" else Linear()
        if place + 1 == len(self.words):
            return self._number(own.plus(Linear((("__j", 1),))))
        return self._number(own.plus(one.tap(self.found.taps)))

    def _over(self, name: str, count: str, body: Sequence[str]) -> list[str]:
        return ["#pragma unroll", *block_of(f"for (int {name} = 0; {name} < {count}; ++{name})", body)]

    def _results(self) -> list[str]:
        """Returns values computed from each sum, and guarded stores."""
        names, found, plan, kernel = self.names, self.found, self.plan, self.kernel
        lines: list[str] = []
        terms = [f"{names.sum}[{names.i}][{names.j}]", *self.text.locals_for(found.rest, lines)]
        if len(terms) > 1:
            lines.append(f"const {kernel.real} {names.total} = {' + '.join(terms)};")
        self.text.known[found.root] = names.total if len(terms) > 1 else terms[0]
        texts = self.text.locals_for([one.key for one in plan.targets], lines)
        for target, text in zip(plan.targets, texts, strict=True):
            stored = kernel.stored(target.name, text, plan.node(target.key).dtype)
            if len(plan.targets) > 1:
                raise Refused("it has several results of a convolution")
            at = self.text.address(target.shape, [self.text_of(one) for one in target.place])
            lines.append(f"{target.name}[{at}] = {stored};")
        mine = []
        for place in range(len(found.spatial)):
            own = f" + {self.own[place]}" if self.lengths[place] != "1" else ""
            j = f" + {names.j}" if place + 1 == len(self.words) else ""
            mine.append(f"const int {self.words[place]} = {self.firsts[place]}{own}{j};")
        sides = {one.variable: self.words[place] for place, one in enumerate(found.spatial)} | {found.out: names.o}
        inside = " && ".join(f"{name} < {self._number(existing(plan.domain[int(axis[2:])]))}" for axis, name in sides.items() if self._may_leave(axis))  # fmt: skip
        inner = [*mine, *(block_of(f"if ({inside})", lines) if inside else lines)]
        out = f"const int {names.o} = {names.o_first} + {names.o_thread} + {names.i};"
        return self._over(names.i, names.kSide, [out, *self._over(names.j, names.kSpan, inner)])

    def _may_leave(self, axis: str) -> bool:
        """Returns True if a block's part of an axis may extend beyond its end."""
        places = {one.variable: place for place, one in enumerate(self.found.spatial)}
        return axis not in places or self.lengths[places[axis]] != "1"

    def text_of(self, entry: object) -> Linear:
        """Returns an entry of an index as a sum."""
        name = str(entry)
        return Linear(((name, 1),)) if name.startswith("__") else Linear((), int(name))


def _bare(side: str) -> str:
    return side[1:-1] if side.startswith("(") and side.endswith(")") else side
