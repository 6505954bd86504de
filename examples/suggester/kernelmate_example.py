"""A suggester for KernelMate: one recipe of its own, and the class that the entry point names."""

from __future__ import annotations

from collections.abc import Iterator

from kernelmate.records import Candidate
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.recipes.base import Recipe, Rewrite, relaunch


def halved_blocks(request: SuggestRequest) -> Iterator[Rewrite]:
    """Yields the same kernel with half as many threads per block, if the block is a single number that is a multiple of 64."""
    (*others, last) = request.contract.block
    if others or not last.isdecimal() or int(last) < 64 or int(last) % 64:
        return
    threads = int(last) // 2
    kernel, contract = relaunch(request, request.kernel, block=(str(threads),))
    yield Rewrite(kernel, contract, f"Blocks of {threads} threads need half of the shared memory per block.")


HALVED_BLOCKS = Recipe("halve-block", ("shared_bytes", "occupancy", "time"), (), halved_blocks)


class Example:
    """Proposes the candidates of one recipe."""

    name = "example"

    def propose(self, request: SuggestRequest) -> Iterator[Candidate]:
        """Yields candidates for the request until it asks to stop."""
        if request.objective.metric not in HALVED_BLOCKS.metrics:
            return
        for candidate in HALVED_BLOCKS.candidates(request):
            if request.stop():
                return
            yield candidate
