"""Writes reductions in NumPy: as array methods, matrix products, and loops over taps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kernelmate.synthesis.lift.polynomials import NotLifted, Poly
from kernelmate.synthesis.lift.text import ATOM, PRODUCT, SUM, ExpressionWriter, NumpyText
from kernelmate.synthesis.lift.values import ArrayLoad, Fold, Number, Op, free, joined, operation, parts

_INITIAL = {"max": "-np.inf", "min": "np.inf"}


class FunctionWriter(ExpressionWriter):
    """Writer of the lifted function: expressions, and reductions as methods, matrix products or loops."""

    def _fold(self, fold: Fold, order: tuple[str, ...]) -> NumpyText:
        return _reduced(self, fold, order)


def _reduced(writer: ExpressionWriter, fold: Fold, order: tuple[str, ...]) -> NumpyText:
    """Returns the text of a reduction along the remaining axes."""
    taps = [name for name in fold.over if name in writer.loading.taps]
    if taps:
        return _looped(writer, fold, taps, order)
    if fold.op == "sum":
        found = _product(writer, fold, order)
        if found is not None:
            return found
    natural = writer._natural(fold.body, fold.over, order)
    text = writer.value(fold.body, natural)
    missing = [name for name in fold.over if name not in text.axes]
    over = [name for name in fold.over if name in text.axes]
    places = [text.axes.index(name) for name in over]
    rest = tuple(name for name in text.axes if name not in over)
    code, binds = text.code, text.binds
    if over:
        code, binds = f"{text.within(ATOM)}.{fold.op}({_arguments(fold, sorted(places), rest)})", ATOM
    if missing and fold.op == "sum":
        amounts = " * ".join(writer.operand(writer._size(writer.space.extents[name]), (), PRODUCT) for name in missing)  # type: ignore[arg-type]
        return NumpyText(f"{NumpyText(code, rest, binds).within(PRODUCT)} * {amounts}", rest, PRODUCT)
    if missing and fold.op == "prod":
        raise NotLifted("a power as a loop")
    return NumpyText(code, rest, binds)


def _arguments(fold: Fold, places: Sequence[int], rest: Sequence[str]) -> str:
    given = []
    if rest:
        given.append(f"axis={places[0]}" if len(places) == 1 else f"axis=({', '.join(map(str, places))})")
    if fold.op in _INITIAL and fold.body.kind == "float":
        given.append(f"initial={_INITIAL[fold.op]}")
    return ", ".join(given)


def _looped(writer: ExpressionWriter, fold: Fold, taps: Sequence[str], order: tuple[str, ...]) -> NumpyText:
    """Returns the result of a loop over taps, each of which adds (or combines) a shifted array."""
    name = writer.name(fold.hint)
    start = (
        {"sum": "0.0", "prod": "1.0", **_INITIAL}[fold.op]
        if fold.body.kind == "float"
        else {"sum": "0", "prod": "1"}.get(fold.op)
    )
    if start is None:
        raise NotLifted("an extreme of whole numbers in a window")
    writer.line(f"{name} = {start}")
    known, outer = dict(writer.known), writer.indent
    for tap in taps:
        extent = writer.space.extents[tap]
        if extent is None:
            raise NotLifted("a window without a size")
        writer.line(f"for {writer.loading.taps[tap]} in range({writer.size(extent)}):")
        writer.indent += 1
    rest = tuple(one for one in fold.over if one not in taps)
    fold = fold if writer.exact or fold.op != "sum" else replace(fold, body=_unmasked(writer, fold.body))
    inner = _reduced(writer, replace(fold, over=rest), order) if rest else writer.value(fold.body, order)
    if fold.op in ("sum", "prod"):
        sign = "+" if fold.op == "sum" else "*"
        writer.line(f"{name} = {name} {sign} {inner.within(SUM if sign == '+' else PRODUCT)}")
    else:
        writer.line(f"{name} = np.{fold.op}imum({name}, {inner.code})")
    writer.indent, writer.known = outer, known
    return NumpyText(name, inner.axes)


def _unmasked(writer: ExpressionWriter, body: Any) -> Any:
    """Returns a term without guards that only keep an index inside an array padded with zeros."""
    match body:
        case Op(name="select", args=(condition, inner, Number(value=0.0))):
            factors = [inner]
            while any(isinstance(one, Op) and one.name == "multiply" for one in factors):
                factors = [
                    arg
                    for one in factors
                    for arg in (one.args if isinstance(one, Op) and one.name == "multiply" else (one,))
                ]
            implied = {poly for one in factors if isinstance(one, ArrayLoad) for poly in _inside(writer, one)}
            left = joined(
                one
                for one in parts(condition)
                if not (isinstance(one, Op) and one.name == "negative?" and one.args[0].poly in implied)
            )
            return operation("select", (left, inner, Number(0.0)), body.kind, writer.space)
    return body


def _inside(writer: ExpressionWriter, load: ArrayLoad) -> list[Poly]:
    """Returns polynomials that are negative while an index is inside its zero-padded array."""
    shape, _ = writer.loading.axes(load)
    if writer.loading.pads.get((load.array, shape), ("", []))[0] != "constant":
        return []
    sides, indices = writer.loading.domains.placed(load.array, load.at)
    return [poly for side, index in zip(sides, indices, strict=True) for poly in (-index - 1, index - side)]


def _product(writer: ExpressionWriter, fold: Fold, order: tuple[str, ...]) -> NumpyText | None:
    """Returns a sum of products as a matrix product; None if it is not one."""
    body = fold.body
    if not isinstance(body, Op) or body.name != "multiply" or body.kind != "float":
        return None
    first, second = body.args
    mine, theirs = (free(one) - set(writer.loading.taps) for one in body.args)
    over = set(fold.over)
    if not over <= mine or not over <= theirs or mine <= theirs or theirs <= mine:
        return None
    texts = [writer.value(one, writer._natural(one, (), (*order, *fold.over))) for one in (first, second)]
    if any(set(text.axes) != wanted for text, wanted in zip(texts, (mine, theirs), strict=True)):
        return None
    return _matmul(texts, fold.over, order) or _einsum(texts, over, order)


def _matmul(texts: Sequence[NumpyText], over: Sequence[str], order: tuple[str, ...]) -> NumpyText | None:
    if len(over) != 1:
        return None
    for left, right in (texts, texts[::-1]):
        rest = tuple(one for one in order if one in {*left.axes, *right.axes})
        shared = [one for one in left.axes if one in right.axes and one != over[0]]
        rows = [one for one in left.axes if one not in right.axes]
        cols = [one for one in right.axes if one not in left.axes]
        if len(rows) > 1 or len(cols) > 1 or (*shared, *rows, *cols) != rest:
            continue
        if shared:
            if not rows or not cols or left.axes != (*shared, *rows, *over) or right.axes != (*shared, *over, *cols):
                continue
            return NumpyText(f"{left.within(PRODUCT)} @ {right.within(ATOM)}", rest, PRODUCT)
        one = left.within(PRODUCT) if left.axes[-1] == over[0] else f"{left.within(ATOM)}.T"
        other = right.within(ATOM) if right.axes[0] == over[0] else f"{right.within(ATOM)}.T"
        return NumpyText(f"{one} @ {other}", rest, PRODUCT)
    return None


def _einsum(texts: Sequence[NumpyText], over: set[str], order: tuple[str, ...]) -> NumpyText:
    rest = tuple(one for one in order if any(one in text.axes for text in texts))
    letters: dict[str, str] = {}
    for axis in (*rest, *sorted(over)):
        letters[axis] = "abcdefghijklmnop"[len(letters)]
    given = ",".join("".join(letters[axis] for axis in text.axes) for text in texts)
    wanted = "".join(letters[axis] for axis in rest)
    return NumpyText(f'np.einsum("{given}->{wanted}", {texts[0].code}, {texts[1].code})', rest)
