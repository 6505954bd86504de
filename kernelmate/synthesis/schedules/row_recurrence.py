"""Linear recurrences along rows: steps `scale * value + shift` are combined by an associative scan.

Traffic: each array is read and written once, a row in packs of 16 bytes where rows and addresses allow it.

Arithmetic: that of the graph, three operations per element to join its step to those before it, and five joins by
shuffles per pack.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from kernelmate.synthesis.graph import Datum, Graph, Node, sorted_graph
from kernelmate.synthesis.kernel_text import KernelText, fresh_names
from kernelmate.synthesis.plan import Plan, Refused
from kernelmate.synthesis.reductions import Team
from kernelmate.synthesis.schedules.scan import FULL_MASK, Joining, RowScan, without_one_use


def linear_scans(graph: Graph) -> Graph:
    """Returns the graph with its recurrences as scans of steps, whose operands are shifts, scales and initial values.

    Raises:
        Refused: a value is not a scale and a shift of its predecessor, or several depend on each other.
    """
    steps = _Steps(graph)
    for index, node in enumerate(graph.nodes):
        if node.op == "recur":
            steps.nodes[index] = steps.scan(node)
    return sorted_graph(steps.nodes, graph.outputs)


@dataclass(frozen=True, slots=True)
class _Step:
    """Nodes of a value relative to the carried one: `scale * carried + shift`, or `shift` where `resets` is true.

    Attributes:
        scale: None for zero.
        shift: None for zero.
        resets: None for nowhere. A scale of zero would not do, because it keeps a NaN or an infinity.
    """

    scale: int | None
    shift: int | None
    resets: int | None = None


class _Steps:
    """Builder of the nodes of scales and shifts, which follow a graph's nodes."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.nodes = graph, list(graph.nodes)
        self._depends: dict[int, bool] = {}

    def scan(self, node: Node) -> Node:
        """Returns the scan that computes a recurrence."""
        if len(node.args) != 2 or node.data[2] != "all":
            raise Refused("it carries several values along rows, or has results of other than each iteration")
        start, following = node.args
        step = self._step(following)
        if step.scale is None:
            raise Refused("its iterations do not depend on each other")
        shift = self._add("constant", (), (), node.dtype, (0.0,)) if step.shift is None else step.shift
        args = (shift, step.scale, start, *([] if step.resets is None else [step.resets]))
        made = Node("scan", args, node.shape, node.dtype, ("linear", node.data[3], node.data[4]))
        return replace(made, name=next(one.name for one in self.graph.nodes if one.op == "state"))

    def _add(self, op: str, args: tuple[int, ...], shape: tuple[str, ...], dtype: str, data: tuple[Datum, ...]) -> int:
        self.nodes.append(Node(op, args, shape, dtype, data))
        return len(self.nodes) - 1

    def _map(self, name: str, *args: int, dtype: str = "float64") -> int:
        shape: tuple[str, ...] = ()
        for one in args:
            other = self.nodes[one].shape
            long, short = (shape, other) if len(shape) >= len(other) else (other, shape)
            padded = ("1",) * (len(long) - len(short)) + short
            shape = tuple(b if a == "1" else a for a, b in zip(long, padded, strict=True))
        return self._add("map", args, shape, dtype, (name,))

    def _is_carried(self, index: int) -> bool:
        if index not in self._depends:
            node = self.nodes[index]
            self._depends[index] = node.op == "state" or any(map(self._is_carried, node.args))
        return self._depends[index]

    def _step(self, index: int) -> _Step:
        node = self.nodes[index]
        if not self._is_carried(index):
            return _Step(None, index)
        if node.op == "state":
            return _Step(self._add("constant", (), (), "float64", (1.0,)), None)
        if node.op == "cast" and node.dtype.startswith("float"):
            return self._step(node.args[0])
        name = str(node.data[0]) if node.op == "map" else ""
        if name in ("add", "subtract"):
            return self._summed(name, *(self._step(one) for one in node.args))
        if name == "negative":
            return self._each(self._step(node.args[0]), "negative")
        if name == "multiply":
            free = next((one for one in node.args if not self._is_carried(one)), None)
            if free is not None:
                (other,) = (one for one in node.args if one != free) if len({*node.args}) > 1 else (free,)
                return self._each(self._step(other), "multiply", free)
        if name == "divide" and not self._is_carried(node.args[1]):
            return self._each(self._step(node.args[0]), "divide", node.args[1])
        if name == "where" and not self._is_carried(node.args[0]):
            return self._chosen(node.args[0], *(self._step(one) for one in node.args[1:]))
        raise Refused("a row's elements follow from those before them by more than a scale and a shift")

    def _summed(self, name: str, first: _Step, second: _Step) -> _Step:
        resets = next((one.resets for one in (first, second) if one.resets is not None), None)
        if resets is not None and None not in (first.scale, second.scale):
            raise Refused("it adds a value that begins anew in some iterations to the one before it")
        found: list[int | None] = []
        for one, other in ((first.scale, second.scale), (first.shift, second.shift)):
            if one is None:
                found.append(other if other is None or name == "add" else self._map("negative", other))
            else:
                found.append(one if other is None else self._map(name, one, other))
        return _Step(found[0], found[1], resets)

    def _each(self, step: _Step, name: str, *by: int) -> _Step:
        scale, shift = (self._times(one, name, *by) for one in (step.scale, step.shift))
        return _Step(scale, shift, step.resets)

    def _times(self, one: int | None, name: str, *by: int) -> int | None:
        if one is None:
            return None
        node = self.nodes[one]
        return (
            by[0] if name == "multiply" and node.op == "constant" and node.data[0] == 1 else self._map(name, one, *by)
        )

    def _chosen(self, condition: int, first: _Step, second: _Step) -> _Step:
        zero = self._add("constant", (), (), "float64", (0.0,))
        shift = self._selected(condition, first.shift, second.shift, zero)
        if first.scale is not None and second.scale is not None:
            if (first.resets, second.resets) != (None, None):
                raise Refused("its values begin anew in some iterations under several conditions")
            return _Step(self._selected(condition, first.scale, second.scale, zero), shift)
        if second.scale is None:
            condition = self._map("logical_not", condition, dtype="bool")
        carried = first if second.scale is None else second
        scale, resets = carried.scale, carried.resets
        if resets is not None:
            condition = self._map("logical_or", condition, resets, dtype="bool")
        self.nodes[condition] = replace(self.nodes[condition], name="resets")
        return _Step(scale, shift, condition)

    def _selected(self, condition: int, one: int | None, other: int | None, zero: int) -> int | None:
        if one is other:
            return one
        return self._map("where", condition, zero if one is None else one, zero if other is None else other)


class RowRecurrence(RowScan):
    """Text of one team: steps of a row's tile are joined within threads, among them, and applied to the value before the tile."""

    schedule = "recurrence"

    def __init__(self, plan: Plan, kernel: KernelText, team: Team) -> None:
        super().__init__(plan, kernel, team)
        if len(self.scans) != 1:
            raise Refused("it has several recurrences or scans along rows")
        if {ctype for _, ctype in self.kinds} != {kernel.real}:
            raise Refused("it carries whole numbers along rows")
        self.resets = len(plan.node(self.scans[0]).args) > 3
        """True if values begin anew in some iterations, which then do not depend on those before them."""
        self.step, self.joined = (kernel.names.outermost(one) for one in ("Step", "joined"))
        more = fresh_names(kernel, "first", "second", "step", "carry", "earlier")
        self.names.__dict__.update(more.__dict__)

    def helpers(self) -> list[str]:
        """Returns the type of steps, and the functions that join them, each followed by an empty line."""
        names, ctype, step = self.names, self.kernel.real, self.step
        first, second = names.first, names.second
        said = ", or to shift where it begins anew" if self.resets else ""
        fields = [f"  {ctype} scale, shift;", *(["  bool resets;"] if self.resets else [])]
        members = [f"{second}.scale * {first}.scale", f"{second}.scale * {first}.shift + {second}.shift"]
        members += [f"{first}.resets"] if self.resets else []
        joined = [f"if ({second}.resets) return {second};"] if self.resets else []
        joined.append(f"return {{{', '.join(members)}}};")
        return [
            "\n".join([f"struct {step} {{  // takes a value to scale * value + shift{said}", *fields, "};"]),
            "",
            self.kernel.definition(f"static __device__ __forceinline__ {step} {self.joined}({step} {first}, {step} {second})", joined),
            "",
            *super().helpers(),
        ]  # fmt: skip

    def _identity(self) -> str:
        """Returns the step that changes no value."""
        members = [self.expressions.number(1.0), self.expressions.number(0.0), *(["false"] if self.resets else [])]
        return f"{{{', '.join(members)}}}"

    def _applied(self, step: str, value: str) -> str:
        """Returns the value after a step is applied to another value."""
        after = f"{step}.scale * {value} + {step}.shift"
        return f"{step}.resets ? {step}.shift : {after}" if self.resets else after

    def _joining(self, kind: str, ctype: str) -> Joining:
        names, joined = self.names, self.joined
        return Joining(
            self.step,
            names.step,
            names.earlier,
            self._identity(),
            "Joins the steps of all threads before this one; `{total}` joins those of the whole {team}.",
            partial(_shuffled, ["scale", "shift", *(["resets"] if self.resets else [])]),
            lambda value, earlier: f"{value} = {joined}({earlier}, {value});",
            lambda before, total: f"{before} = {joined}({total}, {before});",
            lambda total, later: f"{total} = {joined}({total}, {later});",
        )

    def results(self) -> list[str]:
        """Returns the last pass: tile after tile of the row, from the value before it."""
        plan, names, expressions, packs = self.plan, self.names, self.expressions, self.packs
        if not all(self.full.values()):
            raise Refused("it has a recurrence, and results of one element per row")
        kpack = names.kPack if packs.width > 1 else "1"
        (scan,) = self.scans
        shift, scale, start, *resets = plan.operands(scan)
        body: list[str] = []
        texts = expressions.locals_for([scale, shift, *resets], body)
        if not texts[0].isidentifier() and expressions.varies(scale):
            texts[0] = expressions.named(scale, body, "scale")
        step, inside = names.step, names.inside
        body += [f"{step} = {self.joined}({step}, {{{', '.join(texts)}}});", f"{inside}[{names.j}] = {step};"]
        outer, expressions.outer = expressions.outer, []
        self._forget()
        (begin,) = expressions.locals_for([start], outer)
        read = self.read([shift, scale, *resets, *plan.outputs])
        (function,) = self.functions.values()
        lines = [
            *self._position_lines(kpack),
            f"{self.step} {inside}[{kpack}];",
            f"{self.step} {step} = {self._identity()};",
            *self.tile(read, kpack, body),
            f"{self.step} {names.total};",
            f"const {self.step} {names.before} = {function}({step}, {names.total});",
            f"const {self.kernel.real} {names.first} = {self._applied(names.before, names.carry)};",
            f"{names.carry} = {self._applied(names.total, names.carry)};",
        ]
        said = plan.node(scan).name
        value = self.kernel.names.fresh(said if said and self.kernel.names.is_free(said) else "value")
        at = f"{inside}[{names.j}]"
        expressions.known[scan] = value
        pairs = list(zip(plan.outputs, self.outputs, strict=True))
        after = [f"const {self.kernel.real} {value} = {self._applied(at, names.first)};"]
        after += self.stores(pairs, lambda name: f"{self.stored_pack(name)}.at[{names.j}]")
        lines += self.final(kpack, without_one_use(after))
        outer += expressions.outer
        return self.tiles([*outer, f"{self.kernel.real} {names.carry} = {begin};"], lines)

    def why(self) -> str:
        """Returns a one-sentence explanation of the schedule."""
        return (
            f"Written from the reference: a {self.team.name} of {self.team.threads} threads per row, {self.packs.width} elements per load; "
            "each element is a step of the linear recurrence, and threads join steps by shuffles, tile after tile of the row."
            + self.kernel.promise(self.inputs)
        )


def _shuffled(members: Sequence[str], how: str, value: str, by: str) -> str:
    """Returns another lane's step, member by member."""
    read = [f"__shfl_{how}sync({FULL_MASK}, {value}.{one}, {by})" for one in members]
    read = [f"{text} != 0" if one == "resets" else text for one, text in zip(members, read, strict=True)]
    return f"{{{', '.join(read)}}}"
