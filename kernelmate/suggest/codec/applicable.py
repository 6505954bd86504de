"""Built-in rewrites that apply to a kernel for a request, with the number of variants of each.

A model chooses among them by number. Corpus generation and inference both use `offered`, so that a number means the
same variant in both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

from kernelmate.records import Candidate, Diagnostic, Finding, FindingCode, Verdict
from kernelmate.suggest import recipes, repairs
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.codec.base import Question
from kernelmate.suggest.codec.chat import request_of
from kernelmate.suggest.codec.requests import finding_of
from kernelmate.suggest.codec.tags import without_tags
from kernelmate.suggest.recipes.base import Recipe

MOST_VARIANTS = 16
"""Largest number of variants offered of one rewrite."""
OFFERS = "@offers"

REWRITES: dict[str, Recipe] = {one.name: one for one in (*recipes.ALL, *repairs.ALL)}
"""Every recipe, then every repair, each in the order in which it is offered."""

Offer = tuple[str, int]
"""A rewrite's name and its number of variants for this kernel, at least 1."""

_SECTION = re.compile(rf"{OFFERS}((?:@use-[a-z0-9-]+:(?:@#\d{{1,3}})?)*)")
_STEP = re.compile(r"@use-([a-z0-9-]+):(?:@#(\d{1,3}))?")


def assumed(question: Question) -> SuggestRequest:
    """Return a question as a search request, under the assumptions of corpus generation.

    Raises:
        NotEncodable: the text does not contain the kernel, or no contract is available for it.
    """
    return _assumed(request_of(question), question.broken)


def offered(asked: SuggestRequest | Question) -> tuple[Offer, ...]:
    """Return applicable rewrites in the order of `REWRITES`; for the metric `correct` the repairs for the findings.

    Args:
        asked: a search's request for the kernel, or a question about it.

    Raises:
        NotEncodable: a question's text does not contain the kernel, or no contract is available for it.
    """
    return tuple((name, len(found)) for name, found in candidates(asked))


def candidates(asked: SuggestRequest | Question) -> Iterator[tuple[str, list[Candidate]]]:
    """Yields the name of each rewrite of `offered` with its variants, in the order of their numbers.

    Raises:
        NotEncodable: as `offered`.
    """
    request = assumed(asked) if isinstance(asked, Question) else _assumed(asked, None)
    codes = {finding.code for finding in request.verdict.findings if finding.severity == "error"}
    for name, rewrite in REWRITES.items():
        if request.objective.metric not in rewrite.metrics:
            continue
        if isinstance(rewrite, repairs.Repair) and not rewrite.codes & codes:
            continue
        found = list(islice(rewrite.candidates(request), MOST_VARIANTS))
        if found:
            yield name, found


# ------------------------------------------------------------------------------------------------ as text


def offer_tokens() -> tuple[str, ...]:
    """Returns the special tokens of offers and steps."""
    return OFFERS, *(f"@use-{name}:" for name in REWRITES), *(f"@#{number}" for number in range(1, MOST_VARIANTS + 1))


def offers_told(offers: Sequence[Offer]) -> str:
    """Returns the section of a prompt that lists the offers; empty if there are none."""
    told = "".join(f"@use-{name}:" + (f"@#{count}" if count > 1 else "") for name, count in offers)
    return OFFERS + told if told else ""


def offers_in(prompt: str) -> tuple[Offer, ...]:
    """Returns the rewrites that a prompt offers; empty if it has no such section."""
    section = _SECTION.search(prompt)
    return () if section is None else tuple((name, int(count or 1)) for name, count in _STEP.findall(section[1]))


def choice_of(answer: str) -> str:
    """Returns a key by which answers are compared: the first step of a choice of rewrites, else the whole answer."""
    program = without_tags(answer)
    step = _STEP.match(program)
    return step[0] if step is not None else program


def fits(prompt: str, answer: str) -> bool:
    """Returns True if the answer is not empty and its first choice, if any, is among the prompt's offers."""
    step = _STEP.match(without_tags(answer))
    if step is None:
        return bool(answer)
    return int(step[2] or 0) < dict(offers_in(prompt)).get(step[1], 0)


def without_offers(prompt: str) -> str:
    """Returns the prompt without its section of offers, for an answer that chooses no rewrite."""
    section = _SECTION.search(prompt)
    return prompt if section is None else prompt[: section.start()] + prompt[section.end() :]


# ------------------------------------------------------------------------------------------------ assumptions


def _assumed(request: SuggestRequest, broken: str | None) -> SuggestRequest:
    """Returns the request with the broken version's error, and with PTX that has double arithmetic.

    Only compiled code shows whether double arithmetic remains, and corpus generation does not compile.
    """
    verdict = request.verdict if broken is None else _as_said(request.verdict, broken)
    return replace(request, verdict=verdict, compiled=replace(request.compiled, ptx=".f64"))


def _as_said(verdict: Verdict, broken: str) -> Verdict:
    """Returns the verdict, with the message or finding of an error text if it has no error."""
    said = finding_of(broken)
    known = any(one.severity == "error" for one in verdict.findings)
    if said is None or known or any(one.severity == "error" for one in verdict.diagnostics):
        return verdict
    diagnostics: tuple[Diagnostic, ...] = verdict.diagnostics
    if said.code == FindingCode.COMPILE_ERROR:
        diagnostics = (Diagnostic("error", said.message, None, said.line, None),)
    findings: tuple[Finding, ...] = (said, *verdict.findings)
    return replace(verdict, diagnostics=diagnostics, findings=findings)
