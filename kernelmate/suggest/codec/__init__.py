"""Codecs: conversion of a kernel and a request to a model's input, and of its answer to a changed version."""

from __future__ import annotations

from kernelmate.errors import UsageError
from kernelmate.suggest.codec.base import CHAT, NAMES, OFFERING, PLAIN, STARTER, Codec

__all__ = ["CHAT", "NAMES", "OFFERING", "PLAIN", "STARTER", "codec_named"]


def codec_named(name: str) -> Codec:
    """Returns the codec of a name.

    Raises:
        UsageError: there is no such codec.
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
