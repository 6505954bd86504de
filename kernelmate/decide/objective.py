"""Interpretation of prompts: the metric that a prompt asks for, with a sentence that says how it was read."""

from __future__ import annotations

import re
from typing import Literal

from kernelmate.decide.metrics import METRICS, WORDS, bounded_metric, metric_value, violates
from kernelmate.decide.modifiers import (
    PromptModifiers,
    modifiers_sentence,
    read_modifiers,
    read_sizes,
    unknown_words,
    without_questions,
)
from kernelmate.decide.spelling import fold
from kernelmate.errors import UsageError
from kernelmate.records import MetricName, Objective, Verdict

Asked = MetricName | Literal["memory"]

CORRECT: MetricName = "correct"

PHRASES: tuple[tuple[Asked, str], ...] = (
    (
        CORRECT,
        r"(?:fix|repair|mend|correct|remove|resolve|solve) (?:the |this |these |my |all |its |any )*(?:\w+ ){0,2}?(?:errors?|bugs?|mistakes?|faults?|races?|crash\w*|findings?|kernel|code)\b"
        r"|(?:compil\w+|build|syntax|runtime|launch) errors?|(?:make it|get it to) (?:compile|build|run(?! (?:at|in|on|with|under|faster|quicker))|work|right|correct)"
        r"|(?:does not|doesn'?t|do not|won'?t|will not|cannot|can'?t) (?:even )?(?:compile|build|run|work)"
        r"|(?:wrong|incorrect|bad) (?:results?|answers?|values?|outputs?|numbers?)"
        r"|(?:results?|answers?|values?|outputs?|numbers?) (?:is|are|looks?) (?:still |all |sometimes |completely )?(?:wrong|incorrect|garbage|off|nans?|zeros?)\b"
        r"|(?:gives?|gets?|returns?|produces?|outputs?|computes?) (?:me |only |sometimes )?(?:nans?|garbage)\b|race conditions?|data races?|deadlocks?"
        r"|(?:it|kernel|that|which|this|and) hangs?\b|hanging|infinite loops?|(?:never|does not|doesn'?t) (?:end|return|finish|terminat|stop)\w*|(?:gets?|is) stuck"
        r"|(?:results?|answers?|values?|outputs?|numbers?|sums?|it|kernel) (?:do(?:es)? not|don'?t|doesn'?t|never) (?:match|agree)\w*"
        r"|(?:results?|answers?|values?|outputs?|numbers?|sums?) (?:differs?|disagrees?|diverges?)\b|match(?:es)? (?:the |my )*(?:reference|expected)"
        r"|(?:is|are|comes? out|goes) (?:still |always |sometimes |all |just |often )?(?:wrong|incorrect|garbage)\b|something(?:'s)? wrong\b"
        r"|only (?:works?|right|correct|passes) (?:for|if|when|with|at|on)\b|works? (?:only )?(?:for|if|when|with|at|on)\b[^,;.]*\b(?:but|and) (?:not|fails?|breaks?)"
        r"|(?:fails?|breaks?|wrong|broken) (?:for|if|when|with|at|on)\b"
        r"|(?:make it|let it|must|should|has to|needs? to) (?:also )?(?:handle|support|cope with|work (?:for|if|when|with|at|on))\b"
        r"|(?:add|adding|missing|needs?|lacks?) (?:a |the |some |missing )*(?:bounds?|boundary|range) (?:checks?|tests?|guards?)"
        r"|(?:reads?|writes?|access\w*|goes|runs|index\w*|loads?|stores?) (?:\w+ ){0,3}?(?:past|beyond|outside) (?:\w+ ){0,2}?(?:end|bounds?|edge|limits?|array|buffer|row|range)s?\b"
        r"|(?:missing|lacks?|forg[eo]t\w*) (?:(?:a|an|the|some|to|add) )*(?:barriers?|sync\w*(?: threads)?|(?:bounds? )?(?:checks?|guards?))\b"
        r"|(?:barriers?|sync\w*(?: threads)?|(?:bounds? )?(?:checks?|guards?)) (?:(?:is|are) )?missing|off[ -]by[ -](?:one|\d+)"
        r"|(?:that|it|this|there|here)'s (?:\w+ )?(?:wrong|incorrect|garbage|broken)\b|(?:gives?|returns?|produces?) (?:me |only |just |always )?(?:zeros?|0)\b"
        r"|out[ -]of[ -]bounds(?: accesse?s?)?|illegal (?:memory )?(?:address|access)(?:es)?|segfaults?|crash(?:es|ed|ing)?",
    ),
    ("time", r"(?:(?:warps?|threads?|lanes?|branch\w*) (?:\w+ ){0,3}?)?diverg(?:e|es|ing|ent|ence)\b"),
    ("time", r"(?:shared(?: memory)? )?bank conflicts?|shared memory (?:traffic|accesse?s?|bandwidth|conflicts?)"),
    ("time", r"(?:increase|improve|raise|higher|better|more|max\w*|full|use|saturate) (?:the )?(?:\w+ )?bandwidth"),
    (
        "local_bytes",
        r"(?:register )?spill(?:s|ed|ing|age)?(?: registers?)?|local memory|stack(?: frame)?|local (?:loads?|stores?)",
    ),
    ("shared_bytes", r"shared(?: memory| mem)?|smem|scratch ?pad|lds|shmem|static shared|dynamic shared"),
    ("occupancy", r"occupancy|(?:active|resident|more) (?:warps?|blocks?)"),
    ("registers", r"registers?|regs?\b"),
    (
        "global_bytes",
        r"(?:memory |dram |global |hbm )?(?:bandwidth|traffic)(?: bound| limited)?|global (?:memory|mem|loads?|stores?|accesse?s?|bytes?)"
        r"|(?:memory )?transactions?|sectors?|coalesc\w*|uncoalesced|dram|hbm|memory (?:accesse?s?|bound|limited|loads?|reads?)"
        r"|(?:bytes|data) (?:moved|movement|read)",
    ),
    (
        "accuracy",
        r"accura\w+|precis\w+|(?:numerical(?:ly)? )?(?:stable|stability)|rounding|(?:numerical )?errors?\b"
        r"|(?:kahan|neumaier|compensated)(?: summation| sums?)?|(?:double|float64|fp64|fp32|float32|wider)(?: precision)? (?:accumulat\w+|sums?\b)"
        r"|accumulat\w* (?:\w+ ){0,2}in (?:double|float64|fp64|fp32|float32)(?: precision)?",
    ),
    (
        "time",
        r"fast(?:er|est)?|speed\w*|slow(?:er)?|(?<!compile )(?<!compile-)(?<!compilation )(?<!build )time|runtime|latenc\w+|throughput|quick\w*|flops|accelerat\w*",
    ),
    (
        "memory",
        r"(?<!constant )(?<!texture )(?<!unified )(?<!managed )(?<!pinned )(?<!host )memory(?: usage| use| footprint| consumption)?|\bmem\b|vram|\bram\b",
    ),
)
"""English phrases, the most specific first; text that one phrase has matched is not matched again."""

FOREIGN: tuple[tuple[Asked, str], ...] = (
    (
        CORRECT,
        r"(?:arregl|corrig|repar|behebe?|reparier)\w* (?:el |los |l.|les |la |den |die )?(?:error\w*|erreurs?|fallos?|fehler)",
    ),
    ("shared_bytes", r"gemeinsam\w* speicher\w*|shared.speicher\w*|memoire partagee|memoria compartida"),
    (
        "local_bytes",
        r"lokal\w* speicher\w*|memoire locale|memoria local|registeruberlauf\w*|ausgelagerte\w* register\w*|debordements? de registres"
        r"|registres? deborde\w*|desbordamientos? de registros",
    ),
    ("registers", r"registre\w*|registro\w*|registern"),
    (
        "global_bytes",
        r"(?:speicher|global)?bandbreite\w*|global\w* speicher\w*|speicher(?:zugriff|verkehr|transfer|transaktion)\w*"
        r"|bande passante(?: (?:de la )?memoire)?|memoire globale|(?:acces|trafic|transferts?)(?: a la| de)? ?memoire|transactions memoire"
        r"|ancho de banda(?: de(?: la)? memoria)?|memoria global|(?:accesos?|trafico)(?: a(?: la)?| de(?: la)?)? memoria|koalesz\w*|coalescen\w*",
    ),
    ("occupancy", r"auslastung|belegung|taux d.occupation|occupation|ocupacion"),
    (
        "accuracy",
        r"genau\w*|prazis\w*|exactitud\w*|rundungsfehler\w*|erreurs? (?:d.arrondi|numeriques?)|error(?:es)? de redondeo",
    ),
    (
        "time",
        r"schnell\w*|beschleunig\w*|geschwindigkeit|laufzeit|ausfuhrungszeit|langsam\w*|rapid\w*|acceler\w*|vitesse|lente?|aceler\w*|velocidad"
        r"|temps(?: d.execution| de calcul)?|tiempo(?: de ejecucion)?",
    ),
    ("memory", r"speicher\w*|memoire|memoria"),
)
"""The most common words in German, French and Spanish, without accents."""

UNSPACED: tuple[tuple[Asked, str], ...] = (
    ("shared_bytes", "共享内存|共享存储器?|共享記憶體|共有メモリ|シェアードメモリ"),
    ("local_bytes", "寄存器溢出|レジスタ(?:の)?(?:溢れ|あふれ)|溢出|スピル|本地内存|局部内存|ローカルメモリ"),
    ("registers", "寄存器|暫存器|レジスタ"),
    (
        "global_bytes",
        "(?:全局|全域|显存|内存|記憶體)?(?:带宽|帶寬|頻寬)|访存|全局内存|全域記憶體|内存(?:访问|流量|事务)|合并访问|(?:グローバル)?メモリ?帯域(?:幅)?|帯域"
        "|グローバルメモリ|メモリ(?:アクセス|転送|トラフィック)|コアレス",
    ),
    ("occupancy", "占用率|占有率|オキュパンシ"),
    ("accuracy", "精度|准确|精確|误差|舍入|誤差"),
    ("time", "快|速|性能|优化|耗时|延迟|実行時間|遅|最適化"),
    ("memory", "内存|显存|記憶體|メモリ"),
)
"""The most common words in Chinese and Japanese, which do not separate words by spaces."""

MEND = r"\b(?:fix\w*|repair\w*|mend\w*|debug\w*|broken|bugs?|incorrect|repariere\w*|behebe\w*|korrigiere\w*|corrige\w*|repare\w*|arregla\w*|fehler\w*|errores?|erreurs?|absturz\w*)\b|修复|修正|修理|直して|直す|错误|バグ|エラー"
"""Words that ask for a correct kernel, used only if the prompt names no metric: "fix the spills" is about spills."""

READABLE = r"\b(?:readab\w*|legib\w*|clean(?:er)?|simpl(?:er|ify)|tidy|refactor\w*|lesbar\w*|lisible)\b"
"""Words that ask for readability, which no metric measures; used only if the prompt names nothing else."""

PERMITTED = re.compile(
    r"\b(?:(?:low(?:er)?|less|reduced) )?(?:precision|accuracy|tolerance|errors?)\b[^.;,]{0,30}?"
    r"\b(?:to|of|within|below|under) (\d+(?:\.\d*)?(?:e-\d+)?) ?(%|percent\b)?"
)
"""Pattern of a permitted error, such as "lower precision is fine to 1e-3" or "an error of 0.1 % is fine"."""

PERMITTED_FREELY = re.compile(
    r"\b(?:low(?:er)?|less|reduced|worse) (?:precision|accuracy) (?:\w+ )?(?:is|would be) (?:\w+ )?(?:ok(?:ay)?|fine|good|acceptable|allowed|enough)\b"
    r"|\b(?:precision|accuracy) (?:does not|doesn'?t) matter\b|\b(?:can|may|might) (?:lose|give up) (?:\w+ )?(?:precision|accuracy)\b"
    r"|\b(?:allow|accept)\w* (?:low(?:er)?|less|reduced|worse) (?:precision|accuracy)\b"
)
"""Pattern of a permitted error whose size is not named."""

NO_AMOUNT = " The error that is allowed has no size, so the kernel's tolerance holds; name one, such as: an error of 0.001 is fine."

WEAK = (
    r"\b(?:optimi[sz]\w*|tun(?:e|ed|ing)|efficien\w+|improv\w*|perform\w*|better|boost\w*|squeez\w*|crawl\w*|sluggish\w*|snapp(?:y|ier)|takes? (?:\w+ ){0,2}?(?:(?:too|so) long|forever|ages))\b"
    r"|\b(?:in |to |at |takes? )?(?:under|below|less than|within|at most) \d+(?:\.\d+)? ?(?:[unmμ]s|(?:micro|milli|nano)seconds?)\b"
    r"|\b(?:beat\w*|outperform\w*|match\w*|as fast as) (?:the )?(?:cublas\w*|cudnn|cusparse|cufft|cub|thrust|(?:py)?torch\w*|eager|inductor|triton|nvcc)\b"
)
"""Words that ask for speed only if nothing else is named: "optimize memory usage" is about memory."""

_VOCABULARY: tuple[tuple[Asked, re.Pattern[str]], ...] = (
    *((metric, re.compile(pattern)) for metric, pattern in UNSPACED),
    *((metric, re.compile(rf"\b(?:{pattern})\b")) for metric, pattern in (*FOREIGN[:-1], *PHRASES, *FOREIGN[-1:])),
)

GUARD_WORDS = (
    r"\b(?:without|while keeping|keeping|but (?:do not|don'?t|not(?! (?:for|if|when|with|at|on)\s+[\0\d]))|and not|not at the cost of|(?:do not|don'?t|never) (?:lose|hurt|sacrifice|worsen|degrade)|ohne|sans|sin)\b"
    r"|\b(?:keep|preserve|maintain|hold)(?: the| its| my| same| current| numerical)* "
    r"(?=(?:accura|precis|occupancy|registers?\b|memory|smem|shared|time|speed|latency|runtime|performance|throughput)"
    r"(?![^,;.]*\b(?:low|down|small|minimal|minimum|tight|high|better|in|under|below|within)\b))"
)
"""Words before a metric that must not get worse, as in "without more registers"; it is not the objective."""

_ACTS = (
    r"make|making|get|go|run|speed|accelerat\w*|reduc\w*|lower|decreas\w*|cut\w*|sav\w*|shrink\w*|minimi\w*|improv\w*|increas\w*|rais\w*|maximi\w*"
    r"|optimi\w*|use|using|halv\w*|drop|want|need|try|fix|tun\w*"
)
_GUARD_ENDS, _KEEP_ENDS = (
    re.compile(
        rf"(?:[,;.:!]|\b(?:but|while|and|then|yet)\b)[\s,]*(?:(?:and|but|also|then|please|just|it|to|i|we) )*(?:{acts})\b"
    )
    for acts in (_ACTS, rf"{_ACTS}|less|fewer|faster|quicker|lower|higher|more|better")
)
"""Beginning of the clause after a guard that asks for something: "keep the accuracy and cut registers"."""

LOWER = r"\b(?:less|fewer|lower\w*|reduc\w*|decreas\w*|cut\w*|sav\w*|shrink\w*|smaller|minimi[sz]\w*|drop|weniger|moins|menos|redui\w*|reduzier\w*|verringer\w*|senk\w*|disminu\w*|baiss\w*)\b|减少|降低|減ら|削減|下げ"
RAISE = r"\b(?:more|higher|increas\w*|rais\w*|grow\w*|bigger|larger|maximi[sz]\w*|mehr|plus de|mas|erhoh\w*|augment\w*|aument\w*)\b|增加|提高|増や|上げ|高め"

_ABROAD = re.compile(
    "|".join(
        (*(pattern for _, pattern in UNSPACED), *(rf"\b(?!accelerat|rapid)(?:{pattern})\b" for _, pattern in FOREIGN))
    )
    + r"|\b(?:repariere|behebe|korrigiere|corrige|repare|arregla|fehler|errores|erreurs?|absturz)\w*|[\u3040-\u30ff\u4e00-\u9fff]"
)
"""Words of other languages.

In prompts that contain one, unknown words are not reported, since only the most common are known.
"""

_KNOWN = re.compile(
    "|".join((*(pattern.pattern for _, pattern in _VOCABULARY), MEND, READABLE, WEAK, GUARD_WORDS, LOWER, RAISE))
)

NOT_MEASURED = "How a kernel reads cannot be measured, so versions are held to being right and no slower; which reads best is yours to say."

CAN_BE_ASKED = (
    "Ask for less time, memory, shared memory, registers, spills or memory traffic, higher occupancy, better accuracy or a repair; "
    "for what must hold (at most 32 registers, at least 50% occupancy, block kept at 256, no atomics, deterministic, not slower); for structure (one warp per row, float4 loads, "
    "tiles in shared memory, the input read once); or for sizes (as fast as possible at rows = 8)."
)
"""Hint for a prompt that is not understood."""

UNDERSTOOD: dict[Asked, str] = {
    "time": "less time per launch",
    "shared_bytes": "less shared memory per block",
    "registers": "fewer registers per thread",
    "local_bytes": "less local memory per thread (spills)",
    "global_bytes": "fewer bytes moved through global memory",
    "occupancy": "higher theoretical occupancy",
    "accuracy": "a smaller error against the reference",
    "correct": "a kernel that compiles and is right",
}


def read_objective(prompt: str, baseline: Verdict | None = None, *, name: str | None = None) -> Objective:
    """Reads the objective of a prompt.

    Args:
        prompt: the user's words.
        baseline: the kernel's verdict; decides which memory "memory usage" means (shared, else local, else global).
        name: the metric if the user named it directly; the prompt is then stored but not interpreted.

    Raises:
        UsageError: the prompt is empty, only a question or not understood, or `name` is not a metric.
    """
    if name is not None:
        return _named(prompt, name)
    if not prompt.strip():
        raise UsageError(
            "The prompt is empty.", hint='Say what you want, for example "reduce memory usage" or "make it faster".'
        )
    return _read(prompt, baseline)


def _read(prompt: str, baseline: Verdict | None) -> Objective:
    named, sizes = read_sizes(prompt)
    text, tolerance = _permitted(without_questions(fold(named)))
    rest = PERMITTED_FREELY.sub(" \0 ", text)
    freely = tolerance is None and rest != text and bool(_asked(rest))  # alone, it is a means to speed
    text = rest if freely else text
    if not text and tolerance is None:
        raise UsageError("The prompt is a question, and a search changes the kernel.", hint=f"`explain` says what limits a kernel. {CAN_BE_ASKED}")  # fmt: skip
    modifiers = read_modifiers(text)
    asked_text, kept = _parted(modifiers.text)
    asked = list(dict.fromkeys(_asked(asked_text)))
    limits: dict[str, float] = dict.fromkeys((_single(other, baseline) for other in _asked(kept)), 0.0)
    limits |= modifiers.limits
    keep = not asked and re.search(READABLE, asked_text) is not None
    if not (asked or keep or modifiers or sizes or tolerance or limits.keys() - {"time"}):
        raise UsageError("Nothing in the prompt was understood, so nothing was tried.", hint=CAN_BE_ASKED)
    metric, reading = _settle(asked, asked_text, baseline)
    if keep:
        reading = NOT_MEASURED
    elif not asked:
        metric, keep, reading = _without_metric(modifiers, baseline)
    if len(asked) > 1 and metric == "time":
        others = [_single(other, baseline) for other in asked if other != "time"]
        if "time" in asked and not re.search(r"\b(?:by|with|using|durch|via)\b", asked_text):
            limits |= dict.fromkeys(others, 0.0)
    limits.pop(metric, None)
    limits.pop(CORRECT, None)  # a wrong version is never accepted, whatever the prompt says
    if limits:
        reading += " Not to be made worse: " + ", ".join(WORDS[other] for other in METRICS if other in limits) + "."
    if freely:
        reading += NO_AMOUNT
    if tolerance is not None:
        reading += f" Results may be off by {tolerance:g} of their value."
    constraints, preferences = tuple(modifiers.constraints), tuple(modifiers.preferences)
    foreign = _ABROAD.search(modifiers.text) is not None
    unknown = (*modifiers.ignored, *(() if foreign else unknown_words(modifiers.text, _KNOWN)))
    reading += modifiers_sentence(constraints, preferences, sizes, unknown) + _other_target(prompt, baseline)
    return Objective(
        metric, direction_of(metric), prompt, reading, limits, tolerance, keep, constraints, preferences, sizes, unknown
    )


def names_a_metric(text: str) -> bool:
    """Returns True if a folded prompt asks for a metric, constraints and structure set aside."""
    return bool(_asked(_parted(read_modifiers(read_sizes(text)[0]).text)[0]))


def _parted(text: str) -> tuple[str, str]:
    """Returns the part of a text that states the request, and the parts that name metrics that must not get worse."""
    first, *rest = re.split(f"({GUARD_WORDS})", text)
    asked, kept = [first], []
    for guard, scope in zip(rest[::2], rest[1::2], strict=True):
        ends = _KEEP_ENDS if re.match(r"keep |preserve|maintain|hold", guard) else _GUARD_ENDS
        end = ends.search(scope)
        kept.append(scope if end is None else scope[: end.start()])
        asked += [] if end is None else [scope[end.start() :]]
    return " ".join(asked), " ".join(kept)


def metrics_named(text: str) -> list[MetricName]:
    """Returns the metrics that a folded text names; "memory" alone is the shared, local and global one."""
    memories: tuple[MetricName, ...] = ("shared_bytes", "local_bytes", "global_bytes")
    named = [one for asked in _asked(text) for one in (memories if asked == "memory" else (asked,))]
    return list(dict.fromkeys(named))


def _without_metric(modifiers: PromptModifiers, baseline: Verdict | None) -> tuple[MetricName, bool, str]:
    """Returns the metric, whether it must only not get worse, and the sentence, for a prompt that names no metric."""
    alone = modifiers.constraints[0] if len(modifiers.constraints) == 1 and not modifiers.preferences else None
    metric = None if alone is None else bounded_metric(alone)
    if (
        alone is not None
        and metric is not None
        and (baseline is None or metric_value(metric, baseline) is None or violates(alone, baseline))
    ):
        return metric, False, f"{UNDERSTOOD[metric][0].upper()}{UNDERSTOOD[metric][1:]}."
    if modifiers.constraints and not modifiers.preferences:
        return "time", True, "A version that meets the constraints and is not slower."
    return "time", False, "Less time per launch."


def _permitted(text: str) -> tuple[str, float | None]:
    """Returns the folded prompt without the words that permit an error, and that error.

    The error is None if the prompt permits none, or one that is not between 0 and 100%.
    """
    found = PERMITTED.search(text)
    if found is None:
        return text, None
    share = float(found[1]) / (100 if found[2] else 1)
    return (text[: found.start()] + text[found.end() :], share) if 0 < share < 1 else (text, None)


def _named(prompt: str, name: str) -> Objective:
    if name == CORRECT:
        return Objective(CORRECT, "increase", prompt, f"{UNDERSTOOD[CORRECT][0].upper()}{UNDERSTOOD[CORRECT][1:]}.")
    for metric in METRICS:
        if metric == name:
            return Objective(
                metric, direction_of(metric), prompt, f"Objective {metric}, as named: {UNDERSTOOD[metric]}."
            )
    raise UsageError(f"There is no objective {name!r}.", hint=f"Choose one of {', '.join((*METRICS, CORRECT))}.")


def direction_of(metric: MetricName) -> Literal["decrease", "increase"]:
    """Returns the direction in which a metric improves, as an objective names it; of accuracy, the opposite of its error."""
    return "increase" if metric in {"occupancy", "accuracy", "correct"} else "decrease"


def _settle(asked: list[Asked], asked_text: str, baseline: Verdict | None) -> tuple[MetricName, str]:
    """Returns the chosen metric and the sentence that says how the prompt was read."""
    if not asked:
        return "time", "Less time per launch."
    if CORRECT in asked and (baseline is None or not metric_value(CORRECT, baseline)):
        return CORRECT, f"{UNDERSTOOD[CORRECT][0].upper()}{UNDERSTOOD[CORRECT][1:]}."
    if len(asked) > 1:
        names = " and ".join("memory" if metric == "memory" else WORDS[metric] for metric in asked)
        return "time", f"The prompt names {names}; one run has one objective, so it is read as: less time per launch."
    only = asked[0]
    if only == "memory":
        metric, why = _memory(baseline)
        return metric, f"Memory means {WORDS[metric]}, {why}: {UNDERSTOOD[metric]}."
    means = "a means rather than an end, so the prompt is read as: less time per launch."
    raised = re.search(RAISE, asked_text) is not None and re.search(LOWER, asked_text) is None
    lowered = re.search(LOWER, asked_text) is not None and re.search(RAISE, asked_text) is None
    if only in {"shared_bytes", "registers"} and raised:
        return "time", f"More {WORDS[only].split(' per ')[0]} is {means}"
    if only == "occupancy" and lowered:
        return "time", f"Lower occupancy is {means}"
    if only == "accuracy" and lowered and not re.search(r"error|fehler|rounding", asked_text):
        return "time", f"Lower precision is {means}"
    return only, f"{UNDERSTOOD[only][0].upper()}{UNDERSTOOD[only][1:]}."


def _single(asked: Asked, baseline: Verdict | None) -> MetricName:
    return _memory(baseline)[0] if asked == "memory" else asked


def _memory(baseline: Verdict | None) -> tuple[MetricName, str]:
    """Returns the metric that "memory usage" means for a kernel (shared, else local, else global), and the reason."""
    if baseline is None:
        return "shared_bytes", "since nothing is known of the kernel yet"
    shared = metric_value("shared_bytes", baseline)
    if shared:
        return "shared_bytes", f"of which this kernel uses {shared:.0f} bytes"
    local = metric_value("local_bytes", baseline)
    if local:
        return "local_bytes", f"of which each thread uses {local:.0f} bytes, and no shared memory"
    return "global_bytes", "since the kernel uses neither shared nor local memory"


def _asked(text: str) -> list[Asked]:
    """Returns every metric that a text names, in the order of the tables; each part of the text is matched once."""
    named: list[Asked] = []
    for metric, pattern in _VOCABULARY:
        shorter = pattern.sub(" \0 ", text)
        if shorter != text:
            named.append(metric)
            text = shorter
    return named or ([CORRECT] if re.search(MEND, text) else ["time"] if re.search(WEAK, text) else [])


def _other_target(prompt: str, baseline: Verdict | None) -> str:
    """Returns a remark if the prompt names another GPU than the one that figures refer to."""
    named = re.search(r"\b([ahbl]\d{2,3}s?|rtx ?\d{4}|t4|v100|gh200|gb200)\b", prompt, re.IGNORECASE)
    if named is None or baseline is None:
        return ""
    squeezed = named.group().replace(" ", "").lower()
    if squeezed in baseline.target.replace(" ", "").lower():
        return ""
    return f' Figures are for {baseline.target}; for another GPU give --target "{named.group().upper()}".'
