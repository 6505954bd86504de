"""`kernelmate ci` on real git repositories, with the real compiler and emulator."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import jsonschema
import pytest
from click.testing import CliRunner, Result

from kernelmate.cli.main import cli
from kernelmate.report.schema import schema

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="there is no git here")

TWICE = """\
// /// kernelmate
// sizes = [{ n = 1000 }, { n = 1 }]
// grid = "cdiv(n, block)"
// block = 256
// reference = "x * 2"
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void twice(const float *x, float *y, int n) {
    __shared__ float tile[256];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    tile[threadIdx.x] = i < n ? x[i] : 0.0f;
    __syncthreads();
    if (i < n) y[i] = tile[threadIdx.x] * 2.0f;
}
"""
LARGER = TWICE.replace("tile[256]", "tile[512]")


class Clone:
    """A repository in a folder, and how to run the command in it."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def git(self, *arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=self.root, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def write(self, path: str, text: str) -> None:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    def commit(self, message: str = "change") -> None:
        self.git("add", "-A")
        self.git("commit", "-q", "-m", message)

    def ci(self, *options: str, base: str = "base") -> Result:
        return CliRunner().invoke(cli, ["ci", *(["--base", base] if base else []), *options])

    def gate(self, *options: str, base: str = "base") -> Any:
        done = self.ci("--json", *options, base=base)
        document = json.loads(done.stdout)
        jsonschema.Draft202012Validator(schema()).validate(document)
        assert done.exit_code == (0 if document["gate"]["passed"] else 1), done.output
        return document["gate"]


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Clone:
    """A repository with one right kernel, tagged `base`; settings of the machine's user do not reach it."""
    root = tmp_path / "repo"
    root.mkdir()
    made = Clone(root)
    for name, value in (
        ("GIT_CONFIG_GLOBAL", os.devnull),
        ("GIT_CONFIG_NOSYSTEM", "1"),
        ("GIT_AUTHOR_NAME", "a"),
        ("GIT_AUTHOR_EMAIL", "a@example.org"),
        ("GIT_COMMITTER_NAME", "a"),
        ("GIT_COMMITTER_EMAIL", "a@example.org"),
        ("XDG_CONFIG_HOME", str(tmp_path / "config")),
        ("KERNELMATE_HISTORY_FILE", str(tmp_path / "history.db")),
        ("KERNELMATE_BACKEND", "emulator"),
        ("KERNELMATE_SEED", "7"),
        ("COLUMNS", "80"),
    ):
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(root)
    made.git("init", "-q", "-b", "main", ".")
    made.write("pyproject.toml", "")
    made.write("ops/twice.cu", TWICE)
    made.commit()
    made.git("tag", "base")
    return made


# ------------------------------------------------------------------------------------------------- what is judged


def test_without_a_change_nothing_is_judged(clone: Clone) -> None:
    done = clone.ci()
    assert done.exit_code == 0
    assert "no kernel differs from base  passed" in done.stdout


def test_comments_layout_host_code_and_other_kernels_do_not_count(clone: Clone) -> None:
    text = TWICE.replace("    tile[threadIdx.x] = i", "    // here\n    tile[threadIdx.x]   =   i")
    clone.write("ops/twice.cu", "#include <cstdio>\n" + text + '\nint main() { printf("x"); }\n')
    gate = clone.gate()
    assert (gate["kernels"], gate["unchanged"]) == ([], 1)


def test_more_shared_memory_fails_and_can_be_allowed(clone: Clone) -> None:
    clone.write("ops/twice.cu", LARGER)
    (one,) = clone.gate()["kernels"]
    assert (one["kernel"], one["change"], one["outcome"]) == ("twice", "changed", "failed")
    assert one["failures"] == ["more bytes of shared memory per block: 1,024 before, 2,048 now"]
    shared = next(figure for figure in one["figures"] if figure["metric"] == "shared_bytes")
    assert (shared["before"], shared["after"], shared["worse"]) == (1024, 2048, True)
    assert clone.ci("--allow", "shared=+1024").exit_code == 0
    assert clone.ci("--allow", "shared=+100%").exit_code == 0
    assert clone.ci("--allow", "shared=any").exit_code == 0
    assert clone.ci("--allow", "shared=+1023").exit_code == 1


def test_what_is_allowed_stands_in_pyproject_and_the_command_line_goes_before_it(clone: Clone) -> None:
    clone.write("ops/twice.cu", LARGER)
    clone.write("pyproject.toml", '[tool.kernelmate.ci]\nbase = "base"\nallow = { shared = "+1024" }\n')
    assert clone.ci(base="").exit_code == 0
    assert clone.ci("--allow", "shared=+0", base="").exit_code == 1
    (note,) = clone.gate()["notes"]
    assert note.startswith("the change alters [tool.kernelmate.ci] in pyproject.toml")
    clone.commit()
    clone.git("tag", "ruled")
    clone.write("ops/twice.cu", LARGER.replace("512", "1024"))
    assert clone.gate(base="ruled")["notes"] == []
    clone.write("pyproject.toml", '[tool.kernelmate.ci]\nalow = { shared = "+1024" }\n')
    done = clone.ci()
    assert done.exit_code == 2
    assert "ci.alow" in done.stderr


def test_new_findings_fail_with_their_line(clone: Clone) -> None:
    clone.write("ops/twice.cu", TWICE.replace("    __syncthreads();\n", "").replace("tile[threadIdx.x] * 2", "tile[255 - threadIdx.x] * 2"))  # fmt: skip
    (one,) = clone.gate()["kernels"]
    assert one["fresh"][0]["code"] == "shared-race"
    assert one["fresh"][0]["file"] == "ops/twice.cu"
    assert one["failures"][0].startswith("error shared-race: ")
    assert clone.ci("--allow", "findings=any").exit_code == 0


def test_a_kernel_that_no_longer_compiles_fails(clone: Clone) -> None:
    clone.write("ops/twice.cu", TWICE.replace("threadIdx.x;", "threadIdx.x"))
    (one,) = clone.gate()["kernels"]
    assert one["outcome"] == "failed"
    assert one["fresh"][0]["code"] == "compile-error"
    assert one["verdict"]["compiled"] is False


def test_a_kernel_that_was_as_bad_before_does_not_fail(clone: Clone) -> None:
    wrong = TWICE.replace("if (i < n) y[i]", "y[i]")
    clone.write("ops/twice.cu", wrong)
    clone.commit()
    clone.git("tag", "worse")
    clone.write("ops/twice.cu", wrong.replace("tile[threadIdx.x] * 2.0f", "2.0f * tile[threadIdx.x]"))
    (one,) = clone.gate(base="worse")["kernels"]
    assert (one["outcome"], one["fresh"]) == ("passed", [])
    assert one["verdict"]["accepted"] is False


def test_a_kernel_that_became_right_passes(clone: Clone) -> None:
    clone.write("ops/twice.cu", TWICE.replace("threadIdx.x;", "threadIdx.x"))
    clone.commit()
    clone.git("tag", "broken")
    clone.write("ops/twice.cu", TWICE)
    (one,) = clone.gate(base="broken")["kernels"]
    assert one["outcome"] == "passed"


def test_headers_at_any_remove_and_references_count_as_a_change(clone: Clone) -> None:
    text = TWICE.replace("* 2.0f", "* SCALE").replace('"x * 2"', '"reference.py:twice"')
    clone.write("ops/twice.cu", '#include "a.h"\n' + text)
    clone.write("ops/a.h", '#include "../common/b.h"\n')
    clone.write("common/b.h", "#define SCALE 2.0f\n")
    clone.write("ops/reference.py", "from helper import two\n\ndef twice(x):\n    return x * two\n")
    clone.write("ops/helper.py", "two = 2\n")
    clone.commit()
    clone.git("tag", "headers")
    clone.write("common/b.h", "// the same\n#define SCALE   2.0f\n")
    assert clone.gate(base="headers")["kernels"] == []
    clone.write("common/b.h", "#define SCALE 3.0f\n")
    (one,) = clone.gate(base="headers")["kernels"]
    assert one["failures"][0].startswith("error w")
    assert one["baseline"]["correct"] is True
    clone.git("checkout", "-q", "common/b.h")
    clone.write("ops/helper.py", "two = 3\n")
    (one,) = clone.gate(base="headers")["kernels"]
    assert (one["baseline"]["correct"], one["verdict"]["correct"]) == (True, False)


def test_a_header_on_the_include_path_is_the_old_one_for_the_old_kernel(clone: Clone) -> None:
    clone.write("ops/twice.cu", "#include <tile.h>\n" + TWICE.replace("tile[256]", "tile[TILE]"))
    clone.write("include/tile.h", "#define TILE 256\n")
    clone.commit()
    clone.git("tag", "included")
    clone.write("include/tile.h", "#define TILE 512\n")
    (one,) = clone.gate("-I", "include", base="included")["kernels"]
    assert (one["baseline"]["resources"]["shared_bytes"], one["verdict"]["resources"]["shared_bytes"]) == (1024, 2048)


def test_a_renamed_or_moved_kernel_is_said_and_not_judged(clone: Clone) -> None:
    clone.git("mv", "ops/twice.cu", "ops/doubled.cu")
    (one,) = clone.gate()["kernels"]
    assert (one["path"], one["was"], one["outcome"]) == ("ops/doubled.cu", "ops/twice.cu::twice", "moved")
    assert one["verdict"] is None
    clone.write("ops/doubled.cu", TWICE.replace("void twice(", "void doubled("))
    (one,) = clone.gate()["kernels"]
    assert (one["kernel"], one["was"], one["outcome"]) == ("doubled", "ops/twice.cu::twice", "moved")


def test_a_kernel_that_was_renamed_and_edited_is_held_to_what_it_was(clone: Clone) -> None:
    clone.write("ops/twice.cu", LARGER.replace("void twice(", "void doubled("))
    (one,) = clone.gate()["kernels"]
    assert (one["kernel"], one["was"], one["outcome"]) == ("doubled", "ops/twice.cu::twice", "failed")
    clone.git("checkout", "-q", ".")
    clone.git("mv", "ops/twice.cu", "other.cu")
    clone.write("other.cu", LARGER)
    (one,) = clone.gate()["kernels"]
    assert (one["path"], one["was"], one["outcome"]) == ("other.cu", "ops/twice.cu::twice", "failed")


def test_added_and_removed_kernels_are_said(clone: Clone) -> None:
    clone.write("ops/twice.cu", "int main() {}\n")
    clone.write("new.cu", TWICE.replace("twice", "thrice").replace("* 2", "* 3").replace("tile[256]", "tile[300]"))
    found = {one["kernel"]: one for one in clone.gate()["kernels"]}
    assert (found["thrice"]["change"], found["thrice"]["outcome"]) == ("added", "passed")
    assert (found["twice"]["change"], found["twice"]["outcome"]) == ("removed", "removed")
    assert found["twice"]["line"] is None


def test_a_new_kernel_that_is_wrong_fails(clone: Clone) -> None:
    clone.write("new.cu", TWICE.replace("twice", "thrice").replace("* 2.0f", "* 3.0f"))
    (one,) = clone.gate()["kernels"]
    assert (one["outcome"], one["fresh"][0]["code"]) == ("failed", "wrong-values")


def test_a_contract_that_cannot_be_read_fails_with_its_line(clone: Clone) -> None:
    clone.write("ops/twice.cu", TWICE.replace("block = 256", "block = 4096"))
    (one,) = clone.gate()["kernels"]
    assert one["outcome"] == "failed"
    clone.write("ops/twice.cu", TWICE.replace('grid = "cdiv(n, block)"', 'grid = "cdiv(n, "'))
    (one,) = clone.gate()["kernels"]
    assert (one["outcome"], one["verdict"]) == ("failed", None)
    assert one["failures"][0].startswith("line 3: ")


def test_a_looser_contract_is_said(clone: Clone) -> None:
    clone.write("ops/twice.cu", TWICE.replace("[{ n = 1000 }, { n = 1 }]", "[{ n = 1000 }]"))
    (one,) = clone.gate()["kernels"]
    assert "the contract lists fewer sizes than before: n = 1" in one["notes"]


def test_each_instance_of_a_template_is_held_to_its_own(clone: Clone) -> None:
    template = (
        TWICE.replace("// block = 256\n", '// block = 256\n// instances = ["twice<256>", "twice<512>"]\n')
        .replace("__global__", "template <int SIZE>\n__global__")
        .replace("tile[256]", "tile[SIZE]")
    )
    clone.write("ops/twice.cu", template)
    clone.commit()
    clone.git("tag", "template")
    clone.write("ops/twice.cu", template.replace("twice<512>", "twice<300>").replace("tile[SIZE]", "tile[SIZE + 1]"))
    found = {one["instance"]: one for one in clone.gate(base="template")["kernels"]}
    assert found["twice<256>"]["outcome"] == "failed"
    assert found["twice<300>"]["outcome"] == "passed"
    assert found["twice<300>"]["baseline"] is None


def test_untracked_and_uncommitted_files_count_and_ignored_ones_do_not(clone: Clone) -> None:
    clone.write(".gitignore", "build/\n")
    clone.write("build/generated.cu", TWICE.replace("* 2.0f", "* 3.0f"))
    clone.write("deep/new kernel é.cu", LARGER.replace("void twice", "void other"))
    names = [one["path"] for one in clone.gate()["kernels"]]
    assert names == ["deep/new kernel é.cu"]


def test_paths_and_exclusions_limit_what_is_judged(clone: Clone) -> None:
    clone.write("ops/twice.cu", LARGER)
    clone.write("third_party/other.cu", LARGER.replace("void twice", "void other"))
    assert [one["path"] for one in clone.gate("ops")["kernels"]] == ["ops/twice.cu"]
    clone.write("pyproject.toml", '[tool.kernelmate.ci]\nexclude = ["ops"]\n')
    assert [one["path"] for one in clone.gate()["kernels"]] == ["third_party/other.cu"]
    assert clone.ci("..").exit_code == 2


def test_a_kernel_in_a_python_string_is_judged_too(clone: Clone) -> None:
    lines = TWICE.split("\n")
    contract = "\n".join("#" + line[2:] for line in lines[:10])
    body = "\n".join(lines[10:]).replace("__global__", 'extern "C" __global__')
    text = f"import cupy\n{contract}\ntwice = cupy.RawKernel(r'''\n{body}''', 'twice')\n"
    clone.write("ops/two.py", text)
    clone.commit()
    clone.git("tag", "python")
    clone.write("ops/two.py", text.replace("tile[256]", "tile[512]"))
    (one,) = clone.gate(base="python")["kernels"]
    assert (one["path"], one["outcome"]) == ("ops/two.py", "failed")


def test_the_history_is_left_alone(clone: Clone, tmp_path: Path) -> None:
    clone.write("ops/twice.cu", LARGER)
    clone.ci()
    assert not (tmp_path / "history.db").exists()


# ---------------------------------------------------------------------------------------------- what stops it, safety


def test_an_unknown_revision_says_what_to_fetch(clone: Clone) -> None:
    done = clone.ci(base="origin/main")
    assert done.exit_code == 2
    assert "There is no revision origin/main" in done.stderr
    assert "git fetch origin main" in done.stderr
    for odd in ("--output=x", "base..HEAD", " "):
        assert clone.ci(base=odd).exit_code == 2
    assert clone.ci(base="").exit_code == 2


def test_a_shallow_clone_says_how_deep_to_fetch(clone: Clone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clone.write("ops/twice.cu", LARGER)
    clone.commit()
    shallow = tmp_path / "shallow"
    subprocess.run(["git", "clone", "-q", "--depth=1", clone.root.as_uri(), str(shallow)], check=True)
    monkeypatch.chdir(shallow)
    done = clone.ci(base="HEAD~1")
    assert done.exit_code == 2
    assert "which is shallow" in done.stderr
    assert "fetch-depth: 0" in done.stderr
    assert clone.ci(base="HEAD").exit_code == 0


def test_outside_of_a_repository_it_says_so(clone: Clone, tmp_path: Path) -> None:
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    try:
        done = clone.ci("--repo", str(folder))
    finally:
        folder.rmdir()
    assert done.exit_code == 2
    assert "is not in a git repository" in done.stderr


def test_without_git_it_says_what_is_missing(clone: Clone, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    done = clone.ci()
    assert done.exit_code == 3
    assert "git is not installed on this machine." in done.stderr


def test_nothing_that_the_repository_configures_is_run(clone: Clone, tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    script = tmp_path / "evil.sh"
    script.write_text(f"#!/bin/sh\necho $0 $@ >> '{marker}'\ncat\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    clone.write(".gitattributes", "*.cu diff=evil filter=evil merge=evil\n*.h filter=evil\n")
    clone.commit()
    settings = {
        "core.fsmonitor": script,
        "core.hooksPath": tmp_path / "hooks",
        "core.pager": script,
        "core.sshCommand": script,
        "core.editor": script,
        "diff.external": script,
        "diff.evil.textconv": script,
        "diff.evil.command": script,
        "filter.evil.clean": script,
        "filter.evil.smudge": script,
        "filter.evil.process": script,
        "credential.helper": script,
        "gpg.program": script,
        "uploadpack.packObjectsHook": script,
        "alias.ls-tree": f"!{script}",
    }
    for name, value in settings.items():
        clone.git("config", name, str(value))
    (tmp_path / "hooks").mkdir()
    for hook in ("post-index-change", "post-checkout", "pre-commit", "reference-transaction"):
        shutil.copy(script, tmp_path / "hooks" / hook)
        shutil.copy(script, clone.root / ".git" / "hooks" / hook)
    marker.unlink(missing_ok=True)
    (clone.root / "ops" / "twice.cu").write_text(LARGER)
    assert clone.ci().exit_code == 1
    assert clone.ci(base="nothing").exit_code == 2
    assert not marker.exists(), marker.read_text()
    assert not (clone.root / ".git" / "index.lock").exists()


def test_links_of_the_revision_lead_nowhere(clone: Clone, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (clone.root / "link").symlink_to(outside)
    (clone.root / "ops" / "linked.cu").symlink_to(clone.root / "ops" / "twice.cu")
    clone.commit()
    clone.git("tag", "links")
    clone.write("ops/twice.cu", LARGER)
    assert [one["path"] for one in clone.gate(base="links")["kernels"]] == ["ops/twice.cu"]
    assert list(outside.iterdir()) == []


def test_an_interrupt_leaves_nothing_behind(clone: Clone, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from kernelmate.session import gating

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    clone.write("ops/twice.cu", LARGER)

    def interrupted(*_: Any) -> Any:
        assert any(path.name.startswith("kernelmate-ci-") for path in tmp_path.iterdir())
        raise KeyboardInterrupt

    monkeypatch.setattr(gating, "_bench", interrupted)
    done = clone.ci("--json")
    assert done.exit_code == 130
    assert json.loads(done.stdout)["error"]["code"] == "interrupted"
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("kernelmate-ci-")]


# ---------------------------------------------------------------------------------------------------------- reports


def test_the_reports_say_the_same(clone: Clone, tmp_path: Path) -> None:
    clone.write("ops/twice.cu", LARGER)
    clone.write("ops/new one é.cu", TWICE.replace("void twice", "void worse").replace("* 2.0f", "* 3.0f"))
    names = [str(tmp_path / name) for name in ("j.xml", "s.sarif", "m.md")]
    done = clone.ci("--junit", names[0], "--sarif", names[1], "--markdown", names[2])
    assert done.exit_code == 1
    assert "2 kernels differ from base: 2 of 2 judged fail  FAILED" in done.stdout
    suite = ET.parse(names[0]).getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("2", "2")
    assert {case.get("name") for case in suite.iter("testcase")} == {"twice", "worse"}
    log = json.loads(Path(names[1]).read_text())
    found = {result["ruleId"]: result for result in log["runs"][0]["results"]}
    assert set(found) == {"more-shared-memory", "wrong-values"}
    place = found["wrong-values"]["locations"][0]["physicalLocation"]["artifactLocation"]
    assert place["uri"] == "ops/new%20one%20%C3%A9.cu"
    text = Path(names[2]).read_text()
    assert "### Kernels fail" in text
    assert "| `ops/twice.cu::twice` | changed |" in text
    assert "**1,024 B → 2,048 B**" in text


def test_quiet_is_one_line_for_each_kernel(clone: Clone) -> None:
    clone.write("ops/twice.cu", LARGER)
    done = clone.ci("-q")
    assert (
        done.stdout == "ops/twice.cu::twice  FAILED, more bytes of shared memory per block: 1,024 before, 2,048 now\n"
    )


def test_a_report_that_cannot_be_written_is_told_before_anything_is_judged(clone: Clone) -> None:
    done = clone.ci("--sarif", "nowhere/x.sarif")
    assert done.exit_code == 2
    assert "--sarif nowhere/x.sarif cannot be written" in done.stderr


def test_what_is_allowed_must_be_readable(clone: Clone) -> None:
    for wrong in ("registers", "regs=+2", "registers=-2", "time=+5", "findings=5%"):
        assert clone.ci("--allow", wrong).exit_code == 2, wrong


def test_the_help_has_examples_settings_and_exit_codes() -> None:
    text = CliRunner().invoke(cli, ["ci", "--help"]).stdout
    for words in ("kernelmate ci --base origin/main", "[tool.kernelmate.ci]", "Exit codes:"):
        assert words in text


TRITON = """\
import triton
import triton.language as tl

from helpers import doubled


# /// kernelmate
# sizes = [{ n = 256 }, { n = 100 }]
# grid = "cdiv(n, BLOCK)"
# options = ["BLOCK=64"]
# reference = "x * 2"
# [args]
# x = "in float32[n]"
# y = "out float32[n]"
# n = "int32"
# ///
@triton.jit
def twice(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, doubled(tl.load(x + at, mask=at < n)), mask=at < n)
"""
HELPERS = "import triton\nimport triton.language as tl\n\n\n@triton.jit\ndef doubled(value):\n    return value * 2\n"


def test_a_triton_kernel_is_judged_when_it_or_a_function_of_another_file_changes(clone: Clone) -> None:
    pytest.importorskip("triton")
    clone.write("kernel.py", TRITON)
    clone.write("helpers.py", HELPERS)
    clone.commit()
    clone.git("tag", "-f", "base")
    clone.write("kernel.py", TRITON.replace("    at = ", "    # elements of this program\n    at = "))
    assert clone.gate()["kernels"] == []
    clone.write("helpers.py", HELPERS.replace("value * 2", "value + value"))
    (judged,) = clone.gate()["kernels"]
    assert (judged["kernel"], judged["outcome"]) == ("twice", "passed")
    clone.write("helpers.py", HELPERS.replace("value * 2", "value * 3"))
    (judged,) = clone.gate()["kernels"]
    assert judged["outcome"] == "failed"
