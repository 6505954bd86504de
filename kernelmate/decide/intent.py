"""Classification of prompts: search, explanation, acceptance or undo of a change, or no known intent.

`read_intent` is the only such decision of the command line, notebooks and the editor; `objective.py` reads the
objective of a search.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

from kernelmate.decide.metrics import METRICS, WORDS
from kernelmate.decide.modifiers import is_question
from kernelmate.decide.objective import CAN_BE_ASKED, LOWER, RAISE, names_a_metric, read_objective
from kernelmate.decide.spelling import fold
from kernelmate.errors import UsageError
from kernelmate.records import MetricName, Objective, Verdict

IntentKind = Literal["search", "explain", "accept", "undo", "impossible", "unknown"]

SUGGESTED = ("make it faster", "reduce memory usage", "fewer registers", "raise occupancy", "more accurate")
"""Prompts that are offered, one for each common objective."""

METRIC_PROMPTS: dict[MetricName, str] = {
    "time": "make it faster",
    "shared_bytes": "less shared memory",
    "registers": "fewer registers",
    "local_bytes": "fewer spills",
    "global_bytes": "less global memory traffic",
    "occupancy": "higher occupancy",
    "accuracy": "more accurate",
    "correct": "fix the kernel",
}

NOT_UNDERSTOOD = "Nothing in the prompt was understood, so nothing was tried."
QUESTION = "A question about the kernel: nothing is changed."
NO_SUCH_LIMIT = "The earlier prompt has no such limit, so nothing was tried."
A_REMARK = 'A remark, which asks for nothing, so nothing was tried; "accept" or "accept 2" takes a candidate.'
NOTHING_BEFORE = "There is no earlier prompt that this could follow, so nothing was tried."

_POLITE = r"^(?:(?:please|pls|ok(?:ay)?|hey|hi|so|well|thanks|thank you|then|now|just|nah|nope|yeah|yep|yes|no(?=,)|hmm+|oh|ah|alright|cool|actually|can you|could you|would you|i'?d like to|i want(?: you)? to|let'?s)\b[\s,.!]*)*"

_END = r"(?:[\s,]*(?:please|pls|now|thanks|thank you|instead|then|after all))*\W*$"

_EXPLAIN = re.compile(
    _POLITE
    + r"(?:(?:explain|describe|analy[sz]e|diagnose|profile|inspect|summari[sz]e|review|understand|investigate)\b(?!.*\band (?:then )?(?:fix|make|improve|optimi[sz]e|speed|reduce))"
    r"|(?:show|tell|give|list|find|point)\b.*\b(?:why|where|what|how|bottlenecks?|limits?|problems?|profile|hot ?spots?|wrong|explanation|analysis)\b"
    r"|(?:the )?(?:differences?|diff|comparison) (?:between|of|to|from|with)\b"
    r"|(?:bottlenecks?|hot ?spots?|roof ?line|profile|explanation|diagnosis)\W*$)"
)
"""Requests for information rather than for a change, without a question mark."""

_LOOK = re.compile(
    _POLITE
    + r"(?:show|display|print|list|report|count|check|measure|bench(?:mark)?|test|judge|verify|prove|compare|estimate|predict|tell"
    rf"|time (?=(?:it|this|the kernel|my kernel)\b)|run (?:it|this|the kernel|my kernel|the benchmarks?|the tests?)(?: again)?{_END})\b"
)
_CHANGE = re.compile(
    rf"{LOWER}|{RAISE}|\b(?:fast(?:er|est)|quick(?:er|est)|better|best|improv\w*|optimi[sz]\w*|speed (?:it|this|the)|make|fix|repair|try|use|using|get rid|how about|can you|could you"
    r"|would you|please|versions?|variants?|candidates?|(?:kernel|one|code) (?:with|that|which)|without|at most|at least|under|below)\b"
)
"""Words of a request for a change, without which `show`, `check` or a metric with a question mark ask to look."""

ORDINALS = ("first", "second", "third", "fourth", "fifth")
_ORDINAL = "|".join(ORDINALS)

_ONE = (
    rf"(?:it|that|this|that one|this one|(?:the )?(?:best|fastest|quickest|{_ORDINAL})(?: (?:one|candidate|version))?"
    r"|#?\d+|(?:number|candidate|version) #?\d+)"
)
"""Words for a candidate."""

_NUMBERED = rf"(?:(?:the )?(?:{_ORDINAL})(?: (?:one|candidate|version))?|#?\d+|(?:number|candidate|version) #?\d+)"
_PRAISED = r"(?:better|good|great|nice|perfect|fine|excellent|awesome|best|nicer|worse|cool|impressive)"
_REMARK = re.compile(
    _POLITE
    + rf"(?:{_NUMBERED}(?:'s| is| was| looks| seems| runs)\b(?:(?!\b(?:but|make|try|fix|use|reduce|please)\b).)*|i (?:like|prefer|want) {_NUMBERED}|(?:much|way|a lot|far) {_PRAISED}"
    rf"|(?:{_ONE}|that)(?:'s| is| was| looks| seems)(?: (?!not\b)\w+){{0,2}}? (?:{_PRAISED}|faster|quicker)){_END}"
)
"""Remarks about a candidate or the last result, which ask for nothing."""

_ACCEPT = re.compile(
    _POLITE
    + rf"(?:(?:accept|take|apply|keep|use|adopt)(?: {_ONE})?|(?:pick|choose|select|insert|put|go (?:with|for)|i'?ll (?:take|have)) {_ONE})"
    rf"(?: (?:in|into|to) (?:(?:the|my|its) )?(?:file|cell|notebook|source|text|code))?{_END}"
)
_EARLIER = (
    r"(?:to )?(?:(?:the|my|its) )?(?:(?:own|old|original|earlier|previous|last|first|initial) )*"
    r"(?:original|version(?: before)?|kernel|code|one|text|mine|baseline|previous)"
)
"""Words for the version before."""

_UNDO = re.compile(
    _POLITE
    + rf"(?:(?:undo|revert|roll ?back|restore|reset|(?:(?:go|switch|get|change) )?back|take (?:it|that) back|put (?:it|that) back)(?: (?:it|that|this|everything|the (?:last )?(?:change|one)|{_EARLIER}))?"
    rf"|(?:give me |i want |put |bring )?(?:my|the) (?:own |old |original |earlier |previous )*(?:version|kernel|code|text) back){_END}"
)

_FOLLOWS = re.compile(
    r"^\W*(?:(?:but|and|also|again|plus|too|additionally|however|same(?: again| thing| as before)?|once more|this time|try again|now|then|still|ok(?:ay)?)\b[\s,:;.!-]*)+"
)
_MORE = re.compile(
    _POLITE
    + r"(?:try |show me |give me )?(?:something (?:else|different|new)|(?:an)?other(?: one| version| candidate| way)?s?|more|(?:one|once) more"
    rf"|continue|go on|keep (?:going|trying|searching)|next(?: one)?|try harder|(?:re)?try|not (?:this|that)(?: one)?){_END}"
)
"""Requests to search on, which say nothing new."""

_LIFT = re.compile(
    r"^\W*(?:(?:but|and|ok(?:ay)?|now|then|so|please|you can|you may|also)\b\W*)*"
    r"(?:(?:drop|remove|forget|ignore|lift|skip|no|without) (?:about )?(?:(?:the|that|those|my|all|any) )*(.*?) ?"
    r"\b(?P<limit>limits?|constraints?|bounds?|restrictions?|requirements?|conditions?)\b(?: (?:on|of|for|about) (.*))?"
    r"|(?:allow|permit|change|alter|vary) (?:more |using |the use of )?(.*)|(?:it |they |that )?(?:need not|needn'?t|does(?: not|n'?t) (?:have|need) to) be (.*)"
    r"|(\D*?) (?:is|are) (?:ok(?:ay)?|fine|allowed)(?: now| again| too)?)\W*$"
)
"""Follow-ups that take an earlier constraint back: "drop the register limit", "atomics are fine"."""

_CONSTRAINED: tuple[tuple[str, str], ...] = (
    ("registers", r"\breg(?:ister)?s?\b"),
    ("shared_bytes", r"\b(?:shared|smem)\b"),
    ("occupancy", r"\boccupancy\b"),
    ("atomics", r"\batomics?\b"),
    ("deterministic", r"\b(?:non-?)?(?:determinis\w+|reproducib\w+)\b"),
    ("block", r"\bblock\b"),
    ("launch", r"\b(?:launch|grid)\b"),
)
"""Kinds of constraints, and the words that name them where one is taken back."""

_QUALIFIES = re.compile(r"^\W*(?:without|with|using|keeping|keep|only|at most|not|no|don'?t|do not|never)\b")

_IMPOSSIBLE: tuple[tuple[str, str], ...] = (
    (
        r"\b(?:in|to|into|as|using|with) (?:a )?(triton|cutlass|cute|cuda ?python|numba|opencl|sycl|hip|rocm|metal|vulkan|webgpu|rust|julia|fortran|mojo|ptx|sass|assembl\w+)\b",
        "A search changes the CUDA text of a kernel and does not translate it into another language ({0}).",
    ),
    (
        r"\b(?:use|using|call(?:ing)?|with|by|via|through|to|in terms of) (cublas\w*|cudnn|cufft|cusparse|cusolver|thrust|cub)\b",
        "A candidate is one kernel and calls no library of the host ({0}).",
    ),
    (
        r"\b(multi(?:ple|-)? ?gpus?|several gpus|(?:two|2|four|4|eight|8|both|all) gpus|second gpu|nccl|nvlink|mpi|distributed)\b",
        "A kernel is judged as one launch on one GPU ({0}).",
    ),
    (
        r"\b(?:on|to|for) (?:an? |the )?(cpus?|amd|intel|apple|tpus?|npus?|mi300\w*)\b",
        "Kernels are compiled for NVIDIA GPUs alone ({0}).",
    ),
    (
        _POLITE + r"(?:make|get|run) (?:it|this|that|the kernel|my kernel) (?:\w+ )?(slower|worse)\b",
        "A search makes a kernel better ({0}).",
    ),
    (
        r"\b(backward(?: pass)?|gradients?|autograd|unit tests?|docstrings?|documentation|comments?|variable names?)\b",
        "A search changes what a kernel computes with, not what belongs around it ({0}).",
    ),
)
"""Patterns of requests that no suggester can meet, each with the reason as a format string."""


@dataclass(frozen=True, slots=True)
class Intent:
    """The intent of a prompt.

    Attributes:
        kind: `search` for a changed kernel; `explain` what limits the kernel; `accept` a candidate or `undo` the last
            acceptance; `impossible` or `unknown`: nothing is done, `reading` says why and `SUGGESTED` is offered.
        prompt: the prompt that a search runs with; a follow-up is joined to the earlier one.
        reading: one sentence for the user.
        objective: the objective of a search, as far as it is known without the kernel; else None.
        number: the candidate to accept; None for the best.
    """

    kind: IntentKind
    prompt: str
    reading: str
    objective: Objective | None = None
    number: int | None = None


def refusal(intent: Intent) -> UsageError:
    """Returns the error for a prompt that cannot be met, with suggestions of what to ask instead."""
    offered = ", ".join(f'"{one}"' for one in SUGGESTED)
    hint = f"Ask for example {offered}." if intent.kind == "impossible" else f"{CAN_BE_ASKED} For example: {offered}."
    return UsageError(intent.reading, hint=hint)


def read_intent(
    prompt: str, baseline: Verdict | None = None, *, earlier: Objective | None = None, name: MetricName | None = None
) -> Intent:
    """Reads what a prompt asks for; a prompt that is not understood gives an intent of kind `unknown`, no error.

    Args:
        prompt: the user's words.
        baseline: the kernel's verdict, if it is known.
        earlier: the objective of the kernel's last search, which a follow-up continues.
        name: the metric, where the user named it directly: the prompt is then a search.

    Raises:
        UsageError: `name` is not a metric.
    """
    if name is not None:
        objective = read_objective(prompt, baseline, name=name)
        return Intent("search", prompt, objective.reading, objective)
    text = fold(prompt).strip()
    if earlier is not None and prompt.strip() and (not text or _MORE.match(text)):
        return _continued(prompt, "again", earlier, baseline)
    if not text:
        return Intent("unknown", prompt, "The prompt is empty, so nothing was tried.")
    step = _step(prompt, text)
    if step is not None:
        return step
    if _REMARK.match(text) and "?" not in prompt:
        return Intent("unknown", prompt, A_REMARK)
    if is_question(text) or _EXPLAIN.match(text):
        return Intent("explain", prompt, QUESTION)
    for pattern, reason in _IMPOSSIBLE:
        found = re.search(pattern, text)
        if found is not None:
            return Intent("impossible", prompt, f"{reason.format(found[1])} Nothing was tried.")
    if (_LOOK.match(_FOLLOWS.sub("", text)) or re.search(r"\w\W*\?\W*$", prompt)) and not _CHANGE.search(text):
        return Intent("explain", prompt, QUESTION)
    lifted = None if earlier is None else _lifted(prompt, text, earlier, baseline)
    if lifted is not None:
        return lifted
    follows = _FOLLOWS.match(text)
    if earlier is not None and (follows or (_QUALIFIES.match(text) and not names_a_metric(text))):
        return _continued(prompt, text, earlier, baseline)
    return _searched(prompt, baseline, after_nothing=follows is not None and follows.end() == len(text))


def _step(prompt: str, text: str) -> Intent | None:
    """Returns the intent of a prompt that accepts a candidate or undoes the last change; None for any other."""
    if _UNDO.match(text):
        return Intent("undo", prompt, "The previous version is restored.")
    if _ACCEPT.match(text):
        digits, ordinal = re.search(r"\d+", text), re.search(_ORDINAL, text)
        number = ORDINALS.index(ordinal[0]) + 1 if ordinal else int(digits[0]) if digits else None
        return Intent("accept", prompt, "A candidate is taken.", number=number)
    return None


def _searched(prompt: str, baseline: Verdict | None, *, after_nothing: bool) -> Intent:
    try:
        objective = read_objective(prompt, baseline)
    except UsageError:
        if re.search(r"\w\W*\?\W*$", prompt):
            return Intent("explain", prompt, QUESTION)
        return Intent("unknown", prompt, NOTHING_BEFORE if after_nothing else NOT_UNDERSTOOD)
    return Intent("search", prompt, objective.reading, objective)


def _lifted(prompt: str, text: str, earlier: Objective, baseline: Verdict | None) -> Intent | None:
    """Returns the earlier objective without the constraints that a follow-up takes back; None for any other prompt."""
    found = _LIFT.match(text)
    if found is None:
        return None
    named = " ".join(filter(None, found.groups()))
    kinds = {kind for kind, words in _CONSTRAINED if re.search(words, named)}
    everything = not kinds and found["limit"] is not None
    left = tuple(one for one in earlier.constraints if not everything and one.kind not in kinds)
    if len(left) == len(earlier.constraints):
        return Intent("unknown", prompt, NO_SUCH_LIMIT) if found["limit"] else None
    joined = restated(replace(earlier, constraints=left))
    objective = read_objective(joined, baseline)
    return Intent("search", joined, objective.reading, objective)


def _continued(prompt: str, text: str, earlier: Objective, baseline: Verdict | None) -> Intent:
    """Returns the intent of a follow-up: the earlier objective with its modifiers, and its metric if it names one."""
    rest = _FOLLOWS.sub("", text).strip(" ,.;!")
    joined = restated(earlier)
    if not rest and not re.search(r"\b(?:again|same|once more)\b", text):
        return Intent("unknown", prompt, NOT_UNDERSTOOD)
    if rest:
        changes = names_a_metric(rest)
        try:
            added = read_objective(rest if changes else f"{METRIC_PROMPTS[earlier.metric]}, {rest}", baseline)
        except UsageError:
            return Intent("unknown", prompt, NOT_UNDERSTOOD)
        if not changes and not modifier_prompts(added):
            return Intent("unknown", prompt, NOT_UNDERSTOOD)
        joined = restated(merged(earlier, added, changes_metric=changes))
    objective = read_objective(joined, baseline)
    return Intent("search", joined, objective.reading, objective)


def merged(earlier: Objective, added: Objective, *, changes_metric: bool) -> Objective:
    """Returns an objective that continues an earlier one; a later modifier replaces an earlier one of the same kind."""
    kinds = {one.kind for one in added.constraints}
    named = {one.words for one in added.preferences}
    first = added if changes_metric else earlier
    return replace(
        first,
        keep=earlier.keep and added.keep,
        limits={**earlier.limits, **added.limits},
        tolerance=added.tolerance if added.tolerance is not None else earlier.tolerance,
        constraints=(*(one for one in earlier.constraints if one.kind not in kinds), *added.constraints),
        preferences=(*(one for one in earlier.preferences if one.words not in named), *added.preferences),
        sizes=added.sizes or earlier.sizes,
        unknown=added.unknown,
    )


def restated(objective: Objective, *, without: str | None = None) -> str:
    """Returns a prompt that is read as this objective, such as `make it faster, at most 32 registers, no atomics`."""
    head = [] if objective.keep and objective.constraints else [METRIC_PROMPTS[objective.metric]]
    return ", ".join(head + [words for words in modifier_prompts(objective) if words != without])


def chips_of(intent: Intent) -> list[tuple[str, str]]:
    """Returns label and prompt of a button for each removable part of a prompt; `SUGGESTED` if it is not understood."""
    if intent.objective is not None:
        return [(f"{words} ×", prompt) for words, prompt in removable(intent.objective) if prompt]
    return [(one, one) for one in SUGGESTED] if intent.kind in {"unknown", "impossible"} else []


def removable(objective: Objective) -> list[tuple[str, str]]:
    """Returns the words of each removable part with the prompt that omits it; empty if nothing else was asked for."""
    return [(words, restated(objective, without=words)) for words in modifier_prompts(objective)]


def modifier_prompts(objective: Objective) -> list[str]:
    """Returns an objective's modifiers (constraints, structure, limits, sizes, tolerance), as words of a prompt."""
    limits = [metric for metric in METRICS if metric in objective.limits and metric != objective.metric]
    tolerance = objective.tolerance
    return [
        *(one.words for one in objective.constraints),
        *(f"without {one.words}" if one.avoid else one.words for one in objective.preferences),
        *(" and ".join(f"{name} = {value}" for name, value in size.items()) for size in objective.sizes),
        *([] if tolerance is None else [f"an error of {tolerance:g} is fine"]),
        *("not slower" if metric == "time" else f"not at the cost of {WORDS[metric]}" for metric in limits),
    ]
