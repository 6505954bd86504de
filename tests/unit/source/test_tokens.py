"""The lexer on long texts that change: only what differs is read again, and the tokens are those of the whole text."""

from __future__ import annotations

import random

import pytest

from kernelmate.source.tokens import LONG_TEXT, _lex_again, _Lexer, lex

PIECES = (
    "float a = b * 1.5e-3f;\n", "#define MAX(a, b) ((a) > (b) ? \\\n  (a) : (b))\n", "// a note \\\n still a note\n",
    "/* a block\n # not a line\n */ int c;\n", 'auto s = R"x(raw // " text)x";\n', "k<<<1, 2>>>(a, b);\n", "#if 0 // no\n",
    "#endif\n", "const char* s = \"a \\\" b\";\n", "char c = '\\'';\n", "__global__ void k(int n) { if (n) { n = 1'000; } }\n",
    "\n", "  # pragma unroll\n", "#", '"', "/*", "*/", "//", "\\\n", "\\", "'", 'R"y(', ')y"', "<", "{", "x", " ", "\n\n",
)  # fmt: skip


def changed(text: str, draw: random.Random) -> str:
    """The text with one span replaced by pieces."""
    start = draw.randrange(len(text) + 1)
    end = min(len(text), start + draw.choice((0, 0, 1, 2, 30, 500)))
    return text[:start] + "".join(draw.choices(PIECES, k=draw.choice((0, 1, 1, 3)))) + text[end:]


@pytest.mark.parametrize("seed", range(40))
def test_a_changed_text_has_the_tokens_of_the_whole_text(seed: int) -> None:
    draw = random.Random(seed)
    text = "".join(draw.choices(PIECES[:13], k=200))
    before = _Lexer(text).result()
    for _ in range(40):
        text = changed(text, draw)
        whole = _Lexer(text).result()
        assert _lex_again(text, before) == whole
        before = whole


def test_a_long_text_is_read_again_only_where_it_changed() -> None:
    text = "__device__ int f(int a) { return a; }  // one\n" * (LONG_TEXT // 40)
    middle = text.index("return a;", len(text) // 2)
    before, after = lex(text), lex(f"{text[:middle]}return ab;{text[middle + 9 :]}")
    kept = sum(one is other for one, other in zip(before.tokens, after.tokens, strict=True))
    assert kept > len(before.tokens) // 4
    assert after == _Lexer(after.text).result()
