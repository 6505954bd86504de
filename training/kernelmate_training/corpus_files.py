"""File of a corpus' rows: `corpus.jsonl` in its folder, or the same file compressed by xz."""

from __future__ import annotations

import lzma
from pathlib import Path
from typing import TextIO

CORPUS, PACKED = "corpus.jsonl", "corpus.jsonl.xz"


def rows_file(corpus: Path) -> Path:
    """Returns the file with a corpus' rows, which need not exist.

    Args:
        corpus: the corpus' folder, or the file itself.
    """
    if not corpus.is_dir():
        return corpus
    packed = corpus / PACKED
    return packed if packed.is_file() and not (corpus / CORPUS).is_file() else corpus / CORPUS


def opened(path: Path) -> TextIO:
    """Returns a file of rows opened for reading, decompressed if its name ends with `.xz`.

    Raises:
        OSError: the file cannot be read. Reading from a damaged file raises lzma.LZMAError or EOFError.
    """
    if path.suffix == ".xz":
        return lzma.open(path, "rt", encoding="utf-8")
    return path.open(encoding="utf-8")
