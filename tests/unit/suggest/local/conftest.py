"""A tiny model, a library that holds it, and servers that are ended after each test."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

pytest.importorskip("gguf")

from tiny_gguf import DEEP, write_tiny_gguf

from kernelmate.suggest.local.library import LocalModelFile, ModelLibrary
from kernelmate.suggest.local.serving import ModelServer, ServerSettings


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf")


@pytest.fixture
def library(tmp_path: Path) -> ModelLibrary:
    return ModelLibrary(tmp_path / "models")


@pytest.fixture
def model(library: ModelLibrary, tiny: Path) -> LocalModelFile:
    return library.add(tiny)


@pytest.fixture(scope="session")
def deep_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("gguf") / "deep.gguf", shape=DEEP)


@pytest.fixture
def deep(library: ModelLibrary, deep_file: Path) -> LocalModelFile:
    """A model that takes its time."""
    return library.add(deep_file)


@pytest.fixture(params=["xllamacpp", "llama_cpp"])
def engine(request: pytest.FixtureRequest) -> str:
    """Each package that can serve; those that are not installed are skipped, and said so."""
    name = str(request.param)
    if find_spec(name) is None:
        pytest.skip(f"{name} is not installed")
    return name


@pytest.fixture
def serve(library: ModelLibrary, tmp_path: Path, engine: str) -> Iterator[Callable[..., ModelServer]]:
    """A model server with a state file of its own, by each package that is installed."""
    servers: list[ModelServer] = []

    def make(name: str = "server.json", **settings: Any) -> ModelServer:
        settings.setdefault("engine", engine)
        server = ModelServer(
            ServerSettings(**{"context": 1024, "threads": 1, **settings}), tmp_path / "run" / name, library
        )
        servers.append(server)
        return server

    yield make
    for server in servers:
        server.stop()
