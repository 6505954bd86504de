"""Maxima and minima by index (`np.maximum.at`): samples are read in packs and applied by atomic maxima or minima.

Traffic: samples are read once, 16 bytes at a time.

The results do not depend on the order. Floats are compared by their bits: as signed integers, non-negative floats have
the order of the numbers; as unsigned integers, negative floats have the reverse order.
"""

from __future__ import annotations

from collections.abc import Iterator

from kernelmate.synthesis.elements import Elements
from kernelmate.synthesis.graph import Graph
from kernelmate.synthesis.kernel_text import KernelText, WrittenKernel
from kernelmate.synthesis.plan import Refused
from kernelmate.synthesis.schedules.histogram import HistogramText, bins_of, is_added

WHOLE = ("int32", "uint32", "int64", "uint64")
"""Dtypes that have atomic maxima and minima."""


def written(graph: Graph, kernel: KernelText) -> Iterator[WrittenKernel]:
    """Yields the generated kernel.

    Raises:
        Refused: the schedule does not apply.
    """
    kind = next(str(node.data[0]) for node in graph.nodes if node.op == "scatter" and node.data)
    yield _ExtremesByNumber(bins_of(graph), kernel.again(), kind).written()


class _ExtremesByNumber(HistogramText):
    """Text of a kernel with many blocks."""

    verb = "update"

    def __init__(self, plan: Elements, kernel: KernelText, kind: str) -> None:
        self.kind = kind
        super().__init__(plan, kernel, many=True)
        self.bins = None
        if self.dtype == "float32":
            self.helper = kernel.names.outermost(f"atomic_{kind}")

    def _refuse(self) -> None:
        node = self.plan.node(self.scatter)
        if self.dtype not in (*WHOLE, "float32") or (self.dtype == "float32") != node.dtype.startswith("float"):
            raise Refused(f"atomic maxima and minima of {self.dtype} are not written")
        if not is_added(self.plan, self.scatter, self.kernel.arguments[self.output]):
            raise Refused(f"{self.output} does not hold what several blocks could bound")

    def added(self, target: str, value: str) -> str:
        """Returns the statement that updates the maximum or minimum of a result's element."""
        if self.dtype == "float32":
            return f"{self.helper}(&{target}, {value});"
        kinds = {"int64": "long long", "uint64": "unsigned long long"}
        pointer = f"reinterpret_cast<{kinds[self.dtype]}*>(&{target})" if self.dtype in kinds else f"&{target}"
        return f"atomic{self.kind.capitalize()}({pointer}, {value});"

    def written(self) -> WrittenKernel:
        """Returns the generated kernel."""
        text = super().written()
        what = {"max": "maximum", "min": "minimum"}[self.kind]
        return WrittenKernel(
            f"scatter-{self.kind}", text.why.replace("atomic additions", f"an atomic {what} for each"), text.definition,
            "\n".join([*self.constants, "", *self._helper()]).strip(), text.grid, text.block, grid_comment=text.grid_comment,
        )  # fmt: skip

    def _helper(self) -> list[str]:
        """Returns the device function for floats, which propagates NaN as NumPy does."""
        if self.dtype != "float32":
            return []
        largest = self.kind == "max"
        first, second = ("Max", "Min") if largest else ("Min", "Max")
        test = "bits >= 0 || isnan(value)" if largest else "bits >= 0 && !isnan(value)"
        # NaN is kept with the sign whose patterns no other float surpasses in the order of this kind.
        kept = ("bits & 0x7fffffff", "bits") if largest else ("bits", "bits | 0x80000000")
        return [
            "// Floats without a sign are in the order of their bits as integers, those with a sign in the reverse order.",
            f"static __device__ __forceinline__ void {self.helper}(float* address, float value) {{",
            "  const int bits = __float_as_int(value);",
            f"  if ({test}) {{",
            f"    atomic{first}(reinterpret_cast<int*>(address), {kept[0]});",
            "  } else {",
            f"    atomic{second}(reinterpret_cast<unsigned int*>(address), static_cast<unsigned int>({kept[1]}));",
            "  }",
            "}",
        ]
