"""Generates documentation pages from the code; `make docs` runs it through MkDocs."""
