"""Definitions that a Triton kernel uses from other files or under other names are found in the text; these files are not executed."""

from __future__ import annotations

import ast
import math
from pathlib import Path

import pytest

from kernelmate.source import load_kernel, load_kernels
from kernelmate.source.triton import parsed
from kernelmate.source.triton_modules import TritonModule, triton_modules

STOP = "raise SystemExit('this file is run')\n"
HEAD = "import triton\nimport triton.language as tl\n"
KERNEL = """
@triton.jit
def twice(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, double(tl.load(x + i, mask=i < n)), mask=i < n)
"""
DOUBLE = "@triton.jit\ndef double(v):\n    return v * FACTOR\n"


def files(folder: Path, **texts: str) -> None:
    """Writes files of a project; two underscores in a name are a folder."""
    folder.mkdir(exist_ok=True)
    (folder / "pyproject.toml").touch()
    for name, text in texts.items():
        path = folder / (name.replace("__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def modules(path: Path) -> dict[str, TritonModule]:
    kernel = load_kernel(f"{path}::twice")
    return {Path(one.path).stem: one for one in triton_modules(kernel)}


@pytest.mark.parametrize(
    "statement",
    [
        "from .helpers import double",
        "from ops.helpers import double",
        "from .again import double",
        "from helpers import double",
    ],
)
def test_a_function_of_another_file_is_taken_from_it_with_what_it_uses(tmp_path: Path, statement: str) -> None:
    files(
        tmp_path,
        ops__kernels=HEAD + statement + "\n" + STOP + KERNEL,
        ops__helpers=HEAD + "from .numbers import FACTOR\n" + STOP + DOUBLE + "UNUSED = 3\n",
        ops__again="from .helpers import double\n",
        ops__numbers=HEAD + STOP + "FACTOR: tl.constexpr = tl.constexpr(2)\n",
    )
    found = modules(tmp_path / "ops" / "kernels.py")
    assert not any(one.missing or "SystemExit" in one.text or "UNUSED" in one.text for one in found.values())
    assert found["helpers"].text.split("\n")[5] == "def double(v):"
    assert found["numbers"].text.strip() == "FACTOR = tl.constexpr(2)"


def test_a_module_that_is_imported_gives_the_names_that_are_taken_from_it(tmp_path: Path) -> None:
    kernel = KERNEL.replace("double(", "helpers.double(")
    files(tmp_path, ops__kernels=HEAD + "from . import helpers\n" + kernel, ops__helpers=HEAD + "FACTOR = 2\n" + DOUBLE)
    found = modules(tmp_path / "ops" / "kernels.py")
    assert found["kernels"].imported == {"helpers": (1, "")}
    assert "def double" in found["helpers"].text


@pytest.mark.parametrize(
    ("statement", "called"),
    [
        ("from pkg.inner import *", "double"),
        ("from pkg import *", "double"),
        ("from pkg import double", "double"),
        ("from pkg import inner", "inner.double"),
        ("import pkg", "pkg.inner.double"),
        ("import pkg.inner", "pkg.inner.double"),
        ("from pkg import inner", "inner._double"),
        ("from pkg.inner import double as first\nsecond = first\nthird = second", "third"),
    ],
)
def test_functions_of_packages_are_found_by_every_form_of_an_import(
    tmp_path: Path, statement: str, called: str
) -> None:
    files(
        tmp_path,
        kernels=HEAD + statement + "\n" + KERNEL.replace("double(", called + "("),
        pkg__inner=HEAD + "FACTOR = 2\n" + DOUBLE + DOUBLE.replace("double", "_double"),
    )
    (tmp_path / "pkg" / "__init__.py").write_text("from . import inner\nfrom .inner import *\n")
    found = modules(tmp_path / "kernels.py")
    assert not any(one.missing for one in found.values())
    assert "return v * FACTOR" in found["inner"].text


def test_functions_of_branches_are_taken_and_the_last_one_is_named(tmp_path: Path) -> None:
    branches = "import os\nif os.environ.get('FAST'):\n    @triton.jit\n    def double(v):\n        return v\n"
    branches += "else:\n    @triton.jit\n    def double(v):\n        return v + v\n"
    files(tmp_path, kernels=HEAD + "from helpers import double\n" + KERNEL, helpers=HEAD + branches)
    helpers = modules(tmp_path / "kernels.py")["helpers"]
    assert helpers.text.strip() == "@_kernelmate_jit\ndef double(v):\n    return v + v"
    assert helpers.ambiguous == {"double": 10}


@pytest.mark.parametrize(
    ("condition", "first"),
    [("os.environ.get('FAST')", False), ("VERSION >= (3, 0)", True), ("hasattr(tl, 'new')", True)],
)
def test_other_names_of_functions_of_triton_keep_their_meaning(tmp_path: Path, condition: str, first: bool) -> None:
    """Of the branches of a condition the last one counts, but of a test of versions the first that a version has."""
    new, old = "triton.language.extra.libdevice.tanh", "triton.language.math.tanh"
    text = f"if {condition}:\n    from triton.language.extra import libdevice\n    double = libdevice.tanh\nelse:\n    double = tl.math.tanh\n"
    files(tmp_path, kernels=HEAD + "from helpers import double\n" + KERNEL, helpers=HEAD + text)
    found = modules(tmp_path / "kernels.py")
    assert found["helpers"].library["double"] == ((new, old) if first else (old, new))
    assert found["helpers"].chosen == {"double": 7}
    assert found["kernels"].imported == {"double": (1, "double")}


def test_a_name_takes_its_last_certain_meaning(tmp_path: Path) -> None:
    text = HEAD + "from triton.language.math import exp as double\nFACTOR = 2\n" + DOUBLE + KERNEL
    files(tmp_path, kernels=text)
    (module,) = modules(tmp_path / "kernels.py").values()
    assert "double" not in module.library
    assert "return v * FACTOR" in module.text


@pytest.mark.parametrize(
    ("statement", "helpers", "reason"),
    [
        ("from absent.place import double", "", "imported from absent.place, of which no file"),
        ("from helpers import double", "def double(v):\n    return v\n", "as no jitted function"),
        ("double = choose('double')", "", "not a literal, and the file is not run"),
    ],
)
def test_names_that_nothing_defines_have_a_reason(tmp_path: Path, statement: str, helpers: str, reason: str) -> None:
    files(tmp_path, kernels=HEAD + statement + "\n" + KERNEL, helpers=HEAD + helpers)
    assert reason in modules(tmp_path / "kernels.py")["kernels"].missing["double"]


def test_imports_end_at_the_projects_folder(tmp_path: Path) -> None:
    (tmp_path / "helpers.py").write_text(HEAD + "FACTOR = 2\n" + DOUBLE)
    files(tmp_path / "project", kernels=HEAD + "from helpers import double\n" + KERNEL)
    assert "double" in modules(tmp_path / "project" / "kernels.py")["kernels"].missing


def test_relative_imports_and_links_do_not_lead_out_of_the_project(tmp_path: Path) -> None:
    (tmp_path / "helpers.py").write_text(HEAD + "FACTOR = 2\n" + DOUBLE)
    files(tmp_path / "project", kernels=HEAD + "from ..helpers import double\n" + KERNEL)
    assert "double" in modules(tmp_path / "project" / "kernels.py")["kernels"].missing
    files(tmp_path / "project", kernels=HEAD + "from .linked import double\n" + KERNEL)
    (tmp_path / "project" / "linked.py").symlink_to(tmp_path / "helpers.py")
    assert "double" in modules(tmp_path / "project" / "kernels.py")["kernels"].missing


def test_without_a_project_no_file_of_the_home_folder_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "helpers.py").write_text(HEAD + "FACTOR = 2\n" + DOUBLE)
    (tmp_path / "work" / "kernels.py").write_text(HEAD + "from helpers import double\n" + KERNEL)
    assert "helpers" in modules(tmp_path / "work" / "kernels.py")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert "double" in modules(tmp_path / "work" / "kernels.py")["kernels"].missing


def test_a_file_that_is_imported_is_parsed_once_for_all_versions_of_a_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed_texts: list[str] = []

    def counted(text: str) -> ast.Module | None:
        parsed_texts.append(text)
        return parsed(text)

    monkeypatch.setattr("kernelmate.source.triton_modules.parsed", counted)
    helpers = HEAD + f"# of {tmp_path}\nFACTOR = 2\n" + DOUBLE
    for version in range(3):
        files(tmp_path, kernels=HEAD + f"from helpers import double\nVERSION = {version}\n" + KERNEL, helpers=helpers)
        modules(tmp_path / "kernels.py")
    assert parsed_texts.count(helpers) == 1


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("float('-inf')", -math.inf),
        ("-float('inf')", -math.inf),
        ("1e999", math.inf),
        ("-1e999", -math.inf),
        ("-2.5", -2.5),
    ],
)
def test_infinities_are_constants(tmp_path: Path, written: str, value: float) -> None:
    files(
        tmp_path,
        kernels=HEAD + "double = tl.abs\n" + KERNEL.replace("i < n", "i < LOW"),
    )
    text = (tmp_path / "kernels.py").read_text().replace("double = ", f"LOW = tl.constexpr({written})\ndouble = ")
    (tmp_path / "kernels.py").write_text(text)
    (module,) = modules(tmp_path / "kernels.py").values()
    scope: dict[str, object] = {}
    line = next(one for one in module.text.split("\n") if one.startswith("LOW"))
    exec(line.replace("tl.constexpr", ""), scope)
    assert scope["LOW"] == value


def test_files_that_import_each_other_are_read_once(tmp_path: Path) -> None:
    files(
        tmp_path,
        kernels=HEAD + "from helpers import double\nFACTOR = 2\n" + KERNEL,
        helpers=HEAD + "from kernels import FACTOR\n" + DOUBLE,
    )
    assert list(modules(tmp_path / "kernels.py")) == ["kernels", "helpers"]


def test_a_function_that_a_call_jits_is_a_kernel(tmp_path: Path) -> None:
    called = (
        KERNEL.replace("@triton.jit\n", "") + "\n\ntwice = triton.jit(twice)\ntwice = triton.heuristics({})(twice)\n"
    )
    files(tmp_path, kernels=HEAD + "double = tl.abs\n" + called)
    assert [one.name for one in load_kernels(tmp_path / "kernels.py")] == ["twice"]
    (module,) = modules(tmp_path / "kernels.py").values()
    assert "@" not in module.text
    assert module.text.rstrip().endswith("twice = _kernelmate_jit(twice)")
    namespace = {"_kernelmate_jit": lambda function: function.__name__, "_kernelmate_constexpr": int}
    exec(module.text, namespace)
    assert namespace["twice"] == "twice"


NESTED = (
    HEAD
    + """
def make(scale):
    WIDTH = 4

    @triton.jit
    def double(v):
        return v * WIDTH * scale

    return double


double = make(2)


def kernels():
    @triton.jit
    def twice(x, n):
        tl.store(x, double(tl.load(x)))

    return twice
"""
)


def test_functions_within_functions_are_taken_and_what_only_a_call_gives_has_a_reason(tmp_path: Path) -> None:
    files(tmp_path, kernels=NESTED)
    (module,) = modules(tmp_path / "kernels.py").values()
    lines = module.text.split("\n")
    assert [lines[number - 1] for number in (5, 8, 9)] == [
        "WIDTH = 4",
        "def double(v):",
        "    return v * WIDTH * scale",
    ]
    assert module.missing["scale"].startswith("its value of line 4 is not a literal")
    assert [one.name for one in load_kernels(tmp_path / "kernels.py")] == ["twice"]


def test_a_function_may_take_any_number_of_arguments(tmp_path: Path) -> None:
    double = "@triton.jit\ndef double(*values, twice: tl.constexpr = True):\n    return values[0]\n"
    files(tmp_path, kernels=HEAD + double + KERNEL)
    (module,) = modules(tmp_path / "kernels.py").values()
    assert "def double(*values, twice: _kernelmate_constexpr = True):" in module.text
