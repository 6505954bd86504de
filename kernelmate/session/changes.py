"""Kernels affected by a change: those of the working tree paired with those of a revision, across renames and moves.

A kernel is unchanged if its device code (with every project header that it includes), its contract, and the files that
its contract names are unchanged; host code, comments and layout do not count.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from kernelmate.compiler.device_part import device_part
from kernelmate.compiler.preprocessor import IncludeSearch, includes_of
from kernelmate.errors import ContractError, SourceError
from kernelmate.history.identity import fingerprint
from kernelmate.records import CompileOptions, Contract, Kernel
from kernelmate.session.devices import needed_files
from kernelmate.session.revisions import Blob, Repository, blob_name
from kernelmate.source import find_kernels, parse_contract, read_units
from kernelmate.source.tokens import lex
from kernelmate.source.triton_modules import TritonModule, triton_modules

KERNEL_SUFFIXES = frozenset({".cu", ".cuh", ".py"})
HEADER_SUFFIXES = frozenset({".h", ".hh", ".hpp", ".hxx", ".cuh", ".cu", ".inl", ".inc", ".ipp", ".tpp"})
DATA_SUFFIXES = frozenset({".npy", ".npz"})
LARGEST = 16 << 20
"""Size in bytes of the largest file of a revision that is checked out."""
_HAS_KERNEL = re.compile(r"__global__|\bRawKernel\b|\bRawModule\b|\btriton\b")

OptionsFor = Callable[[Path], CompileOptions]


@dataclass(frozen=True, slots=True)
class KernelPair:
    """A kernel's present and former version; one of them is None for an added or removed kernel."""

    before: Kernel | None
    after: Kernel | None


@dataclass(slots=True)
class ChangeSide:
    """One of the two states: its files on disk, and its kernels.

    Attributes:
        root: the folder that paths are relative to.
        options: returns the compiler options of a file.
        kernels: kernels by relative path and name.
        problems: the reason for each file that cannot be read, by path.
    """

    root: Path
    options: OptionsFor
    kernels: dict[tuple[str, str], Kernel] = field(default_factory=dict)
    problems: dict[str, SourceError] = field(default_factory=dict)

    def read(self, paths: Iterable[str]) -> None:
        """Finds the kernels of the given files."""
        for path in paths:
            file = self.root / path
            if Path(path).suffix not in KERNEL_SUFFIXES or not _mentions_kernels(file):
                continue
            try:
                found = [kernel for unit in read_units(file) for kernel in find_kernels(unit)]
            except SourceError as error:
                self.problems[path] = error
                continue
            for kernel in found:
                self.kernels.setdefault((path, kernel.name), kernel)

    def relative(self, kernel: Kernel) -> str:
        """Returns the kernel's file relative to the root."""
        return Path(kernel.unit.path).relative_to(self.root).as_posix()

    def reaches(self, path: str, changed: frozenset[str]) -> bool:
        """Returns True if a file includes, directly or indirectly, one of the changed files, or a contract in it names one."""
        file = self.root / path
        search = IncludeSearch(tuple(Path(one).resolve() for one in self.options(file).include_paths), ())
        waiting, seen = [file], set()
        while waiting:
            here = waiting.pop()
            for include in includes_of(_text(here)):
                found = search.find(include, here.parent).path
                if found is None or (real := found.resolve()) in seen or not real.is_relative_to(self.root):
                    continue
                seen.add(real)
                waiting.append(real)
        for kernel in (kernel for (own, _), kernel in self.kernels.items() if own == path):
            seen |= {*contract_files(kernel), *(Path(one.path).resolve() for one in _modules_of(kernel))}
        return any(real.relative_to(self.root).as_posix() in changed for real in seen if real.is_relative_to(self.root))

    def identity(self, kernel: Kernel) -> tuple[object, ...]:
        """Returns a key that versions with the same code and contract share."""
        contract = _contract(kernel)
        reference = contract.reference if contract is not None and contract.reference_kind == "kernel" else None
        others = [one for one in find_kernels(kernel.unit) if one.name == reference]
        return (
            *(self._device_code(one) for one in (kernel, *others)),
            None if contract is None else replace(contract, line=None, kernel=""),
            tuple(_bytes(path) for path in contract_files(kernel)),
        )

    def _device_code(self, kernel: Kernel) -> tuple[object, ...]:
        if kernel.unit.language == "triton":
            return tuple(_definitions(one, kernel.name) for one in _modules_of(kernel)) or (kernel.unit.text,)
        file = Path(kernel.unit.path)
        options = self.options(file)
        part = device_part(
            kernel.unit.text,
            file.resolve().parent,
            tuple(Path(one).resolve() for one in options.include_paths),
            kernel=kernel.name,
            everything=kernel.unit.language == "python",
        )
        short = kernel.name.rpartition("::")[2]
        return (
            _words(part.text, short),
            tuple((name, _words(text, short)) for name, text in part.headers),
            options_key(options),
        )


def options_key(options: CompileOptions) -> tuple[object, ...]:
    """Returns the options without folders, which differ between the sides."""
    return options.std, options.defines, options.fast_math, options.max_registers, options.flags


def changed_paths(repository: Repository, base: Mapping[str, Blob], now: Sequence[str]) -> frozenset[str]:
    """Returns files relevant to kernels that differ between a revision and the working tree, added and removed ones included."""
    relevant = KERNEL_SUFFIXES | HEADER_SUFFIXES | DATA_SUFFIXES
    there = [path for path in now if Path(path).suffix in relevant]
    changed = {path for path in base if Path(path).suffix in relevant} - set(there)
    for path in there:
        blob = base.get(path)
        if blob is None or blob_name(_bytes(repository.root / path), blob.name) != blob.name:
            changed.add(path)
    return frozenset(changed)


def lay_out(repository: Repository, base: Mapping[str, Blob], folder: Path) -> None:
    """Writes a revision's files that are relevant to kernels into a folder, at their paths.

    Raises:
        UsageError: git cannot give one of them.
    """
    relevant = KERNEL_SUFFIXES | HEADER_SUFFIXES | DATA_SUFFIXES
    chosen = {
        path: blob
        for path, blob in base.items()
        if Path(path).suffix in relevant and blob.size <= LARGEST and ".." not in Path(path).parts
    }
    for path, (_, data) in zip(chosen, repository.contents(chosen.values()), strict=True):
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)


def pairs(before: ChangeSide, after: ChangeSide) -> list[KernelPair]:
    """Pairs each kernel with its former version: by place and name, then by definition, then by file or name alone."""
    lost = {key: kernel for key, kernel in before.kernels.items() if key not in after.kernels}
    new = {key: kernel for key, kernel in after.kernels.items() if key not in before.kernels}
    found = [KernelPair(before.kernels[key], kernel) for key, kernel in after.kernels.items() if key in before.kernels]
    for match in (_same_definition, _same_file, _same_name):
        for old, here in list(match(lost, new)):
            if old in lost and here in new:
                found.append(KernelPair(lost.pop(old), new.pop(here)))
    found += [KernelPair(None, kernel) for kernel in new.values()]
    return found + [KernelPair(kernel, None) for kernel in lost.values()]


Keyed = Mapping[tuple[str, str], Kernel]
Match = Iterator[tuple[tuple[str, str], tuple[str, str]]]


def _same_definition(lost: Keyed, new: Keyed) -> Match:
    """Matches kernels that were only renamed or moved; of several, the one in the same file or of the same name."""
    prints = {key: fingerprint(kernel) for key, kernel in lost.items()}
    for here, kernel in new.items():
        fitting = [key for key, one in prints.items() if one == fingerprint(kernel)]
        fitting.sort(key=lambda key: (key[0] != here[0], key[1] != here[1]))
        yield from ((key, here) for key in fitting)


def _same_file(lost: Keyed, new: Keyed) -> Match:
    """Matches kernels that were renamed and edited: the only one that a file has lost with the only one it has gained."""
    for path in {key[0] for key in lost}:
        gone, come = [key for key in lost if key[0] == path], [key for key in new if key[0] == path]
        if len(gone) == len(come) == 1:
            yield gone[0], come[0]


def _same_name(lost: Keyed, new: Keyed) -> Match:
    """Matches kernels that were moved and edited: the only lost one of this name with the only new one."""
    for name in {key[1] for key in lost}:
        gone, come = [key for key in lost if key[1] == name], [key for key in new if key[1] == name]
        if len(gone) == len(come) == 1:
            yield gone[0], come[0]


def contract_files(kernel: Kernel) -> list[Path]:
    """Returns files that a kernel's contract names, and Python files beside them that they import."""
    contract = _contract(kernel)
    return [] if contract is None else needed_files(contract, Path(kernel.unit.path).resolve().parent)


def _contract(kernel: Kernel) -> Contract | None:
    try:
        return parse_contract(kernel)
    except ContractError:
        return None


def _modules_of(kernel: Kernel) -> tuple[TritonModule, ...]:
    """Returns the definitions that a Triton kernel's compilation needs, by file; empty if they cannot be read, or for another kernel."""
    if kernel.unit.language != "triton":
        return ()
    try:
        return triton_modules(kernel)
    except SourceError:
        return ()


def _definitions(module: TritonModule, name: str) -> tuple[str, object]:
    """Returns a file's definitions without comments and layout, with the kernel's own name replaced, and what names stand for."""
    text = re.sub(rf"\b{re.escape(name)}\b", "kernel", module.text)
    return ast.dump(ast.parse(text)), tuple(sorted(module.library.items()))


def _words(text: str, name: str) -> tuple[str, ...]:
    """Returns tokens without comments and layout, with the kernel's own name replaced."""
    return tuple("\0" if token.text == name else token.text for token in lex(text).tokens)


def _mentions_kernels(file: Path) -> bool:
    return _HAS_KERNEL.search(_text(file)) is not None


def _text(file: Path) -> str:
    return _bytes(file).decode("utf-8", errors="replace")


def _bytes(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""
