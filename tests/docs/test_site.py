"""The documentation site: its pages, its links, and the pages that are generated from the code."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from kernelmate.checks.guards import __path__ as guard_folder
from kernelmate.cli.main import COMMANDS
from kernelmate.config import Settings
from kernelmate.records import FindingCode
from kernelmate.suggest.recipes import ALL
from kernelmate.suggest.repairs import ALL as REPAIRS
from kernelmate_docs import catalogue, commands, diagrams, project, settings

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


def navigation() -> list[str]:
    """The pages that the navigation of mkdocs.yml lists, those of the commands included."""
    text = (ROOT / "mkdocs.yml").read_text().split("\nnav:\n", 1)[1]
    listed = [str(page) for one in commands.navigation() for page in (one.values() if isinstance(one, dict) else [one])]
    return re.findall(r"[\w/-]+\.md", text) + listed


def generated() -> dict[str, str]:
    from kernelmate_docs import contract_errors

    parts = (project, commands, contract_errors, catalogue, settings)
    return {path: text for part in parts for path, text in part.pages().items()}


def pages() -> dict[str, str]:
    """The Markdown of all pages, by path."""
    files = {file.relative_to(DOCS).as_posix(): file.read_text() for file in DOCS.rglob("*.md")}
    return {**files, **generated()}


def test_every_page_stands_once_in_the_navigation() -> None:
    assert sorted(navigation()) == sorted(pages())


def anchors(markdown: str) -> set[str]:
    """The anchors that MkDocs gives the headings of a page."""
    outside = re.sub(r"^```.*?^```", "", markdown, flags=re.MULTILINE | re.DOTALL)
    titles = (
        re.sub(r"[^\w\s-]", "", title).strip().lower() for title in re.findall(r"^#+ (.+)$", outside, re.MULTILINE)
    )
    return {re.sub(r"[-\s]+", "-", title) for title in titles}


def test_every_link_leads_to_a_page_a_picture_or_a_heading() -> None:
    texts, broken = pages(), []
    for path, text in texts.items():
        for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"```.*?```", "", text, flags=re.DOTALL)):
            if target.startswith(("http://", "https://")):
                continue
            name, _, anchor = target.partition("#")
            found = (Path(path).parent / name).as_posix() if name else path
            parts: list[str] = []
            for part in found.split("/"):
                parts = parts[:-1] if part == ".." else [*parts, part]
            found = "/".join(parts)
            # The hooks add the JSON schema beside the pages.
            known = found in texts or (DOCS / found).is_file() or found == "schema.json"
            # Anchors of the API page are the names of what it documents.
            if not known or (anchor and found != "api.md" and anchor not in anchors(texts[found])):
                broken.append(f"{path}: {target}")
    assert broken == []


def test_links_of_the_readme_work_in_the_repository_too() -> None:
    for file in ("README.md", "CONTRIBUTING.md", "ARCHITECTURE.md"):
        for target in re.findall(r"\]\(([\w./-]+)\)", (ROOT / file).read_text()):
            assert (ROOT / target).exists(), f"{file}: {target}"


def test_every_command_has_a_page_with_its_help_and_its_options() -> None:
    found = commands.pages()
    for name in COMMANDS:
        page = found[f"commands/{name}.md"]
        assert page.startswith(f"# kernelmate {name}\n")
        assert f"kernelmate {name} [OPTIONS]" in page or "[OPTIONS]" in page
        assert "`-h, --help`" in page
        assert f"[`{name}`]({name}.md)" in found["commands/index.md"]
    assert "`--accept`\n:   Write the best candidate" in found["commands/optimize.md"]
    assert "### Options" in found["commands/history.md"], "subcommands have their options"


def test_every_setting_is_explained() -> None:
    assert set(settings.meanings()) == set(Settings.model_fields)


def test_every_recipe_repair_and_guard_has_an_entry() -> None:
    found = catalogue.pages()
    assert [one.name for one in ALL] == re.findall(r"^## (.+)$", found["recipe-catalogue.md"], re.MULTILINE)
    assert [one.name for one in REPAIRS] == re.findall(r"^## (.+)$", found["repair-catalogue.md"], re.MULTILINE)
    guards = {file.stem.replace("_", "-") for file in Path(guard_folder[0]).glob("[a-z]*.py")}
    assert set(re.findall(r"^## (.+)$", found["guard-catalogue.md"], re.MULTILINE)) == {*guards, "Finding codes"}
    codes = found["guard-catalogue.md"].partition("## Finding codes")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `([a-z-]+)` ", codes, re.MULTILINE) == [str(code) for code in FindingCode]


def test_every_diagram_has_a_picture_for_both_schemes() -> None:
    wanted = {f"{name}-{scheme}.svg" for name in diagrams.diagrams() for scheme in diagrams.THEMES}
    assert len(wanted) >= 4
    assert {file.name for file in diagrams.FOLDER.glob("*.svg")} == wanted, "run `make diagrams`"


def test_a_diagram_without_a_picture_is_an_error() -> None:
    with pytest.raises(diagrams.MissingPicture, match=r"page.md .* `make diagrams`"):
        diagrams.with_pictures("```mermaid\nflowchart LR\n  a --> nowhere\n```\n", "page.md")


def test_every_picture_is_shown_and_described() -> None:
    shown = {
        Path(target).name: words
        for text in pages().values()
        for words, target in re.findall(r"!\[([^\]]*)\]\(([^)]+)\)", text)
    }
    assert set(shown) >= {file.name for file in (DOCS / "images").glob("*.png")}
    assert [name for name, words in shown.items() if len(words) < 8] == []


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_without_a_network(tmp_path: Path) -> None:
    for tool in ("mkdocs", "material", "mkdocstrings"):
        pytest.importorskip(tool, reason="the site's generator is not installed: pip install 'kernelmate[docs]'")
    made = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert made.returncode == 0, made.stdout + made.stderr
    for page in (tmp_path / "site").rglob("*.html"):
        loaded = re.findall(r"<(?:script|link|img)[^>]*\b(?:src|href)=[\"']?(https?://[^\"'\s>]+)", page.read_text())
        assert loaded == [], f"{page.name} loads {loaded}"
