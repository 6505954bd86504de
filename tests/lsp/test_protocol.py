"""Malformed and random messages: every request is answered, and the server's state is right afterwards."""

from __future__ import annotations

import copy
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lsp.client import ROOT, SCALE, WAIT_S

INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL, PARSE, NOT_INITIALIZED = (
    -32600, -32601, -32602, -32603, -32700, -32002,
)  # fmt: skip
CANCELLED = -32800
PYTHON = 'import cupy\nk = cupy.RawKernel(r"""\n' + SCALE.split("// ///\n")[1] + '""", "scale")\n'
MESSAGES = 2_000


class Wire:
    """The real server process, to which arbitrary bytes are sent.

    Attributes:
        answers: the server's responses, by the request's number. told: its notifications. asks: its own requests.
    """

    def __init__(self, folder: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "lsp")])}
        self.errors = folder / "stderr.txt"
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "kernelmate_lsp"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors.open("wb"), cwd=folder, env=environment,
        )  # fmt: skip
        self.answers: dict[Any, dict[str, Any]] = {}
        self.told: list[dict[str, Any]] = []
        self.asks: list[dict[str, Any]] = []
        self.on_ask: Callable[[dict[str, Any]], object] = lambda message: self.send(
            {"jsonrpc": "2.0", "id": message["id"], "result": None}
        )
        self._count = 0
        threading.Thread(target=self._read, daemon=True).start()

    def send(self, message: object) -> None:
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        assert self._process.stdin is not None
        self._process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self._process.stdin.flush()

    def notify(self, method: str, params: object) -> None:
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    def request(self, method: str, params: object) -> int:
        self._count += 1
        self.send({"jsonrpc": "2.0", "id": self._count, "method": method, "params": params})
        return self._count

    def answer(self, number: object) -> dict[str, Any]:
        self.until(lambda: number in self.answers, f"an answer to {number}")
        return self.answers[number]

    def asked(self, method: str, params: object) -> dict[str, Any]:
        return self.answer(self.request(method, params))

    def until(self, there: Callable[[], bool], what: str) -> None:
        latest = time.monotonic() + WAIT_S
        while not there():
            assert self._process.poll() is None, self.errors.read_text()[-3000:]
            assert time.monotonic() < latest, f"waited {WAIT_S:g} s in vain for {what}"
            time.sleep(0.01)

    def begin(self) -> None:
        self.asked("initialize", {"processId": None, "rootUri": None, "capabilities": {"workspace": {"configuration": True, "applyEdit": True}, "window": {"workDoneProgress": True}}, "initializationOptions": {"settings": {"backend": "emulator"}}})  # fmt: skip
        self.notify("initialized", {})

    def end(self) -> None:
        self.asked("shutdown", None)
        self.notify("exit", None)
        assert self._process.wait(20) == 0

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def problems(self, uri: str, version: int) -> list[str]:
        """Messages of a version's diagnostics."""

        def found() -> list[dict[str, Any]]:
            of = [one["params"] for one in self.told if one["method"] == "textDocument/publishDiagnostics"]
            return [one for one in of if one["uri"] == uri and one.get("version") == version]

        self.until(lambda: bool(found()), f"diagnostics of version {version} of {uri}")
        return [one["message"] for one in found()[-1]["diagnostics"]]

    def _read(self) -> None:
        stream = self._process.stdout
        assert stream is not None
        while header := stream.readline():
            length = int(header.split(b":")[1])
            while stream.readline().strip():
                pass
            self._take(json.loads(stream.read(length)))

    def _take(self, message: dict[str, Any]) -> None:
        if "method" not in message:
            self.answers[message.get("id")] = message
        elif "id" in message:
            self.asks.append(message)
            self.on_ask(message)
        else:
            self.told.append(message)


@pytest.fixture
def wire(tmp_path: Path) -> Iterator[Wire]:
    made = Wire(tmp_path)
    yield made
    made.kill()


AT = {"textDocument": {"uri": "file:///x.cu"}, "position": {"line": 0, "character": 0}}
MALFORMED = {
    "no parameters": ("textDocument/hover", None),
    "a list": ("textDocument/hover", [1, 2]),
    "a missing position": ("textDocument/hover", {"textDocument": {"uri": "file:///x.cu"}}),
    "a negative line": ("textDocument/hover", {**AT, "position": {"line": -1, "character": 0}}),
    "a text as a character": ("textDocument/completion", {**AT, "position": {"line": 0, "character": "x"}}),
    "a number as a document": ("textDocument/codeLens", {"textDocument": 3}),
    # An older client of VS Code sends its own object for the range of the suggestion that is selected.
    "a pair as a range": ("textDocument/inlineCompletion", {**AT, "context": {"triggerKind": 1, "selectedCompletionInfo": {"range": [{"line": 0, "character": 0}, {"line": 0, "character": 1}], "text": "a"}}}),
    "arguments that are no list": ("workspace/executeCommand", {"command": "kernelmate.benchmark", "arguments": 3}),
    "an argument that is no object": ("workspace/executeCommand", {"command": "kernelmate.benchmark", "arguments": [[3]]}),
    "two arguments": ("workspace/executeCommand", {"command": "kernelmate.benchmark", "arguments": [{}, {}]}),
    "an unknown command": ("workspace/executeCommand", {"command": "kernelmate.nothing", "arguments": []}),
    "an action without a title": ("codeAction/resolve", {"data": 3}),
}  # fmt: skip


def test_requests_with_malformed_parameters_are_answered_by_invalid_parameters(wire: Wire) -> None:
    wire.begin()
    for name, (method, params) in MALFORMED.items():
        answer = wire.asked(method, params)
        assert answer.get("error", {}).get("code") == INVALID_PARAMS, (name, answer)
    assert "message.params.position" in wire.asked("textDocument/hover", MALFORMED["a missing position"][1])["error"]["message"]  # fmt: skip
    assert [one for one in wire.told if one["method"] == "window/showMessage"] == []
    assert wire.asked("textDocument/hover", AT)["result"] is None
    wire.end()


def test_messages_that_are_no_requests_of_the_protocol_get_the_error_for_their_fault(wire: Wire) -> None:
    assert wire.asked("textDocument/hover", AT)["error"]["code"] == NOT_INITIALIZED
    wire.begin()
    assert wire.asked("textDocument/nothing", {})["error"]["code"] == METHOD_NOT_FOUND
    for message, code in (
        (b'{"jsonrpc": ', PARSE),
        (b"\xff\xfe", PARSE),
        (b"[" * 100_000, PARSE),
        ([1], INVALID_REQUEST),
        ({"jsonrpc": "2.0"}, INVALID_REQUEST),
        ({"jsonrpc": "2.0", "id": {}, "method": "shutdown"}, INVALID_REQUEST),
        ({"jsonrpc": "2.0", "id": None, "method": "shutdown"}, INVALID_REQUEST),
    ):
        wire.answers.pop(None, None)
        wire.send(message)
        assert wire.answer(None)["error"]["code"] == code, message
    assert wire.asked("textDocument/hover", AT)["result"] is None
    assert wire.asked("shutdown", None)["result"] is None
    assert wire.asked("textDocument/hover", AT)["error"]["code"] == INVALID_REQUEST


def test_an_object_that_looks_like_a_message_may_stand_within_one(wire: Wire) -> None:
    wire.begin()
    answer = wire.asked(
        "workspace/executeCommand",
        {
            "command": "kernelmate.results",
            "arguments": [{"uri": "x", "more": {"jsonrpc": "2.0", "id": 1, "method": "shutdown"}}],
        },
    )
    assert "not open" in answer["result"]["error"]["message"]
    wire.end()


class Chance:
    """Random messages about a few documents; many are malformed.

    Args:
        wire: the server. folder: where its documents are. seed: of the messages.
    """

    def __init__(self, wire: Wire, folder: Path, seed: int) -> None:
        self.wire, self.draw = wire, random.Random(seed)
        self.uris = [(folder / name).as_uri() for name in ("a.cu", "b.cu", "c.py", "d.txt", "größe 𝔸.cu")]
        self.uris += [f"vscode-notebook-cell:{folder}/n.ipynb#c1", "untitled:Untitled-1", ""]
        self.version = 0
        self.sent: list[int] = []

    def message(self) -> None:
        kind = self.draw.choices(
            (self.change, self.ask, self.command, self.disturb, self.malformed), (30, 34, 14, 8, 14)
        )
        kind[0]()

    def change(self) -> None:
        self.version += 1
        uri = self.draw.choice(self.uris)
        item = {"uri": uri, "version": self.version}
        how = self.draw.random()
        if how < 0.35:
            language = self.draw.choice(("cuda-cpp", "cuda", "python", "cpp", "plaintext", ""))
            self.wire.notify(
                "textDocument/didOpen", {"textDocument": {**item, "languageId": language, "text": self.text()}}
            )
        elif how < 0.85:
            changes = [self.piece() for _ in range(self.draw.randint(0, 3))]
            self.wire.notify("textDocument/didChange", {"textDocument": item, "contentChanges": changes})
        elif how < 0.92:
            self.wire.notify("textDocument/didSave", {"textDocument": {"uri": uri}})
        else:
            self.wire.notify("textDocument/didClose", {"textDocument": {"uri": uri}})

    def text(self) -> str:
        text = self.draw.choice((SCALE, SCALE * 2, PYTHON, "", "\n", "%%kernelmate\n" + SCALE, "x = '''\n", "𝔸" * 9))
        cut = self.draw.randint(0, len(text))
        return self.draw.choice(
            (text, text[:cut], text[cut:], text.replace("\n", "\r\n"), text[:cut] + "𝔸\u2028\f" + text[cut:])
        )

    def piece(self) -> dict[str, Any]:
        if self.draw.random() < 0.3:
            return {"text": self.text()}
        return {"range": self.range(), "text": self.draw.choice(("", "x", "\n", "/*", '"', "// ///\n", "𝔸", "\r\n}"))}

    def place(self) -> dict[str, int]:
        far = self.draw.choice((0, 20, 20, 20, 2**31 - 1))
        return {
            "line": self.draw.randint(0, far),
            "character": self.draw.randint(0, self.draw.choice((0, 60, 2**31 - 1))),
        }

    def range(self) -> dict[str, Any]:
        return {"start": self.place(), "end": self.place()}

    def request(self) -> tuple[str, dict[str, Any]]:
        document = {"textDocument": {"uri": self.draw.choice(self.uris)}}
        at, span = {**document, "position": self.place()}, {**document, "range": self.range()}
        data = {"uri": document["textDocument"]["uri"], "kernel": "0:scale", "version": self.version, self.draw.choice(("candidate", "recipe")): self.junk()}  # fmt: skip
        return self.draw.choice(
            (
                ("textDocument/hover", at),
                ("textDocument/completion", at),
                ("textDocument/codeLens", document),
                ("textDocument/documentSymbol", document),
                ("textDocument/foldingRange", document),
                ("textDocument/inlayHint", span),
                ("textDocument/inlineCompletion", {**at, "context": {"triggerKind": 1}}),
                ("textDocument/codeAction", {**span, "context": {"diagnostics": [{"range": self.range(), "message": "Did you mean x?", "source": "kernelmate", "severity": 1}]}}),
                ("codeAction/resolve", {"title": "Rewrite", "data": data}),
            )
        )  # fmt: skip

    def ask(self) -> None:
        self.sent.append(self.wire.request(*self.request()))

    def command(self) -> None:
        names = ("results", "view", "figures", "pin", "apply", "compare", "write", "explain", "sass", "history", "benchmark", "optimize", "fix")  # fmt: skip
        keys = ("kernel", "prompt", "candidate", "baseline", "function", "arrays", "author", "maxCandidates", "objective", "workDoneToken", "propose")  # fmt: skip
        given = {key: self.junk() for key in keys if self.draw.random() < 0.5}
        given["uri"] = self.draw.choice((*self.uris, *self.uris, self.junk()))
        number = self.wire.request("workspace/executeCommand", {"command": f"kernelmate.{self.draw.choice(names)}", "arguments": [given]})  # fmt: skip
        self.sent.append(number)
        if self.draw.random() < 0.7:
            self.wire.notify("$/cancelRequest", {"id": number})

    def disturb(self) -> None:
        self.wire.notify(
            *self.draw.choice(
                (
                    ("$/cancelRequest", {"id": self.draw.choice((*self.sent[-5:], 0, "x"))}),
                    ("window/workDoneProgress/cancel", {"token": self.draw.choice(self.tokens())}),
                    ("workspace/didChangeConfiguration", {"settings": self.junk()}),
                    ("workspace/didChangeWatchedFiles", {"changes": []}),
                    ("$/setTrace", {"value": "off"}),
                    ("notebookDocument/didClose", {"notebookDocument": {"uri": "x"}, "cellTextDocuments": []}),
                )
            )
        )

    def tokens(self) -> list[Any]:
        asked = [one["params"]["token"] for one in self.wire.asks if one["method"] == "window/workDoneProgress/create"]
        return [*asked[-3:], "x", 0]

    def malformed(self) -> None:
        method, params = self.draw.choice(
            (self.request(), ("textDocument/didChange", {"textDocument": {"uri": self.uris[0], "version": 1}, "contentChanges": [self.piece()]}))
        )  # fmt: skip
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": spoiled(copy.deepcopy(params), self)}
        if method != "textDocument/didChange":
            number = f"malformed-{len(self.sent)}"
            message["id"] = number
            self.sent.append(number)  # type: ignore[arg-type]
        self.wire.send(message)

    def answered(self, message: dict[str, Any]) -> None:
        """Answers a request of the server, rarely as it expects."""
        body = self.draw.choice(({"result": None}, {"result": self.junk()}, {"error": {"code": 1, "message": "no"}}, {"error": 3}, {}))  # fmt: skip
        self.wire.send({"jsonrpc": "2.0", "id": message["id"], **body})

    def junk(self) -> Any:
        return self.draw.choice(
            (None, True, -1, 0, 3, 1.5, 2**40, "", "0:scale", "scale", "x" * 3000, [], [1, None], {}, {"a": {}}, [[{}]], "\u2028𝔸")
        )  # fmt: skip


def spoiled(params: Any, chance: Chance) -> Any:
    """The parameters with one part left out or replaced."""
    if not isinstance(params, dict) or not params or chance.draw.random() < 0.2:
        return chance.junk()
    key = chance.draw.choice(sorted(params))
    if chance.draw.random() < 0.3:
        del params[key]
    else:
        params[key] = spoiled(params[key], chance)
    return params


@pytest.mark.parametrize("seed", [1, 2])
def test_two_thousand_random_messages_leave_no_exception_and_no_dead_state(
    wire: Wire, tmp_path: Path, seed: int
) -> None:
    wire.begin()
    chance = Chance(wire, tmp_path, seed)
    wire.on_ask = chance.answered
    for _ in range(MESSAGES):
        chance.message()
    wire.until(lambda: all(number in wire.answers for number in chance.sent), "the last answer")
    codes = {number: wire.answers[number].get("error", {}) for number in chance.sent}
    internal = [error for error in codes.values() if error.get("code") == INTERNAL]
    assert internal == [], "\n".join("".join(error["data"]["traceback"][-2:]) + error["message"] for error in internal)
    allowed = {None, INVALID_PARAMS, INVALID_REQUEST, CANCELLED}
    assert {error.get("code") for error in codes.values()} <= allowed
    assert "Traceback" not in wire.errors.read_text()
    assert [one for one in wire.told if one["method"] == "window/showMessage" and one["params"]["type"] == 1] == []

    uri = (tmp_path / "afterwards.cu").as_uri()
    wire.on_ask = lambda message: wire.send({"jsonrpc": "2.0", "id": message["id"], "result": None})
    wire.notify("workspace/didChangeConfiguration", {"settings": None})
    broken = SCALE.replace("a * x[i]", "a * z[i]")
    wire.notify("textDocument/didOpen", {"textDocument": {"uri": uri, "version": 1, "languageId": "cuda-cpp", "text": broken}})  # fmt: skip
    assert wire.problems(uri, 1) == ['identifier "z" is undefined']
    wire.notify(
        "textDocument/didChange", {"textDocument": {"uri": uri, "version": 2}, "contentChanges": [{"text": SCALE}]}
    )
    assert wire.problems(uri, 2) == []
    lenses = wire.asked("textDocument/codeLens", {"textDocument": {"uri": uri}})["result"]
    assert "regs" in lenses[-1]["command"]["title"]
    command = {"command": "kernelmate.benchmark", "arguments": [{"uri": uri}]}
    assert wire.asked("workspace/executeCommand", command)["result"]["verdicts"][0]["correct"] is True
    wire.end()
