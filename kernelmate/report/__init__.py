"""Rendering of results as terminal text, JSON, HTML, and formats of other tools."""
