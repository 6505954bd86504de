"""`kernelmate model`: lists, selects and tests local models."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kernelmate.cli.model_test import test
from kernelmate.cli.options import output_of, output_options
from kernelmate.cli.stopping import print_note
from kernelmate.errors import EnvironmentFailed, UsageError

if TYPE_CHECKING:
    from kernelmate.suggest.local.download import OnStage
    from kernelmate.suggest.local.library import LocalModelFile, ModelLibrary, OnBytes
    from kernelmate.suggest.local.serving import ModelServer

WORTH_TELLING = 100 << 20
"""Minimum size in bytes of a file whose progress is printed without a terminal."""


@click.group(
    epilog="""\b
Examples:
  kernelmate model add ./qwen2.5-coder-7b-q4_k_m.gguf
  kernelmate model add Qwen/Qwen2.5-Coder-7B-Instruct-GGUF:qwen2.5-coder-7b-instruct-q4_k_m.gguf
  kernelmate model list
  kernelmate model use qwen2.5-coder-7b-q4_k_m
  kernelmate model test
  kernelmate model consent --withdraw
  kernelmate optimize softmax.cu "make it faster" --author local

\b
A model is served by llama.cpp on this machine, on loopback and with a key, when it is first asked, and
unloaded when nobody asks for ten minutes (model_idle_s). It stays on the CPU unless model_gpu_layers says
otherwise. Another server that speaks OpenAI's protocol is named by the setting model_url.""",
)
def model() -> None:
    """Add, list, select and test local models."""


model.add_command(test)


@model.command(short_help="Add a GGUF file, or one of a repository.")
@click.argument("source", metavar="FILE.gguf|OWNER/NAME[:FILE]")
@click.option("--name", metavar="NAME", help="The model's name; by default the file's.")
@click.option("--yes", is_flag=True, help="Download without asking.")
def add(source: str, name: str | None, yes: bool) -> int:
    """Add a model: a local file, or a file of a repository, whose size and licence are shown first."""
    library = _library()
    path = Path(source)
    if path.is_file() or "/" not in source or (source.lower().endswith(".gguf") and ":" not in source):
        if not path.is_file():
            raise UsageError(f"There is no file {source}.", hint="Give a .gguf file, or OWNER/NAME of a repository.")
        with _bytes("reading") as told:
            added = library.add(path, name, on_bytes=told)
    else:
        added = _downloaded(library, source, name, yes)
    print_note(f"{added.name} added: {_words(added)}")
    print_note(f"sha256 {added.sha256}")
    current = library.current()
    if current is not None and current.name != added.name:
        print_note(f"{current.name} stays in use; `kernelmate model use {added.name}` takes this one")
    return 0


def _downloaded(library: ModelLibrary, source: str, name: str | None, yes: bool) -> LocalModelFile:
    from kernelmate.report.words import byte_words
    from kernelmate.suggest.local.download import download, look_up

    offer = look_up(source)
    print_note(f"{offer.repository}, {offer.file}: {byte_words(offer.size)}, licence {offer.licence or 'not stated'}")
    print_note(f"sha256 {offer.sha256 or 'not stated by the hub'}, revision {offer.revision}")
    if not yes:
        click.confirm("Download it?", abort=True, err=True)
    try:
        with _stages() as told:
            return download(library, offer, name, told)
    except KeyboardInterrupt:
        print_note("the partial download is kept; run the same command again to resume it")
        raise


@model.command("list", short_help="List the models.")
@output_options(quiet=False)
def list_models(**options: Any) -> int:
    """List the models; the one in use is marked."""
    output = output_of(options)
    library = _library()
    models, current = library.models(), library.current()
    if output.as_json:
        from kernelmate.report.json import models_json

        output.document(models_json(models, current))
    elif models:
        from kernelmate.report.machine import models_view

        output.stdout().print(models_view(models, current))
        _tell_differing(models)
    else:
        from kernelmate.suggest.local.starter import MISSING, shipped

        missing = f" {MISSING}" if shipped() is None else ""
        output.stdout().print(f"No model yet; add one with `kernelmate model add FILE.gguf`.{missing}", soft_wrap=True)
    return 0


@model.command(short_help="Select the model that is asked.")
@click.argument("name")
def use(name: str) -> int:
    """Select the model that is asked."""
    chosen = _library().use(name)
    print_note(f"{chosen.name} is in use: {_words(chosen)}")
    _tell_differing([chosen])
    return 0


@model.command(short_help="Remove a model from the list.")
@click.argument("name")
def remove(name: str) -> int:
    """Remove a model from the list; a downloaded file is deleted, another one is kept."""
    library = _library()
    path = library.find(name).path
    deleted = library.remove(name)
    print_note(f"{name} removed; {path} " + ("was deleted" if deleted else "is left where it is"))
    return 0


@model.command(short_help="Show or withdraw consent to send text.")
@click.argument(
    "folder", type=click.Path(path_type=Path, exists=True, file_okay=False), default=".", metavar="[FOLDER]"
)
@click.option(
    "--withdraw", is_flag=True, help="Withdraw the workspace's consents: you are asked again before text is sent."
)
def consent(folder: Path, withdraw: bool) -> int:
    """Show to which hosts text of a workspace may be sent, because you agreed; FOLDER is in the workspace."""
    from kernelmate.suggest.consent import Consents, workspace_of

    consents, workspace = Consents(), workspace_of(folder / "kernel.cu")
    hosts = consents.of(workspace)
    if not hosts:
        print_note(f"No text of {workspace} may be sent to another machine; you are asked before the first is.")
    for host, moment in hosts.items():
        agreed = time.strftime("%Y-%m-%d %H:%M", time.localtime(moment))
        print_note(f"{host}: text of {workspace} may be sent, as you agreed on {agreed}")
    if withdraw and hosts:
        if not consents.withdraw(workspace):
            raise EnvironmentFailed(
                f"{consents.path} cannot be written.",
                hint="Make the file writable, or delete it: that withdraws every consent.",
            )
        print_note("withdrawn: you are asked before more is sent")
    elif hosts:
        print_note("`kernelmate model consent --withdraw` withdraws it")
    return 0


@model.command(short_help="Show the paths of models, server and key file.")
@output_options(quiet=False)
def where(**options: Any) -> int:
    """Show the folder of the models, and whether a server runs."""
    from kernelmate.session.authors import model_server

    output = output_of(options)
    server = model_server(_settings())
    running = server.running()
    starter = server.library.starter
    rows = {
        "models": str(server.library.folder),
        "starter": _starter_words() if starter is None else starter.path,
        "server": "none runs" if running is None else f"{running.url}, process {running.pid}, model {running.alias}",
        "server_file": str(server.file),
        "memory": _memory_words(server),
    }
    if output.as_json:
        from kernelmate.report.json import SCHEMA

        output.document({"schema": SCHEMA, "where": rows})
    else:
        from kernelmate.report.console import pairs

        output.stdout().print(pairs([(name.replace("_", " "), value) for name, value in rows.items()]))
    return 0


@model.command(short_help="Load the model now and keep it loaded.")
@click.argument("name", required=False)
def serve(name: str | None) -> int:
    """Load a model in advance, so that the first prompt does not wait; ends with Ctrl-C or `model stop`."""
    from kernelmate.session.authors import model_server
    from kernelmate.suggest.base import AuthorFailed
    from kernelmate.suggest.local.state import touch

    server = model_server(_settings())
    chosen = _chosen(server.library, name)
    try:
        endpoint = server.ensure(chosen)
    except AuthorFailed as error:
        raise EnvironmentFailed(str(error)) from None
    print_note(f"{chosen.name} answers at {endpoint.url}; its key is in {server.file}. Ctrl-C ends it.")
    try:
        while server.running() is not None:
            touch(server.file)
            time.sleep(1.0)
    finally:
        server.stop()
    print_note("the server has ended")
    return 0


@model.command(short_help="Unload the model.")
def stop() -> int:
    """End the model server, if one runs."""
    from kernelmate.session.authors import model_server

    print_note("the server has ended" if model_server(_settings()).stop() else "no server ran")
    return 0


def _tell_differing(models: Sequence[LocalModelFile]) -> None:
    """Prints a note for each model that was trained with other recipes than the installed ones."""
    from kernelmate.suggest.codec.fingerprint import differing

    for one in models:
        said = differing(one.name, one.offers)
        if said is not None:
            print_note(said)


def _starter_words() -> str:
    """Returns the reason why there is no starter model."""
    from kernelmate.suggest.local.starter import MISSING, shipped

    return MISSING if shipped() is None else "not wanted (the setting starter is false)"


def _memory_words(server: ModelServer) -> str:
    """Describes how the selected model would be served with the memory that is available now."""
    from kernelmate.report.words import byte_words, plural
    from kernelmate.suggest.base import AuthorFailed

    current = server.library.current()
    if current is None:
        return "no model is in use"
    try:
        preset = server.preset(current)
    except AuthorFailed as error:
        return str(error)
    layers = "on the CPU" if preset.gpu_layers == 0 else f"{plural(preset.gpu_layers, 'layer')} on the GPU"
    conversations = plural(preset.parallel, "conversation")
    return f"{conversations} of {preset.context:,} tokens, {layers}: about {byte_words(preset.memory)} of main memory"


def _settings() -> Any:
    from kernelmate.config import load_settings

    return load_settings()


def _library() -> ModelLibrary:
    from kernelmate.session.authors import model_library

    return model_library(_settings())


def _chosen(library: ModelLibrary, name: str | None) -> LocalModelFile:
    """Returns the named model, else the selected one.

    Raises:
        UsageError: no model is selected, or the name is unknown.
    """
    chosen = library.find(name) if name is not None else library.current()
    if chosen is None:
        raise UsageError("No model is in use.", hint="Add one with `kernelmate model add FILE.gguf`.")
    return chosen


def _words(added: LocalModelFile) -> str:
    from kernelmate.report.machine import model_words

    return model_words(added)


@contextlib.contextmanager
def _bytes(what: str) -> Iterator[OnBytes]:
    """Context manager that shows a progress bar on standard error while a large file is read."""
    with _stages() as told:
        yield lambda done, total: told(what, done, total)


@contextlib.contextmanager
def _stages() -> Iterator[OnStage]:
    """Context manager that shows progress bars on standard error; without a terminal, a line for each tenth."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    from kernelmate.report.console import make_console

    console = make_console(sys.stderr)
    columns = (
        TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn(),
    )  # fmt: skip
    tenths: dict[str, int] = {}
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        tasks: dict[str, Any] = {}

        def told(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bar.add_task(stage, total=total or None)
            bar.update(tasks[stage], completed=done, total=total or None)
            tenth = done * 10 // total if total else 0
            if bar.disable and total >= WORTH_TELLING and tenth != tenths.setdefault(stage, tenth):
                tenths[stage] = tenth
                print_note(f"{stage}: {tenth * 10}%")

        yield told
