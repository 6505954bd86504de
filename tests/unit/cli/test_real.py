"""The program itself, in processes of its own, on real files: what users bring, and what machines do to them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import tomllib
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import Result

pytestmark = pytest.mark.skipif(sys.platform == "darwin", reason="there is no NVRTC for macOS")

KERNELMATE = [sys.executable, "-m", "kernelmate"]
MARK = "KERNELMATE_TEST_MARK"

TREE_SUM = """\
// /// kernelmate
// sizes = [{ rows = 16, cols = 300 }, { rows = 3, cols = 53 }]
// grid = "rows"
// block = 128
// shared = "block * 4"
// reference = "x.sum(axis=1)"
// [args]
// x = "in float32[rows, cols]"
// y = "out float32[rows]"
// cols = "int32"
// ///
__global__ void row_sum(const float *x, float *y, int cols)
{
    extern __shared__ float scratch[];
    int tid = threadIdx.x;
    float total = 0.0f;
    for (int c = tid; c < cols; c += blockDim.x) total += x[blockIdx.x * cols + c];
    scratch[tid] = total;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (tid < half) scratch[tid] += scratch[tid + half];
        __syncthreads();
    }
    if (tid == 0) y[blockIdx.x] = scratch[0];
}

void launch(const float *x, float *y, int rows, int cols)
{
    row_sum<<<rows, 128, 128 * sizeof(float)>>>(x, y, cols);
}
"""
"""A reduction that takes more shared memory than it needs, which a recipe sees and counting decides."""


@pytest.fixture
def start(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., subprocess.Popen[str]]:
    """Start a command in the folder, with a cache of its own."""
    cache = tmp_path_factory.mktemp("cache")

    def begin(*arguments: str, **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*KERNELMATE, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=folder,
            env=os.environ | {"KERNELMATE_CACHE_DIR": str(cache)} | environment,
            start_new_session=True,
        )

    return begin


@pytest.fixture
def program(start: Callable[..., subprocess.Popen[str]]) -> Callable[..., SimpleNamespace]:
    """Run a command to its end."""

    def run(*arguments: str, **environment: str) -> SimpleNamespace:
        process = start(*arguments, **environment)
        out, err = process.communicate()
        assert "Traceback" not in err
        return SimpleNamespace(code=process.returncode, out=out, err=err)

    return run


Program = Callable[..., SimpleNamespace]

BAD_FILES: dict[str, tuple[bytes | None, str]] = {
    "missing": (None, "missing.cu"),
    "empty": (b"", "empty"),
    "no kernel": (b"int x;\n", "no kernel"),
    "binary": (b"\x7fELF\x00\x00\x01" * 50, "binary"),
    "not UTF-8": (b"// caf\xe9\n__global__ void a(int *x) { *x = 1; }\n", "UTF-8"),
    "broken TOML": (b"// /// kernelmate\n// sizes = [{ n = 4 }\n// grid = 1\n// ///\n__global__ void a(int *x) { *x = 1; }\n", "TOML"),
    "zero grid": (
        b"// /// kernelmate\n// sizes = [{ n = 4 }]\n// grid = \"n / 0\"\n// block = 32\n// [args]\n"
        b"// x = \"inout int32[n]\"\n// ///\n__global__ void a(int *x) { *x = 1; }\n",
        "zero",
    ),
}  # fmt: skip


def test_kernels_of_one_name_are_told_apart_and_one_must_be_named(run: Callable[..., Result], folder: Path) -> None:
    (folder / "two.cu").write_text("__global__ void a(int *x) { *x = 1; }\n__global__ void a(float *x) { *x = 1; }\n")
    checked = run("check", "two.cu")
    assert checked.exit_code == 0
    assert "a(int *)" in checked.stdout
    assert "a(float *)" in checked.stdout
    for command, more in {"bench": [], "compare": ["twice.cu"], "optimize": ["make it faster"]}.items():
        told = run(command, "two.cu", *more)
        assert told.exit_code == 2
        assert "2 kernels: a(int *), a(float *)" in told.stderr
        assert "Name one" in told.stderr


@pytest.mark.parametrize("name", BAD_FILES)
@pytest.mark.parametrize("command", ["check", "bench", "compare", "optimize"])
def test_a_file_that_cannot_be_used_exits_with_2_and_is_told_in_two_lines_and_an_excerpt(
    name: str, command: str, run: Callable[..., Result], folder: Path, documents: Callable[[str], Any]
) -> None:
    content, says = BAD_FILES[name]
    file = name.replace(" ", "-") + ".cu"
    if content is not None:
        (folder / file).write_bytes(content)
    before = sorted(folder.rglob("*"))
    more = {"compare": ["twice.cu"], "optimize": ["make it faster", "--accept"]}.get(command, [])
    told = run(command, file, *more)
    assert told.exit_code == 2, told.stderr
    assert told.stdout == ""
    lines = told.stderr.strip().split("\n")
    assert lines[0].startswith(f"error: {file}")
    assert says in lines[0]
    assert len(lines) <= 4
    as_json = run(command, file, *more, "--json")
    assert as_json.exit_code == 2
    assert documents(as_json.stdout)["error"]["file"] == file
    assert as_json.stderr == ""
    assert sorted(folder.rglob("*")) == before


def test_broken_cuda_exits_with_1_and_points_into_the_file(
    program: Program, folder: Path, documents: Callable[[str], Any]
) -> None:
    (folder / "broken.cu").write_text("__global__ void a(int *x)\n{\n    x[0] = undeclared;\n}\n")
    done = program("check", "broken.cu")
    assert done.code == 1
    assert "broken.cu:3:12: error" in done.out
    assert "    3 |     x[0] = undeclared;\n      |            ^\n" in done.out
    verdict = documents(program("check", "broken.cu", "--json").out)["verdicts"][0]
    assert (verdict["compiled"], verdict["accepted"], verdict["diagnostics"][0]["line"]) == (False, False, 3)


def test_a_file_of_20000_lines_is_checked(program: Program, folder: Path) -> None:
    filler = "".join(f"__device__ int f{i}(int x) {{ return x + {i}; }}\n" for i in range(19_999))
    (folder / "long.cu").write_text(filler + "__global__ void a(int *x) { *x = f7(*x) + undeclared; }\n")
    done = program("check", "long.cu")
    assert done.code == 1
    assert "long.cu:20000:43: error" in done.out


def test_check_shows_the_kernel_and_agrees_with_its_json(program: Program, documents: Callable[[str], Any]) -> None:
    verdict = documents(program("check", "twice.cu", "--json").out)["verdicts"][0]
    assert verdict["compiled"] is True
    assert verdict["resources"]["shared_bytes"] == 2048
    assert verdict["correct"] is None
    shown = program("check", "twice.cu")
    assert shown.code == 0
    assert "2,048 B" in shown.out
    assert f"{verdict['resources']['registers']}" in shown.out


def test_kernels_of_a_python_file_are_checked(program: Program, folder: Path, documents: Callable[[str], Any]) -> None:
    (folder / "ops.py").write_text(
        'import cupy\nkernel = cupy.RawKernel(r"""\nextern "C" __global__ void a(int *x) { *x = 1; }\n""", "a")\n'
    )
    assert documents(program("check", "ops.py", "--json").out)["verdicts"][0]["kernel"] == "a"


def test_targets_and_doctor_answer(program: Program, documents: Callable[[str], Any]) -> None:
    names = {target["name"] for target in documents(program("targets", "--json").out)["targets"]}
    assert {"H100 SXM", "A100 SXM 80GB", "RTX 4090"} & names
    assert program("check", "twice.cu", "--target", "sm_80").code == 0
    unknown = program("check", "twice.cu", "--target", "Voodoo 2")
    assert unknown.code == 2
    assert "Voodoo 2" in unknown.err
    doctor = program("doctor")
    assert doctor.code == 0
    assert doctor.out.rstrip().endswith("ready")


def test_the_cuda_backend_is_refused_where_there_is_none(program: Program) -> None:
    if program("bench", "twice.cu", "--backend", "cuda").code == 0:
        pytest.skip("there is a GPU here")
    told = program("bench", "twice.cu", "--backend", "cuda")
    assert told.code == 3
    assert "emulator" in told.err


def test_bench_judges_and_its_json_obeys_the_schema(program: Program, documents: Callable[[str], Any]) -> None:
    done = program("bench", "twice.cu", "--json", "--seed", "7")
    assert done.code == 0, done.out + done.err
    verdict = documents(done.out)["verdicts"][0]
    assert (verdict["correct"], verdict["accepted"], verdict["seed"]) == (True, True, 7)
    assert [case["size"] for case in verdict["cases"] if case["origin"] == "contract"] == [{"n": 1000}, {"n": 1}]
    assert verdict["timing"] is None or verdict["timing"]["kind"] == "predicted"
    shown = program("bench", "twice.cu")
    assert "clean" in shown.out
    assert "faster" not in shown.out


IN_ORDER_OF_ARRIVAL = """\
// /// kernelmate
// sizes = [{ n = 1000 }]
// grid = "cdiv(n, 128)"
// block = 128
// deterministic = true
// [args]
// x = "in int32[n]"
// y = "out int32[n]"
// count = "inout int32[1] ~ zeros"
// n = "int32"
// ///
__global__ void take(const int *x, int *y, int *count, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[PLACE] = x[i];
}
"""


@pytest.mark.parametrize(("place", "codes"), [("atomicAdd(count, 1)", {"nondeterministic"}), ("i", set())])
def test_what_depends_on_which_block_comes_first_is_nondeterministic(
    place: str, codes: set[str], program: Program, folder: Path, documents: Callable[[str], Any]
) -> None:
    (folder / "order.cu").write_text(IN_ORDER_OF_ARRIVAL.replace("PLACE", place))
    (verdict,) = documents(program("bench", "order.cu", "--json").out)["verdicts"]
    found = {finding["code"] for finding in verdict["findings"] if finding["severity"] == "error"}
    assert found & {"nondeterministic"} == codes
    assert (verdict["accepted"] is False) == bool(codes)


UNKNOWN = """    unsigned long long stack;
    asm volatile("stacksave.u64 %0;" : "=l"(stack));
"""
"""Statements with an instruction that the emulator does not know."""


def test_a_kernel_that_the_emulator_does_not_support_is_not_judged_and_exits_with_3(
    program: Program, folder: Path, documents: Callable[[str], Any]
) -> None:
    (folder / "new.cu").write_text(TREE_SUM.replace("    int tid", f"{UNKNOWN}    int tid"))
    (folder / "old.cu").write_text(TREE_SUM)
    done = program("bench", "new.cu", "--backend", "emulator", "--json")
    (verdict,) = documents(done.out)["verdicts"]
    assert (done.code, verdict["correct"], verdict["findings"][0]["code"]) == (3, None, "unsupported-instruction")
    compared = program("compare", "old.cu", "new.cu", "--backend", "emulator")
    assert compared.code == 3
    assert "not judged" in compared.out
    assert "WRONG" not in compared.out


def test_compare_rejects_a_wrong_candidate_and_takes_a_right_one(
    program: Program, folder: Path, documents: Callable[[str], Any]
) -> None:
    text = (folder / "twice.cu").read_text()
    body = text[text.index("__global__") :]
    (folder / "right.cu").write_text(body.replace("* 2.0f", "+ x[i]"))
    (folder / "wrong.cu").write_text(body.replace("* 2.0f", "* 3.0f"))
    right, wrong = (program("compare", "twice.cu", name, "--json") for name in ("right.cu", "wrong.cu"))
    assert (right.code, wrong.code) == (0, 1)
    assert documents(right.out)["verdicts"][0]["accepted"] is True
    verdict = documents(wrong.out)["verdicts"][0]
    assert verdict["accepted"] is False
    assert {finding["severity"] for finding in verdict["findings"]} == {"error"}
    assert "WRONG" in program("compare", "twice.cu", "wrong.cu").out


def test_a_reference_that_raises_exits_with_2(program: Program, folder: Path) -> None:
    (folder / "ref.py").write_text("def f(x):\n    raise ValueError('no good')\n")
    told = program("bench", "twice.cu", "--reference", "ref.py:f")
    assert told.code == 2
    assert "no good" in told.err


def test_optimize_writes_back_what_was_accepted(
    program: Program, folder: Path, documents: Callable[[str], Any]
) -> None:
    (folder / "k.cu").write_text(TREE_SUM)
    done = program("optimize", "k.cu", "reduce memory usage", "--json", "--accept", "--html", "k.html")
    assert done.code == 0, done.out + done.err
    document = documents(done.out)
    best = document["candidates"][document["best"]]
    assert best["verdict"]["accepted"] is True
    assert best["verdict"]["objective"]["name"] == "shared_bytes"
    assert best["verdict"]["objective"]["after"] < best["verdict"]["objective"]["before"] == 512
    written = (folder / "k.cu").read_text()
    assert written == best["source"] != TREE_SUM
    assert "128 * sizeof(float)" not in written
    assert [path.read_text() for path in folder.glob("k.cu.*backup*")] == [TREE_SUM]
    assert "written to k.cu" in done.err
    assert (folder / "k.html").read_text().startswith("<!doctype html>")
    assert program("compare", "k.cu", next(folder.glob("k.cu.*backup*")).name).code == 0


def test_launches_in_other_files_are_written_with_the_candidate(program: Program, folder: Path) -> None:
    kernel, launcher = TREE_SUM.split("\nvoid launch")
    (folder / "pyproject.toml").touch()
    (folder / "k.cu").write_text(kernel)
    (folder / "main.cu").write_text(f"void launch{launcher}")
    done = program("optimize", "k.cu", "reduce memory usage", "--accept")
    assert done.code == 0, done.out + done.err
    assert "launches changed with it: " in done.out
    assert "main.cu:3" in done.out
    assert "+++ b/main.cu" in done.out
    assert "128 * sizeof(float)" not in (folder / "main.cu").read_text()
    assert "row_sum<<<rows, 128>>>(x, y, cols);" in (folder / "main.cu").read_text()
    assert [path.read_text() for path in folder.glob("main.cu.*backup*")] == [f"void launch{launcher}"]


def test_two_that_accept_at_once_leave_one_winner(start: Callable[..., subprocess.Popen[str]], folder: Path) -> None:
    (folder / "k.cu").write_text(TREE_SUM)
    arguments = ("optimize", "k.cu", "reduce memory usage", "--accept", "--seed", "7")
    both = [start(*arguments) for _ in range(2)]
    said = [process.communicate() for process in both]
    assert sorted(process.returncode for process in both) == [0, 2], said
    loser = said[[process.returncode for process in both].index(2)]
    assert "changed" in loser[1]
    assert [path.read_text() for path in folder.glob("k.cu.*backup*")] == [TREE_SUM]


# ------------------------------------------------------------------------------------------ signals and disks


def marked(mark: str) -> list[int]:
    """Processes that carry the mark in their environment, zombies aside."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if mark.encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for left processes in /proc")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_at_once_and_leaves_no_process(
    number: signal.Signals, code: int, start: Callable[..., subprocess.Popen[str]], folder: Path
) -> None:
    mark = uuid.uuid4().hex
    running = Path("/dev/shm", f"kernelmate-{mark}")
    (folder / "ref.py").write_text(
        f"import pathlib, time\ndef f(x):\n    pathlib.Path({str(running)!r}).touch()\n    time.sleep(600)\n"
    )
    process = start("bench", "twice.cu", "--reference", "ref.py:f", **{MARK: mark})
    until = time.monotonic() + 120
    while not running.exists() and process.poll() is None and time.monotonic() < until:
        time.sleep(0.05)
    assert running.exists(), process.communicate()
    running.unlink()
    assert len(marked(mark)) > 1
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert out == ""
    assert "Traceback" not in err
    until = time.monotonic() + 10
    while marked(mark) and time.monotonic() < until:
        time.sleep(0.05)
    assert marked(mark) == []


def entry_points() -> dict[str, list[str]]:
    """Returns the two ways to start the command: as a module, and as the script that pyproject.toml declares."""
    project = tomllib.loads((Path(__file__).resolve().parents[3] / "pyproject.toml").read_text())["project"]
    module, name = project["scripts"]["kernelmate"].split(":")
    script = f"import sys\nfrom {module} import {name}\nsys.exit({name}())"
    return {"module": [sys.executable, "-m", "kernelmate"], "script": [sys.executable, "-c", script]}


@pytest.mark.skipif(sys.platform == "win32", reason="signals as on POSIX")
@pytest.mark.parametrize("entry", ["module", "script"])
@pytest.mark.parametrize("package", ["click", "pydantic", "rich", "tree_sitter"])
def test_an_interrupt_while_the_command_is_loaded_prints_no_traceback(package: str, entry: str, folder: Path) -> None:
    """Each package stands for a time at which it comes: the first one is loaded before any command is known."""
    ahead = folder / "ahead"
    ahead.mkdir()
    interrupting = "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(600)\n"
    (ahead / f"{package}.py").write_text(interrupting)
    path = os.pathsep.join([str(ahead), os.environ.get("PYTHONPATH", ""), *sys.path])
    done = subprocess.run(
        [*entry_points()[entry], "bench", "twice.cu"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 130
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


EXPLODING = """\
template <int N, long K> struct Tree { static const long value = Tree<N - 1, 2 * K>::value + Tree<N - 1, 2 * K + 1>::value; };
template <long K> struct Tree<0, K> { static const long value = K; };
__global__ void a(long *x) { *x = Tree<24, 1>::value; }
"""


def test_a_compilation_that_does_not_end_is_killed_and_told(
    program: Program, folder: Path, documents: Callable[[str], Any]
) -> None:
    (folder / "tree.cu").write_text(EXPLODING)
    mark = uuid.uuid4().hex
    told = program("check", "tree.cu", "--timeout", "2", "--json", **{MARK: mark})
    assert told.code == 1
    assert documents(told.out)["error"]["code"] == "compile-timeout"
    assert marked(mark) == []


def test_a_compilation_that_does_not_end_leaves_the_other_kernels_of_a_file(
    program: Program, folder: Path, documents: Callable[[str], Any]
) -> None:
    (folder / "tree.cu").write_text(EXPLODING + "__global__ void b(float *x) { *x = 1; }\n")
    told = program("check", "tree.cu", "--timeout", "2", "--json")
    assert told.code == 1
    first, second = documents(told.out)["verdicts"]
    assert (first["kernel"], first["compiled"]) == ("a", False)
    assert "did not end" in first["diagnostics"][0]["message"]
    assert (second["kernel"], second["compiled"]) == ("b", True)


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for left processes in /proc")
def test_an_interrupted_compilation_leaves_no_process(
    start: Callable[..., subprocess.Popen[str]], folder: Path
) -> None:
    (folder / "tree.cu").write_text(EXPLODING)
    mark = uuid.uuid4().hex
    process = start("check", "tree.cu", **{MARK: mark})
    until = time.monotonic() + 60
    while len(marked(mark)) < 2 and process.poll() is None and time.monotonic() < until:
        time.sleep(0.05)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err == "\nerror: Interrupted.\n"
    until = time.monotonic() + 10
    while marked(mark) and time.monotonic() < until:
        time.sleep(0.05)
    assert marked(mark) == []


@pytest.fixture
def small_disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A file system of 64 KiB, where this user may mount one."""
    if sys.platform != "linux":
        pytest.skip("mounts a tmpfs, which only Linux has")
    point = tmp_path_factory.mktemp("disk")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(point)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"this user may not mount a tmpfs: {mounted.stderr.strip()}")
    yield point
    subprocess.run(["umount", "-l", str(point)], check=True)


def test_a_full_disk_under_the_cache_costs_nothing_but_time(program: Program, small_disk: Path) -> None:
    with contextlib.suppress(OSError):
        (small_disk / "filler").write_bytes(b"0" * 10**6)
    done = program("check", "twice.cu", "--json", KERNELMATE_CACHE_DIR=str(small_disk))
    assert done.code == 0, done.err
    assert json.loads(done.out)["verdicts"][0]["compiled"] is True
    doctor = json.loads(program("doctor", "--json", KERNELMATE_CACHE_DIR=str(small_disk)).out)
    assert "No space left" in next(check["detail"] for check in doctor["checks"] if check["name"] == "cache")


def test_a_folder_that_cannot_be_written_is_told_and_left_alone(
    small_disk: Path, script: Any, run: Callable[..., Any], samples: SimpleNamespace
) -> None:
    from dataclasses import replace

    file = small_disk / "twice.cu"
    file.write_text(samples.source)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    script.best = replace(samples.verdict, objective=samples.counted)
    done = run("optimize", str(file), "less memory", "--accept")
    assert done.exit_code in {2, 3}
    assert done.stderr.startswith("error: ")
    assert str(file) in done.stderr
    assert "Traceback" not in done.stderr
    assert file.read_text() == samples.source
    assert [path.name for path in small_disk.iterdir()] == ["twice.cu"]


def test_a_prompt_that_is_not_understood_is_a_usage_error(tmp_path: Path) -> None:
    file = tmp_path / "row_sum.cu"
    file.write_text(TREE_SUM)
    done = subprocess.run(
        [*KERNELMATE, "optimize", str(file), "paint it blue", "--json"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    error = json.loads(done.stdout)["error"]
    assert error["code"] == "usage"
    assert "Nothing in the prompt was understood" in error["message"]
    assert "one warp per row" in error["hint"]
