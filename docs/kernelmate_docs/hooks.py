"""Hooks of MkDocs: add the generated pages, fill the navigation, and show diagrams as pictures."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kernelmate.report.schema import schema
from kernelmate_docs import catalogue, commands, contract_errors, diagrams, project, settings


def generated_pages() -> dict[str, str]:
    """The Markdown of every generated page, by its path in the site."""
    return {
        **project.pages(),
        **commands.pages(),
        **contract_errors.pages(),
        **catalogue.pages(),
        **settings.pages(),
    }


def on_config(config: Any) -> Any:
    """List the pages of the commands in the navigation."""
    for section in config["nav"]:
        if "Commands" in section:
            section["Commands"] = commands.navigation()
    return config


def on_files(files: Any, config: Any) -> Any:
    """Adds the generated pages to the files of the docs folder."""
    for path, text in generated_pages().items():
        files.append(File.generated(config, path, content=text))
    files.append(File.generated(config, "schema.json", content=json.dumps(schema(), indent=2)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:  # noqa: ARG001 -- MkDocs passes them by name
    """Replace the text of each diagram by its pictures."""
    return diagrams.with_pictures(markdown, page.file.src_uri)
