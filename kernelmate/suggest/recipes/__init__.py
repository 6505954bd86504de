"""Recipes: rewrites of the syntax tree, one per module, each with its conditions and its reason, without a model."""

from __future__ import annotations

from collections.abc import Iterator

from kernelmate.records import Candidate
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.recipes import (
    accumulate_in_register,
    bit_intrinsics,
    block_atomics,
    coalesce,
    compensated_sum,
    divide,
    dynamic_shared,
    exact_functions,
    exchange_axes,
    fast_intrinsics,
    flat_order,
    float_literals,
    grid_stride,
    half_storage,
    hoist_loads,
    interleave_chunks,
    launch,
    launch_bounds,
    merge_shared,
    narrow_index,
    narrow_shared,
    online_softmax,
    own_shared_element,
    pad_shared,
    powers,
    private_histogram,
    remove_barrier,
    restrict,
    sequential_reduction,
    serial_reduction,
    shifted_variance,
    single_pass_moments,
    spread_over_grid,
    stage_records,
    thread_per_turn,
    tile_matmul,
    tile_permute,
    tile_transpose,
    trim_shared,
    unroll,
    unroll_local,
    vectorize,
    warp_per_row,
    warp_reduce,
    warp_scan,
    wider_accumulators,
)
from kernelmate.suggest.recipes.base import Recipe, Rewrite
from kernelmate.suggest.recipes.readable import readable

ALL: tuple[Recipe, ...] = (
    spread_over_grid.RECIPE,
    block_atomics.RECIPE,
    private_histogram.RECIPE,
    warp_per_row.RECIPE,
    coalesce.RECIPE,
    exchange_axes.RECIPE,
    flat_order.RECIPE,
    thread_per_turn.RECIPE,
    stage_records.RECIPE,
    tile_matmul.RECIPE,
    tile_transpose.RECIPE,
    tile_permute.RECIPE,
    interleave_chunks.RECIPE,
    pad_shared.RECIPE,
    accumulate_in_register.RECIPE,
    float_literals.RECIPE,
    powers.RECIPE,
    bit_intrinsics.RECIPE,
    unroll_local.RECIPE,
    narrow_index.RECIPE,
    sequential_reduction.RECIPE,
    warp_reduce.RECIPE,
    serial_reduction.RECIPE,
    warp_scan.RECIPE,
    own_shared_element.RECIPE,
    trim_shared.RECIPE,
    narrow_shared.RECIPE,
    merge_shared.RECIPE,
    dynamic_shared.RECIPE,
    launch.RECIPE,
    unroll.RECIPE,
    vectorize.RECIPE,
    online_softmax.RECIPE,
    single_pass_moments.RECIPE,
    hoist_loads.RECIPE,
    grid_stride.RECIPE,
    divide.RECIPE,
    fast_intrinsics.RECIPE,
    restrict.RECIPE,
    half_storage.RECIPE,
    launch_bounds.RECIPE,
    wider_accumulators.RECIPE,
    shifted_variance.RECIPE,
    compensated_sum.RECIPE,
    exact_functions.RECIPE,
    remove_barrier.RECIPE,
)
"""Every built-in recipe, the most promising first."""

__all__ = ["ALL", "Recipe", "Recipes", "Rewrite"]


class Recipes:
    """Suggester that applies every recipe for the objective, in order, each alone and without duplicates."""

    name = "recipes"

    def __init__(self, recipes: tuple[Recipe, ...] = ALL) -> None:
        self._recipes = recipes

    def propose(self, request: SuggestRequest) -> Iterator[Candidate]:
        """Yields candidates, the most promising first; ends when the request is stopped."""
        seen: set[tuple[str, str]] = set()
        for recipe in self._recipes:
            if request.objective.metric not in recipe.metrics:
                continue
            for candidate in (readable(request.kernel, one) for one in recipe.candidates(request)):
                if request.stop():
                    return
                key = (candidate.kernel.unit.text, repr(candidate.contract))
                if key not in seen:
                    seen.add(key)
                    yield candidate
