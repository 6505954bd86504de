from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kernelmate.errors import ContractError, SourceError
from kernelmate.records import Contract, Kernel
from kernelmate.source import (
    apply_edits,
    change_launch,
    file_text,
    find_kernels,
    infer_contract,
    load_kernel,
    parse_contract,
    read_units,
    text_unit,
    with_text,
    write_contract,
)
from kernelmate.source.line_ends import normal_text, restored

TOML = (
    "/// kernelmate",
    "sizes = [{ n = 1000, m = 3 }]   # why",
    'grid = "cdiv(n, block)"   # one thread each',
    "block = 256",
    "[args]",
    'x = "inout float32[n]"',
    'n = "int32"',
    'm = "int32"',
    "///",
)
BLOCK = "".join(f"// {line}\n" for line in TOML)
KERNEL = "__global__ void k(float *x, int n, int m) {}\n"


def host(launch: str) -> str:
    return f"void f(float *p, int count, S s) {{\n  {launch};\n}}\n"


def kernel_of(text: str) -> Kernel:
    return next(kernel for kernel in find_kernels(text_unit(text, "k.cu")) if kernel.name.endswith("k"))


def contract_of(kernel: Kernel) -> Contract:
    contract = parse_contract(kernel)
    assert contract is not None
    return contract


# ------------------------------------------------------------------------------------------------------- edits


def test_edits_apply_together_and_the_kernel_is_found_again() -> None:
    kernel = kernel_of("int a;\n" + KERNEL + "int b;\n")
    x = kernel.unit.text.index("*x")
    changed = apply_edits(
        kernel, [(kernel.end - 1, kernel.end - 1, " x[0] = 1; "), (0, 4, ""), (x, x, "__restrict__ ")]
    )
    assert changed.unit.text == "a;\n__global__ void k(float __restrict__ *x, int n, int m) { x[0] = 1; }\nint b;\n"
    assert changed.source.startswith("__global__")
    assert kernel.unit.text.startswith("int a;")


@pytest.mark.parametrize("edits", [[(0, 3, ""), (2, 5, "")], [(-1, 2, "")], [(3, 2, "")], [(0, 10_000, "")]])
def test_edits_that_overlap_or_leave_the_text_are_refused(edits: list[tuple[int, int, str]]) -> None:
    with pytest.raises(SourceError, match="overlaps another or leaves the text"):
        apply_edits(kernel_of(KERNEL), edits)


def test_an_edit_that_loses_the_kernel_is_refused() -> None:
    kernel = kernel_of(KERNEL)
    with pytest.raises(SourceError, match="k is gone"):
        apply_edits(kernel, [(0, len("__global__"), "__device__")])


def on_disk(tmp_path: Path, data: bytes) -> Kernel:
    path = tmp_path / "k.cu"
    path.write_bytes(data)
    return load_kernel(str(path))


def test_line_ends_and_byte_order_mark_survive_byte_for_byte(tmp_path: Path) -> None:
    data = (
        "\ufeff// größe\r\nint a;\nint b;\r\n\r\n__global__ void k(float *x) {\r\n  x[0] = 1;\r\n}\r\nint c;".encode()
    )
    kernel = on_disk(tmp_path, data)
    assert "\r" not in kernel.unit.text
    assert (kernel.line, kernel.column) == (5, 17)
    assert file_text(kernel).encode() == data
    at = kernel.unit.text.index("x[0]")
    changed = apply_edits(kernel, [(at, at + 4, "x[1]"), (at, at, "// two\n  ")])
    assert file_text(changed).encode() == data.replace(b"x[0]", b"// two\r\n  x[1]")


LINES = st.lists(st.tuples(st.sampled_from(["a", "b", "", "é", "c\rd"]), st.sampled_from(["\n", "\r\n"])), max_size=12)


@given(LINES, st.lists(st.sampled_from(["a", "b", "", "é", "new"]), max_size=12), st.booleans())
def test_restoring_line_ends_keeps_unchanged_files_and_loses_no_text(
    old: list[tuple[str, str]], new: list[str], mark: bool
) -> None:
    file = ("\ufeff" if mark else "") + "".join(line + end for line, end in old)
    assert restored(file, normal_text(file)) == file
    text = "\n".join(new)
    assert normal_text(restored(file, text)) == text
    assert restored(file, text).startswith("\ufeff") == mark


def test_a_unit_whose_text_was_replaced_by_hand_still_gives_the_whole_file(tmp_path: Path) -> None:
    kernel = on_disk(tmp_path, b"int a;\r\n__global__ void k() {}\r\n")
    moved = replace(kernel, unit=replace(kernel.unit, text=kernel.unit.text.replace("{}", "{\n}")))
    assert file_text(moved) == "int a;\r\n__global__ void k() {\r\n}\r\n"


# --------------------------------------------------------------------------------------------- contract blocks


def test_a_new_block_goes_above_the_template_line_with_its_indentation() -> None:
    text = "namespace q {\n  // prose\n  template <typename T>\n  __global__ void k(float *x, int n) {}\n}\nvoid f() { q::k<int><<<1, 2>>>(p, c); }\n"
    kernel = kernel_of(text)
    contract = infer_contract(kernel)
    changed = write_contract(kernel, contract)
    lines = changed.unit.text.split("\n")
    assert lines[2] == "  // /// kernelmate"
    assert lines[lines.index("  // ///") + 1] == "  template <typename T>"
    assert replace(contract_of(changed), line=None, inferred=True, guessed=contract.guessed) == contract


def test_only_the_values_that_change_are_rewritten() -> None:
    kernel = kernel_of(BLOCK + KERNEL)
    contract = contract_of(kernel)
    changed = write_contract(
        kernel, replace(contract, block=("32", "8"), grid=("n",), shared="block * 4", require=("n % 4 == 0",))
    )
    assert changed.unit.text == (BLOCK + KERNEL).replace('"cdiv(n, block)"', '"n"').replace(
        "block = 256\n",
        'block = [32, 8]\n// shared = "block * 4"\n// require = ["n % 4 == 0"]\n',
    )
    assert write_contract(changed, contract_of(changed)) == changed


def test_a_block_that_changes_otherwise_is_written_anew_where_it_stands() -> None:
    named = BLOCK.replace("// sizes", '// kernel = "k"\n// sizes')
    kernel = kernel_of(KERNEL + named + "// end\n")
    contract = replace(contract_of(kernel), sizes=({"n": 5, "m": 1},))
    changed = write_contract(kernel, contract)
    assert changed.unit.text.startswith(KERNEL + '// /// kernelmate\n// kernel = "k"\n// sizes = [{ n = 5, m = 1 }]\n')
    assert changed.unit.text.endswith("// ///\n// end\n")
    assert replace(contract_of(changed), line=contract.line) == contract


# ---------------------------------------------------------------------------------------------------- launches


@pytest.mark.parametrize(
    ("launch", "change", "becomes"),
    [
        (
            "k<<<(count + 255) / 256, 256>>>(p, count, 3)",
            {"block": "512"},
            "k<<<(count + 511) / 512, 512>>>(p, count, 3)",
        ),
        ("k<<<g, b>>>(p, count, 3)", {"block": "512"}, "k<<<(count + 511) / 512, 512>>>(p, count, 3)"),
        (
            "k<<<dim3(g), dim3(b), 0, st>>>(p, a + b, 3)",
            {"block": "64"},
            "k<<<(a + b + 63) / 64, 64, 0, st>>>(p, a + b, 3)",
        ),
        ("k<<<g, b>>>(p, s.n, 3)", {"block": ["32", "8"]}, "k<<<(s.n + 255) / 256, dim3(32, 8)>>>(p, s.n, 3)"),
        (
            "k<<<g, b>>>(p, count, 3)",
            {"grid": "cdiv(n, block * m)"},
            "k<<<(count + (256 * 3) - 1) / (256 * 3), b>>>(p, count, 3)",
        ),
        (
            "k<<<g, b>>>(p, count, 3)",
            {"grid": ["min(n, 8)", "m"]},
            "k<<<dim3((count < 8 ? count : 8), 3), b>>>(p, count, 3)",
        ),
        ("k<<<g, b>>>(p, count, 3)", {"shared": "block * 4"}, "k<<<g, b, 256 * 4>>>(p, count, 3)"),
        (
            "k<<<g, b>>>(p, count, 3)",
            {"block": "64", "shared": "n * 4"},
            "k<<<(count + 63) / 64, 64, count * 4>>>(p, count, 3)",
        ),
        ("k<<<g, b, old, st>>>(p, count, 3)", {"shared": "1024"}, "k<<<g, b, 1024, st>>>(p, count, 3)"),
        ("k<<<g, b>>>(p, c ? 1 : 2, 3)", {"grid": "cdiv(n, 4)"}, "k<<<(((c ? 1 : 2) + 3) / 4), b>>>(p, c ? 1 : 2, 3)"),
        ("k<<<g, b>>>(p, c, 3)", {"grid": "max(n, m)"}, "k<<<(c > 3 ? c : 3), b>>>(p, c, 3)"),
        (
            "k<<<g, b>>>(p, c, 3)",
            {"block": "512 if n >= 64 else 32"},
            "k<<<((c + (c >= 64 ? 512 : 32) - 1) / (c >= 64 ? 512 : 32)), (c >= 64 ? 512 : 32)>>>(p, c, 3)",
        ),
        (
            "k<<<g, b>>>(p, c, d)",
            {"grid": "n if n >= 64 or m > 2 else 1"},
            "k<<<(c >= 64 || d > 2 ? c : 1), b>>>(p, c, d)",
        ),
        ("k<<<g, b>>>(p, c << 2, 3)", {"grid": "n"}, "k<<<(c << 2), b>>>(p, c << 2, 3)"),
    ],
)
def test_every_launch_follows_the_contract(launch: str, change: dict[str, str | list[str]], becomes: str) -> None:
    text = BLOCK + KERNEL + host(launch) + f"#define AGAIN(p, count) {launch}\n"
    changed = change_launch(kernel_of(text), **change)  # type: ignore[arg-type]
    assert changed.unit.text.endswith(KERNEL + host(becomes) + f"#define AGAIN(p, count) {becomes}\n")
    contract = contract_of(changed)
    for key, value in change.items():
        wanted = value if key == "shared" else (value,) if isinstance(value, str) else tuple(value)
        assert getattr(contract, key) == wanted


def test_numbers_that_only_the_old_launch_used_go() -> None:
    launch = "  const int all = rows * 3;\n  const int blocks = (all + 255) / 256;\n  k<<<blocks, 256>>>(p, rows, 3);\n"
    text = BLOCK + KERNEL + f"void run(float* p, int rows) {{\n{launch}}}\n"
    changed = change_launch(kernel_of(text), grid="n").unit.text
    assert "  const int blocks = rows;\n  k<<<blocks, 256>>>(p, rows, 3);\n" in changed
    assert "int all" not in changed
    used = text.replace("(p, rows, 3);\n}", "(p, rows, 3);\n  report(all);\n}")
    assert "int all" in change_launch(kernel_of(used), grid="n").unit.text


@pytest.mark.parametrize(
    ("given", "grid"),
    [
        ("int all = count * 3;", "(all + 1023) / 1024"),
        ("const size_t all = (count * 3);", "(all + 1023) / 1024"),
        ("int all = count * 3; count -= 1;", "(count * 3 + 1023) / 1024"),
        ("{ int all = count * 3; use(all); }", "(count * 3 + 1023) / 1024"),
        ("int all = count * 3; all += 2;", "(count * 3 + 1023) / 1024"),
    ],
)
def test_a_product_that_the_host_code_holds_is_named_in_the_new_grid(given: str, grid: str) -> None:
    text = BLOCK + KERNEL + f"void run(float* p, int count) {{\n  {given}\n  k<<<f(all), 256>>>(p, count, 3);\n}}\n"
    changed = change_launch(kernel_of(text), grid="cdiv(n * m, 1024)").unit.text
    assert f"  {given}\n  k<<<{grid}, 256>>>" in changed


def test_a_size_that_only_the_grid_has_is_taken_from_it() -> None:
    block = BLOCK.replace('"cdiv(n, block)"', '["q", "n"]').replace("{ n", "{ q = 4, n")
    text = block + KERNEL + "void run(float* p, int parts, int n) {\n  k<<<dim3(parts, n), 256>>>(p, n, 3);\n}\n"
    assert "dim3(parts, 7)" in change_launch(kernel_of(text), grid=["q", "7"]).unit.text


def test_a_size_without_an_argument_at_the_launch_is_refused_at_its_line() -> None:
    block = BLOCK.replace('m = "int32"', 'm = "int32 = 1"')
    text = block + KERNEL + host("k<<<m, 256>>>(p, count, 1)")
    with pytest.raises(SourceError) as caught:
        change_launch(kernel_of(text), grid="m")
    assert "does not say what m is" in caught.value.message
    assert (caught.value.line, caught.value.column) == (12, 3)


def test_an_illegal_launch_is_refused() -> None:
    with pytest.raises(ContractError, match="over the 1024 threads"):
        change_launch(kernel_of(BLOCK + KERNEL), block="2048")
    with pytest.raises(ContractError, match="'q' is not defined"):
        change_launch(kernel_of(BLOCK + KERNEL), grid="q")


def test_a_kernel_without_a_block_follows_the_contract_it_is_given() -> None:
    text = KERNEL + host("k<<<(count + 255) / 256, 256>>>(p, count, 3)")
    kernel = kernel_of(text)
    with pytest.raises(SourceError, match="no contract to change"):
        change_launch(kernel, block="128")
    changed = change_launch(kernel, block="128", grid="cdiv(n, block)", contract=infer_contract(kernel))
    assert changed.unit.text == KERNEL + host("k<<<(count + 127) / 128, 128>>>(p, count, 3)")


@pytest.mark.parametrize(
    ("launch", "becomes"),
    [
        ("k<<<(count + threads - 1) / threads, threads>>>(p, count, 3)",) * 2,
        ("k<<<4, threads>>>(p, count, 3)", "k<<<(count + threads - 1) / threads, threads>>>(p, count, 3)"),
    ],
)
@pytest.mark.parametrize(
    "given", ["const int threads = {};", "static constexpr unsigned threads = {};", "auto threads = {};"]
)
def test_a_block_that_has_a_name_keeps_it(given: str, launch: str, becomes: str) -> None:
    text = BLOCK + KERNEL + host(f"{given.format(256)} {launch}")
    changed = change_launch(kernel_of(text), block="64").unit.text
    assert f"{given.format(64)} {becomes};" in changed
    again = change_launch(kernel_of(text.replace("= 256;", "= 64;")), block="64").unit.text
    assert again == changed


@pytest.mark.parametrize(
    "given",
    [
        "int threads = 256; threads /= 2;",
        "const int threads = 256; use(threads);",
        "const int threads = 256; j<<<1, threads>>>(3);",
        "const int threads = n;",
    ],
)
def test_a_name_that_serves_others_too_is_left(given: str) -> None:
    text = BLOCK + KERNEL + "__global__ void j(int n) {}\n" + host(f"{given} k<<<1, threads>>>(p, count, 3)")
    changed = change_launch(kernel_of(text), block="64").unit.text
    assert given in changed
    assert "k<<<(count + 63) / 64, 64>>>" in changed


SIDES = BLOCK.replace('"cdiv(n, block)"', '["cdiv(n, 32)", "cdiv(m, 4)"]').replace("block = 256", "block = [32, 4]")


@pytest.mark.parametrize(
    ("above", "block", "grid", "changed"),
    [
        ("#define BX 32\n#define BY 4\n", "BX, BY", "(count + BX - 1) / BX, (3 + BY - 1) / BY", "#define BY 8"),
        ("#define BX 32\nconst int BY = 4;\n", "BX, BY", "up(count, BX), up(3, BY)", "const int BY = 8;"),
        ("", "32, 4", "(count + block.x - 1) / block.x, (3 + block.y - 1) / block.y", "dim3 block(32, 8);"),
    ],
)
@pytest.mark.parametrize("side", ["cdiv(m, block_y)", "cdiv(m, 8)"])
def test_the_names_of_a_blocks_sides_are_kept(above: str, block: str, grid: str, changed: str, side: str) -> None:
    launch = f"dim3 block({block}); dim3 grid({grid}); k<<<grid, block>>>(p, count, 3)"
    text = above + SIDES + KERNEL + host(launch)
    result = change_launch(kernel_of(text), grid=["cdiv(n, 32)", side], block=["32", "8"]).unit.text
    assert changed in result
    assert side != "cdiv(m, block_y)" or f"dim3 grid({grid}); k<<<grid, block>>>(p" in result
    assert "BX" not in above or "dim3 block(BX, BY)" in result


@pytest.mark.parametrize(
    ("grid", "becomes"),
    [
        ("cdiv(n * m * 32, 256)", "(static_cast<size_t>(count) * 3 * 32 + kThreads - 1) / kThreads"),
        ("cdiv(n, 1024)", "(count + kThreads * 4 - 1) / (kThreads * 4)"),
        ("cdiv(n, 1000)", "(count + 999) / 1000"),
    ],
)
def test_the_name_of_the_threads_stays_in_a_new_grid(grid: str, becomes: str) -> None:
    launch = "k<<<(count + kThreads - 1) / kThreads, kThreads>>>(p, count, 3)"
    block = BLOCK.replace('"cdiv(n, block)"', '"cdiv(n, 256)"')
    text = "constexpr int kThreads = 256;\n" + block + KERNEL + host(launch)
    assert f"k<<<{becomes}, kThreads>>>" in change_launch(kernel_of(text), grid=grid).unit.text


@pytest.mark.parametrize(
    ("body", "becomes"),
    [
        (
            "const int size = 256; const int blocks = CEIL_DIV(count, size); k<<<blocks, size>>>(p, count, 3);",
            "const int size = 64; const int blocks = CEIL_DIV(count, 16); k<<<blocks, size>>>(p, count, 3);",
        ),
        (
            "dim3 const size{256}; dim3 const blocks{static_cast<uint32_t>((count + 255) / 256)}; k<<<blocks, size>>>(p, count, 3);",
            "dim3 const size{64}; dim3 const blocks{static_cast<uint32_t>((count + 15) / 16)}; k<<<blocks, size>>>(p, count, 3);",
        ),
        (
            "dim3 size{256}; dim3 blocks{9}; k<<<blocks, size>>>(p, count, 3);",
            "dim3 size{64}; dim3 blocks{static_cast<unsigned>((count + 15) / 16)}; k<<<blocks, size>>>(p, count, 3);",
        ),
    ],
)
def test_variables_of_one_launcher_follow_beside_those_of_another(body: str, becomes: str) -> None:
    other = "void other(int count) {\n  const int size = 256; const int blocks = CEIL_DIV(count, size); o<<<blocks, size>>>(count);\n}\n"
    text = BLOCK + KERNEL + other + f"void run(float* p, int count) {{\n  {body}\n}}\n"
    changed = change_launch(kernel_of(text), grid="cdiv(n, 16)", block="64").unit.text
    assert changed.endswith(f"{other}void run(float* p, int count) {{\n  {becomes}\n}}\n")


def test_a_side_that_other_code_uses_keeps_its_value() -> None:
    text = (
        "#define BX 32\n#define BY 4\n" + SIDES + KERNEL + host("k<<<dim3(9, 9), dim3(BX, BY)>>>(p, count, 3); use(BY)")
    )
    result = change_launch(kernel_of(text), block=["32", "8"]).unit.text
    assert "#define BY 4" in result
    assert "dim3(32, 8)>>>" in result


def test_a_count_of_blocks_in_a_variable_follows_in_its_declaration() -> None:
    text = BLOCK + KERNEL + host("const unsigned int blocks = (count + 255) / 256; k<<<blocks, 256>>>(p, count, 3)")
    changed = change_launch(kernel_of(text), block="64").unit.text
    assert "const unsigned int blocks = (count + 63) / 64; k<<<blocks, 64>>>(p, count, 3)" in changed
    used = text.replace("k<<<blocks", "use(blocks); k<<<blocks")
    assert "k<<<(count + 63) / 64, 64>>>" in change_launch(kernel_of(used), block="64").unit.text


def test_no_zero_stays_where_shared_memory_was() -> None:
    text = BLOCK + KERNEL + host("k<<<1, 256, 256 * sizeof(float)>>>(p, count, 3)")
    shared = change_launch(kernel_of(text), shared="32 * 4")
    assert "k<<<1, 256>>>(p, count, 3)" in change_launch(shared, shared="0").unit.text


def test_a_written_out_cap_of_the_grid_is_replaced_by_the_new_cap() -> None:
    kernel = kernel_of(BLOCK + KERNEL + host("k<<<64, 256>>>(p, count, 3)"))
    capped = change_launch(kernel_of(BLOCK + KERNEL), grid="min(cdiv(n, block), 64)")
    text = capped.unit.text + host("k<<<64, 256>>>(p, count, 3)")
    changed = change_launch(kernel_of(text), grid="min(cdiv(n, block), 132)").unit.text
    assert "k<<<132, 256>>>" in changed
    assert kernel.launches


def test_a_written_out_cap_that_the_headline_reaches_becomes_its_number_of_blocks() -> None:
    block = re.sub(r"sizes = .*", "sizes = [{ n = 131072, m = 1 }]", BLOCK)
    capped = change_launch(kernel_of(block + KERNEL), grid="min(cdiv(n, block), 64)")
    text = capped.unit.text + host("k<<<64, 256>>>(p, count, 3)")
    changed = change_launch(kernel_of(text), grid="min(cdiv(n, block * 4), 1024)").unit.text
    assert "k<<<128, 256>>>" in changed


def test_bytes_of_shared_memory_are_counted_by_sizeof_where_they_were() -> None:
    text = BLOCK + KERNEL + host("k<<<1, 256, 256 * sizeof(float)>>>(p, count, 3)")
    assert "k<<<1, 256, 32 * sizeof(float)>>>" in change_launch(kernel_of(text), shared="32 * 4").unit.text


WIDE = f"// {'-' * 90}\n"
LENGTHY = "k<<<(count + 255) / 256, 256>>>(a_pointer_with_a_name, number_of_elements, number_of_rows)"


def test_a_changed_launch_is_broken_at_the_width_of_the_file() -> None:
    text = WIDE + BLOCK + KERNEL + host(LENGTHY)
    changed = change_launch(kernel_of(text), grid="cdiv(n + 7, block) * cdiv(m, 2)", block="128").unit.text
    assert changed.endswith(
        """{
  k<<<((number_of_elements + 7 + 127) / 128) * ((number_of_rows + 1) / 2), 128>>>(
      a_pointer_with_a_name, number_of_elements, number_of_rows);
}
"""
    )
    assert max(map(len, changed.split("\n"))) <= 100


def test_arguments_that_would_need_two_lines_more_beside_a_launch_go_below_it() -> None:
    text = WIDE + BLOCK + KERNEL + host(LENGTHY)
    changed = change_launch(kernel_of(text), grid="cdiv(n + 7777777, block) * 2").unit.text
    beside = f"* 2, 256>>>(a_pointer_with_a_name,\n{' ' * 63}number_of_elements, number_of_rows);"
    assert beside in changed
    changed = change_launch(kernel_of(text), grid="cdiv(n + 7777777, block) * 2222").unit.text
    assert "* 2222, 256>>>(\n      a_pointer_with_a_name, number_of_elements, number_of_rows);" in changed


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("k<<<1, 256>>>(p, count, 3)", "  const int blocks = (count + 4095) / 4096;\n  const int max_blocks = 528;\n  k<<<blocks < max_blocks ? blocks : max_blocks, 256>>>"),
        ("int blocks = 7;\n  k<<<1, 256>>>(p, blocks, 3)", "  k<<<((blocks + 4095) / 4096 < 528 ? (blocks + 4095) / 4096 : 528), 256>>>"),
        ("if (count)\n    k<<<1, 256>>>(p, count, 3)", "    k<<<((count + 4095) / 4096 < 528 ? (count + 4095) / 4096 : 528), 256>>>"),
    ],
)  # fmt: skip
def test_a_limited_number_of_blocks_is_computed_once(before: str, after: str) -> None:
    text = BLOCK + KERNEL + host(before)
    assert f"\n{after}(p" in change_launch(kernel_of(text), grid="min(cdiv(n, block * 4 * 4), 528)").unit.text


def test_two_launches_in_one_function_declare_no_variable_twice() -> None:
    text = BLOCK + KERNEL + host("k<<<1, 256>>>(p, count, 3); k<<<1, 256>>>(p, 7, 3)")
    split = text.replace("3); k<<<", "3);\n  k<<<")
    changed = change_launch(kernel_of(split), grid="min(cdiv(n, block * 4 * 4), 528)").unit.text
    assert changed.count("k<<<") == 2
    assert "const int blocks" not in changed


def test_launches_that_fit_and_those_of_macros_stay_on_one_line() -> None:
    text = f"{WIDE}{BLOCK}{KERNEL}#define RUN(p, count) {LENGTHY} /* the launch of k that the tests use */\n"
    changed = change_launch(kernel_of(text), block="512").unit.text
    assert "RUN(p, count) k<<<(number_of_elements + 511) / 512, 512>>>(a_pointer_with_a_name," in changed
    assert changed.count("\n") == text.count("\n")
    short = BLOCK + KERNEL + host("k<<<(count + 255) / 256, 256>>>(p, count, 3)")
    assert "  k<<<(count + 511) / 512, 512>>>(p, count, 3);\n" in change_launch(kernel_of(short), block="512").unit.text


def test_launches_of_other_kernels_stay(tmp_path: Path) -> None:
    text = BLOCK + KERNEL + "__global__ void j(int n) {}\n" + host("j<<<1, 256>>>(3); k<<<1, 256>>>(p, count, 3)")
    assert "j<<<1, 256>>>" in change_launch(kernel_of(text), block="64").unit.text


# ----------------------------------------------------------------------------------------------------- inferred


def inferred(text: str) -> Contract:
    contract = infer_contract(kernel_of(text))
    assert contract.inferred
    return contract


def test_roles_and_sizes_are_guessed_from_the_types() -> None:
    contract = inferred("__global__ void k(const float *x, __half2 *y, int n, float alpha, bool flag, void *w) {}")
    assert [(a.name, a.direction, a.dtype, a.shape, a.value) for a in contract.args] == [
        ("x", "in", "float32", ("n",), None),
        ("y", "inout", "float16", ("n * 2",), None),
        ("n", None, "int32", None, None),
        ("alpha", None, "float32", None, "1.0"),
        ("flag", None, "bool", None, "1"),
        ("w", "inout", "uint8", ("n",), None),
    ]
    assert contract.sizes[0] == {"n": 65536}
    assert contract.sizes[1]["n"] % 2 == 1
    assert (contract.grid, contract.block) == (("cdiv(n, block)",), ("256",))


@pytest.mark.parametrize(
    ("parameters", "body", "shapes", "grid", "block"),
    [
        ("float *x, int rows, int cols", "int row = blockIdx.x;", [("rows", "cols")], ("rows",), ("256",)),
        (
            "float *x, int width, int height",
            "threadIdx.y;",
            [("height", "width")],
            ("cdiv(width, block_x)", "cdiv(height, block_y)"),
            ("16", "16"),
        ),
        ("float *x, int a, int b", "int i = blockIdx.x * blockDim.x;", [("a", "b")], ("cdiv(a * b, block)",), ("256",)),
        (
            "const float *A, const float *B, float *C, int M, int N, int K",
            "threadIdx.y; threadIdx.x;",
            [("M", "K"), ("K", "N"), ("M", "N")],
            None,
            ("16", "16"),
        ),
        ("float *x, int n, int seed", "", [("n",)], ("cdiv(n, block)",), ("256",)),
        ("float *x", "", [("n",)], ("cdiv(n, block)",), ("256",)),
    ],
)
def test_shapes_and_launch_follow_common_patterns(
    parameters: str, body: str, shapes: list[tuple[str, ...]], grid: tuple[str, ...] | None, block: tuple[str, ...]
) -> None:
    contract = inferred(f"__global__ void k({parameters}) {{ {body} }}")
    assert [a.shape for a in contract.args if a.shape] == shapes
    assert grid is None or contract.grid == grid
    assert contract.block == block


@pytest.mark.parametrize(
    ("before", "launch", "grid", "block", "shared"),
    [
        ("", "k<<<(c + 127) / 128, 128>>>(p, c)", ("cdiv(n, block)",), ("128",), "0"),
        (
            "#define TB 64\n",
            "int g = (c + TB - 1) / TB; k<<<g, TB, TB * sizeof(float)>>>(p, c)",
            ("cdiv(n, block)",),
            ("64",),
            "block * 4",
        ),
        (
            "",
            "dim3 b(16, 16); dim3 g(div_up(c, b0), 2); const int b0 = 16; k<<<dim3(ceil_div(c, 16)), b>>>(p, c)",
            ("cdiv(n, 16)",),
            ("16", "16"),
            "0",
        ),
        ("", "dim3 b{32}; k<<<std::min(c, 1024), b>>>(p, c)", ("min(n, 1024)",), ("32",), "0"),
        ("", "k<<<unknown(), 128>>>(p, c)", ("cdiv(n, block)",), ("256",), "0"),
        ("", "k<<<c, 4096>>>(p, c)", ("cdiv(n, block)",), ("256",), "0"),
    ],
)
def test_the_launch_in_the_file_is_taken_where_it_is_plain(
    before: str, launch: str, grid: tuple[str, ...], block: tuple[str, ...], shared: str
) -> None:
    contract = inferred(f"{before}__global__ void k(float *x, int n) {{}}\nvoid f(float *p, int c) {{ {launch}; }}\n")
    assert (contract.grid, contract.block, contract.shared) == (grid, block, shared)


@pytest.mark.parametrize(
    ("parameters", "launch", "grid", "block", "sizes"),
    [
        ("int cols", "k<<<rows, 256>>>(p, cols)", ("rows",), ("256",), ["rows", "cols"]),
        ("int cols", "int rows = atoi(v); k<<<rows, 256>>>(p, c)", ("rows",), ("256",), ["rows", "cols"]),
        (
            "int width, int height",
            "const dim3 block(32, 8), grid((w + block.x - 1) / block.x, (h + 7) / 8); k<<<grid, block>>>(p, w, h)",
            ("cdiv(width, block_x)", "cdiv(height, 8)"),
            ("32", "8"),
            ["height", "width"],
        ),
        ("int n", "int t = 128; int b = (c + t - 1) / t; k<<<b, t>>>(p, c)", ("cdiv(n, block)",), ("128",), ["n"]),
        ("int n", "dim3 b(16, 4); k<<<c / (b.x * b.y), b>>>(p, c)", ("n // (block_x * block_y)",), ("16", "4"), ["n"]),
        ("int m, int n", "k<<<s, 64>>>(p, s, s)", ("cdiv(m * n, block)",), ("256",), ["m", "n"]),
        ("int n", "k<<<c, UNKNOWN>>>(p, c)", ("n",), ("256",), ["n"]),
        ("int n", "k<<<NUM_SMS, 64>>>(p, c)", ("cdiv(n, block)",), ("256",), ["n"]),
    ],
)
def test_variables_of_the_host_are_followed_and_unknown_ones_are_sizes(
    parameters: str, launch: str, grid: tuple[str, ...], block: tuple[str, ...], sizes: list[str]
) -> None:
    contract = inferred(f"__global__ void k(float *x, {parameters}) {{}}\nvoid f(float *p, int c) {{ {launch}; }}\n")
    assert (contract.grid, contract.block) == (grid, block)
    assert list(contract.sizes[0]) == sizes
    assert contract.args[0].shape == tuple(sizes)


@pytest.mark.parametrize(
    ("body", "parameters", "grid", "block", "shape"),
    [
        ("float *in = x + (size_t)blockIdx.x * cols;", "int cols", ("rows",), ("256",), ("rows", "cols")),
        ("x[blockIdx.x * cols + threadIdx.x];", "int rows, int cols", ("rows",), ("256",), ("rows", "cols")),
        ("blockIdx.x * TILE + threadIdx.x;", "int n", ("cdiv(n, block)",), ("256",), ("n",)),
        ("blockDim.x * blockIdx.x; blockIdx.y;", "int n", ("cdiv(n, block)", "rows"), ("256",), ("rows", "n")),
        ("blockIdx.x; blockIdx.y;", "int n, int c, int hw", ("c", "n"), ("256",), ("n", "c", "hw")),
        ("blockIdx.x;", "", ("rows",), ("256",), ("rows", "n")),
        (
            "blockIdx.x * 8 + threadIdx.x; threadIdx.y; threadIdx.z;",
            "int a",
            ("cdiv(a, block_x)", "cdiv(planes, block_y)", "cdiv(rows, block_z)"),
            ("8", "8", "4"),
            ("rows", "planes", "a"),
        ),
    ],
)
def test_without_a_launch_the_kernels_own_indices_decide(
    body: str, parameters: str, grid: tuple[str, ...], block: tuple[str, ...], shape: tuple[str, ...]
) -> None:
    contract = inferred(f"__global__ void k(float *x{', ' * bool(parameters)}{parameters}) {{ {body} }}")
    assert (contract.grid, contract.block, contract.args[0].shape) == (grid, block, shape)


def test_whole_numbers_that_are_only_read_stay_within_the_arrays() -> None:
    contract = inferred("__global__ void k(const int *i, const int8_t *b, int *o, int rows, int cols) {}")
    assert [a.distribution for a in contract.args] == ["integers(0, min(rows, cols))", None, None, None, None]
    assert inferred("__global__ void k(const long *i, int n) {}").args[0].distribution == "integers(0, n)"


def test_launch_bounds_and_dynamic_shared_memory_are_respected() -> None:
    contract = inferred("__global__ void __launch_bounds__(128) k(float *x, int n) { extern __shared__ double s[]; }")
    assert (contract.block, contract.shared) == (("128",), "block * 8")


def test_a_template_takes_the_instances_of_the_file() -> None:
    text = "template <typename T, int B> __global__ void k(T *x, int n) {}\n"
    contract = inferred(
        text
        + "void f() { k<float, 64><<<1, 64>>>(p, n); k<float, 128><<<1, 64>>>(p, n); k<half, 64><<<1, 64>>>(p, n); }"
    )
    assert contract.instances == ("k<float, 64>", "k<float, 128>")
    assert contract.args[0].dtype == "float32"
    with pytest.raises(ContractError, match=r'instances = \["k<float, 1>"\]') as caught:
        inferred(text)
    assert (caught.value.line, caught.value.column) == (1, 46)


@pytest.mark.parametrize("declaration", ["Params p", "Params *p", "float **p", "float &p"])
def test_what_cannot_be_guessed_is_said_at_the_parameter(declaration: str) -> None:
    with pytest.raises(ContractError, match=r"element type of p .* cannot be inferred") as caught:
        inferred(f"__global__ void k(int n, {declaration}) {{}}")
    assert caught.value.column == f"__global__ void k(int n, {declaration}".rindex("p") + 1


def test_a_vector_by_value_is_inferred_with_its_elements() -> None:
    contract = inferred("__global__ void k(int n, float4 p) {}")
    assert [(one.name, one.dtype, one.value) for one in contract.args[1:]] == [
        (side, "float32", "1.0") for side in "xyzw"
    ]
    assert [one.kind for one in contract.passing] == ["argument", "struct"]


NAMES = st.sampled_from(["n", "m", "k", "rows", "cols", "lda", "width", "height", "in", "block", "seed", "T", "x", "y"])
TYPES = st.sampled_from(
    [
        "int",
        "const float *",
        "float *",
        "unsigned",
        "double",
        "float4 *",
        "const __half *__restrict__",
        "T *",
        "size_t",
        "S",
    ]
)


@given(
    st.lists(st.tuples(TYPES, NAMES), max_size=7, unique_by=lambda pair: pair[1]),
    st.sampled_from(
        ["", "threadIdx.y", "threadIdx.z", "blockIdx.y", "int r = blockIdx.x;", "extern __shared__ int s[];"]
    ),
)
def test_a_guess_is_always_a_contract_that_parses(parameters: list[tuple[str, str]], body: str) -> None:
    kernel = kernel_of(f"__global__ void k({', '.join(f'{t} {n}' for t, n in parameters)}) {{ {body} }}\n")
    try:
        contract = infer_contract(kernel)
    except ContractError:
        assume(any(t in ("S", "T *", "float4") for t, _ in parameters))
        return
    assert (
        replace(contract_of(write_contract(kernel, contract)), line=None, inferred=True, guessed=contract.guessed)
        == contract
    )


def test_changing_text_of_a_cell_keeps_it_a_cell() -> None:
    changed = with_text(text_unit("a\r\nb\r\n"), "a\nc\n")
    assert (changed.text, changed.file_text, changed.language) == ("a\nc\n", "a\r\nc\r\n", "text")


def test_units_of_a_file_are_read_with_its_name(tmp_path: Path) -> None:
    path = tmp_path / "k.cuh"
    path.write_text(KERNEL)
    (unit,) = read_units(path)
    assert (unit.path, unit.language, unit.file_text) == (str(path), "cuda", KERNEL)


def test_sides_with_const_behind_their_type_follow_in_their_declaration() -> None:
    launch = "unsigned const blocks = (count + 255) / 256;\n  k<<<blocks, 256>>>(p, count, 3)"
    changed = change_launch(kernel_of(BLOCK + KERNEL + host(launch)), grid="n").unit.text
    assert "unsigned const blocks = count;\n  k<<<blocks, 256>>>(p, count, 3);" in changed
    used = host("unsigned const parts = 7;\n  k<<<parts + parts, 256>>>(p, count, 3)")
    assert "parts" not in change_launch(kernel_of(BLOCK + KERNEL + used), grid="n").unit.text


@pytest.mark.parametrize(
    ("grid", "host", "now"),
    [
        ("cdiv(rows * cols, 1024)", "", "(static_cast<size_t>(rows) * cols + 1023) / 1024"),
        ("cdiv(rows * cols, 1024)", "int count = (int)rows;", "((size_t)rows * cols + 1023) / 1024"),
        ("cdiv(rows * cols, 1024)", "int all = rows * cols; all += 0;", "(rows * cols + 1023) / 1024"),
        ("cdiv(rows * 32, 256)", "", "(rows + 7) / 8"),
        ("cdiv(rows * 32, 32)", "", "rows"),
        ("cdiv(rows * 3, 256)", "", "(rows * 3 + 255) / 256"),
    ],
)
def test_a_number_of_threads_does_not_overflow_in_host_code(grid: str, host: str, now: str, tmp_path: Path) -> None:
    path = tmp_path / "k.cu"
    path.write_text(
        "// /// kernelmate\n// sizes = [{ rows = 8, cols = 8 }]\n// grid = 1\n// block = 256\n// [args]\n"
        '// x = "inout float32[rows, cols]"\n// rows = "int32"\n// cols = "int32"\n// ///\n'
        "__global__ void k(float* x, int rows, int cols) {}\n"
        f"void run(float* x, int rows, int cols) {{\n  {host}\n  k<<<1, 256>>>(x, rows, cols);\n}}\n"
    )
    text = change_launch(load_kernel(path), grid=grid).unit.text
    assert f"k<<<{now}, 256>>>(x, rows, cols);" in text
