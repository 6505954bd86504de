"""Device functions that only one kernel uses, so that a rewrite of the kernel may change them too."""

from __future__ import annotations

import re
from dataclasses import replace

import tree_sitter

from kernelmate.records import Kernel
from kernelmate.suggest.syntax import Tree, language, read_tree

_ASKS = re.compile(r"threadIdx|blockIdx|blockDim|gridDim|__sync|__shfl|__ballot|atomic|__shared__|\basm\b")


def plain_helpers(kernel: Kernel) -> frozenset[str]:
    """Returns device functions of the unit that only compute from their arguments.

    They take no pointers or references, and do not depend on thread indices or other threads.
    """
    text = kernel.unit.text
    found = set()
    for name, (start, end) in _functions(kernel).items():
        head, _, body = text[start:end].partition("{")
        if not re.search(r"[*&]", head) and not _ASKS.search(body):
            found.add(name)
    return frozenset(found)


def own_trees(kernel: Kernel) -> list[Tree]:
    """Returns the trees of the kernel and of the plain `__device__` functions that only it calls, the kernel first."""
    own = read_tree(kernel)
    if own is None:
        return []
    found, waiting = [own], [own]
    functions = _functions(kernel)
    taken: set[str] = set()
    while waiting:
        caller = waiting.pop()
        called = set(re.findall(r"\b(\w+)\s*\(", caller.text(caller.body)))
        for name, (start, end) in functions.items():
            if name in taken or name not in called:
                continue
            taken.add(name)
            tree = read_tree(replace(kernel, start=start, end=end))
            if tree is not None and _used_here_only(kernel, name, [*found, tree]):
                found.append(tree)
                waiting.append(tree)
    return found


def _functions(kernel: Kernel) -> dict[str, tuple[int, int]]:
    """Returns names and offsets of non-template `__device__` functions at the unit's outermost level with a unique name."""
    data = kernel.unit.text.encode()
    found: dict[str, tuple[int, int]] = {}
    twice: set[str] = set()
    for node in tree_sitter.Parser(language()).parse(data).root_node.named_children:
        text = data[node.start_byte : node.end_byte].decode()
        head = text.partition("{")[0]
        match = re.search(r"(\w+)\s*\([^()]*\)\s*$", head.strip())
        if node.type != "function_definition" or "__device__" not in head or match is None:
            continue
        if match[1] in found:
            twice.add(match[1])
        start = len(data[: node.start_byte].decode())
        found[match[1]] = start, start + len(text)
    return {name: span for name, span in found.items() if name not in twice}


def _used_here_only(kernel: Kernel, name: str, trees: list[Tree]) -> bool:
    """Returns True if the name occurs only in the texts of the trees."""
    spans = [(tree.kernel.start, tree.kernel.end) for tree in trees]
    mentions = [match.start() for match in re.finditer(rf"\b{name}\b", kernel.unit.text)]
    return all(any(start <= mention < end for start, end in spans) for mention in mentions)
