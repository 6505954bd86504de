"""Rewrites of Triton kernels: what they write, that the emulator judges it right, and where they do not apply."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelmate.compiler.targets import find_target
from kernelmate.config import load_settings
from kernelmate.errors import SourceError
from kernelmate.records import Contract, Kernel
from kernelmate.session import Session
from kernelmate.source import contract_for, load_kernel, load_kernels
from kernelmate.source.triton import same_elsewhere
from kernelmate.suggest.triton import ALL
from kernelmate.suggest.triton.program import TritonProgram, TritonRewrite

pytest.importorskip("triton", reason="triton is not installed: make train-tools")

SAMPLES = Path(__file__).parents[2] / "data" / "triton" / "recipes" / "kernels.py"
KERNELS = {kernel.name: kernel for kernel in load_kernels(SAMPLES)}
RECIPES = {recipe.name: recipe for recipe in ALL}
RESIDENT = 20
"""Programs that the GPU is said to hold at once, few enough for small launches."""


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session(load_settings(seed=7, timeout_s=300, backend="emulator")) as session:
        yield session


def program_of(kernel: Kernel) -> TritonProgram:
    return TritonProgram(kernel, contract_for(kernel), find_target("H100 SXM"), RESIDENT)


def rewrites(recipe: str, kernel: Kernel) -> list[TritonRewrite]:
    return list(RECIPES[recipe].rewrites(program_of(kernel)))


def rewritten(recipe: str, kernel: Kernel) -> tuple[Kernel, Contract]:
    """The kernel and its contract after the recipe's first rewrite."""
    first = rewrites(recipe, kernel)[0]
    made = program_of(kernel).applied(first)
    assert made is not None, first
    return made


def altered(tmp_path: Path, name: str, *changes: tuple[str, str]) -> Kernel:
    """A sample with changes in its file, each of a text that is there."""
    path = Path(shutil.copy(SAMPLES, tmp_path))
    text = path.read_text()
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    path.write_text(text)
    return load_kernel(f"{path}::{name}")


WRITTEN = {
    ("drop-masks", "add"): ("    x = tl.load(x_ptr + offsets)\n", "offsets = start + tl.arange(0, BLOCK)  # of this program\n"),
    ("drop-masks", "product"): ("x = tl.load(pa)\n", "mask=columns[None, :] < N, other=0.0", "inside = columns[None, :] < N\n"),
    ("group-order", "product"): (
        "block_y, block_x = tl.swizzle2d(tl.program_id(1), tl.program_id(0), tl.num_programs(1), tl.num_programs(0), 8)",
        "rows = block_x * BM",
        "columns = block_y * BN",
    ),
    ("group-order", "product_in_row_order"): ("i, j = tl.swizzle2d(i, j, tl.num_programs(0) // across, across, 8)",),
    ("tf32-products", "product_in_row_order"): ('input_precision="tf32"',),
    ("one-pass", "softmax_in_passes"): (
        '# require = ["N > 0", "N <= 512"]',
        "BLOCK: tl.constexpr = 512",
        "    # The sum of exponentials.\n    s = tl.sum(tl.exp(x - m), axis=0)\n    tl.store(",
    ),
    ("evict-policy", "softmax_in_passes"): (
        'other=-float("inf"), eviction_policy="evict_last")',
        'mask=i < N, eviction_policy="evict_first")',
    ),
    ("evict-policy", "rms_norm"): ('tl.load(w + i, mask=inside, eviction_policy="evict_last")', 'other=0.0, eviction_policy="evict_first"'),
    ("tile-of-rows", "rms_norm"): (
        '# grid = ["cdiv(rows, ROWS)"]',
        "row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None]",
        "tl.sum(v * v, axis=1, keep_dims=True)",
        "tl.load(w + i, mask=inside)",
        "rms_norm[(triton.cdiv(x.shape[0], 2),)]",
    ),
    ("resident-programs", "rms_norm"): (
        '# grid = ["min(rows, 20)"]',
        "    # Columns of the block.\n    i = tl.arange(0, BLOCK)\n    inside = i < columns\n    w_values = tl.load(w + i, mask=inside)\n"
        "    for row in range(tl.program_id(0), rows, tl.num_programs(0)):\n        v = ",
        "rms_norm[(min(x.shape[0], 20),)]",
    ),
    ("wide-loads", "double_rows"): ("    columns = columns // 4 * 4\n    at = ",),
    ("neutral-elements", "row_max"): ('mask=i < columns, other=-float("inf"))',),
    ("float32-sums", "squares_in_half"): ("tl.sum((v * v).to(tl.float32), axis=0)",),
}  # fmt: skip


@pytest.mark.exhaustive(share=0.3)
@pytest.mark.parametrize(("recipe", "name"), WRITTEN)
def test_a_rewrite_is_written_in_place_and_judged_right(recipe: str, name: str, session: Session) -> None:
    kernel, _ = rewritten(recipe, KERNELS[name])
    for text in WRITTEN[recipe, name]:
        assert text in kernel.unit.text
    assert same_elsewhere(KERNELS[name], kernel)
    compared = session.compare(KERNELS[name], kernel)
    (verdict,) = compared.candidate
    assert verdict.compiled, verdict.findings
    if recipe == "tf32-products":
        assert verdict.correct is False, "the derived tolerance of a float32 product is narrower than TF32"
    else:
        assert verdict.correct, verdict.findings


def counted(recipe: str, name: str, session: Session) -> tuple[tuple[int, int], tuple[int, int]]:
    """Requests and sectors of global loads at the headline size, before and after a recipe."""
    compared = session.compare(KERNELS[name], rewritten(recipe, KERNELS[name])[0])
    found = []
    for verdict in (compared.baseline[0], compared.candidate[0]):
        assert verdict.counters is not None
        requests, sectors = verdict.counters.global_load_requests, verdict.counters.global_load_sectors
        assert requests is not None
        assert sectors is not None
        found.append((requests, sectors))
    return found[0], found[1]


def test_wide_loads_ask_for_a_quarter_of_the_requests(session: Session) -> None:
    before, after = counted("wide-loads", "double_rows", session)
    assert after[0] * 3 < before[0]
    assert after[1] <= before[1]


def test_one_pass_reads_a_third_of_the_sectors(session: Session) -> None:
    before, after = counted("one-pass", "softmax_in_passes", session)
    assert after[1] * 3 == before[1]


@pytest.mark.parametrize(
    ("turns", "index"),
    [
        ("range(tl.cdiv(N, BLOCK))", "first * BLOCK + tl.arange(0, BLOCK)"),
        ("tl.range(0, tl.cdiv(N, BLOCK))", "tl.arange(0, BLOCK) + BLOCK * first"),
        ("tl.range(0, N, BLOCK)", "first + tl.arange(0, BLOCK)"),
    ],
)
def test_one_pass_is_the_same_for_loops_that_count_blocks(tmp_path: Path, turns: str, index: str) -> None:
    counting = altered(
        tmp_path, "softmax_in_passes", ("range(0, N, BLOCK)", turns), ("first + tl.arange(0, BLOCK)", index)
    )
    expected, _ = rewritten("one-pass", KERNELS["softmax_in_passes"])
    kernel, contract = rewritten("one-pass", counting)
    assert kernel.source == expected.source
    assert "N <= 512" in contract.require


def test_exact_products_are_offered_for_float32_operands_alone(tmp_path: Path) -> None:
    default = altered(tmp_path, "product_in_row_order", (', input_precision="ieee"', ""))
    made = [program_of(default).applied(one) for one in rewrites("exact-products", default)]
    texts = [kernel.source for kernel, _ in filter(None, made)]
    assert [re.findall(r'input_precision="(\w+)"', text) for text in texts] == [["tf32x3"], ["ieee"]]
    assert rewrites("exact-products", KERNELS["product"]) == []


def test_a_wrong_maximum_is_repaired_by_the_neutral_element(session: Session) -> None:
    found = session.optimize(KERNELS["row_max"], "fix it")
    assert found.best == 0
    assert found.candidates[0].candidate.author == "recipe:neutral-elements"
    assert found.candidates[0].verdict.accepted


def test_rewrites_compose_and_are_named_in_order(session: Session) -> None:
    found = session.optimize(KERNELS["softmax_in_passes"], "make it faster", max_candidates=24)
    authors = [judged.candidate.author for judged in found.candidates]
    assert authors[0].startswith("recipe:one-pass"), authors
    assert any(author.startswith("recipe:one-pass+") for author in authors), authors


NOT_APPLIED = {
    "a size that the block does not divide": ("drop-masks", "add", ("n % 256 == 0", "n % 128 == 0")),
    "no divisor of the size": ("drop-masks", "add", ('# require = ["n % 256 == 0"]\n', "")),
    "a bound one beyond the size": ("drop-masks", "add", ("mask = offsets < n", "mask = offsets < n - 1")),
    "a grid of other blocks": ("drop-masks", "add", ("cdiv(n, BLOCK)", "cdiv(n, BLOCK) + 1")),
    "a size that changes": ("drop-masks", "add", ("    start = tl", "    n = n // 2\n    start = tl")),
    "a multiple of 16, which the compiler knows": ("wide-loads", "double_rows", ("columns % 4 == 0", "columns % 16 == 0")),
    "one row of blocks": ("group-order", "product", ("N = 168", "N = 96")),
    "a row too long for one program": ("one-pass", "softmax_in_passes", ("N = 300", "N = 20000")),
    "a launch whose block is computed": ("one-pass", "softmax_in_passes", ("def rms_reference", "def run(X, Y, B):\n    softmax_in_passes[(4,)](X, Y, 9, BLOCK=B)\n\n\ndef rms_reference")),
    "a turn that is used by itself": ("one-pass", "softmax_in_passes", ("for first in range(0, N, BLOCK):\n        i = first", "for first in range(tl.cdiv(N, BLOCK)):\n        i = first")),
    "an array that is changed in place": ("one-pass", "softmax_in_passes", ("tl.store(Y + i", "tl.store(X + i")),
    "a row number that is used otherwise": ("tile-of-rows", "rms_norm", ("    inside = i", "    other = tl.program_id(0)\n    inside = i")),
    "a launch with a grid function": ("tile-of-rows", "rms_norm", ("rms_norm[(x.shape[0],)]", "rms_norm[lambda meta: (x.shape[0],)]")),
    "no data that programs share": ("resident-programs", "rms_norm", ("tl.load(w + i, mask=inside)", "tl.load(w + row + i, mask=inside)")),
    "nothing that is read again": ("evict-policy", "add", ("mask = offsets < n", "mask = offsets < n")),
    "a neutral element in other words": ("neutral-elements", "row_max", ("mask=i < columns", "mask=i < columns, other=float('-inf')")),
    "a policy of the user": ("evict-policy", "rms_norm", ("tl.load(w + i, mask=inside)", 'tl.load(w + i, mask=inside, eviction_policy="evict_first")')),
}  # fmt: skip


@pytest.mark.parametrize("case", NOT_APPLIED)
def test_a_recipe_leaves_a_kernel_alone_where_it_is_not_certain(case: str, tmp_path: Path) -> None:
    recipe, name, change = NOT_APPLIED[case]
    assert rewrites(recipe, altered(tmp_path, name, change)) == []


def test_two_statements_on_a_line_are_not_separated(tmp_path: Path) -> None:
    joined = altered(
        tmp_path, "double_rows", ("BLOCK: tl.constexpr):\n    at = ", "BLOCK: tl.constexpr):\n    two = 2; at = ")
    )
    assert len(rewrites("wide-loads", joined)) == 1
    one_line = (
        "def one_line(x, y, columns, BLOCK: tl.constexpr): tl.store(y + columns, tl.load(x + columns))\n\n\ndef unused("
    )
    with pytest.raises(SourceError, match="several statements"):
        rewrites("wide-loads", altered(tmp_path, "one_line", ("def double_rows(", one_line)))


def test_a_constant_that_the_kernel_changes_is_not_its_value(tmp_path: Path) -> None:
    changed = altered(tmp_path, "add", ("    start = tl", "    BLOCK = BLOCK * 1\n    start = tl"))
    assert rewrites("drop-masks", changed) == []


def test_the_documentation_names_every_recipe() -> None:
    text = (Path(__file__).parents[3] / "docs" / "triton.md").read_text()
    rows = {row.split("`")[1] for row in text.splitlines() if row.startswith("| `") and row.count("|") == 5}
    assert {recipe.name for recipe in ALL} <= rows
