"""`kernelmate sass` on real files."""

from __future__ import annotations

import pytest

from kernelmate.compiler.cuda_toolkit import find_tool

pytestmark = pytest.mark.skipif(find_tool("nvdisasm") is None, reason="needs nvdisasm (nvidia-cuda-nvdisasm)")

TWO = """\
__global__ void first(float* a) {
    a[threadIdx.x] *= 2.0f;
}
template <int N> __global__ void second(float* a) {
    for (int i = 0; i < N; ++i) a[threadIdx.x + 32 * i] += 1.0f;
}
"""


def test_each_source_line_with_its_ptx_and_its_sass(run) -> None:
    result = run("sass", "twice.cu")
    assert result.exit_code == 0
    text = result.output
    assert "at most" in text
    assert text.index("st.shared") < text.index("STS") < text.index("if (i < n) y[i]")
    assert text.count("<- peak") >= 2


def test_json_obeys_the_schema_and_has_every_instruction(run, documents) -> None:
    result = run("sass", "twice.cu", "--json")
    (listing,) = documents(result.output)["listings"]
    assert listing["kernel"] == "twice"
    assert sum(listing["mix"].values()) == len(listing["sass"])
    lines = {one["place"]["line"] for one in listing["sass"] if one["place"]}
    assert {14, 15, 16} <= lines
    assert listing["peak"] == max(one["live"]["general"] for one in listing["sass"])


def test_one_line_alone(run) -> None:
    text = run("sass", "twice.cu", "--line", "15", "--sass").output
    assert "LDG" in text
    assert "STG" not in text
    assert "st.shared" not in text


def test_control_says_what_each_instruction_waits_for(run) -> None:
    text = run("sass", "twice.cu", "--control", "--sass", "--order", "address").output
    assert "scoreboards" in text
    assert any("STS" in line and "waits for LDG" in line for line in text.splitlines())


def test_a_line_without_code_says_so(run) -> None:
    result = run("sass", "twice.cu", "--line", "2")
    assert result.exit_code == 0
    assert "no code was made from these lines" in result.output


def test_every_kernel_or_the_one_named_and_the_instance_asked_for(run, folder) -> None:
    (folder / "two.cu").write_text(TWO)
    named = run("sass", "two.cu", "--kernel", "first")
    assert named.exit_code == 0
    assert "first" in named.output
    assert "second" not in named.output
    instance = run("sass", "two.cu::second", "--instance", "second<7>")
    assert "second<7>" in instance.output
    assert instance.output.count("STG") == 7


def test_an_instance_that_nobody_named_is_shown_and_said_to_be_a_guess(run, folder, documents) -> None:
    (folder / "two.cu").write_text(TWO)
    result = run("sass", "two.cu")
    assert result.exit_code == 0
    assert "second<1>" in result.stdout
    assert "no contract names instances; second<1> comes from a guess" in " ".join(result.stdout.split())
    listings = documents(run("sass", "two.cu", "--json").stdout)["listings"]
    assert [one["instance"] for one in listings] == [None, "second<1>"]


def test_another_architecture(run, documents) -> None:
    assert documents(run("sass", "twice.cu", "--arch", "sm_80", "--json").output)["listings"][0]["arch"] == "sm_80"


def test_a_renamed_kernel_changes_nothing_and_a_changed_constant_does(run, folder, documents) -> None:
    text = (folder / "twice.cu").read_text()
    (folder / "same.cu").write_text(text.replace("twice(", "doubled(").replace("int i ", "const int i "))
    (folder / "new.cu").write_text(text.replace("* 2.0f;", "* 3.5f;"))
    assert "The code is the same" in run("sass", "--diff", "twice.cu", "same.cu").output
    changed = run("sass", "--diff", "twice.cu", "new.cu")
    assert changed.exit_code == 0
    assert any(line.startswith("+") and "3.5" in line for line in changed.output.splitlines())
    (diff,) = documents(run("sass", "--diff", "twice.cu", "new.cu", "--json").output)["code_diffs"]
    assert diff["same"] is False
    assert diff["changes"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--diff", "twice.cu"), "--diff compares two files, not 1"),
        (("twice.cu", "twice.cu"), "2 files were named"),
        (("twice.cu", "--ptx", "--sass"), "--ptx and --sass each show that alone"),
        (("twice.cu", "--line", "9-3"), "ends before it begins"),
        (("twice.cu", "--line", "x"), "not a range of lines"),
        (("twice.cu", "--arch", "sm_80", "--target", "H100"), "the same option"),
        (("twice.cu::twice", "--kernel", "twice"), "name the kernel twice"),
    ],
)
def test_what_makes_no_sense_is_told(run, arguments, said) -> None:
    result = run("sass", *arguments)
    assert result.exit_code == 2
    assert said in result.stderr


def test_without_nvdisasm_it_says_what_to_install(run, monkeypatch) -> None:
    from kernelmate.compiler import disassembly

    monkeypatch.setattr(disassembly, "find_tool", lambda name: None)
    result = run("sass", "twice.cu")
    assert result.exit_code == 3
    assert "pip install nvidia-cuda-nvdisasm" in result.stderr


def test_versions_of_the_history_are_shown_and_compared(run, folder, documents, monkeypatch) -> None:
    monkeypatch.setenv("KERNELMATE_HISTORY_FILE", str(folder / "history.db"))
    assert run("bench", "twice.cu", "--backend", "emulator", "--size", "n=33", "-q").exit_code == 0
    text = (folder / "twice.cu").read_text()
    (folder / "twice.cu").write_text(text.replace("* 2.0f;", "* 3.5f;"))
    kept = run("sass", "1", "--sass", "--line", "16")
    assert "tile[threadIdx.x] * 2.0f;" in kept.stdout
    (diff,) = documents(run("sass", "--diff", "1", "twice.cu", "--json").stdout)["code_diffs"]
    assert not diff["same"]
    assert any("3.5" in one["text"] for change in diff["changes"] for one in change["new"])
    assert documents(run("sass", "--diff", "1", "1", "--json").stdout)["code_diffs"][0]["same"]
    assert documents(run("sass", "--diff", "twice.cu", "1", "--json").stdout)["code_diffs"][0]["same"] is False
    missing = run("sass", "99")
    assert missing.exit_code == 2
    assert "no version 99" in missing.stderr
