"""Tensor-core matrix products: device functions with PTX, and tiles ranked by estimated time of arithmetic and traffic.

The functions copy to shared memory, load fragments, and multiply them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kernelmate.source.folding import folded, wrapped
from kernelmate.synthesis.kernel_text import MULTIPROCESSORS, STATIC_BYTES, KernelText
from kernelmate.synthesis.plan import Refused

_KINDS = {"float16": "f16", "bfloat16": "bf16", "int8": "s8", "uint8": "u8"}
_COPY = """\
// Starts an asynchronous copy of {count} bytes to shared memory, which gets zeros if not `inside`.
static __device__ __forceinline__ void {name}(void* to, const void* from, bool inside) {{
  const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.{cache}.shared.global [%0], [%1], {count}, %2;"
               ::"r"(address), "l"(from), "r"(inside ? {count} : 0) : "memory");
}}"""
_SWIZZLE = """\
// Column of a chunk of 16 bytes after swizzling: the 8 rows that ldmatrix reads at a time lie in different banks.
// Rows that are 8 apart are swizzled alike.
template <int kChunks>
static __device__ __forceinline__ int {name}(int line, int chunk) {{
  constexpr int kPlaces = kChunks < 8 ? kChunks : 8;  // among which chunks change
  return chunk ^ (line / (8 / kPlaces) % kPlaces);
}}"""
_TILE = """\
// Copies a tile to shared memory, zeros outside of `rows` x `width` elements, asynchronously where rows are aligned.
template <int kThreads, typename Element, int kRows, int kWidth>
{head} {{
  constexpr int kPack = 16 / sizeof(Element);  // elements of a chunk
  constexpr int kChunks = kWidth / kPack;  // of a row
  if (aligned) {{
    constexpr int kApart = kThreads / kChunks;  // rows from one chunk of a thread to its next
    static_assert(kApart % 8 == 0, "a thread's chunks have the same place in each of its rows");
    static_assert({even}kRows % kApart == 0, "threads share a tile evenly");
    const int line = threadIdx.x / kChunks, chunk = threadIdx.x % kChunks;
    const int place = {swizzle}<kChunks>(line, chunk) * kPack;
{guard}#pragma unroll
    for (int j = 0; j < kRows; j += kApart) {{
      {copy}(&to[line + j][place], from + (line + j) * pitch + chunk * kPack,
                 line + j < rows && chunk * kPack < width);
    }}
    return;
  }}
  constexpr int kHeld = {held};  // elements whose loads overlap
  static_assert(kRows * kWidth % (kHeld * kThreads) == 0, "threads share a tile evenly");
#pragma unroll 1
  for (int j = threadIdx.x; j < kRows * kWidth; j += kHeld * kThreads) {{
    Element held[kHeld] = {{}};
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {{
      const int line = (j + i * kThreads) / kWidth, column = (j + i * kThreads) % kWidth;
      if (line < rows && column < width) held[i] = from[line * pitch + column];
    }}
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {{
      const int line = (j + i * kThreads) / kWidth, column = (j + i * kThreads) % kWidth;
      to[line][{swizzle}<kChunks>(line, column / kPack) * kPack + column % kPack] = held[i];
    }}
  }}
}}"""
IN_FLIGHT = 8
"""Number of elements that a thread has in flight if it cannot copy chunks."""
_LOAD = """\
// Reads four matrices of 8 rows of 16 bytes from shared memory: lane l gives the address of row l % 8 of matrix l / 8.
static __device__ __forceinline__ void {name}(unsigned (&to)[4], const void* from) {{
  const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(from));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%0, %1, %2, %3}}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address));
}}"""
_TURN = """\
// Reads four matrices of 8 x 8 elements likewise, each transposed.
static __device__ __forceinline__ void {name}(unsigned (&to)[4], const void* from) {{
  const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(from));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {{%0, %1, %2, %3}}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address));
}}"""
_MULTIPLY = """\
// Adds the product of 16 rows of a and 8 columns of b over {deep} elements to 16 x 8 sums, all of them spread over a warp.
static __device__ __forceinline__ void {name}({total} (&sum)[4], const unsigned (&a)[4], unsigned b_low, unsigned b_high) {{
  asm("mma.sync.aligned.m16n8k{deep}.row.col.{out}.{left}.{right}.{out} "
      "{{%0, %1, %2, %3}}, {{%4, %5, %6, %7}}, {{%8, %9}}, {{%0, %1, %2, %3}};"
      : "+{register}"(sum[0]), "+{register}"(sum[1]), "+{register}"(sum[2]), "+{register}"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b_low), "r"(b_high));
}}"""


def copy_function(name: str, count: int) -> str:
    """Returns the function that starts a copy of 4 or 16 bytes to shared memory."""
    return _COPY.format(name=name, count=count, cache="cg" if count == 16 else "ca")


class TensorText:
    """Tensor-core helpers of one kernel, with names unused in its file.

    Raises:
        Refused: tensor cores do not multiply these types.
    """

    def __init__(self, kernel: KernelText, left: str, right: str, total: str) -> None:
        pair, whole = (left, right), {"int8", "uint8"}
        known = pair in (("float16", "float16"), ("bfloat16", "bfloat16")) and total == "float"
        if not known and not ({*pair} <= whole and total == "int"):
            raise Refused(f"tensor cores do not multiply {left} by {right} into {total}")
        self._width = kernel.width
        self._kinds, self._total = (_KINDS[left], _KINDS[right]), total
        self.copy, self.load = kernel.names.outermost("copy_async"), kernel.names.outermost("load_matrices")
        self.tile, self.swizzle = kernel.names.outermost("copy_tile"), kernel.names.outermost("swizzled")
        self.turn, self.multiply = kernel.names.outermost("load_transposed"), kernel.names.outermost("multiply_add")

    def load_of(self, *, turned: bool) -> str:
        """Returns the function that reads fragments, transposed or not."""
        return self.turn if turned else self.load

    def helpers(self, turned: set[bool], *, tiles: bool, idle: bool, few: bool) -> str:
        """Returns the definitions of the helpers, with the loads that are needed, and the copy of tiles if one is.

        Args:
            turned: whether fragments are read transposed, and whether they are not.
            tiles: True if a tile is copied in chunks.
            idle: True if a tile has fewer chunks than threads.
            few: True if a thread has fewer elements of a tile than it could load at a time.
        """
        left, right = self._kinds
        product = {
            "deep": 32 if self._total == "int" else 16, "total": self._total, "left": left, "right": right,
            "out": "s32" if self._total == "int" else "f32", "register": "r" if self._total == "int" else "f",
        }  # fmt: skip
        head = wrapped(
            f"static __device__ __forceinline__ void {self.tile}(",
            [
                "Element (&to)[kRows][kWidth]",
                "const Element* from",
                "size_t pitch",
                "int rows",
                "int width",
                "bool aligned",
            ],
            self._width,
        )
        share = "kRows * kWidth / kThreads"
        held = f"{share} < {IN_FLIGHT} ? {share} : {IN_FLIGHT}" if few else str(IN_FLIGHT)
        even, guard = ("kApart > kRows || ", "    if (line >= kRows) return;\n") if idle else ("", "")
        tile = _TILE.format(head=head, copy=self.copy, swizzle=self.swizzle, held=held, even=even, guard=guard)
        parts = [copy_function(self.copy, 16), _SWIZZLE.format(name=self.swizzle), *([tile] if tiles else [])]
        parts += [_LOAD.format(name=self.load)] * (False in turned) + [_TURN.format(name=self.turn)] * (True in turned)
        text = "\n\n".join([*parts, _MULTIPLY.format(name=self.multiply, **product)])
        lines = ([line] if '"' in line else folded(line, self._width) for line in text.split("\n"))  # PTX is not broken
        return "\n".join(piece for pieces in lines for piece in pieces)


CHUNK = 16
"""Bytes of a `cp.async` load, and of a matrix row for `ldmatrix`."""
STEP = 32
"""Bytes along the sum's axis per row and `mma.sync`: 16 halves, 32 bytes, 8 floats."""
GROUP = 8
"""Rows of tiles that blocks process together, so that their operands stay in L2."""

BYTES_PER_CLOCK = 40
"""L2 bandwidth per multiprocessor in bytes per cycle: 5.5 to 7 TB/s for the whole GPU at 1.2 to 1.7 GHz."""
PRODUCTS_PER_CLOCK = 1200
"""Multiply-adds of halves per clock and multiprocessor by `mma.sync`: about 60 % of the 2048 by `wgmma`."""
START = 2000
"""Clock cycles until a block's first tile has arrived and to store its results."""

TURN = 100
"""Clock cycles that a warp needs for the addresses of a tile's copies, without overlapping products."""


@dataclass(frozen=True, slots=True)
class TensorTile:
    """A block's results (`m` x `n`), the 16-byte `chunks` of the sum at a time, and its warps along each axis.

    `stages` tiles of all operands are in use or in flight. Warps along `k` share each tile's part of the sum. Of results of several
    products, `lefts` and `rights` are the numbers of arrays with rows and with columns.
    """

    m: int
    n: int
    chunks: int
    warps: tuple[int, int, int]
    stages: int
    lefts: int = 1
    rights: int = 1
    products: int = 1

    @property
    def threads(self) -> int:
        """Threads per block."""
        return 32 * self.warps[0] * self.warps[1] * self.warps[2]

    @property
    def part(self) -> tuple[int, int]:
        """Returns rows and columns of a warp's results."""
        return self.m // self.warps[0], self.n // self.warps[1]

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory for all stages."""
        return self.stages * self.lines * self.chunks * CHUNK

    @property
    def lines(self) -> int:
        """Rows and columns of all arrays in a stage."""
        return self.lefts * self.m + self.rights * self.n

    @property
    def held(self) -> int:
        """Number of sums in a thread's registers."""
        return self.part[0] * self.part[1] // 32 * self.products

    @property
    def name(self) -> str:
        """Name of the schedule, as part of an author."""
        deep = f"-w{self.warps[0] * self.warps[1] * self.warps[2]}s{self.stages}k{self.chunks * CHUNK}"
        return f"{self.m}x{self.n}{deep}"


TILES = (
    TensorTile(256, 128, 4, (4, 2, 1), 3),
    TensorTile(128, 256, 4, (2, 4, 1), 3),
    TensorTile(256, 128, 8, (4, 2, 1), 3),
    TensorTile(128, 256, 8, (2, 4, 1), 3),
    TensorTile(128, 128, 4, (2, 2, 1), 3),
    TensorTile(128, 128, 8, (2, 2, 1), 3),
    TensorTile(128, 128, 4, (2, 4, 1), 3),
    TensorTile(128, 64, 4, (2, 2, 1), 4),
    TensorTile(64, 128, 4, (2, 2, 1), 4),
    TensorTile(64, 64, 8, (2, 2, 1), 3),
    TensorTile(64, 32, 8, (2, 1, 2), 4),
    TensorTile(32, 64, 8, (1, 2, 2), 4),
    TensorTile(32, 32, 16, (1, 1, 4), 3),
    TensorTile(16, 64, 8, (1, 1, 4), 4),
    TensorTile(16, 32, 16, (1, 1, 4), 4),
)


MOST_SUMS = 128
"""Maximum number of sums in a thread's registers: half of the registers that a thread can have."""
MOST_BYTES = 227 * 1024
"""Maximum bytes of shared memory per block of compute capability 9.0.

Source: CUDA C++ Programming Guide, technical specifications per compute capability.
"""


def ranked(
    m: int, n: int, k: int, batch: int, item: int, *, fixed: bool, arrays: tuple[int, int] = (1, 1), products: int = 1
) -> Sequence[TensorTile]:
    """Returns tiles for a product, probably fastest first.

    Args:
        m: rows of the results.
        n: their columns.
        k: elements of a sum.
        batch: number of matrices of results.
        item: bytes of an element.
        fixed: True if tiles that need dynamic shared memory are left out.
        arrays: the numbers of arrays with rows and with columns.
        products: the number of products of these that a result needs.
    """
    several = (replace(tile, lefts=arrays[0], rights=arrays[1], products=products) for tile in TILES)
    most = STATIC_BYTES if fixed else MOST_BYTES
    usable = [tile for tile in several if tile.shared_bytes <= most and tile.held <= MOST_SUMS]
    return sorted(usable, key=lambda tile: _clocks(tile, m, n, k, batch, item))


def _clocks(tile: TensorTile, m: int, n: int, k: int, batch: int, item: int) -> float:
    """Returns the estimated clock cycles of the busiest multiprocessor."""
    blocks = -(-m // tile.m) * -(-n // tile.n) * batch
    arithmetic = tile.products * tile.m * tile.n * k * item / 2 / PRODUCTS_PER_CLOCK
    traffic = tile.lines * k * item / BYTES_PER_CLOCK
    turns = TURN * k * item / (tile.chunks * CHUNK)
    rounds = -(-blocks // MULTIPROCESSORS)
    return START + rounds * (max(arithmetic, traffic) + turns + START / 4)
