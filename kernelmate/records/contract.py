"""Records of contracts: arguments, launch shape, reference and tolerance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Direction = Literal["in", "out", "inout", "scratch"]
Size = Mapping[str, int]

SLOWDOWN = 0.1
"""Default of a contract's `slowdown`: the fraction by which a listed size may get slower."""


@dataclass(frozen=True, slots=True)
class Argument:
    """One entry of a contract's `[args]`, in the kernel's parameter order.

    Attributes:
        name: the parameter's name.
        direction: `in`, `out`, `inout` or `scratch` for arrays; None for a scalar. The contents of a scratch array are
            never compared.
        dtype: NumPy or ml_dtypes name.
        shape: one expression per dimension for arrays, None for a scalar.
        distribution: the declared distribution's text after `~`, stripped, or None.
        value: for a scalar, its expression; None means that it takes the size of its own name.
        align: for an array, the alignment of its address in bytes that the contract promises; None promises only that
            of its dtype.
        fixed: for a scalar, the checks never vary its value.
        extent: for an output, an axis and the number of elements along it that are compared: an expression over sizes,
            or the name of an integer array.
        mask: for an output, the name of an array of its shape; elements where that is zero are not compared.
        unordered: for an output, the order along the axis of `extent`, else the first axis, does not matter.
        paired: for an unordered output, the name of another one whose order it shares.
    """

    name: str
    direction: Direction | None
    dtype: str
    shape: tuple[str, ...] | None = None
    distribution: str | None = None
    value: str | None = None
    align: int | None = None
    fixed: bool = False
    extent: tuple[int, str] | None = None
    mask: str | None = None
    unordered: bool = False
    paired: str | None = None

    @property
    def partly(self) -> bool:
        """Returns True for an output that is not compared element by element as a whole."""
        return self.extent is not None or self.mask is not None or self.unordered


@dataclass(frozen=True, slots=True)
class Member:
    """Place of an argument in a parameter: `offset` in bytes, and the keys that lead to its entry in a struct."""

    argument: str
    offset: int
    keys: tuple[str | int, ...] = ()


@dataclass(frozen=True, slots=True)
class TensorBox:
    """The part of an array that one copy by a tensor map (`CUtensorMap`) moves. Tuples are in the order of the shape.

    Attributes:
        extents: elements that the box spans in each dimension.
        steps: distance between copied elements in each dimension.
        swizzle: bytes of the swizzled span in shared memory: 32, 64 or 128; 0 for none.
        nan_fill: elements outside of the array are NaN instead of zero.
    """

    extents: tuple[int, ...]
    steps: tuple[int, ...]
    swizzle: int = 0
    nan_fill: bool = False


AddressMode = Literal["clamp", "border", "wrap", "mirror"]


@dataclass(frozen=True, slots=True)
class TextureView:
    """Mapping of a texture or a surface object to an array (`cudaResourceDesc` and `cudaTextureDesc`).

    Attributes:
        surface: True for a surface, which has coordinates of integers and none of the attributes below `layered`.
        channels: the last dimension of the array counts the channels of a texel: 1, 2 or 4.
        layered: its first dimension counts layers.
        buffer: the array is linear memory, not a CUDA array.
        addresses: for each coordinate in the order of the shape, how one outside of the array is treated.
        linear: fetches are filtered linearly, else they give the nearest texel.
        normalized: coordinates from 0 to 1, else from 0 to the extent.
        fraction: integers are read as fractions of their largest value.
    """

    surface: bool = False
    channels: bool = False
    layered: bool = False
    buffer: bool = False
    addresses: tuple[AddressMode, ...] = ()
    linear: bool = False
    normalized: bool = False
    fraction: bool = False

    @property
    def storage(self) -> tuple[bool, bool, bool]:
        """Returns the part of the view that all objects of one array share."""
        return self.buffer, self.layered, self.channels

    def extents(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Returns the texels of each coordinate, in the order of the array's shape."""
        return tuple(shape[int(self.layered) : len(shape) - int(self.channels)])


@dataclass(frozen=True, slots=True)
class Passed:
    """One kernel parameter, or one variable of the module, and the arguments that it is made of.

    Attributes:
        name: the name of the parameter or the variable.
        kind: `argument` is the argument of this name; `struct` holds its members by value; `pointer` is the address of such
            a struct; `pointers` is the address of an array with one address for each part of an array along its first
            axis; `alias` is an address in the array of its only member; `null` is an address that is never used;
            `tensor_map` is a map of the array of its only member, and `texture` a texture or surface object that shows it.
        members: the arguments it is made of, in ascending order of offsets.
        nbytes: size of a struct.
        start: for an alias, its first element in that array, an expression over sizes.
        variable: True for a `__constant__` or `__device__` variable.
        box: of a tensor map.
        view: of a texture or a surface.
    """

    name: str
    kind: Literal["argument", "struct", "pointer", "pointers", "alias", "null", "tensor_map", "texture"]
    members: tuple[Member, ...] = ()
    nbytes: int = 0
    start: str = "0"
    variable: bool = False
    box: TensorBox | None = None
    view: TextureView | None = None


@dataclass(frozen=True, slots=True)
class Tolerance:
    """A tolerance that the contract fixes: |got - want| <= atol + rtol * |want|."""

    rtol: float
    atol: float


@dataclass(frozen=True, slots=True)
class Contract:
    """Arguments, launch shape and expected results of a kernel. Expressions are text whose syntax has been checked.

    Attributes:
        sizes: at least one; each is checked and timed, and the first is the headline size.
        grid, block: one to three expressions each.
        passing: one entry for each parameter in order, and then for each variable; empty where each argument is a
            parameter of its own.
        shared: expression of the dynamic shared memory in bytes.
        reference: as written: `path:function`, another kernel's name, or a NumPy expression; None when absent.
        reference_kind: the form that `reference` has.
        weights: one weight per size: the weighted geometric mean of speedups decides; empty if the headline alone
            decides.
        slowdown: the most that a listed size's time may rise, as a fraction.
        inferred: True if the contract was guessed from the signature; no candidate is then accepted automatically.
        guessed: of an inferred contract, the sizes whose values nothing in the project gives, and the arrays whose shapes nothing gives.
        indexed: of an inferred contract, the arrays whose subscripts depend on integers that are drawn.
        line: first line of the block in the user's file; None when inferred.
        stages: of a pipeline, its steps in order; empty for a kernel. A pipeline has neither grid nor block of its own.
        temporaries: of a pipeline, the arrays that its stages share and its caller does not see; each is poisoned before
            every run, or filled as its distribution says.
        torch: a function of PyTorch that computes the same, as `path:function`; None when absent. Only `--against` calls it.
    """

    kernel: str
    sizes: tuple[Mapping[str, int], ...]
    grid: tuple[str, ...]
    block: tuple[str, ...]
    args: tuple[Argument, ...]
    shared: str = "0"
    reference: str | None = None
    reference_kind: Literal["function", "kernel", "expression"] | None = None
    tolerance: Tolerance | None = None
    instances: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    require: tuple[str, ...] = ()
    inputs: str | None = None
    accumulate: str | None = None
    deterministic: bool = False
    cooperative: bool = False
    cluster: tuple[int, ...] | None = None
    weights: tuple[float, ...] = ()
    slowdown: float = SLOWDOWN
    inferred: bool = False
    guessed: tuple[str, ...] = ()
    indexed: tuple[str, ...] = ()
    line: int | None = None
    passing: tuple[Passed, ...] = ()
    stages: tuple[Stage, ...] = ()
    temporaries: tuple[Argument, ...] = ()
    torch: str | None = None

    @property
    def parameters(self) -> tuple[Argument | None, ...]:
        """One entry for each kernel parameter in order: its argument; None if it is not an argument by itself."""
        if not self.passing:
            return self.args
        known = {one.name: one for one in self.args}
        return tuple(known[one.name] if one.kind == "argument" else None for one in self.passing if not one.variable)

    def is_guessed(self, array: str | None) -> bool:
        """Returns True if an array's shape, or what its subscripts depend on, is a guess, or may not fit several guessed sizes.

        None stands for an address in no array, such as one in a variable that host code would have set: True if inferred.
        """
        sizes = set(self.guessed) & set(self.sizes[0])
        return self.inferred and (array is None or array in (*self.guessed, *self.indexed) or len(sizes) > 1)

    def guesses_about(self, array: str | None) -> tuple[str, ...]:
        """Returns phrases for the guesses that an access to an array depends on: shape, sizes, and drawn integers."""
        shapes = [
            one.shape for one in self.args if one.name == array and one.shape is not None and array in self.guessed
        ]
        sizes = [name for name in self.guessed if name in self.sizes[0]]
        named = " and ".join(filter(None, (", ".join(sizes[:-1]), *sizes[-1:])))
        return (
            *(f"the shape {array}[{', '.join(shape)}]" for shape in shapes),
            *([f"the size{'s' * (len(sizes) > 1)} {named}"] if sizes else []),
            *([f"the integers in subscripts of {array}"] if array in self.indexed else []),
        )

    def weight(self, size: Size) -> float | None:
        """Returns the weight of a listed size; None without `weights`, and for sizes that the contract does not list."""
        return next((weight for listed, weight in zip(self.sizes, self.weights, strict=False) if listed == size), None)


@dataclass(frozen=True, slots=True)
class Stage:
    """One step of a pipeline: a launch of a kernel, or an expression that a library computes.

    Attributes:
        name: the kernel's name, or that of the array that the expression gives; a number follows a repeated name.
        contract: what the step takes and gives, over the pipeline's sizes. Its arguments are the kernel's parameters in
            order, or the names in the expression. An array is `in` if it is read, `out` if no earlier step wrote it, and
            otherwise `inout`. `reference` is the step's own, if it has one; for a library step it is the expression.
            `line` is where the step names its kernel or its array.
        sources: for each argument, the name of the pipeline's argument or temporary; None for a scalar with its own value.
        instance: the instance of a template, such as `reduce<256>`.
        library: True for an expression.
    """

    name: str
    contract: Contract
    sources: tuple[str | None, ...]
    instance: str | None = None
    library: bool = False


@dataclass(frozen=True, slots=True)
class LaunchShape:
    """One launch with all expressions evaluated: grid, block and dynamic shared bytes as numbers."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int = 0
    cooperative: bool = False
    cluster: tuple[int, ...] | None = None

    @property
    def threads(self) -> int:
        """Threads per block."""
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def blocks(self) -> int:
        """Blocks in the grid."""
        return self.grid[0] * self.grid[1] * self.grid[2]
