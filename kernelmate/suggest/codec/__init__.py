"""Codecs: what turns a kernel and a request into a model's input, and its answer into a changed version."""

from __future__ import annotations

from kernelmate.errors import UsageError
from kernelmate.suggest.codec.base import Codec

STARTER, PLAIN = "mixed-2", "mixed-2-plain"
"""The codec of the model that ships, and the same with names and literals as they are, to measure placeholders by."""
CHAT = "chat-1"
"""The codec of ordinary instruct models, and of every model whose file names no codec."""
NAMES = (STARTER, PLAIN, CHAT)
OFFERING = (STARTER, PLAIN)
"""Codecs whose prompts say which rewrites apply, by numbers that mean what `fingerprint` says; they tell a version by them."""


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
    from kernelmate.suggest.codec.mixed import MixedCodec

    return MixedCodec(name, hides=name == STARTER)
