"""Sizes beyond all listed ones, which exceed fixed capacities.

Such capacities are register tiles, arrays in shared memory and grids of constant length, and `__device__` scratch
arrays sized for the listed sizes alone.
"""

from __future__ import annotations

import bisect
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from kernelmate.checks.case_launches import elements_at
from kernelmate.checks.list_sizes import LEAST_LENGTH, has_lists, long_sizes, searched_sizes
from kernelmate.checks.size_runs import tables_of
from kernelmate.checks.sizes import KEPT, MOST_THREADS, key_of, reached_size, threads_at, usable
from kernelmate.errors import ContractError
from kernelmate.records import Contract, Size, Version
from kernelmate.source import launch_shape, numpy_dtype, size_allowed
from kernelmate.source.tokens import Token, lex

BEYOND = 4
"""Factor by which a size name exceeds its largest listed value: fixed capacities are seldom a larger multiple of it."""

LEAST_BEYOND = 4096
"""Minimum value of an enlarged name: it fills buffers of 1024 or 2048 elements."""

ROUNDS = (1, 3, 4, 16, 64)
"""Increments tried to meet a `require`; odd ones come first, since they are not multiples of any tile."""

FEW = 3
"""Value to which the other names are reduced."""

LEAST_COMPARED, MOST_COMPARED = 257, 1 << 19
"""Range of constants in the code that give sizes; other sizes cover smaller constants."""

LATE = 2
"""Elements beyond a constant that a tried size must exceed it by: a count that stays at the constant shows in the next one."""

MOST_AROUND = 4
MOST_ELEMENTS_AROUND = 1 << 20
MOST_THREADS_AROUND = 1 << 20
"""Maximum number of elements and threads at such a size: about a second in the emulator.

Tiles of 32 x 32 elements that a long name crosses with 3 of another one have ten times as many threads as elements.
"""

GRID_MARGIN = 8
"""Fraction, as a divisor, by which a size exceeds the one at which the grid stops growing: by more than a block's elements."""

GRID_PASSES = 64
"""Multiple of that size that is tried, as far as limits allow, if the version's text has new integers: of passes, maybe."""

MOST_ELEMENTS_UNLAUNCHED = 24 << 30
"""Maximum number of elements at a size at which only the launch is examined: 96 GiB of four bytes each, as a GPU's memory."""

_BLOCK_INDEX = re.compile(r"\bmov\.u32\s+(%\w+), %ctaid\.([xyz]);")
_OF_BLOCK: tuple[tuple[str, Callable[[int], int]], ...] = (
    (r"setp\.\w+\.[su]32\s+%\w+, {}, (\d+);", lambda index: index + 1),
    (r"min\.[su]32\s+%\w+, {}, (\d+);", lambda index: index + 1),
    (r"and\.b32\s+%\w+, {}, (-?\d+);", lambda mask: _past(mask if mask >= 0 else ~mask)),
    (r"shr\.[su]32\s+%\w+, {}, (\d+);", lambda bits: 1 << bits),
)
"""PTX that limits a block's index or takes a part of it, and how many blocks there are below the limit."""

_SHARED = re.compile(r"^\s*\.shared\s+\.align\s+(\d+)\s+\.b8\s+[\w$]+\[(\d+)\];", re.MULTILINE)
"""Pattern of a shared array of constant length in NVRTC's PTX: alignment, bytes."""

_OFFSET = re.compile(r"\badd\.[su](?:32|64)\s+(%\w+), (%\w+), (\d+);")
_COMPARED_REGISTERS = re.compile(r"\b(?:setp\.\w+|min|max)\.[su](?:32|64)\s+%\w+(?:\|%\w+)?,\s*(%\w+),\s*(%\w+|-?\d+);")

_COMPARED = re.compile(r"setp\.\w+\.[su](?:16|32|64)\s+%\w+(?:\|%\w+)?,\s*(%\w+),\s*(\d+);")
_MASKED = re.compile(r"\band\.b(?:32|64)\s+%\w+, %\w+, (-?\d+);")
_REMAINDERS = re.compile(r"\brem\.[su](?:32|64)\s+%\w+, (%\w+), (\d+);")
_MULTIPLE = re.compile(r"\bmul\.lo\.s(?:32|64)\s+(%\w+), %\w+, (\d+);")
_LESS = re.compile(r"\bsub\.s(?:32|64)\s+%\w+, (%\w+), (%\w+);")
WIDEST_ELEMENT = 16
"""Bytes of the largest element, by which an index is multiplied before it is masked."""
MOST_TABLE = 256
"""Maximum number of bytes of a table whose entries give sizes."""
_STORED = re.compile(r"\bst\.(?:shared|local)\.(?:v[24]\.)?[bsu](?:16|32|64)\s+\[[^\]]*\], ([^;]+);")
_MOVED = re.compile(r"\bmov\.[bsu](?:16|32|64)\s+(%\w+), (\d+);")
_NARROW = frozenset({"short", "ushort", "int16_t", "uint16_t"})
_HALF = re.compile(r"\bld\.(?:\w+\.)*[us]16\s|\bcvt\.[us](?:32|64)\.[us]16\s")
_WHOLE = re.compile(r"0[xX][\da-fA-F']+|0[bB][01']+|[\d']+")


def further_sizes(
    contract: Contract, listed: Sequence[Size], tried: Sequence[Size], version: Version, baseline: Version
) -> tuple[Size, ...]:
    """Returns sizes beyond the tried ones that a version's text, launch or code suggests; none for most versions.

    Args:
        contract: defines the allowed sizes.
        listed: the contract's sizes.
        tried: sizes that are tried anyway.
        version: the version under judgement.
        baseline: the version it was derived from.
    """
    mine, theirs = _tokens(version), _tokens(baseline)
    found: list[Size] = []
    if has_new_limits(version, baseline):
        found += capacity_sizes(contract, listed, tried)
    numbers = _new_limits(version, baseline, LEAST_COMPARED)
    if _narrow(mine) - _narrow(theirs) or _takes_halves(version) > _takes_halves(baseline):
        numbers |= {1 << 16}
    if has_lists(contract):
        found += searched_sizes(contract, listed, (*tried, *found), _numbers(mine) - _numbers(theirs))
    if contract.inputs is not None:
        found += long_sizes(contract, listed, (*tried, *found), _new_limits(version, baseline, LEAST_LENGTH))
    found += block_sizes(contract, (*tried, *found), version, baseline)
    if version.contract.grid != baseline.contract.grid:
        texts = [_numbers(lex(one.unit.text).tokens) for one in (version, baseline)]
        passes = GRID_PASSES if texts[0] - texts[1] else 1
        found += _past_the_grid(version, listed, (*tried, *found), passes)
    found += _held_in_tables(contract, (*tried, *found), version, baseline)
    return (*found, *_around(contract, listed, (*tried, *found), sorted(numbers)))


def _new_limits(version: Version, baseline: Version, least: int) -> set[int]:
    """Returns the constants above `least` that limit integers or arrays in a version's PTX, but not in its baseline's."""
    mine, theirs = version.compiled.ptx, baseline.compiled.ptx
    numbers = compared_numbers(mine, least) - compared_numbers(theirs, least)
    numbers |= set(_kept(mine, least) - _kept(theirs, least))
    return numbers | (_held(version, least) - _held(baseline, least))


def has_new_limits(version: Version, baseline: Version) -> bool:
    """Returns True if a version's text or launch has integers that its baseline lacks, or fewer loops."""
    mine, theirs = _tokens(version), _tokens(baseline)
    return bool(_numbers(mine) - _numbers(theirs)) or _loops(mine) < _loops(theirs)


def _held(version: Version, least: int) -> set[int]:
    """Returns upper bounds of the elements that shared arrays and register tiles of constant length hold."""
    ptx = version.compiled.ptx
    bytes_of = [numpy_dtype(a.dtype).itemsize for a in version.contract.args if a.shape is not None]
    found = {int(size) // min(int(align), *bytes_of, WIDEST_ELEMENT) for align, size in _SHARED.findall(ptx)}
    compared = {register for pair in _COMPARED_REGISTERS.findall(ptx) for register in pair}
    # The last of several equal steps begins at a compared offset, so twice the offset is at least their sum.
    found |= {2 * int(step) for own, start, step in _OFFSET.findall(ptx) if own in compared and own != start}
    return {number for number in found if least < number <= MOST_COMPARED}


def _past_the_grid(version: Version, listed: Sequence[Size], tried: Sequence[Size], passes: int) -> Iterator[Size]:
    """Yields for each name a size at which the version's grid no longer grows, unless one was tried.

    It is up to `passes` times as large as it must be.
    """
    contract = version.contract
    base = min(listed, key=lambda size: elements_at(contract, size))
    few = {name: min(value, FEW) for name, value in base.items()}
    for name in base:
        try:
            least, most = (launch_shape(contract, {**few, name: value}) for value in (1, MOST_ELEMENTS_AROUND))
            if most.blocks == least.blocks:
                last = most.blocks * most.threads
            else:
                values = range(1, MOST_ELEMENTS_AROUND)
                last = values[
                    bisect.bisect_left(
                        values, most.blocks, key=lambda value: launch_shape(contract, {**few, name: value}).blocks
                    )
                ]
        except (ContractError, IndexError):
            continue
        beyond = last + last // GRID_MARGIN + 1
        sizes = [{**few, name: beyond * passes >> power} for power in range(passes.bit_length())]
        fitting = (one for one in sizes if usable(contract, one, MOST_THREADS_AROUND, MOST_ELEMENTS_AROUND))
        size = next(fitting, None)
        if size is not None and max(one[name] for one in tried) < size[name]:
            yield size


def _held_in_tables(contract: Contract, tried: Sequence[Size], version: Version, baseline: Version) -> list[Size]:
    """Returns sizes that new tables of a version hold, in constant, global, shared or local memory, for each name."""
    numbers = _table_entries(version.compiled.ptx) - _table_entries(baseline.compiled.ptx)
    few = {name: min(value, FEW) for name, value in tried[0].items()}
    sizes = ({**few, name: number} for number in sorted(numbers) for name in few)
    known = {key_of(one) for one in tried}
    fitting = (
        size for size in sizes
        if key_of(size) not in known and usable(contract, size, MOST_THREADS_AROUND, MOST_ELEMENTS_AROUND)
    )  # fmt: skip
    return list(itertools.islice(fitting, MOST_AROUND))


def _table_entries(ptx: str) -> set[int]:
    """Returns the integers in short tables that PTX initialises, or stores to shared or local memory."""
    moved = dict(_MOVED.findall(ptx))
    words = [
        moved.get(word.strip(), word.strip()) for text in _STORED.findall(ptx) for word in text.strip("{}").split(",")
    ]
    found = {int(word) for word in words if word.isdecimal()}
    for held in tables_of(ptx).values():
        for bits in (16, 32) if len(held) <= MOST_TABLE else ():
            whole = held[: len(held) // 4 * 4]
            found |= {int.from_bytes(whole[at : at + bits // 8], "little") for at in range(0, len(whole), bits // 8)}
    return {number for number in found if LEAST_COMPARED < number <= MOST_COMPARED}


def unlaunchable_sizes(contract: Contract, listed: Sequence[Size], version: Version, baseline: Version) -> list[Size]:
    """Returns for each name a size at which the baseline can be launched and the version cannot; none for most versions.

    There its grid exceeds a limit, such as 65535 blocks in y or z, or is empty. Nothing is launched at these sizes, so
    they may be far larger than others. Sizes are left out if the arrays would not fit into a GPU's memory with the
    largest listed values of the other names.

    Args:
        contract: defines the allowed sizes.
        listed: the contract's sizes.
        version: the version under judgement.
        baseline: the version it was derived from.
    """
    mine, theirs = version.contract, baseline.contract
    if (mine.grid, mine.block) == (theirs.grid, theirs.block):
        return []
    base = min(listed, key=lambda size: elements_at(contract, size))
    few = {name: min(value, FEW) for name, value in base.items()}
    largest = {name: max(size[name] for size in (*mine.sizes, *theirs.sizes, *listed)) for name in base}
    found: list[Size] = []
    for name in base:
        sizes = ({**few, name: value} for power in range(1, 20) for value in (1 << power, 3 << power - 1))
        allowed = (
            size for size in sizes
            if elements_at(contract, {**largest, name: size[name]}) <= MOST_ELEMENTS_UNLAUNCHED
            and all(size_allowed(c, size) for c in (mine, theirs))
        )  # fmt: skip
        found += next(([size] for size in allowed if _launchable(theirs, size) and not _launchable(mine, size)), [])
    return found


def _launchable(contract: Contract, size: Size) -> bool:
    try:
        return launch_shape(contract, size).blocks > 0
    except ContractError:
        return False


def block_sizes(contract: Contract, tried: Sequence[Size], version: Version, baseline: Version) -> list[Size]:
    """Returns, for each new limit of a block's index, a size with more blocks, unless a tried size has more.

    Args:
        contract: defines the allowed sizes.
        tried: sizes that are tried anyway.
        version: the version under judgement.
        baseline: the version it was derived from.
    """
    found: list[Size] = []
    for axis, number in sorted(_block_limits(version.compiled.ptx) - _block_limits(baseline.compiled.ptx)):
        if not any(_side(version.contract, size, axis) > number for size in (*tried, *found)):
            sizes = (_with_blocks(contract, version.contract, tried, name, axis, number) for name in tried[0])
            found += [size for size in sizes if size is not None][:1]
    return found[:MOST_AROUND]


def _past(mask: int) -> int:
    """Returns the first number above the values that a mask of adjacent bits can give; 0 for other masks."""
    above = mask + (mask & -mask)
    return 0 if mask & above else above


def _block_limits(ptx: str) -> set[tuple[int, int]]:
    """Returns how many blocks along an axis of the grid (0 to 2) code may be made for, by its use of the block's index."""
    found: set[tuple[int, int]] = set()
    remainders = _remainders(ptx)
    for register, axis in _BLOCK_INDEX.findall(ptx):
        scaled = re.findall(rf"shl\.b32\s+(%\w+), {re.escape(register)}, (\d+);", ptx)
        found |= {("xyz".index(axis), number) for own, number in remainders if own == register}
        for own, bits in ((register, "0"), *scaled):
            for pattern, meant in _OF_BLOCK:
                limits = (meant(int(text)) >> int(bits) for text in re.findall(pattern.format(re.escape(own)), ptx))
                found |= {("xyz".index(axis), limit) for limit in limits if 1 < limit <= MOST_COMPARED}
    return found


def _side(contract: Contract, size: Size, axis: int) -> int:
    try:
        return launch_shape(contract, size).grid[axis]
    except ContractError:
        return 0


def _with_blocks(
    contract: Contract, launched: Contract, tried: Sequence[Size], name: str, axis: int, number: int
) -> Size | None:
    """Returns the smallest size, by one name, with more than a number of blocks along an axis; None if it is too large."""
    few = {other: min(value, FEW) for other, value in tried[0].items()}
    values = range(1, MOST_ELEMENTS_AROUND)
    value = bisect.bisect(values, number, key=lambda value: _side(launched, {**few, name: value}, axis))
    sizes = ({**few, name: value + more} for more in (1, *ROUNDS))
    return next(
        (
            size for size in sizes
            if _side(launched, size, axis) > number and usable(contract, size, MOST_THREADS_AROUND, MOST_ELEMENTS_AROUND)
        ),
        None,
    )  # fmt: skip


def compared_numbers(ptx: str, least: int = LEAST_COMPARED) -> set[int]:
    """Returns the constants above `least` that PTX compares integers with; macros, templates and functions are resolved in PTX."""
    found = [(register, int(number)) for register, number in _COMPARED.findall(ptx)]
    lines = ptx.splitlines()
    return {
        number
        for register, number in found
        if least < number <= MOST_COMPARED and not _is_shared_memory_offset(register, lines)
    }


def _kept(ptx: str, least: int) -> Counter[int]:
    """Counts the operations that reduce an index, or its product with an element's size, to a range, by the range.

    These are masks that keep the low bits, and remainders.
    """
    found: Counter[int] = Counter()
    for _, number in _remainders(ptx):
        found[number] += least < number <= MOST_COMPARED
    for mask in map(int, _MASKED.findall(ptx)):
        # A signed remainder by a power of two subtracts what a mask of high bits keeps.
        mask = ~mask if mask < 0 else mask
        size = mask & -mask
        if mask and size <= WIDEST_ELEMENT and least < (kept := mask // size + 1) <= MOST_COMPARED:
            found[kept] += not kept & (kept - 1)
    return found


def _remainders(ptx: str) -> list[tuple[str, int]]:
    """Returns registers of which remainders are computed, with the divisor, also by subtracting a multiple of it."""
    multiples = dict(_MULTIPLE.findall(ptx))
    less = ((one, multiples[other]) for one, other in _LESS.findall(ptx) if other in multiples)
    return [(register, int(number)) for register, number in (*_REMAINDERS.findall(ptx), *less)]


def _is_shared_memory_offset(register: str, ptx: Sequence[str]) -> bool:
    """Returns True if a register is only an offset in shared memory that a loop moves from one constant to another.

    Compilers count loops over a tile this way; the end of such a loop does not depend on the problem's size.
    """
    own = re.escape(register)
    steps = re.compile(rf"mov\.\w+\s+{own}, -?\d+;|add\.\w+\s+{own}, {own}, -?\d+;|setp\.[\w.]+\s+%\w+, {own}, -?\d+;")
    sums = re.compile(rf"add\.s32\s+(%\w+), (?:%\w+, {own}|{own}, %\w+);")
    addresses: set[str] = set()
    for line in _lines_with(register, ptx):
        if steps.search(line):
            continue
        found = sums.search(line)
        if not found or found[1] == register:
            return False
        addresses.add(found[1])
    return bool(addresses) and all(_only_in_shared_memory(address, register, ptx) for address in addresses)


def _only_in_shared_memory(address: str, offset: str, ptx: Sequence[str]) -> bool:
    """Returns True if a register that is a sum with `offset` is used only in addresses of shared memory."""
    lines = [line for line in _lines_with(address, ptx) if not re.search(rf"{re.escape(offset)}\b", line)]
    return all(re.search(rf"\b(?:ld|st)\.shared\.[^\[]*\[{re.escape(address)}(?:\+-?\d+)?\]", line) for line in lines)


def _lines_with(register: str, ptx: Sequence[str]) -> list[str]:
    word = re.compile(rf"{re.escape(register)}\b")
    return [line for line in ptx if register in line and word.search(line)]


def _around(
    contract: Contract, listed: Sequence[Size], tried: Sequence[Size], numbers: Sequence[int]
) -> Iterator[Size]:
    """Yields sizes at and just beyond constants, for each name whose tried values are all at or below the constant."""
    threads = max(MOST_THREADS_AROUND, min(threads_at(contract, size) for size in listed))
    left = MOST_AROUND
    base = min(listed, key=lambda size: elements_at(contract, size))
    few = [{other: min(most, FEW) for other, most in base.items()}]
    if contract.inputs is not None:
        # Lengths that such a function draws share all elements, so that few are long among several.
        few.insert(0, dict.fromkeys(base, 1))
    for number, name in itertools.product(reversed(numbers), listed[0]):
        most = max(size[name] for size in tried)
        if left <= 0 or most > number + LATE:
            continue
        reached = reached_size(contract, listed, name, number) if most <= number else None
        yield from () if reached is None else (reached,)
        for value in (number + 1, number) if most <= number else (number + LATE + 1,):
            sizes = ({**others, name: value} for others in few)
            size = next((one for one in sizes if usable(contract, one, threads, MOST_ELEMENTS_AROUND)), None)
            if size is not None:
                left -= 1
                yield size


def capacity_sizes(contract: Contract, listed: Sequence[Size], tried: Sequence[Size]) -> tuple[Size, ...]:
    """Returns for each size name a size at which it is several times as large as listed, with the other names small.

    A kernel that drops data beyond the capacity of its tiles, blocks or shared memory is wrong at every larger size, so
    one much larger size suffices. A name whose growth the limits of threads or elements restrict grows up to those
    limits.

    Args:
        contract: defines the allowed sizes.
        listed: the contract's sizes.
        tried: sizes that are tried anyway.
    """
    threads = max(MOST_THREADS, min(threads_at(contract, size) for size in listed))
    bases = sorted(listed, key=lambda size: elements_at(contract, size))
    found: list[Size] = []
    for name in listed[0]:
        most = max(size[name] for size in (*tried, *found))
        size = next((one for one in _grown(name, bases, most) if usable(contract, one, threads)), None)
        if size is not None and key_of(size) not in {key_of(one) for one in found}:
            found.append(size)
    return tuple(found)


def larger_values(value: int) -> Iterator[int]:
    """Yields values just above one, to meet a `require`: the next odd ones first, then multiples of powers of two."""
    for more in ROUNDS:
        yield value + more if more % 2 else -(-value // more) * more + more


def _grown(name: str, bases: Sequence[Size], most: int) -> Iterator[Size]:
    """Yields listed sizes with one name enlarged beyond any tried value, the largest first."""
    top = max(size[name] for size in bases)
    value = max(BEYOND * top, LEAST_BEYOND if top > KEPT else 0)
    while value > most:
        for rounded in larger_values(value):
            yield from ({**base, name: rounded} for base in bases[:1])
            yield {**{other: min(small, FEW) for other, small in bases[0].items()}, name: rounded}
            yield {**dict.fromkeys(bases[0], 1), name: rounded}
        value //= 2


def _tokens(version: Version) -> list[Token]:
    contract = version.contract
    texts = (version.unit.text, *contract.grid, *contract.block, contract.shared)
    return [token for text in texts for token in lex(text).tokens]


def _numbers(tokens: Sequence[Token]) -> Counter[str]:
    """Counts integers above 1, as written."""
    found = (token.text.rstrip("uUlLzZ") for token in tokens if token.kind == "number")
    return Counter(word for word in found if _WHOLE.fullmatch(word) and word not in ("0", "1"))


def _loops(tokens: Sequence[Token]) -> int:
    return sum(token.text in ("for", "while") for token in tokens)


def _narrow(tokens: Sequence[Token]) -> Counter[str]:
    """Counts 16-bit type names, since sizes, positions and counts may overflow in these types."""
    return Counter(token.text for token in tokens if token.text in _NARROW)


def _takes_halves(version: Version) -> int:
    """Counts 16-bit parts that code takes of wider integers; 0 with 16-bit arrays, whose elements it would count."""
    narrow = any(a.shape is not None and numpy_dtype(a.dtype).itemsize == 2 for a in version.contract.args)
    return 0 if narrow else len(_HALF.findall(version.compiled.ptx))


def workers_at(version: Version, size: Size, *, per_block: bool) -> int:
    """Returns the number of threads of a launch, or of blocks; 0 at a size at which it is not possible."""
    try:
        shape = launch_shape(version.contract, size)
    except ContractError:
        return 0
    return shape.blocks if per_block else shape.blocks * shape.threads
