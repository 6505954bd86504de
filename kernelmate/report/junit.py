"""JUnit XML of `ci`: a test case for each kernel, for build servers."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

from kernelmate.records import Gate, GatedKernel
from kernelmate.report.gate import COLUMNS, figure_words, provenance, summary

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot hold, not even escaped (Extensible Markup Language 1.0, section 2.2)."""


def junit(gate: Gate) -> str:
    """Returns the XML document. A removed or merely moved kernel is a skipped case."""
    failed = sum(one.outcome == "failed" for one in gate.kernels)
    skipped = sum(one.outcome in {"removed", "moved"} for one in gate.kernels)
    counts = {"tests": str(len(gate.kernels)), "failures": str(failed), "errors": "0", "skipped": str(skipped)}
    root = ET.Element("testsuites", {"name": "kernelmate ci", **counts})
    suite = ET.SubElement(root, "testsuite", {"name": _clean(f"kernels against {gate.base}"), **counts})
    properties = ET.SubElement(suite, "properties")
    for name, value in (
        ("base", gate.base),
        ("commit", gate.commit),
        ("target", gate.target),
        ("backend", gate.backend),
    ):
        ET.SubElement(properties, "property", {"name": name, "value": _clean(value)})
    for one in gate.kernels:
        _case(suite, one)
    output = ET.SubElement(suite, "system-out")
    output.text = _clean("\n".join([summary(gate), provenance(gate), *gate.notes]))
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _case(suite: ET.Element, one: GatedKernel) -> None:
    place = {"classname": _clean(one.path), "name": _clean(one.instance or one.kernel), "file": _clean(one.path)}
    case = ET.SubElement(suite, "testcase", place | ({} if one.line is None else {"line": str(one.line)}))
    if one.outcome == "failed":
        failure = ET.SubElement(case, "failure", {"message": _clean(one.failures[0]), "type": "gate"})
        failure.text = _clean("\n".join(one.failures))
    elif one.outcome != "passed":
        ET.SubElement(case, "skipped", {"message": "removed" if one.outcome == "removed" else "moved, unchanged"})
    said = [f"{COLUMNS[figure.metric]}: {figure_words(figure)}" for figure in one.figures]
    said += [f"was {one.was}"] if one.was is not None else []
    output = ET.SubElement(case, "system-out")
    output.text = _clean("\n".join([*said, *one.notes]))


def _clean(text: str) -> str:
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)
