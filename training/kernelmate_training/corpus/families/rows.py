"""Families that reduce along rows: normalisations, softmax and its kin, statistics, products of rows."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from kernelmate_training.corpus.drafting import (
    Kind,
    Problem,
    array,
    draw_style,
    load,
    scalar,
)
from kernelmate_training.corpus.expressions import Real, var
from kernelmate_training.corpus.families.maps import row_sizes
from kernelmate_training.corpus.families.row_model import Names, RowProgram, reference_of
from kernelmate_training.corpus.families.words import kernel_name, pick
from kernelmate_training.corpus.templates import drafts


def row_problem(
    rng: Random, family: str, kind: Kind, make: Callable[[Random], RowProgram], dtypes: tuple[str, ...] = ("float32",)
) -> Problem:
    """A problem of a row program, with every flaw that its passes allow."""
    program = make(rng)
    dtype = rng.choice(dtypes)
    rows, cols = pick(rng, 2, "sides")
    names = Names.drawn(rng, program)
    arrays = [array(names.of[n], "in", dtype, rows, cols, drawn="normal") for n in program.inputs]
    arrays += [array(names.of[n], "in", dtype, cols, drawn="normal") for n in program.columns]
    outputs = [array(names.of["out"], "out", dtype, rows, cols)] if program.element is not None else []
    outputs += [array(f"{names.of['row_out']}{k or ''}", "out", dtype, rows) for k in range(len(program.values))]
    style = draw_style(rng, {a.name for a in (*arrays, *outputs)} | {rows, cols} | {p.name for p in program.passes})
    sizes, large = row_sizes(rng, rows, cols)
    flaws = ["no_restrict", "thread_per_row", "serial_block", "double_literals", "divides", "wide_type"]
    warp = rng.random() < 0.35
    if not warp:
        flaws += ["shared_tree", "modulo_tree", "oversized_shared", "extra_barriers"]
        flaws += ["second_buffer"] if len(program.passes) > 1 else []
    flaws += ["two_pass_moments"] if program.moments else []
    flaws += ["two_pass_softmax"] if program.online is not None else []
    if dtype == "float32" and _stores_exponentials(program):
        flaws.append("through_memory")
    if program.element is None and len(program.passes) == 1 and program.passes[0].post is None and dtype == "float32":
        flaws.append("global_accumulator")
    block = rng.choice((64, 128, 256, 256))
    row, col = style.n("row"), style.n("col")
    by_name = {name: key for key, name in names.of.items()}

    def reads(known: dict[str, str], kind: Real) -> dict[str, str]:
        """How the program's values are spelled: arrays at this element, and what is known by then."""
        places = {by_name[a.name]: col if len(a.shape or ()) == 1 else style.at(row, cols, col) for a in arrays}
        cast = "(double)" if kind == "double" else ""
        return {"count": cols, **known} | {by_name[a.name]: cast + load(a, places[by_name[a.name]]) for a in arrays}

    rng.random()  # drawn for what is no longer told apart; the seeds' problems stay the same
    element = program.element
    draft = drafts(
        "rows", style, rows=rows, cols=cols, passes=program.passes, moments=program.moments, online=program.online, element=element,
        scaled=element.args[0] * var("inv") if element is not None and element.op == "div" else None, values=program.values,
        outputs=outputs, size=block, by_warp=warp, reads=reads,
    )  # fmt: skip
    args = (*arrays, *outputs) if rng.random() < 0.8 else (*outputs, *arrays)
    reference = reference_of(program, names, cols)
    return Problem(
        family, kind, kernel_name(rng, family), (*args, scalar(rows), scalar(cols)), sizes, large, reference, tuple(flaws),
        draft, style, require=(f"{cols} > 0",),
        exclusive=(frozenset({"thread_per_row", "serial_block"}), frozenset({"shared_tree", "modulo_tree"})),
    )  # fmt: skip


def _stores_exponentials(program: RowProgram) -> bool:
    """True if the result is the second pass's summand over the sum, so that the output can hold it until the sum is known."""
    element = program.element
    return (
        program.online is not None
        and element is not None
        and element.op == "div"
        and element.args[0] == program.passes[1].expr
    )
