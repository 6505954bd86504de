from __future__ import annotations

import pytest

from kernelmate.suggest.recipes.pad_shared import RECIPE

SOURCE = """
#define TILE 32
// /// kernelmate
// sizes = [{{ n = 32 }}]
// grid = "1"
// block = [32, 8]
// [args]
// x = "inout float32[n, n]"
// n = "int32"
// ///
__global__ void k(float* x, int n) {{
  __shared__ {declaration};
  const int lane = threadIdx.x;
  for (int j = threadIdx.y; j < 32; j += 8) tile[j][lane] = x[j * n + lane];
  __syncthreads();
  for (int j = threadIdx.y; j < 32; j += 8) x[j * n + lane] = {read};
  {more}
}}
"""


def padded(
    ask,
    counters,
    declaration: str = "float tile[32][32]",
    read: str = "tile[lane][j]",
    more: str = "",
    conflicts: int = 992,
) -> list[str]:
    """The shared declarations of the candidates."""
    source = SOURCE.format(declaration=declaration, read=read, more=more)
    request = ask(source, counters=counters(bank_conflicts=conflicts))
    texts = [candidate.kernel.source for candidate in RECIPE.candidates(request)]
    return [text[text.index("__shared__ ") + len("__shared__ ") : text.index(";")] for text in texts]


@pytest.mark.parametrize(
    ("declaration", "wanted"),
    [
        ("float tile[32][32]", "float tile[32][33]"),
        ("float tile[TILE][TILE]", "float tile[TILE][TILE + 1]"),
        ("float tile[32][TILE * 2]", "float tile[32][TILE * 2 + 1]"),
        ("double tile[32][32]", "double tile[32][33]"),
        ("__half tile[32][64]", "__half tile[32][66]"),
        ("unsigned char tile[32][128]", "unsigned char tile[32][132]"),
        ("float tile[16][16]", "float tile[16][17]"),
    ],
)
def test_rows_get_one_more_bank(ask, counters, declaration: str, wanted: str) -> None:
    assert padded(ask, counters, declaration) == [wanted]


def test_without_conflicts_nothing_is_padded(ask, counters) -> None:
    assert padded(ask, counters, conflicts=0) == []
    assert (
        list(
            RECIPE.candidates(
                ask(SOURCE.format(declaration="float tile[32][32]", read="tile[lane][j]", more=""), counters=None)
            )
        )
        == []
    )


@pytest.mark.parametrize(
    "declaration", ["float tile[32][33]", "float tile[32][31]", "struct_t tile[32][32]", "float tile[32][N]"]
)
def test_rows_that_are_no_trouble_or_unknown_stay(ask, counters, declaration: str) -> None:
    assert padded(ask, counters, declaration) == []


def test_a_tile_that_no_lane_walks_by_columns_stays(ask, counters) -> None:
    assert padded(ask, counters, read="tile[j][lane]") == []


@pytest.mark.parametrize(
    "more", ["float* p = &tile[0][0];", "float* p = tile[0];", "helper(tile);", "float v = (*tile)[0];"]
)
def test_a_tile_whose_layout_is_relied_on_stays(ask, counters, more: str) -> None:
    assert padded(ask, counters, more=more) == []


def test_several_tiles_are_padded_together_and_each_alone(ask, counters) -> None:
    found = padded(ask, counters, "float tile[32][32], other[32][32]", read="tile[lane][j] + other[lane][j]")
    assert found == [
        "float tile[32][33], other[32][33]",
        "float tile[32][33], other[32][32]",
        "float tile[32][32], other[32][33]",
    ]


def test_the_reason_names_the_tile_and_counts(ask, counters) -> None:
    request = ask(
        SOURCE.format(declaration="float tile[32][32]", read="tile[lane][j]", more=""),
        counters=counters(bank_conflicts=992),
    )
    (candidate,) = RECIPE.candidates(request)
    assert "992 bank conflicts" in candidate.why
    assert "tile[32][32]" in candidate.why
    assert "128 bytes more" in candidate.why


def test_a_comment_says_why_the_row_is_longer(ask, counters) -> None:
    source = SOURCE.format(declaration="float tile[32][TILE]", read="tile[lane][j]", more="")
    (one,) = RECIPE.candidates(ask(source, counters=counters(bank_conflicts=992)))
    said = "// + 1, so that the elements of a column lie in different banks\n"
    assert f"tile[32][TILE + 1];  {said}" in one.kernel.source
    commented = source.replace("tile[32][TILE];", "tile[32][TILE];  // of x")
    (one,) = RECIPE.candidates(ask(commented, counters=counters(bank_conflicts=992)))
    assert "tile[32][TILE + 1];  // of x\n" in one.kernel.source
