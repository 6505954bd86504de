"""Codecs: what turns a kernel and a request into a model's input, and its answer into a changed version."""

from __future__ import annotations

from kernelmate.errors import UsageError
from kernelmate.suggest.codec.base import Codec

STARTER = "lines-1"
"""The codec of the model that ships."""
CHAT = "chat-1"
"""How ordinary instruct models are asked, and every model whose file names no codec."""
NAMES = (STARTER, "lines-1-plain", "whole-1", "whole-1-plain", "actions-1", "mixed-2", "mixed-2-plain", CHAT)
"""All codecs: line edits, whole kernels and programs, each also without placeholders, recipes by name, and conversations."""

OFFERING = ("mixed-2", "mixed-2-plain")
"""Codecs whose prompts say which rewrites apply, by numbers that mean what `fingerprint` says."""
TELL_RECIPES = ("actions-1", *OFFERING)
"""Codecs that tell a version by the recipes that made it, where its author names them."""


def codec_named(name: str) -> Codec:
    """The codec of a name.

    Raises:
        UsageError: there is none.
    """
    if name not in NAMES:
        raise UsageError(
            f"There is no codec {name!r}.",
            hint=f"Codecs are {', '.join(NAMES)}. A newer model may need a newer version of KernelMate.",
        )
    if name == CHAT:
        from kernelmate.suggest.codec.chat import ChatCodec

        return ChatCodec()
    if name == "actions-1":
        from kernelmate.suggest.codec.actions import ActionCodec

        return ActionCodec()
    if name in OFFERING:
        from kernelmate.suggest.codec.mixed import MixedCodec

        return MixedCodec(name, hides=not name.endswith("-plain"))
    from kernelmate.suggest.codec.line_codec import LineCodec

    return LineCodec(name, "whole" if name.startswith("whole") else "edits", not name.endswith("-plain"))
