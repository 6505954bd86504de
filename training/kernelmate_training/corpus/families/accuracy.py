"""Families that ask for accuracy: sums in half precision, variances that cancel, long sums in one float."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from kernelmate_training.corpus.drafting import Kind, Problem, array, draw_style, scalar
from kernelmate_training.corpus.families.maps import row_sizes
from kernelmate_training.corpus.families.words import kernel_name, pick
from kernelmate_training.corpus.templates import drafts


def accurate(family: str, kind: Kind, form: str) -> Callable[[Random], Problem]:
    """Statistics that is available more accurately: `half`, `variance`, `long`."""

    def draw(rng: Random) -> Problem:
        names = pick(rng, 3, "array")
        rows, cols = pick(rng, 2, "sides")
        across = rng.random() < 0.5
        dtype = "float16" if form == "half" else "float32"
        drawn = {
            "half": "uniform(0, 1)",
            "variance": rng.choice(("normal(100, 1)", "normal(30, 2)", "uniform(50, 60)")),
            "long": rng.choice(("uniform(0, 1)", "uniform(0, 100)")),
        }[form]
        x = array(names[0], "in", dtype, rows, cols, drawn=drawn)
        w = (
            array(names[1], "in", dtype, rows if across else cols, drawn="uniform(0, 1)")
            if form == "half" and rng.random() < 0.5
            else None
        )
        y = array(names[2], "out", dtype, cols if across else rows)
        style = draw_style(rng, {*names, rows, cols})
        row, col = style.n("row"), style.n("col")
        (mine, bound), (other, last) = ((col, cols), (row, rows)) if across else ((row, rows), (col, cols))
        draft = drafts(
            "accuracy", style, form=form, x=x.name, w=w.name if w else "", y=y.name, cols=cols, mine=mine, bound=bound, other=other,
            last=last, size=rng.choice((64, 128, 256)),
        )  # fmt: skip
        axis = 0 if across else 1
        weighted = x.name if w is None else f"{x.name} * {w.name}{'[:, None]' if across else ''}"
        reference = f"{x.name}.var(axis={axis})" if form == "variance" else f"({weighted}).sum(axis={axis})"
        sizes, _ = row_sizes(rng, rows, cols)
        # Sums stay short enough for the rough version's error to stay below what versions are told apart by.
        large = {rows: 128, cols: 1 << 16} if across else {rows: 1 << 16, cols: 128}
        flaw = {"half": "naive_sum", "variance": "cancelling", "long": "plain_sum"}[form]
        tolerance = {
            "half": "{ rtol = 0.1, atol = 0.1 }",
            "variance": "{ rtol = 0.2, atol = 0.2 }",
            "long": "{ rtol = 1e-4, atol = 1e-4 }",
        }[form]
        args = (x, *((w,) if w else ()), y, scalar(rows), scalar(cols))
        return Problem(
            family, kind, kernel_name(rng, family), args, sizes, large, reference, (flaw, "no_restrict", "tiny_block"), draft, style,
            tolerance=tolerance, require=(f"{rows} > 0", f"{cols} > 0"),
        )  # fmt: skip

    return draw
