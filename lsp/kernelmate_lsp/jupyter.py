"""Specification of this server for jupyter-lsp, by which JupyterLab connects notebook cells to it."""

from __future__ import annotations

import sys
from typing import Any


def spec(_: object) -> dict[str, Any]:
    """Returns the server's entry for jupyter-lsp, specification version 2 (entry point `jupyter_lsp_spec_v1`)."""
    return {
        "kernelmate": {
            "version": 2,
            "argv": [sys.executable, "-P", "-m", "kernelmate_lsp"],
            "languages": ["python", "cuda", "cuda-cpp"],
            "mime_types": ["text/x-python", "text/x-ipython", "text/x-cuda", "text/x-c++src"],
            "display_name": "KernelMate",
            "urls": {"home": "https://github.com/kernelmate/kernelmate"},
        }
    }
