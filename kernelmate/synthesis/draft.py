"""Creates a contract and an empty kernel from a reference and example arrays; a schedule then writes the body."""

from __future__ import annotations

import itertools
import keyword
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from kernelmate.errors import ContractError, UsageError
from kernelmate.records import Argument, Contract, Kernel, Size, StageVerdict, Unit
from kernelmate.source import argument_shapes, find_kernels, numpy_dtype, render_contract, size_allowed, with_text
from kernelmate.source.examples import Examples, PythonFunction
from kernelmate.synthesis.graph import Graph
from kernelmate.synthesis.identities import multiples_of, with_multiples
from kernelmate.synthesis.results import Results

C_TYPES = {
    "float64": "double", "float32": "float", "float16": "__half", "bfloat16": "__nv_bfloat16", "bool": "bool",
    "int8": "signed char", "uint8": "unsigned char", "int16": "short", "uint16": "unsigned short", "int32": "int",
    "uint32": "unsigned int", "int64": "long long", "uint64": "unsigned long long",
}  # fmt: skip
"""C++ type of each supported dtype; only the 16-bit floating types need a header."""

HEADERS = {"float16": "cuda_fp16.h", "bfloat16": "cuda_bf16.h"}

_CPP = """alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class co_await co_return
    co_yield compl concept const const_cast consteval constexpr constinit continue decltype default delete do double dynamic_cast
    else enum explicit export extern false float for friend goto if inline int long mutable namespace new noexcept not not_eq nullptr
    operator or or_eq private protected public register reinterpret_cast requires return short signed sizeof static static_assert
    static_cast struct switch template this thread_local throw true try typedef typeid typename union unsigned using virtual void
    volatile wchar_t while xor xor_eq"""

CPP_WORDS = frozenset(_CPP.split())
"""Words that C++ reserves (ISO C++20, [lex.key]), which name no parameter."""

PRIMES = {1: (100_003,), 2: (37, 853), 3: (37, 53, 71), 4: (5, 7, 37, 53)}
"""Prime sizes, which no block or pack divides, by the number of names; the example's sizes limit them."""

MOST_STEPS = 4096
"""Maximum number of sizes near a desired one that are tried against `require`."""

_FLOATS = ("float16", "bfloat16", "float32", "float64")


@dataclass(frozen=True, slots=True)
class KernelRequest:
    """Request to write a kernel.

    Attributes:
        path: the file that the kernel is written to.
        name: the kernel's name.
        sizes: sizes to list, the headline first; a prime size and a small one are added to a single size.
        require: conditions of the contract.
        results: pairs of result name and dtype, for dtypes that are given.
        dtypes: those of all results in order, where their names are not known; None for one that follows from the reference.
        planned: the size that schedules are chosen for where the examples are too large to be judged; empty for the headline.
    """

    function: PythonFunction
    examples: Examples
    path: Path
    name: str
    sizes: tuple[Size, ...] = ()
    require: tuple[str, ...] = ()
    results: tuple[tuple[str, str], ...] = ()
    dtypes: tuple[str | None, ...] = ()
    planned: Size = field(default_factory=dict)


def draft(asked: KernelRequest) -> tuple[Kernel, Contract]:
    """Returns an empty kernel without results, with which the worker determines the reference's results.

    Raises:
        UsageError: an argument's dtype is not supported.
        ContractError: a shape or `require` is invalid.
    """
    names = list(asked.examples.size)
    scalars = [one for one in asked.examples.arguments if one.shape is None and one.name not in names]
    integral = {name: "int64" if value >= 2**31 else "int32" for name, value in asked.examples.size.items()}
    arrays = [one for one in asked.examples.arguments if one.shape is not None]
    args = (*arrays, *(Argument(name, None, dtype) for name, dtype in integral.items()), *scalars)
    for one in args:
        if one.dtype not in C_TYPES:
            raise UsageError(
                f"No kernels are written for {one.dtype}, which {one.name} has.",
                hint=f"Known are {', '.join(C_TYPES)}.",
            )
        if one.name in CPP_WORDS:
            raise UsageError(
                f"{one.name} is a word of C++, which names no parameter of a kernel.", hint="Rename it in the function."
            )
    _, colon, function = asked.function.spec.rpartition(":")
    beside = os.path.relpath(asked.function.path.resolve(), asked.path.resolve().parent).replace(os.sep, "/")
    contract = Contract(
        asked.name, (dict(asked.examples.size),), ("1",), ("256",), args,
        reference=f"{beside}{colon}{function}", reference_kind="function", require=asked.require,
    )  # fmt: skip
    contract = replace(
        contract, sizes=tuple(listed_sizes(contract, asked.sizes))[:2]
    )  # the small one depends on the results
    return _kernel(asked, contract), contract


def with_results(asked: KernelRequest, contract: Contract, results: Results) -> tuple[Kernel, Contract]:
    """Returns the empty kernel with an argument for each result, after its input arrays.

    Raises:
        UsageError: a result's dtype is not supported.
    """
    graph = Graph.of(results.graph or "")
    names = _result_names(asked, contract, len(graph.outputs))
    outputs = []
    given = asked.dtypes if len(asked.dtypes) == len(names) else (None,) * len(names)
    for index, name, own, dtype in zip(graph.outputs, names, given, results.dtypes, strict=True):
        shape = tuple(_bare(side) for side in graph.nodes[index].shape) or ("1",)
        dtype = dict(asked.results).get(name) or own or _result_dtype(contract, dtype)
        if dtype not in C_TYPES:
            raise UsageError(
                f"No kernels are written for {dtype}, which {name} has.",
                hint=f'Give another: --results "{name}=float32".',
            )
        summed = _is_summed_by_number(graph, index)
        outputs.append(
            Argument(name, "inout", dtype, shape, "zeros") if summed else Argument(name, "out", dtype, shape)
        )
    unknown = next((name for name, _ in asked.results if name not in names), None)
    if unknown is not None:
        raise UsageError(f"There is no result {unknown}.", hint=f"There is {', '.join(names)}.")
    arrays = sum(one.shape is not None for one in contract.args)
    contract = replace(contract, args=(*contract.args[:arrays], *outputs, *contract.args[arrays:]))
    contract = replace(contract, sizes=tuple(listed_sizes(contract, asked.sizes)))
    return _kernel(asked, contract), contract


def with_scratch(asked: KernelRequest, contract: Contract, scratch: Sequence[Argument]) -> tuple[Kernel, Contract]:
    """Returns the empty kernel with parameters for scratch arrays, after its results."""
    arrays = sum(one.shape is not None for one in contract.args)
    contract = replace(contract, args=(*contract.args[:arrays], *scratch, *contract.args[arrays:]))
    return _kernel(replace(asked, name=contract.kernel), contract), contract


def _is_summed_by_number(graph: Graph, index: int) -> bool:
    """Returns True for counts and sums by index, which several blocks add to and which therefore start at zero."""
    node = graph.nodes[index]
    while node.op in ("reshape", "cast", "view"):
        node = graph.nodes[node.args[0]]
    return node.op == "scatter" and not node.data


def listed_sizes(contract: Contract, given: Sequence[Size]) -> Iterator[Size]:
    """Yields the given sizes; for a single size, also a prime one and a small one.

    Raises:
        ContractError: the headline does not satisfy `require`, or leaves an array without elements.
    """
    headline = given[0] if given else contract.sizes[0]
    if not size_allowed(contract, headline) or not _has_elements(contract, headline):
        at = ", ".join(f"{name} = {value}" for name, value in headline.items())
        raise ContractError(
            f"The example's size ({at}) does not satisfy `require`, or leaves an array without elements.",
            hint="Change --require, or give another size with --size.",
        )
    yield headline
    if len(given) > 1:
        yield from given[1:]
        return
    names = list(headline)
    primes = PRIMES.get(len(names), (3, 5, 7, 11, 13, 17, 19, 23)[: len(names)])
    wanted = [dict(zip(names, itertools.chain(primes, itertools.repeat(5)), strict=False)), dict.fromkeys(names, 1)]
    wanted[0] = {name: min(value, _prime_below(headline[name])) for name, value in wanted[0].items()}
    seen = [dict(headline)]
    for one in wanted:
        found = _allowed_near(contract, one)
        if found is not None and found not in seen:
            seen.append(found)
            yield found


def _allowed_near(contract: Contract, wanted: dict[str, int]) -> dict[str, int] | None:
    """Returns the nearest size from `wanted` upward that `require` allows; names grow together, or one at a time."""
    multiples = multiples_of(contract.require)
    for step in range(MOST_STEPS):
        for names in (list(wanted), *([name] for name in wanted)):
            size = with_multiples({name: value + step * (name in names) for name, value in wanted.items()}, multiples)
            if size_allowed(contract, size) and _has_elements(contract, size):
                return size
    return None


def _has_elements(contract: Contract, size: Size) -> bool:
    try:
        return all(all(side > 0 for side in shape) for shape in argument_shapes(contract, size).values())
    except ContractError:
        return False


def _prime_below(number: int) -> int:
    """Returns the largest prime up to a number; 1 if there is none."""
    for one in range(min(number, 1_000_003), 1, -1):
        if all(one % factor for factor in range(2, int(one**0.5) + 1)):
            return one
    return 1


def _bare(side: str) -> str:
    """Returns an expression without parentheses around the whole expression."""
    if not side.startswith("(") or not side.endswith(")"):
        return side
    depth = list(itertools.accumulate((one == "(") - (one == ")") for one in side))
    return side[1:-1] if all(depth[:-1]) else side


def _result_names(asked: KernelRequest, contract: Contract, count: int) -> list[str]:
    """Returns the names of the results: those in the function's text if valid, else `out`, `out2`, ..."""
    taken = {*asked.function.parameters, *(one.name for one in contract.args), asked.name}
    refused = taken | CPP_WORDS
    own = [one for one in asked.function.results if one.isascii() and not keyword.iskeyword(one) and one not in refused]
    if len(set(own)) == count:
        return own
    usual = [one for one in ("out", *(f"out{number}" for number in range(2, count + 9))) if one not in taken]
    return usual[:count]


def _result_dtype(contract: Contract, returned: str) -> str:
    """Returns a result's dtype: the widest floating one of the inputs, unless the reference rounds to a narrower one."""
    if returned not in _FLOATS:
        return returned
    inputs = [one.dtype for one in contract.args if one.shape is not None and one.dtype in _FLOATS]
    if not inputs:
        return "float32"
    widest = max(inputs, key=_FLOATS.index)
    return returned if numpy_dtype(returned).itemsize < numpy_dtype(widest).itemsize else widest


def _kernel(asked: KernelRequest, contract: Contract) -> Kernel:
    """Returns the empty kernel with its contract, in the text of its file."""
    parameters = [declared(one) for one in contract.args]
    headers = sorted({HEADERS[one.dtype] for one in contract.args if one.dtype in HEADERS})
    parts = [
        f"// {_title(asked)}\n",
        *(f"#include <{one}>\n" for one in headers),
        "\n",
        render_contract(contract),
        f'extern "C" __global__ void {asked.name}({", ".join(parameters)}) {{\n}}\n',
    ]
    text = "".join(parts)
    (kernel,) = find_kernels(Unit(str(asked.path), text, "cuda", file_text=text))
    return kernel


def _title(asked: KernelRequest) -> str:
    """Returns the file's first line: the reference's summary, or its name."""
    summary = " ".join(asked.function.summary.split()).rstrip("\\ ")
    usable = summary.isascii() and summary.isprintable() and "///" not in summary and 0 < len(summary) <= 110
    fallback = f"Computes {asked.function.name} of {asked.function.path.name}."
    return (summary if summary.endswith((".", "!")) else f"{summary}.") if usable else fallback


def declared(argument: Argument) -> str:
    """Returns an argument as a parameter of a kernel."""
    kind = C_TYPES[argument.dtype]
    if argument.shape is None:
        return f"{kind} {argument.name}"
    return f"{'const ' if argument.direction == 'in' else ''}{kind}* __restrict__ {argument.name}"


def result_dtypes(text: str) -> tuple[tuple[str, str], ...]:
    """Parses dtypes of results, such as `out=float16, mask=bool`, to pairs.

    Raises:
        UsageError: a part has another form.
    """
    pairs: Mapping[str, str] = {}
    for part in filter(None, (one.strip() for one in text.split(","))):
        name, equals, dtype = (one.strip() for one in part.partition("="))
        if not equals or dtype not in C_TYPES:
            hint = f'Write it as in --results "out=float16"; known are {", ".join(C_TYPES)}.'
            raise UsageError(f"--results {part!r} is not NAME=DTYPE.", hint=hint)
        pairs = {**pairs, name: dtype}
    return tuple(pairs.items())


# ------------------------------------------------------------------------------- one kernel for a pipeline

FUSED_BLOCK = "256"
"""Threads of the empty kernel; every schedule sets its own."""


def fusion_draft(pipeline: Kernel, contract: Contract) -> tuple[Kernel, Contract]:
    """Returns an empty kernel with the pipeline's outer parameters, below the kernels that the pipeline launches.

    Sizes that are not parameters of the pipeline become parameters, since a kernel needs them.

    Args:
        pipeline: the pipeline, whose file gets the kernel and a contract above it.
        contract: its contract; the kernel's is the same without stages and temporaries.

    Raises:
        SourceError: the file is a Python string that cannot hold the text.
    """
    text = pipeline.unit.text
    given = {one.name for one in contract.args}
    sizes = tuple(Argument(name, None, "int32") for name in contract.sizes[0] if name not in given)
    own = replace(
        contract, kernel=_free_name(pipeline), grid=("1",), block=(FUSED_BLOCK,), args=(*contract.args, *sizes), stages=(),
        temporaries=(), inferred=False,
    )  # fmt: skip
    parameters = ", ".join(declared(one) for one in own.args)
    place = max(end for _, end in pipeline.parts)
    below = f"\n\n{render_contract(own)}__global__ void {own.kernel}({parameters}) {{\n}}"
    unit = with_text(pipeline.unit, text[:place].rstrip() + below + text[place:])
    kernel = next(one for one in find_kernels(unit) if one.name == own.kernel)
    return kernel, own


def _free_name(pipeline: Kernel) -> str:
    """Returns a name for the kernel that does not occur in the file."""
    name, number = f"{pipeline.name}_fused", 1
    while re.search(rf"\b{name}\b", pipeline.unit.text):
        number += 1
        name = f"{pipeline.name}_fused_{number}"
    return name


def fusion_words(stages: Sequence[StageVerdict]) -> str:
    """Returns two sentences: the traffic that a fused kernel saves, and the changes that its user must make."""
    written = sum(one.temporaries_written_bytes or 0 for one in stages)
    read = sum(one.temporaries_read_bytes or 0 for one in stages)
    return (
        f"One kernel in place of {len(stages)} stages: {written:,} bytes of temporaries are no longer written and {read:,} "
        "no longer read at the headline size. It is written below the pipeline's kernels, with its own contract; the host's launches are not changed."
    )
