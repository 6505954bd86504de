"""Notes approximate functions that the baseline does not use; the tolerance decides whether they are acceptable."""

from __future__ import annotations

import re

APPROXIMATE = re.compile(r"\b(?P<name>(?:sin|cos|tanh|lg2|sqrt)\.approx|div\.(?:approx|full))(?:\.ftz)?\.f32\b")
"""PTX that `-use_fast_math` and intrinsics as `__sinf` leave behind. `ex2.approx`, `rcp.approx` and `rsqrt.approx` are not
among them: the exact `expf`, divisions and `rsqrtf` are made of these as well."""

WORDS = {
    "sin.approx": "__sinf", "cos.approx": "__cosf", "tanh.approx": "the hardware's tanh", "lg2.approx": "__logf or __powf",
    "sqrt.approx": "an approximate square root", "div.approx": "__fdividef", "div.full": "an approximate division",
}  # fmt: skip


def used(ptx: str) -> frozenset[str]:
    """The approximate functions in a PTX text, by instruction."""
    return frozenset(match["name"] for match in APPROXIMATE.finditer(ptx))


def find(ptx: str, baseline_ptx: str | None) -> str | None:
    """A sentence that names what is new; None where nothing is, or there is no baseline to have less of it."""
    if baseline_ptx is None:
        return None
    new = sorted(used(ptx) - used(baseline_ptx))
    if not new:
        return None
    names = ", ".join(WORDS[name] for name in new)
    return f"uses {names}, which the baseline does not; the error it makes was measured and is within the tolerance"
