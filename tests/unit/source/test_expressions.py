from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmate.errors import ContractError
from kernelmate.source import evaluate
from kernelmate.source.expressions import ExpressionError, check_names, names_in

NAMES = {"n": 1000, "block": 256, "x": 7}


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("n", 1000),
        ("  n + 1 ", 1001),
        ("(n + block - 1) // block", 4),
        ("cdiv(n, block)", 4),
        ("cdiv(-1, 2)", 0),
        ("min(n, block, x)", 7),
        ("max(n, 3)", 1000),
        ("-n % 7", 1),
        ("2 ** 10", 1024),
        ("2 ** -1", 0.5),
        ("(-1) ** 1000001", -1),
        ("0 ** 0", 1),
        ("n / 8", 125.0),
        ("7 / 2", 3.5),
        ("n % 4 == 0 and x < 8", True),
        ("n % 3 == 0 or not x", False),
        ("0 < x <= 7", True),
        ("0 < x < 7", False),
        ("1e-5", 1e-5),
        ("0x10", 16),
        ("n != 0 and 8 // n", 0),
        ("256 if n >= 512 else 32", 256),
        ("256 if n < 512 else 64 if x < 7 else 8 // n + x", 7),
    ],
)
def test_arithmetic_is_pythons(expression: str, value: float) -> None:
    result = evaluate(expression, NAMES)
    assert result == value
    assert isinstance(result, type(value))


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "   ",
        "n +",
        "n n",
        "__import__('os')",
        "n.bit_length()",
        "n.real",
        "[n]",
        "n[0]",
        "(n, 1)",
        "'a'",
        "True",
        "lambda: 1",
        "n if x",
        "n if x.y else 1",
        "n := 3",
        "n << 2",
        "n & 1",
        "~n",
        "n in (1,)",
        "n is 1",
        "cdiv(n)",
        "cdiv(n, 1, 2)",
        "min()",
        "min(n, key=abs)",
        "min(*n)",
        "abs(n)",
        "1j",
        "1e999",
        "99999999999999999999",
        "n // 0",
        "n % (x - 7)",
        "n / 0",
        "cdiv(n, 0)",
        "0 ** -1",
        "(-8) ** 0.5",
        "2 ** 64",
        "2 ** 63",
        "10 ** 10 ** 10",
        "9 ** 9 ** 9 ** 9",
        "1e308 * 10",
        "n * n * n * n * n * n * n",
        "(" * 300 + "n" + ")" * 300,
        "-" * 900 + "n",
        "n" * 2000,
        "n\0",
        "m",
        "\udcff",
        "...",
        "f'{n}'",
        "await n",
    ],
)
def test_what_is_not_arithmetic_or_has_no_value_is_a_contract_error_with_a_hint(expression: str) -> None:
    with pytest.raises(ContractError) as caught:
        evaluate(expression, NAMES)
    assert caught.value.hint


@given(st.text(max_size=60) | st.text(alphabet="nx0123456789+-*/%() ,.<>=andorcdivminx", max_size=60))
def test_any_text_has_a_bounded_value_or_is_a_contract_error(text: str) -> None:
    try:
        value = evaluate(text, NAMES)
    except ContractError:
        return
    assert math.isfinite(value)
    assert abs(value) <= 2**63


@given(st.integers(-(2**40), 2**40), st.integers(-(2**20), 2**20).filter(bool))
def test_cdiv_rounds_up(numerator: int, divisor: int) -> None:
    assert evaluate("cdiv(n, x)", {"n": numerator, "x": divisor}) == math.ceil(numerator / divisor)


def test_an_unknown_name_is_reported_at_its_character() -> None:
    with pytest.raises(ExpressionError) as caught:
        check_names(" n + é + colums", ["n", "é", "columns"])
    assert caught.value.offset == 9
    assert caught.value.hint == "Did you mean columns?"


def test_names_are_given_in_order_with_their_places() -> None:
    assert names_in("cdiv(n, block) * max(x, n)") == (("n", 5), ("block", 8), ("x", 21), ("n", 24))
