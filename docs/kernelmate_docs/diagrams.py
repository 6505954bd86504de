"""Renders Mermaid diagrams to pictures, so that pages of the site need neither network nor script.

`python -m kernelmate_docs.diagrams MERMAID.js` draws the diagrams of all pages with Chromium into docs/images/diagrams, in a light and
a dark version. A picture's name holds a hash of the diagram's text, so that a changed text without a new picture fails the build.
"""

from __future__ import annotations

import hashlib
import re
import sys
from pathlib import Path

from kernelmate_docs.project import PAGES, ROOT

FOLDER = ROOT / "docs" / "images" / "diagrams"
_BLOCK = re.compile(r"^```mermaid\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
_TITLE = re.compile(r"^%% (.+)$", re.MULTILINE)
THEMES = {"light": "neutral", "dark": "dark"}
"""Mermaid's theme for each scheme of the site."""


class MissingPicture(Exception):
    """A diagram has no picture."""


def with_pictures(markdown: str, page: str) -> str:
    """A page's text with each diagram as two pictures, of which the site shows the one for its scheme.

    Raises:
        MissingPicture: a diagram was changed and not drawn again.
    """

    def pictures(match: re.Match[str]) -> str:
        name = name_of(match[1])
        missing = [scheme for scheme in THEMES if not (FOLDER / f"{name}-{scheme}.svg").is_file()]
        if missing:
            raise MissingPicture(f"{page} has a diagram without a picture. Run `make diagrams`.")
        title = described(match[1])
        up = "../" * page.count("/")
        return "".join(f"![{title}]({up}images/diagrams/{name}-{scheme}.svg#only-{scheme})\n" for scheme in THEMES)

    return _BLOCK.sub(pictures, markdown)


def name_of(diagram: str) -> str:
    """Returns the file name of a diagram's pictures."""
    return hashlib.sha256(diagram.encode()).hexdigest()[:12]


def described(diagram: str) -> str:
    """Returns the alternative text of a diagram: its comment `%%`, else its kind."""
    title = _TITLE.search(diagram)
    return title[1] if title else f"Diagram ({diagram.split(maxsplit=1)[0]})"


def diagrams() -> dict[str, str]:
    """The text of every diagram of the site's pages, by the name of its pictures."""
    files = [*(ROOT / name for name in PAGES), *sorted((ROOT / "docs").glob("*.md"))]
    texts = [match[1] for file in files for match in _BLOCK.finditer(file.read_text(encoding="utf-8"))]
    return {name_of(text): text for text in texts}


def draw(script: Path) -> None:
    """Draw all diagrams with Mermaid in a headless Chromium, and remove pictures that no page needs."""
    from playwright.sync_api import sync_playwright

    FOLDER.mkdir(parents=True, exist_ok=True)
    wanted = {
        f"{name}-{scheme}.svg": (text, theme) for name, text in diagrams().items() for scheme, theme in THEMES.items()
    }
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_chromium(), args=["--no-sandbox"])
        for file, (text, theme) in wanted.items():
            page = browser.new_page()
            page.set_content("<body></body>")
            page.add_script_tag(path=str(script))
            svg = page.evaluate(
                """async ([text, theme]) => {
                    mermaid.initialize({startOnLoad: false, theme, fontFamily: "sans-serif", htmlLabels: false,
                        flowchart: {htmlLabels: false, useMaxWidth: false}});
                    return (await mermaid.render("diagram", text)).svg;
                }""",
                [text, theme],
            )
            (FOLDER / file).write_text(svg + "\n", encoding="utf-8")
            page.close()
        browser.close()
    for old in FOLDER.glob("*.svg"):
        if old.name not in wanted:
            old.unlink()


def _chromium() -> str:
    import shutil

    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        raise SystemExit("error: there is no Chromium. Install it (Debian, Ubuntu: apt install chromium)")
    return found


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
