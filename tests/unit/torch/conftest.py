"""Operators exported once for all tests, and loaded as a program would load them."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kernelmate.config import load_settings
from kernelmate.records import Kernel, Verdict
from kernelmate.session import Session
from kernelmate.session.exporting import ExportSelection, write_all
from kernelmate.session.operator_export import export_operator, operator_folder
from kernelmate.source import load_kernel

ROOT = Path(__file__).resolve().parents[3]
KERNELS = Path(__file__).resolve().parent / "kernels"

Operator = Callable[..., ModuleType]


@pytest.fixture(autouse=True)
def _one_thread_and_seed() -> Iterator[None]:
    """Threads of tiny tensors wait for each other longer than they work; what failed fails again."""
    torch: Any = sys.modules.get("torch")
    if torch is None:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(before)


class CompilingSession(Session):
    """Compiles in place of judging, which takes ten seconds a kernel; tests/unit/cli/test_export_torch.py judges."""

    def bench(self, kernel: Kernel, *_: Any, **__: Any) -> tuple[Verdict, ...]:
        return tuple(replace(verdict, correct=True) for verdict in self.check(kernel))


@pytest.fixture(scope="session")
def session() -> Iterator[Session]:
    with CompilingSession(load_settings(backend="emulator", history=False)) as opened:
        yield opened


@pytest.fixture(scope="session")
def exported(session: Session, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Export a kernel of this folder or of the examples, once; gives the folder with its package and test."""
    made: dict[tuple[str, str | None], Path] = {}
    place = tmp_path_factory.mktemp("operators")

    def export(spec: str, backward: str | None = None) -> Path:
        if (spec, backward) not in made:
            kernel = load_kernel(str(located(spec)))
            second = None if backward is None else load_kernel(str(located(backward)))
            done = export_operator(session, session.settings, ExportSelection(kernel, None), second)
            assert done.accepted, [verdict.reasons for verdict in (*done.verdicts, *done.backward)]
            folder = place / operator_folder(kernel)
            write_all(folder, done.files, force=True)
            made[spec, backward] = folder
        return made[spec, backward]

    return export


def located(spec: str) -> Path:
    here = KERNELS / spec
    return here if (KERNELS / spec.partition("::")[0]).is_file() else ROOT / "examples" / spec


@pytest.fixture(scope="session")
def operator(exported: Callable[..., Path]) -> Operator:
    """Export a kernel and import its package; an operator is registered once in a process."""

    def load(spec: str, backward: str | None = None) -> ModuleType:
        folder = exported(spec, backward)
        (package,) = (path for path in folder.iterdir() if path.name.endswith("_op"))
        if package.name not in sys.modules:
            found = importlib.util.spec_from_file_location(package.name, package / "__init__.py")
            assert found is not None
            assert found.loader is not None
            sys.modules[package.name] = module = importlib.util.module_from_spec(found)
            found.loader.exec_module(module)
        return sys.modules[package.name]

    return load


@pytest.fixture
def run_its_test() -> Callable[[Path], subprocess.CompletedProcess[str]]:
    """Run the generated test in a process of its own, as its user does."""

    def run(folder: Path) -> subprocess.CompletedProcess[str]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("KERNELMATE_")}
        environment |= {"PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "pytorch"))), "OMP_NUM_THREADS": "1"}
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "--import-mode=importlib",
            str(folder),
        ]
        return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)

    return run
