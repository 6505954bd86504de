"""Code completion by the local model: text between two pieces of code."""

from __future__ import annotations

import json
from collections.abc import Callable

from kernelmate.suggest.local.chat import ChatRequest, ask
from kernelmate.suggest.local.serving import Endpoint

BEFORE, AFTER = 3000, 1000
"""Characters of context on either side of the gap."""
MOST_TOKENS = 128
MOST_LINES = 12

_SYSTEM = (
    "You complete CUDA C++ device code. You get the code before and after a gap, and answer with what goes into the gap, "
    "nothing of what stands around it: a statement or a few lines, never a whole new kernel."
)
_SCHEMA = {
    "type": "object",
    "properties": {"completion": {"type": "string"}},
    "required": ["completion"],
    "additionalProperties": False,
}


def complete(
    endpoint: Endpoint, before: str, after: str, *, stop: Callable[[], bool] = lambda: False, timeout_s: float = 20.0
) -> str:
    """Returns text to insert between two pieces of code; empty if the model gives nothing usable.

    Args:
        endpoint: the server and the model.
        before: code above and left of the gap.
        after: code right of and below it.
        stop: checked during the answer; True cancels it.
        timeout_s: seconds without data; the whole answer may take three times as long.

    Raises:
        AuthorFailed: the model cannot answer.
    """
    user = f"Before the gap:\n```cuda\n{before[-BEFORE:]}\n```\nAfter the gap:\n```cuda\n{after[:AFTER]}\n```\n"
    question = ChatRequest(_SYSTEM, user, _SCHEMA, most_tokens=MOST_TOKENS)
    answer = ask(endpoint, question, stop=stop, timeout_s=timeout_s, answer_s=3 * timeout_s)
    try:
        read = json.loads(answer.text)
    except ValueError:
        return ""
    text = read.get("completion") if isinstance(read, dict) else None
    return _fitted(text, before, after) if isinstance(text, str) else ""


def _fitted(text: str, before: str, after: str) -> str:
    """Returns the completion without text that already surrounds the gap or invisible characters, limited in length."""
    line = before[before.rfind("\n") + 1 :]
    if line.strip() and text.startswith(line.lstrip()):
        text = text[len(line.lstrip()) :]
    rest = after.partition("\n")[0].strip()
    if rest and text.rstrip().endswith(rest):
        text = text.rstrip()[: -len(rest)]
    text = "".join(char for char in text if char in "\n\t" or char.isprintable())
    return "\n".join(text.split("\n")[:MOST_LINES]).rstrip()
