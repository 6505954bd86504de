"""Pages of the site whose files are at the root of the repository: README, architecture, contributing, changes."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

PAGES = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
"""Files of the root, and the pages that they become."""


def pages() -> dict[str, str]:
    """The Markdown of these pages, with links that work from the site."""
    return {page: linked((ROOT / file).read_text(encoding="utf-8")) for file, page in PAGES.items()}


def linked(text: str) -> str:
    """A text of the root with the targets of its links as the site has them."""

    def target(match: re.Match[str]) -> str:
        name = match[1]
        return f"]({PAGES.get(name, name.removeprefix('docs/'))}"

    return re.sub(r"\]\(([\w./-]+)", target, text)
