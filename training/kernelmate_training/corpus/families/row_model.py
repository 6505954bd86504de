"""What is computed of each row, as data: passes, results, names, and the same as one NumPy expression."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

from kernelmate_training.corpus.expressions import Expr, numpy_text
from kernelmate_training.corpus.families.words import pick
from kernelmate_training.corpus.reducing import Op


@dataclass(frozen=True, slots=True)
class Pass:
    """One reduction over a row.

    Attributes:
        name: of its result. op: how elements are joined.
        expr: of one element, over inputs and earlier results. post: of the joined value, called by `name`; None: as it is.
    """

    name: str
    op: Op
    expr: Expr
    post: Expr | None = None


@dataclass(frozen=True, slots=True)
class RowProgram:
    """What is computed of each row.

    Attributes:
        inputs: arrays of the whole plane. columns: arrays along the row.
        passes: reductions, one after another.
        element: what is stored for each element; None if only rows have results.
        values: what is stored for each row, by output.
        moments: the first two passes are a mean and a variance, which one pass can give.
        online: the first two are a maximum and a sum of exponentials below it, which one pass can give.
    """

    inputs: tuple[str, ...]
    columns: tuple[str, ...]
    passes: tuple[Pass, ...]
    element: Expr | None
    values: tuple[Expr, ...] = ()
    moments: bool = False
    online: Expr | None = None


def reference_of(program: RowProgram, names: Names, cols: str) -> str:
    """The program as one NumPy expression: every result a parameter of a function that is called at once."""
    spelled: dict[str, str] = {**{n: names.of[n] for n in (*program.inputs, *program.columns)}, "count": cols}
    plain = {"sum": "sum", "max": "max", "min": "min"}
    heads, first = [], names.of[program.inputs[0]]
    for one in program.passes:
        value = (
            f"np.broadcast_to({numpy_text(one.expr, spelled)}, {first}.shape).{plain[one.op]}(axis=1, keepdims=True)"
        )
        if one.post is not None:
            value = f"(lambda {one.name}: {numpy_text(one.post, spelled)})({value})"
        heads.append((one.name, value))
    results = []
    if program.element is not None:
        results.append(numpy_text(program.element, spelled))
    results += [f"({numpy_text(value, spelled)})[:, 0]" for value in program.values]
    text = results[0] if len(results) == 1 else f"({', '.join(results)})"
    for name, value in reversed(heads):
        text = f"(lambda {name}: {text})({value})"
    return text


@dataclass(frozen=True)
class Names:
    """What a program's arrays are called."""

    of: Mapping[str, str]

    @classmethod
    def drawn(cls, rng: Random, program: RowProgram) -> Names:
        """Names of a rng's choice that no pass uses."""
        wanted = (*program.inputs, *program.columns, "out", "row_out")
        taken = {p.name for p in program.passes}
        free = [word for word in pick(rng, 30, "array") if word not in taken]
        return cls(dict(zip(wanted, free, strict=False)))
