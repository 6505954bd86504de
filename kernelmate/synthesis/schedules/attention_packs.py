"""Attention of single queries with vectors in 16-byte packs: a block per query, a few lanes per key.

Traffic: keys and values once for each query, several packs of a thread under way at a time. Arithmetic: that of the graph.
"""

from __future__ import annotations

from dataclasses import replace

from kernelmate.source import evaluate
from kernelmate.synthesis.attention_plan import Attention, by_axis
from kernelmate.synthesis.attention_text import unrolled
from kernelmate.synthesis.causal import filled, reach
from kernelmate.synthesis.index_maps import Linear
from kernelmate.synthesis.kernel_text import ITEM_BYTES, WIDEST, KernelText, WrittenKernel, block_of
from kernelmate.synthesis.packs import pack_struct
from kernelmate.synthesis.plan import Key, Refused
from kernelmate.synthesis.reductions import WARP
from kernelmate.synthesis.schedules.attention_rows import AttentionRows, halves

THREADS, KEYS = 512, 4
"""Threads per block, and keys per lane group at a time: 64 KiB of keys and values are in flight per block."""


def text(plan: Attention, kernel: KernelText) -> WrittenKernel:
    """Returns the generated kernel.

    Raises:
        Refused: queries, keys or values are not vectors of one dtype in memory.
    """
    single = replace(plan, query=None)
    return _AttentionPacks(single, kernel.again(), plan.query, reach(plan)).written()


class _AttentionPacks(AttentionRows):
    """The text for a few lanes per key."""

    threads = THREADS
    sharers = "groups"

    def __init__(self, plan: Attention, kernel: KernelText, query: int | None, found: Linear | None) -> None:
        self.unmasked: Key | None = None
        self.vectors = [_vector(plan, roots) for roots in (plan.left, plan.right, plan.values)]
        types = {kernel.element(_array(plan, one)) for one in self.vectors}
        bytes_ = ITEM_BYTES[kernel.arguments[_array(plan, self.vectors[0])].dtype]
        if len(types) > 1 or bytes_ not in (2, 4):
            raise Refused("queries, keys and values are of several dtypes")
        (self.element_type,) = types
        self.pack = WIDEST // bytes_
        columns = int(evaluate(plan.domain[plan.column], kernel.contract.sizes[0]))
        lanes = next((one for one in (4, 8, 16) if one * self.pack >= columns), WARP)
        self.thread_constant, self.own = kernel.constant("Threads", THREADS, "threads per block")
        super().__init__(plan, kernel, lanes * self.pack, query, found)
        self.lanes = lanes
        names, fresh = self.names, kernel.names.fresh
        names.kColumns = kernel.names.outermost("kPack")
        self.type, self.load = kernel.names.outermost("Pack"), kernel.names.outermost("load_packs")
        self.partial = [fresh("group_max"), fresh("group_sum"), fresh("group_acc")]
        self.lane_names = [fresh("kGroups"), self.lane_names[1]]
        self.packs = [fresh("query_pack"), fresh("key_packs"), fresh("value_packs")]
        self.rows = [fresh("query_at"), fresh("keys_at"), fresh("values_at")]
        self.group, self.whole, names.first_key = fresh("group"), fresh("aligned"), fresh("group_key")
        self.which, self.first_lane = self.group, names.rank
        self.kept = f"{names.rank} * {names.kColumns} + {names.j}"

    def written(self) -> WrittenKernel:
        """Returns the generated kernel."""
        found = super().written()
        why = (
            f"Written from the reference: a block per query{self._slices()}; each group of {self.lanes} lanes runs an online softmax over its "
            f"own keys, {KEYS} at a time, and the groups' results are merged through shared memory at the end."
            + self.promise()
        )
        return replace(found, schedule="attention-packs", why=why, helpers=self._helpers(), block=THREADS)

    def _slices(self) -> str:
        """Returns the part of a query's result that a block computes, if several blocks share it."""
        return f" and {self.width} columns of its result" if self.several else ""

    def _helpers(self) -> str:
        zero = self.kernel.stored(_array(self.plan, self.vectors[0]), "0.0f", "float32")
        parts = [
            f"{self.type}* packs",
            f"const {self.element_type}* const* rows",
            "int column",
            "int end",
            "bool aligned",
        ]
        head = [
            "template <int kCount>",
            self.kernel.wrapped(f"static __device__ __forceinline__ void {self.load}(", parts) + " {",
        ]
        each = "for (int r = 0; r < kCount; ++r)"
        inner = [
            "if (aligned && column < end) {",
            "#pragma unroll",
            f"  {each} packs[r] = *reinterpret_cast<const {self.type}*>(rows[r] + column);",
            "  return;",
            "}",
            "#pragma unroll",
            *block_of(each, [
                "#pragma unroll",
                f"for (int i = 0; i < {self.names.kColumns}; ++i) packs[r].at[i] = column + i < end ? rows[r][column + i] : {zero};",
            ]),
        ]  # fmt: skip
        lines = [
            *self.own,
            f"constexpr int {self.names.kColumns} = {self.pack};  // elements of an access of {WIDEST} bytes",
            "",
            *pack_struct(self.type, self.element_type, self.names.kColumns),
            "",
            "// Loads a pack from each of kCount rows, with zeros from column `end` on; in one access each where rows are aligned.",
        ]
        body = [line if line.startswith("#") else f"  {line}" for line in inner]
        return self.kernel.styled("\n".join([*lines, *head, *body, "}"]))

    def constants(self) -> list[str]:
        """Returns the declarations of constants and shared memory."""
        names, (groups, lanes), low = self.names, self.lane_names, self.partial
        return [
            f"constexpr int {lanes} = {self.lanes};  // lanes per key",
            f"constexpr int {names.kKeys} = {KEYS};  // keys that the lanes read at a time",
            f"constexpr int {groups} = {self.thread_constant} / {lanes};  // groups of lanes per block",
            f"constexpr int {names.kValues} = {lanes} * {names.kColumns};  // columns of the result per block",
            f"__shared__ float {low[0]}[{groups}], {low[1]}[{groups}], {low[2]}[{groups}][{names.kValues}];",
        ]  # fmt: skip

    def start(self) -> list[str]:
        """Returns the declarations of a thread's keys and columns."""
        names, (_, lanes), plan = self.names, self.lane_names, self.plan
        lines = [f"const int {self.group} = threadIdx.x / {lanes}, {names.rank} = threadIdx.x % {lanes};"]
        if self.several:
            lines.append(f"const int {names.column_first} = blockIdx.y * {names.kValues};")
        end = self.end(self.found, self.keys, "" if self.query is None else f"{self.at[self.query]} + 1")
        end = self._filled(end)
        if end == self.keys:
            names.end = end
        else:
            lines.append(f"const int {names.end} = {end};  // keys from here on are masked")
        strides = [by_axis(plan.steps(one)).get(plan.key, "0") for one in self.vectors[1:]]
        sides = dict.fromkeys([self.depth, self.columns, *(self.kernel.size(one) for one in strides)])
        tests = [f"{one if one.isidentifier() else f'({one})'} % {names.kColumns} == 0" for one in sides if one != "0"]
        starts = " | ".join(dict.fromkeys(f"reinterpret_cast<size_t>({self.begins(one)})" for one in self.vectors))
        return [
            *lines,
            f"const bool {self.whole} = {' && '.join(tests)} && ({starts}) % sizeof({self.type}) == 0;",
            f"float {names.total}[{names.kColumns}] = {{}};",
            f"float {names.largest} = {self.low}, {names.sum} = 0.0f;",
        ]

    def _filled(self, end: str) -> str:
        """Returns the end of the keys that have a weight, limited by a length in memory if it is smaller."""
        found, lines = filled(self.plan), list[str]()
        if found is None:
            return end
        (count,) = self.expressions.locals_for([found[0]], lines)
        self.forget()
        if lines or self.plan.node(found[0]).dtype not in ("int32", "int16", "int8", "uint8", "uint16"):
            return end
        self.unmasked = found[2]
        return f"min({end}, {count}{f' + {found[1]}' if found[1] else ''})"

    def _row(self, vector: Key, last: str) -> str:
        """Returns the address of an array's vector."""
        pointer, _, place = self.element(vector)[:-1].partition("[")
        if place == last:
            return pointer
        if not place.endswith(f" + {last}"):
            raise Refused("vectors are not stored one after another")
        return f"{pointer} + {place.removesuffix(f' + {last}')}"

    def loop(self) -> list[str]:
        """Returns the loop over all keys, several for each group of lanes at a time."""
        names, (groups, lanes), i = self.names, self.lane_names, self.names.i
        plan, kernel = self.plan, self.kernel
        rows, packs, e = self.rows, self.packs, names.n
        product = f"{names.scores}[{i}]"
        named = [_array(plan, one) for one in self.vectors]
        element = [
            kernel.loaded(name, f"{pack}{at}.at[{e}]")
            for name, pack, at in zip(named, packs, ("", f"[{i}]", f"[{i}]"), strict=True)
        ]
        column = f"{names.column_first} + " if self.several else ""
        key = f"{names.first_key} + {i} * {groups}"
        inner: list[str] = []
        query, declared = self._row(self.vectors[0], names.c), list[str]()
        if not query.isidentifier() or query in kernel.parameters:  # whose address has a type of its own
            declared = [f"const {self.element_type}* {rows[0]} = {query};"]
            query = rows[0]
        score = self.scored(product, inner, self.unmasked)
        exchanged = f"{product} += __shfl_xor_sync(0xffffffffu, {product}, {names.offset});"
        chosen = [f"const int {names.key} = {key};", *block_of(halves(names.offset, lanes), [exchanged])]
        if inner:
            chosen += block_of(f"if ({names.key} < {names.end})", [*inner, f"{product} = {score};"])
            chosen[-1] += " else {"
            chosen += [f"  {product} = {self.low};", "}"]
        else:
            one = f"({score})" if "?" in score else score
            chosen.append(f"{product} = {names.key} < {names.end} ? {one} : {self.low};")
        lines = [
            f"const int {names.first_key} = {names.key_first} + {self.group};",
            f"const {self.element_type} *{rows[1]}[{names.kKeys}], *{rows[2]}[{names.kKeys}];",
            *unrolled(i, names.kKeys, [
                f"const int {names.key} = min({key}, {names.end} - 1);",
                f"{rows[1]}[{i}] = {self._row(self.vectors[1], names.c)};",
                f"{rows[2]}[{i}] = {self._row(self.vectors[2], names.column)};",
            ]),
            f"{self.type} {packs[2]}[{names.kKeys}], {packs[1]}[{names.kKeys}], {packs[0]};",
            f"{self.load}<{names.kKeys}>({packs[2]}, {rows[2]}, {column}{names.rank} * {names.kColumns}, {self.columns}, {self.whole});",
            "// A lane sums the products of its own columns. The query is read again each time: it stays in L1, and registers go to keys and values.",
            f"float {names.scores}[{names.kKeys}] = {{}};",
            *block_of(f"for (int {names.c} = {names.rank} * {names.kColumns}; {names.c} < {self.depth}; {names.c} += {lanes} * {names.kColumns})", [
                f"{self.load}<{names.kKeys}>({packs[1]}, {rows[1]}, {names.c}, {self.depth}, {self.whole});",
                f"{self.load}<1>(&{packs[0]}, &{query}, {names.c}, {self.depth}, {self.whole});",
                *unrolled(i, names.kKeys, unrolled(e, names.kColumns, [f"{product} += {element[0]} * {element[1]};"])),
            ]),
            "// Scores: the sums of a group's lanes.",
            f"float {names.bound} = {names.largest};",
            *unrolled(i, names.kKeys, [
                *chosen,
                f"{names.bound} = fmaxf({names.bound}, {product});",
            ]),
            "// Weights are relative to the largest score so far; while all are -inf, nothing is subtracted, so that none is NaN.",
            f"const float {names.shift} = {names.bound} == {self.low} ? 0.0f : {names.bound};",
            f"const float {names.factor} = expf({names.largest} - {names.shift});",
            f"{names.largest} = {names.bound};",
            f"{names.sum} *= {names.factor};",
            *unrolled(e, names.kColumns, [f"{names.total}[{e}] *= {names.factor};"]),
            *unrolled(i, names.kKeys, [
                f"if ({key} >= {names.end}) break;  // its weight is zero, and its values may not be finite",
                f"const float {names.weight} = expf({product} - {names.shift});",
                f"{names.sum} += {names.weight};",
                *unrolled(e, names.kColumns, [f"{names.total}[{e}] += {names.weight} * {element[2]};"]),
            ]),
        ]  # fmt: skip
        head = f"for (int {names.key_first} = 0; {names.key_first} < {names.end}; {names.key_first} += {names.kKeys} * {groups})"
        return [*declared, *block_of(head, lines)]


def _vector(plan: Attention, roots: tuple[Key, ...]) -> Key:
    """Returns the array of which the given values are unchanged elements."""
    found = list(plan.leaves(roots))
    if len(found) != 1 or len(roots) != 1 or plan.node(found[0]).op != "input":
        raise Refused("queries, keys or values are computed")
    key = roots[0]
    while key != found[0]:
        if plan.node(key).op not in ("view", "reshape", "window", "cast"):
            raise Refused("queries, keys or values are computed")
        if plan.node(key).op == "cast" and not plan.node(key).dtype.startswith(("float32", "float64")):
            raise Refused("queries, keys or values are rounded")
        key = plan.operands(key)[0]
    return found[0]


def _array(plan: Attention, key: Key) -> str:
    """Returns the name of an array."""
    return str(plan.node(key).data[0])
