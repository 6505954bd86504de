"""Families that ask for accuracy: sums in half precision, variances that cancel, long sums in one float."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from kernelmate_training.corpus.drafting import Arg, Code, Draft, Flaws, Kind, Problem, Style, array, draw_style, scalar
from kernelmate_training.corpus.families.maps import row_sizes
from kernelmate_training.corpus.families.words import kernel_name, pick


@dataclass(frozen=True)
class _Sum:
    """Writes the versions of a statistic of each row, or of each column, by one thread.

    Attributes:
        form: `half`, `variance` or `long`.
    """

    style: Style
    form: str
    x: Arg
    w: Arg | None
    y: Arg
    rows: str
    cols: str
    across: bool
    block: int

    def draft(self, flaws: Flaws) -> Draft:
        style, code = self.style, Code(self.style)
        row, col, acc = style.n("row"), style.n("col"), style.n("acc")
        mine, bound, other, last = (col, self.cols, row, self.rows) if self.across else (row, self.rows, col, self.cols)
        code(f"{style.const_word}int {mine} = {style.gid()};")
        code.guard((mine, bound))
        place = style.at(row, self.cols, col)
        value = f"{self.x.name}[{place}]"
        if self.form == "half":
            self._half(code, flaws, value, acc, other, last)
        elif self.form == "variance":
            self._variance(code, flaws, value, acc, other, last)
        else:
            self._long(code, flaws, value, acc, other, last)
        text = {"half": f"__float2half({acc})" if "naive_sum" not in flaws else acc, "variance": acc, "long": acc}[
            self.form
        ]
        code(f"{self.y.name}[{mine}] = {text};")
        block = 32 if "tiny_block" in flaws else self.block
        return code.drafted(flaws, (f"cdiv({bound}, block)",), (block,))

    def _half(self, code: Code, flaws: Flaws, value: str, acc: str, other: str, last: str) -> None:
        weight = f"{self.w.name}[{other}]" if self.w is not None else ""
        if "naive_sum" in flaws:
            code(f"__half {acc} = __float2half(0.0f);")
            code.loop(other, "0", last)
            code(f"{acc} = __hfma({value}, {weight}, {acc});" if weight else f"{acc} = __hadd({acc}, {value});")
        else:
            code(f"float {acc} = 0.0f;")
            code.loop(other, "0", last)
            code(
                f"{acc} += __half2float({value}) * __half2float({weight});"
                if weight
                else f"{acc} += __half2float({value});"
            )
        code.close()

    def _variance(self, code: Code, flaws: Flaws, value: str, acc: str, other: str, last: str) -> None:
        mean, now = self.style.n("acc2"), self.style.n("tmp")
        code(f"float {mean} = 0.0f;", f"float {acc} = 0.0f;")
        code.loop(other, "0", last)
        code(f"{self.style.const_word}float {now} = {value};", f"{mean} += {now};")
        if "cancelling" in flaws:
            code(f"{acc} += {now} * {now};")
        code.close()
        code(f"{mean} /= {last};")
        if "cancelling" in flaws:
            code(f"{acc} = {acc} / {last} - {mean} * {mean};")
            return
        code.loop(other, "0", last)
        code(f"{self.style.const_word}float {now} = {value} - {mean};", f"{acc} += {now} * {now};")
        code.close()
        code(f"{acc} /= {last};")

    def _long(self, code: Code, flaws: Flaws, value: str, acc: str, other: str, last: str) -> None:
        lost, now, new = self.style.n("acc2"), self.style.n("tmp"), self.style.n("stride")
        code(f"float {acc} = 0.0f;")
        if "plain_sum" in flaws:
            code.loop(other, "0", last)
            code(f"{acc} += {value};")
            code.close()
            return
        code(f"float {lost} = 0.0f;")
        code.loop(other, "0", last)
        code(
            f"{self.style.const_word}float {now} = {value} - {lost};",
            f"{self.style.const_word}float {new} = {acc} + {now};",
        )
        code(f"{lost} = ({new} - {acc}) - {now};", f"{acc} = {new};")
        code.close()


def accurate(family: str, kind: Kind, form: str) -> Callable[[Random], Problem]:
    """Statistics that can be had more accurately: `half`, `variance`, `long`."""

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
        plan = _Sum(style, form, x, w, y, rows, cols, across, rng.choice((64, 128, 256)))
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
            family, kind, kernel_name(rng, family), args, sizes, large, reference, (flaw, "no_restrict", "tiny_block"), plan.draft, style,
            tolerance=tolerance, require=(f"{rows} > 0", f"{cols} > 0"),
        )  # fmt: skip

    return draw
