"""Creation of a kernel for a Python function: the code action on its `def`, and the command that the action runs."""

from __future__ import annotations

import ast
import contextlib
import re
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from lsprotocol import types

from kernelmate.errors import SourceError, UsageError
from kernelmate.report.json import written_json
from kernelmate.session.exporting import write_all
from kernelmate.session.writing import WriteOutcome
from kernelmate.source.examples import load_python_function, read_examples
from kernelmate.source.line_ends import normal_text
from kernelmate.synthesis.draft import KernelRequest
from kernelmate_lsp.features.commands import demand_trust, register_command, run_with_progress
from kernelmate_lsp.job_queue import QueuedJob
from kernelmate_lsp.judging import OnStage
from kernelmate_lsp.phrases import candidate_phrase
from kernelmate_lsp.reading import DocumentKernels
from kernelmate_lsp.server import KernelmateServer

KIND = "refactor.rewrite.kernelmate.write"
"""Kind of the code action; actions of kind `source` would not get a light bulb."""
_NUMPY = re.compile(r"^\s*(?:import|from)\s+numpy\b", re.MULTILINE)


def actions_at(reading: DocumentKernels, line: int) -> Iterator[types.CodeAction]:
    """Yields the action on the `def` of a top-level function in a Python file that imports NumPy.

    Args:
        reading: the document.
        line: the line, from 1.
    """
    if Path(reading.path).suffix != ".py" or _NUMPY.search(reading.text) is None:
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(reading.text)
    except (SyntaxError, ValueError, RecursionError):
        return
    for one in tree.body:
        if not isinstance(one, ast.FunctionDef) or not (one.args.posonlyargs or one.args.args or one.args.kwonlyargs):
            continue
        first = min([one.lineno, *(decorator.lineno for decorator in one.decorator_list)])
        if first <= line <= max(one.lineno, one.body[0].lineno - 1):
            arguments = [{"uri": reading.uri, "function": one.name}]
            command = types.Command("Write a kernel", "kernelmate.write", arguments=arguments)
            yield types.CodeAction(f"KernelMate: Write a CUDA kernel for {one.name}", KIND, command=command)


async def write(server: KernelmateServer, given: Mapping[str, Any]) -> Any:
    """Writes a kernel for a function into a new file in the function's folder.

    Returns the document that `kernelmate write --json` prints; null if cancelled.

    The command's object has `uri`, `function` and, if the function's text has no examples, `arrays` as on the command
    line.

    Raises:
        KernelmateError: the document is not saved, there is no example, or the kernel's file exists already.
    """
    demand_trust(server)
    asked = await _asked(server, given)

    def work(job: QueuedJob, tell: OnStage) -> WriteOutcome:
        return server.judge.write(job, asked, server.configuration_of(str(given["uri"])), tell)

    name = asked.function.name
    made = await run_with_progress(
        server, ("judge", str(given["uri"]), f"write:{name}"), f"Write a kernel for {name}", given, work
    )
    if made is None:
        return None
    if made.best is None:
        server.say(f"No kernel was written for {name}: {' '.join(made.notes)}", types.MessageType.Warning)
        return written_json(made.kernels, (), made.notes)
    written = write_all(asked.path.parent, {asked.path.name: made.best.kernel.unit.text}, force=False)
    server.say(f"{asked.path.name} was written: {candidate_phrase(made.best.verdict)}")
    window = server.client_capabilities.window
    if window is not None and window.show_document is not None and window.show_document.support:
        with contextlib.suppress(Exception):  # a client that fails to show the file has it all the same
            await server.window_show_document_async(types.ShowDocumentParams(asked.path.as_uri()))
    return written_json(made.kernels, [str(one) for one in written], made.notes)


async def _asked(server: KernelmateServer, given: Mapping[str, Any]) -> KernelRequest:
    uri, function = given.get("uri"), given.get("function")
    reading = await server.reading(uri) if isinstance(uri, str) else None
    if reading is None or not isinstance(function, str):
        raise UsageError("The document is not open.", hint="Open it first; the command takes {uri, function}.")
    path = Path(reading.path)
    if not path.is_file() or normal_text(path.read_bytes().decode("utf-8", "replace")) != normal_text(reading.text):
        raise SourceError("The file is not saved, and the kernel is compared with the saved file.", file=str(path), hint="Save it first.")  # fmt: skip
    described = load_python_function(f"{path}:{function}")
    target = path.with_name(f"{described.name}.cu")
    if target.exists():
        raise UsageError(f"{target.name} is there already; nothing was written.", hint="Rename it first.")
    try:
        examples = read_examples(described, str(given.get("arrays") or ""), {})
    except UsageError as error:
        hint = 'Annotate the parameters with example arrays, as in x: "float32[rows=4096, cols=1024]".'
        raise UsageError(error.message, file=error.file, line=error.line, hint=hint) from None
    return KernelRequest(described, examples, target, described.name)


def register(server: KernelmateServer) -> None:
    """Registers the command; `actions` provides the code action."""
    register_command(server, "kernelmate.write", write)
