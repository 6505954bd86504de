"""Modifiers of a prompt beside its metric: constraints, preferred structure, and the sizes that decide."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from kernelmate.records import Constraint, Preference

_WORDS = """
    a about above absolutely accuracy achieve achieved actually again ah all allow allowed allows alright also
    always am amount an and any anything anyway are around as assign at attention avoid away back batch batches be
    because been before being below best better big bit block blocks both bottleneck bound bring bringing buffer
    buffers but by calculation call calls can can't cannot care cases change changing check choose code cols column
    columns compare computation compute computed computes computing condition cool cost costs could count cuda cut
    data did divisible do does doesn doesn't doing don don't done down each easy either element elements else enough
    especially etc evaluate even every everything exact exactly exceed expected expense extra far fast few fewer
    fine first fit fix float for four from full function further get gets getting give given global go goes going
    good gpu great guys had half halve halved happen happens happy hard has have having he hello help her here hey
    hi high higher hmm hot how hurt hurting i i'd i'm i've if implement implementation important improve in
    inference inner input inputs instead instruction instructions into is isn't it it's its itself just kb keep
    keeping keeps kept kernel kernels kib know large larger last layer layernorm least leave left less let let's
    lets level like limit little load loaded loads long look looks loop loops lot lots low lower made main make
    makes making many matmul matrix matter matters maximum may maybe mb me mean means memory metric might mind
    minimal minimise minimize minimum more most much multiple must my nah near necessary need needed needs never new
    next nice no nope not nothing now number numbers numpy nvidia odd of off often oh ok okay on once one ones only
    onto operation operations opt optimal or original other our out output outputs over overall part pass per
    perfectly perhaps place please pls plz possible possibly prefer preferably present pressure probably problem
    process profiler program push put quite rather read reads really reduce reduction reference register registers
    requirement requirements respect rest result results rewrite rid right row rows run running runs safe same say
    says second see seems set shall shared should show shows side similar simple since single size sizes small
    smaller so softmax some something soon spare speed spend stay stays step still stop store stored stores such
    suggest sum sure take takes taking target tell than thank thanks that that's the their them then there there's
    these they thing things think this those thread threads three through thx tight time times to together too total
    touch training transform transpose try trying turn twice two u unless until up ur us usage use used uses using
    value values variant version versions very want wanted wants warp warps was way we we'd well were what when
    where which while whoa whole width will wish with within work working works would wow write writes writing wrong
    wrote yeah yep yes yet you your yourself
"""

FILLERS = frozenset(_WORDS.split())
"""English stopwords, and words about kernels that request nothing by themselves."""


NOT = (
    r"(?:(?:no|without|avoid\w*|not|never|don'?t|do not|remov\w+|get rid of|getting rid of|eliminat\w+|drop|free of|instead of)"
    r" (?:(?:the|any|all|an?|use|using|used|usage of|of|need\w*|rely\w*|on|to|with|do|doing|global|these|those|my|more calls to) )*)"
)
"""Words that negate what follows."""

LESS = r"(?:less|fewer) (?:of )?(?:the )?"
"""Words that ask for less of a structure, as in "fewer shuffles": other versions are tried first."""

AT_MOST = (
    r"(?:at most|(?:a )?max(?:imum)?(?: of)?|(?:no|not) more than|up to|within|limit(?:ed)? (?:it )?to|capped at|cap (?:it )?at|<=|≤"
    r"|(?:do not|don'?t|never|not) (?:use |take |need |have |go )+(?:more than|over|above|beyond)"
    r"|(?:not|without) exceed\w*|not over|not above|down to|only|just)"
)
BELOW = r"(?:fewer than|less than|under|below|<)"
REGISTERS = r"(?:registers?|regs?)(?: (?:count|use|usage|pressure))?"
SHARED = r"(?:shared(?: memory| mem)?|smem|shmem)\b(?! (?:memory |mem )?(?:bank )?(?:conflicts?|traffic|access\w*|bandwidth))"

BOUNDS: tuple[tuple[str, int], ...] = (
    (rf"{BELOW} (\d+) {REGISTERS}(?: per thread)?", 1),
    (rf"{REGISTERS}(?: per thread)? ?(?:{BELOW}) ?(\d+)", 1),
    (rf"(?:{AT_MOST}|use|using|with|in|to|have) (\d+) {REGISTERS}(?: per thread)?(?: or (?:fewer|less))?", 0),
    (rf"(\d+) {REGISTERS}(?: per thread)?,? (?:or (?:fewer|less|below|under)|at most|max(?:imum)?|tops)", 0),
    (rf"(\d+) {REGISTERS}(?: per thread)? (?:are|is|would be) (?:ok(?:ay)?|fine|allowed|enough)", 0),
    (rf"{REGISTERS}(?: per thread)?(?: down)? ?(?:{AT_MOST}|to|at) ?(\d+)", 0),
)
"""Patterns of an upper bound of registers, each with the amount to subtract from the matched number."""

SHARED_BOUND = (
    rf"(?:{AT_MOST}|{BELOW}) (\d+) ?(k|kb|kib|bytes?|b)(?: of)? {SHARED}"
    rf"|{SHARED}(?: use| usage)? (?:{AT_MOST}|{BELOW}|to) (\d+) ?(k|kb|kib|bytes?|b)\b"
)

NO_ATOMICS = rf"(?:{NOT}|replac\w* (?:the |all |those |these |its )*)(?:atomic ?(?:add|max|min|cas|exch|operations?|ops?|instructions?|adds)s?|atomics?)(?:\(\))?|atomics?[ -]free"
DETERMINISTIC = (
    r"(?:fully )?determinis(?:tic(?:ally)?|m)|reproducib\w+(?: results?)?|bit[ -]?(?:wise|for[ -]bit)?[ -]?(?:identical|exact|stable|reproducib\w+)"
    r"|(?:the )?same (?:results?|answers?|bits|output) (?:(?:in|for|at|on) )?(?:each|every) (?:time|run|launch)|run[ -]to[ -]run(?: stab\w+)?"
    r"|(?:identical|equal|the same) (?:on|in|for|across|between|from) (?:each |every |all |different )?(?:runs?(?: to run)?|launch\w*)"
)
NEED_NOT = (
    r"(?:(?:need(?:s)? not|need(?:s)?n'?t|does not (?:have|need) to|doesn'?t (?:have|need) to|not necessarily) be |non-?|not )"
    r"determinis(?:tic(?:ally)?|m)|(?:bit[ -]?)?reproducibility does(?: not|n'?t) matter"
)
NOT_SLOWER = (
    r"(?:not?|never|do not|don'?t|cannot|can'?t|won'?t|isn'?t|mustn'?t) (?:be |get |getting |become |made |make it |run |any |much )*slower"
    r"|no slow[ -]?downs?|without (?:any )?(?:slow\w+(?: (?:it )?down)?|loss of speed|losing speed|getting slower|being slower)"
    r"|keep\w* (?:up )?(?:the |its )*(?:speed|performance|run ?time)\b"
    r"|(?:speed|performance|run ?time|throughput|latency|time) (?:should|must|may|can|does|do|shall)(?: ?not|n'?t)"
    r" (?:drop|fall|suffer|degrade|regress|decrease|increase|rise|grow|(?:get|be|become|go) (?:any )?(?:worse|down|up))\b"
    r"|(?:at |keep\w* |with )?(?:the )?same (?:speed|run ?time|performance)|as fast as (?:now|before|it is)"
)

FORBIDDEN = (
    r"(?:do not|don'?t|never) (?:\w+ )?(?:speed|optimi[sz]\w*|improve|accelerate|fix|repair|change|touch|alter|modify|rewrite"
    r"|(?:make|get) (?:\w+ ){1,2}(?:faster|quicker|better))\b"
    r"(?![^,;.!?]*\b(?:results?|answers?|outputs?|values|semantics|computes|signature|interface|arguments|api|contract)\b)"
    r"(?:(?! (?:but|just|only|instead)\b)[^,;.!?\0])*"
)
"""Clauses that forbid a change which no constraint describes, as in "do not change the loop": they are not understood."""

_METRIC = (
    r"(?:memory|registers?|occupancy|accuracy|precision|errors?|speed|time|traffic|spills?)(?: usage| use| count)?"
)
UNIMPORTANT = (
    r"(?:do not|don'?t) (?:really )?(?:care|mind|worry) (?:much )?(?:about|for) (?:the |its |any )?(?:\w+ ){0,2}?"
    rf"{_METRIC}"
    rf"|(?:(?:shared|global|local) )?{_METRIC} (?:(?:do|does) not|(?:do|does)n'?t|(?:is|are) (?:not|un)) ?(?:matter|important)"
)
"""Words that say that a metric may get worse; they ask for nothing."""

KEPT_ANYWAY = (
    r"(?:without|not) (?:changing|touching|altering|modifying) (?:the |its |my |any )?(?:kernel'?s? )?"
    r"(?:signature|interface|arguments|api|results?|outputs?|answers?|contract)"
)
"""Clauses that exclude changes which no candidate makes: of the signature, the results or the contract."""

SHARE = r"(?:(\d+(?:\.\d+)?) ?(?:%|percent)|(0?\.\d+|1\.0+))"
_OCCUPANCY = r"(?:theoretical )?occupancy"
_LEAST = r"(?:at least|above|over|more than|no(?:t)? (?:less|lower|worse) than|(?:a )?min(?:imum)?(?: of)?|>=?|≥|to|of|with|=)"
_KEEP = r"(?:keep\w*|hold\w*|have|stay\w*|be|is|remain\w*)"
OCCUPANCY_BOUNDS = (
    rf"(?<!below )(?<!under )(?<!most )(?:{_LEAST} ?){{0,2}}{SHARE} (?:of )?{_OCCUPANCY}(?:,? (?:at least|or (?:more|higher|better|above)|minimum))?",
    rf"{_OCCUPANCY}(?: (?:must|should|has to|needs to|to))?(?: {_KEEP})? ?(?:{_LEAST} ?){{0,2}}{SHARE}(?: (?:at least|or (?:more|higher|better)))?",
    rf"(?:without|not|never|don'?t|do not)(?: (?:let\w*|the|it))*(?: \w+ing| drop| fall| go| lower| reduce)?(?: the)? {_OCCUPANCY}(?: (?:drop|fall|go)\w*)? ?(?:below|under) {SHARE}",
)
"""Patterns of a lower bound of occupancy, with the number in per cent or as a fraction."""

OCCUPANCY_NOW = (
    r"^(\W*(?:(?:but|and|the|its|my|theoretical) )*occupancy) (?:is|was|stays|remains)"
    rf"(?: (?:only|just|at|about|around|currently|now))* {SHARE}"
)
"""The occupancy that a kernel has, at the beginning of a prompt: no bound, unlike "make sure that occupancy is 50%"."""

_BLOCK_SIZE = r"(?:thread ?)?blocks?[ -]?(?:sizes?|dim\w*|shapes?)"
_BLOCK = rf"(?:{_BLOCK_SIZE}|(?:thread ?)?blocks?)"
_SAME = r"(?:unchanged|fixed|constant|the same|as (?:it )?is|as (?:they|it) (?:are|is)|alone)"
_NO_CHANGE = r"(?:(?:do not|don'?t|never|without|not|no) (?:chang\w*|touch\w*|alter\w*|modify\w*|tun\w+)(?: to)?)"
_LAUNCH = r"(?:launch(?:es)?(?: configuration| config| parameters| shape| code)?|grid and (?:the )?blocks?(?: sizes?)?|host code|grid(?: sizes?)?)"
FIXED_BLOCK = (
    rf"(?:keep\w*|fix\w*|hold\w*|leav\w*|stay\w* (?:with|at)|stick to) (?:(?:the|its|my|a|at|same) )*(?:{_BLOCK} ?(?:(?:of|at|to|is|fixed) ?|= ?)*)?(\d+)"
    r" ?(?:threads?(?! (?:per|a|in a|in each) warp)(?: (?:per|a|in a|in each|for each) ?block)?)(?: per block)?"
    rf"|(?:keep\w*|fix\w*|hold\w*|leav\w*|stay\w* (?:with|at)|stick to) (?:(?:the|its|my|a|at|same) )*{_BLOCK} ?(?:(?:of|at|to|is|fixed) ?|= ?)*(\d+)"
    r"|exactly (\d+) threads?(?! (?:per|a|in a|in each) warp)(?: (?:per|a|in a|in each) block)?"
    rf"|(?:the )?{_BLOCK} (?:(?:must|has to|should) )?(?:be|is|stays?|remains?|fixed|kept)(?: fixed)?(?: at| to)? (\d+)(?: threads)?"
    rf"|(?:with )?(?:a )?fixed {_BLOCK} ?(?:of |= ?|at )?(\d+)(?: threads)?"
)
WARP_SIZE = (
    r"(?:keep\w*|fix\w*|hold\w*|leav\w*|with|use|exactly)?(?: exactly)? ?32 threads? (?:per|a|in a|in each) warp"
)
"""Pattern of the number of threads per warp, which is 32 on every GPU and so constrains nothing."""

SAME_BLOCK = (
    rf"{_NO_CHANGE} (?:the |my |its |any )*{_BLOCK}"
    rf"|(?:keep\w*|hold\w*|leav\w*) (?:the |my |its |same )*(?:{_BLOCK_SIZE}(?: {_SAME})?|{_BLOCK} {_SAME})"
    rf"|(?:(?:with |at )?the )?same {_BLOCK_SIZE}|(?:the )?{_BLOCK} (?:must |has to |should )?(?:stay\w* |remain\w* |be )?{_SAME}"
)
SAME_LAUNCH = (
    rf"{_NO_CHANGE} (?:the |my |its |any )*{_LAUNCH}"
    rf"|(?:keep\w*|hold\w*|leav\w*) (?:the |my |its |same )*{_LAUNCH}(?: {_SAME})?|(?:(?:with )?the )?same {_LAUNCH}|(?:the )?{_LAUNCH} {_SAME}"
)
"""Patterns of a fixed number of threads per block, of the baseline's block, and of its whole launch."""

STRUCTURES: tuple[tuple[str, str, str], ...] = (
    (
        "one warp per row",
        r"rows-warp|warp-per-row|scan-warp",
        r"(?:one |a |1 |single |each |use )*warps?[ -](?:per|for (?:each|every)|an?|each)[ -](?:\w+ )?row\b|(?:one |a |1 )?row per warp"
        r"|(?:each|every|one|a) row (?:\w+ ){0,3}by (?:a|one|its own) warp|warp[ -]wise rows?|rows? (?:to )?(?:its own|one|a) warp"
        r"|(?:(?:each|every|one|a) )?warp (?:\w+ ){0,3}(?:each|every|one|a) row\b",
    ),
    (
        "one block per row",
        r"rows-block|pointwise-rows|permutation-rows|scan-block",
        r"(?:one |a |1 |single |each |use )*(?:thread ?)?(?:blocks?|ctas?)[ -](?:per|for (?:each|every)|an?|each)[ -](?:\w+ )?row\b"
        r"|(?:one |a |1 )?row per (?:thread ?)?(?:block|cta)|(?:each|every|one|a) row (?:\w+ ){0,3}by (?:a|one|its own) block"
        r"|rows? (?:to )?(?:its own|one|a) block|(?:(?:each|every|one|a) )?block (?:(?!of\b)\w+ ){0,3}(?:each|every|one|a) row\b",
    ),
    (
        "one thread per row",
        r"rows-thread|thread-per-row",
        r"(?:one |a |1 |single |each |use )*threads?[ -](?:per|for (?:each|every)|an?|each)[ -](?:\w+ )?row\b|(?:one |a |1 )?row per thread",
    ),
    ("tensor cores", r"tensor|mma", r"tensor[ -]?cores?|wmma|w?mma(?:[. ]sync)?|wgmma|hmma"),
    (
        "loads in half precision",
        r"half-storage",
        r"(?:half|mixed)[ -]precision(?: floats?)?(?: for| in| on)?(?: the)?(?: global)?(?: loads?| reads?| storage| inputs?)?"
        r"|(?:fp16|float16|bf16|bfloat16|16[ -]bit floats?)(?! (?:accumulat|arithmetic|math|comput|sums?\b|adds?\b|output|result))"
        r"(?: for| in| on)?(?: the)?(?: loads?| reads?| storage| inputs?)?"
        r"|(?:load|read|stor|keep)\w*(?: \w+){0,4} (?:in|as|with) hal(?:f|ves)\b(?:[ -]precision)?|half (?:loads?|storage|reads?)|hal(?:f|ves) instead of (?:floats?|single)",
    ),
    (
        "wide loads and stores",
        r"vectorize|pointwise|packs|rows-|columns-|scan-",
        r"(?:float[24]|int[24]|uint4|double2|half2|vectori[sz]\w*|vector(?:ed)?(?= loads?| stores?| access| reads?| types?)|wider?(?= loads?| stores?| reads?)"
        r"|(?:loads?|stores?) wider|(?:128|64)[ -]?bits?(?! (?:ind|int|offset|address|counter|float|accumul|arith))|(?<!aligned to )(?<!multiple of )16[ -]bytes?|pack(?:ed|s)?(?= loads?| stores?| access))"
        r"(?:(?: the| all| its| my| of)*(?: memory)?(?: loads?| stores?| access\w*| reads?| types?| writes?)(?: and (?:stores?|loads?|writes?|reads?))?)?",
    ),
    (
        "values in registers",
        r"rows-|accumulate-in-register|hoist-loads|contraction",
        r"(?:keep|hold|put|cach|stor|accumulat)\w*(?: \w+){0,4} in (?:a |the )?registers?|values in registers",
    ),
    (
        "tiles in shared memory",
        r"tile|contraction|stage-records",
        r"(?:(?:shared(?: memory)?|smem|register|cache) )?\btil(?:e|es|ed|ing)\b(?: it| the \w+)?(?: (?:in|through|into|with|by) shared(?: memory)?)?"
        r"|(?:use|using|through|with|via|uses) (?:the )?(?:shared(?: memory| mem)?|smem)(?! less| more| (?:bank )?conflicts?| sparing\w*)"
        r"|(?:put|cache|keep|load|stage|stag)\w*(?: \w+){0,4} (?:in|into|to|through) (?:shared(?: memory)?|smem)",
    ),
    (
        "several elements per thread",
        r"grid-stride|vectorize|packs|pointwise|interleave",
        r"(?:(?:each|every|one|a|per) thread (?:\w+ ){0,3}?)?(?:\d+|two|four|eight|several|multiple|more(?: than one)?|many) (?:elements?|values?|items?|outputs?|points?)"
        r" (?:per|for each|for every|by each|by one|in each) thread"
        r"|(?:each|every|one|a|per) thread (?:\w+ ){0,3}?(?:\d+|two|four|eight|several|multiple|more(?: than one)?|many) (?:elements?|values?|items?|outputs?|points?)(?: instead of (?:1|one))?"
        r"|(?:thread )?coarsen\w*(?: the threads?)?",
    ),
    (
        "fused loops",
        r"online-softmax|single-pass|rows-|total",
        r"fus(?:e|ed|es|ing|ion)(?: (?:of )?(?:the |these |those |both |all |two |three |my |its )*(?:loops?|passes|kernels?|reductions?|steps?|stages?|operations?))?"
        r"|(?:merge|combine|join)\w* (?:the |these |both |all |two |three )*(?:loops|passes)|(?:in |as )?(?:only |just )?(?:one|a single|single)[ -](?:pass|loop)\b",
    ),
    (
        "input read once",
        r"rows-|scan-|hoist-loads|single-pass|online-softmax|contraction|tile",
        r"(?:read|load|fetch|touch|stream)\w*(?: \w+){0,4}? once(?: only)?|(?:re-?read|read(?:ing)? \w+(?: \w+)? (?:twice|again|more than once|(?:two|three|several|many|multiple|2|3) times))",
    ),
    ("shuffles within a warp", r"warp-reduction|warp-scan|rows-", r"warp[ -](?:level )?(?:shuffles?|reduc\w+|primitives?)|shuffles?|shfl\w*"),
    ("unrolled loops", r"unroll", r"unroll\w*(?: (?:the |all |inner |my )*loops?)?"),
    (
        "reciprocals instead of divisions",
        r"divide",
        r"(?:replac|hoist|remov|avoid|eliminat)\w* (?:the |all |any |slow |float )*divi\w+(?: (?:by|with) (?:an? |the )?(?:multipl\w+|reciprocals?|inverses?|shifts?))?"
        r"|(?:get rid of|without|no|fewer|avoid\w*|replac\w*|remov\w*|eliminat\w*) (?:the |all |any |slow |float |integer )*(?:divisions?|modul(?:o|us)|remainders?|mod)\b|(?:precomput\w*|us(?:e|ing)|multiply by|with) (?:the |an? )*(?:reciprocals?|inverses?)\b|reciprocals(?: instead of divisions)?",
    ),
    (
        "32-bit indices",
        r"narrow-index",
        r"(?:int32|32[ -]?bits?|narrow\w*|shorter|int) (?:ind(?:ex|ices|exes|exing)|offsets?|address\w*)|ind(?:ex\w*|ices) (?:in|with|as|of) (?:int32|32[ -]?bits?|ints?\b)",
    ),
    (
        "fewer barriers",
        r"remove-barrier|warp-reduction",
        r"(?:remov\w*|drop|eliminat\w*|get rid of|avoid\w*|fewer|less|no|without) (?:the |any |all |those |unnecessary |needless |redundant )*"
        r"(?:barriers?|sync ?threads(?: ?\(\))?|synchroni[sz]ations?|syncs?)\b",
    ),
    ("moments by Welford", r"single-pass-moments|shifted-variance", r"(?:moments by )?welford'?s?(?: algorithm| method| variance| update)?"),
    ("work on more blocks", r"spread-over-grid|grid-stride", r"(?:increase|enlarge|larger|bigger|widen) (?:the )?grid(?: size)?|(?:work )?(?:over|across|on|use) (?:more|all) (?:blocks|sms|multiprocessors)"),
    ("a grid-stride loop", r"grid-stride", r"grid[ -]?strided?(?: loops?)?"),
    ("fast intrinsics", r"fast-intrinsics", r"fast[ -]?math|(?:fast )?intrinsics?|\bexpf\b"),
    ("restrict on the pointers", r"restrict", r"(?:use |add )?restrict(?:ed)?(?: pointers?)?|read[ -]only cache|ldg\b"),
    ("padded shared arrays", r"pad-shared", r"pad(?:ded|ding|s)?\b(?: the)?(?: (?:shared|arrays?|tiles?|memory))*"),
    ("asynchronous copies", r"async|pipeline", r"cp ?\.? ?async(?: double[ -]buffer\w*)?|async(?:hronous)? cop\w+|double[ -]buffer\w*|pipelin\w+|prefetch\w*"),
    ("online softmax", r"online-softmax|rows-", r"online[ -]softmax"),
    ("private histograms", r"private-histogram", r"privati[sz]\w*(?: histograms?)?|private histograms?|(?:per[ -]block|block[ -]local) histograms?"),
    ("using atomics", r"atomic", r"(?:use|using|with|by) (?:block[ -]level )?atomics?(?: ?adds?)?"),
    ("launch bounds", r"launch-bounds", r"launch[ -]bounds|max ?n?reg\w*"),
)  # fmt: skip
"""Code structures that a prompt can name: display name, regular expression of their authors, and pattern of the words.

The most specific pattern comes first.
"""

BLOCK = r"(?:blocks? (?:of |size (?:of |= ?)?)|use |with )?(\d+) threads(?: per| a| in a| in each)? ?(?:block)?|block ?size (?:of |= ?|to )?(\d+)"

SIZE = re.compile(
    r"\b([A-Za-z_]\w*)\s*(?:==?|:)\s*(\d[\d_]*)((?:\s*(?:,|and|or)\s*\d[\d_]*(?![\w]|\s*\w*\s*=))*)", re.IGNORECASE
)
COUNTED = re.compile(
    r"\b(?:at|for|with|when there are|on)\s+(?:only\s+)?(\d+)\s+(rows?|cols?|columns?|elements?|tokens?|heads?|channels?)\b",
    re.IGNORECASE,
)
NO_SIZES = frozenset({"error", "tolerance", "rtol", "atol", "block", "size", "registers", "regs", "threads"})

_STRUCTURES = [
    (words, authors, re.compile(rf"\b(?P<no>{NOT}|{LESS})?(?:{pattern})(?P<less> less\b(?! than))?"))
    for words, authors, pattern in STRUCTURES
]
_QUESTION = re.compile(
    r"^\W*(?:why|what(?:'?s)?(?! i (?:want|need|ask)\w*| about \w+ing\b)|how(?! about)|(?:where|who|when)(?:'s| (?:is|are|was|does|do|did))|tell me (?:why|what|about)|explain)\b"
    r"|^\W*(?:is|are|does|did|was|were) (?!it possible|there (?:a|any) way)(?:it|this|that|the|there|my|these|those)\b"
    r"|^\W*(?:should|shall|do|did|may) (?:i|we)\b|^\W*which\b|^\W*(?:does|did) (?!not\b|nothing\b|something\b|the wrong\b)\w+\b|[^?]*\b(?:why|how come)\W*$"
    r"|^\W*(?!is it possible|is there (?:a|any) way)(?:which|where|who|when|is|are|does|do|did|has|was|will|should(?! you)|would(?! you))\b.*\?"
)


@dataclass(slots=True)
class PromptModifiers:
    """Modifiers found in a prompt, the folded text without them, and the parts that no search can hold to."""

    text: str
    constraints: list[Constraint] = field(default_factory=list)
    preferences: list[Preference] = field(default_factory=list)
    limits: dict[str, float] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)

    def take(self, pattern: str) -> re.Match[str] | None:
        """Matches a pattern and removes the matched text, so that it is read only once."""
        found = re.search(rf"(?<!\w)(?:{pattern})(?!\w)", self.text)
        if found is not None:
            self.text = f"{self.text[: found.start()]} \0 {self.text[found.end() :]}"
        return found

    def __bool__(self) -> bool:
        """Returns True if there is any modifier beside limits."""
        return bool(self.constraints or self.preferences)


def read_modifiers(text: str) -> PromptModifiers:
    """Returns the modifiers in a folded prompt."""
    modifiers = PromptModifiers(text)
    while any(map(modifiers.take, (NEED_NOT, UNIMPORTANT, KEPT_ANYWAY))):
        pass
    if modifiers.take(NOT_SLOWER):
        modifiers.limits["time"] = 0.0
    for pattern, less in BOUNDS:
        found = modifiers.take(pattern)
        if found is not None:
            most = int(found[1]) - less
            modifiers.constraints.append(Constraint("registers", most, f"at most {most} registers"))
            break
    _shared(modifiers)
    modifiers.text = re.sub(OCCUPANCY_NOW, r"\1 ", modifiers.text)
    _occupancy(modifiers)
    _launch(modifiers)
    if modifiers.take(NO_ATOMICS):
        modifiers.constraints.append(Constraint("atomics", 0, "no atomics"))
    if modifiers.take(DETERMINISTIC):
        modifiers.constraints.append(Constraint("deterministic", None, "the same bits in every run"))
    _structures(modifiers)
    for pattern in (
        FORBIDDEN,
        *([rf"(?:\w+ )?{SHARE}(?: (?:of )?{_OCCUPANCY})?"] if "occupancy" in modifiers.text else []),
    ):
        found = modifiers.take(pattern)
        if found is not None:
            modifiers.ignored.append(found[0].strip())
    return modifiers


def _shared(modifiers: PromptModifiers) -> None:
    found = modifiers.take(SHARED_BOUND)
    if found is not None:
        number, unit = (found[1], found[2]) if found[1] else (found[3], found[4])
        most = int(number) * (1024 if unit.startswith("k") else 1)
        modifiers.constraints.append(Constraint("shared_bytes", most, f"at most {most} bytes of shared memory"))
    elif modifiers.take(rf"{NOT}{SHARED}"):
        modifiers.constraints.append(Constraint("shared_bytes", 0, "no shared memory"))


def _occupancy(modifiers: PromptModifiers) -> None:
    for pattern in OCCUPANCY_BOUNDS:
        found = modifiers.take(pattern)
        if found is not None:
            least = float(found[1]) / 100 if found[1] else float(found[2])
            if 0 < least <= 1:
                modifiers.constraints.append(Constraint("occupancy", least, f"at least {100 * least:g}% occupancy"))
            else:
                modifiers.ignored.append(found[0].strip())
            return


def _launch(modifiers: PromptModifiers) -> None:
    if modifiers.take(SAME_LAUNCH):
        modifiers.constraints.append(Constraint("launch", None, "the launch unchanged"))
    modifiers.take(WARP_SIZE)
    fixed = modifiers.take(FIXED_BLOCK)
    if fixed is not None:
        threads = int(next(filter(None, fixed.groups())))
        modifiers.constraints.append(Constraint("block", threads, f"exactly {threads} threads per block"))
    elif modifiers.take(SAME_BLOCK):
        modifiers.constraints.append(Constraint("block", None, "the block size unchanged"))


def _structures(modifiers: PromptModifiers) -> None:
    block = modifiers.take(BLOCK)
    if block is not None:
        threads = int(block[1] or block[2])
        modifiers.preferences.append(Preference(f"{threads} threads per block", rf"block-{threads}\b|block-size"))
    for words, authors, pattern in _STRUCTURES:
        found = pattern.search(modifiers.text)
        if found is not None:
            modifiers.text = pattern.sub(" \0 ", modifiers.text)
            # "reading it twice" only ever names something to avoid.
            avoid = (found["no"] or found["less"]) is not None and words != "input read once"
            modifiers.preferences.append(Preference(words, authors, avoid))


def read_sizes(prompt: str) -> tuple[str, tuple[Mapping[str, int], ...]]:
    """Returns the prompt without the sizes that it names, and those sizes.

    `rows = 8, cols = 64` names one size, `rows = 8 and 16` two.
    """
    sizes: list[dict[str, int]] = []
    spans: list[tuple[int, int]] = []
    for found in SIZE.finditer(prompt):
        name, values = found[1], [int(value) for value in re.findall(r"\d[\d_]*", found[2] + found[3])]
        if name.lower() in NO_SIZES:
            continue
        spans.append(found.span())
        if len(values) == 1 and sizes and name not in sizes[-1]:
            sizes[-1][name] = values[0]
        else:
            sizes += ({name: value} for value in values)
    for found in COUNTED.finditer(prompt):
        spans.append(found.span())
        sizes.append({found[2].lower(): int(found[1])})
    for start, end in sorted(spans, reverse=True):
        prompt = f"{prompt[:start]} \0 {prompt[end:]}"
    return prompt, tuple(sizes)


def is_question(text: str) -> bool:
    """Returns True if a folded prompt consists of questions, which a search would not answer."""
    return re.search(r"\w", text) is not None and not without_questions(text)


def without_questions(text: str) -> str:
    """Returns the sentences of a folded prompt that are requests; empty if all of them are questions."""
    sentences = re.findall(r"[^?!;\n]+?(?:[?!;\n]|\.(?=\s|$)|$)", text)
    return "".join(one for one in sentences if not _QUESTION.match(one)).strip()


def unknown_words(text: str, known: re.Pattern[str]) -> tuple[str, ...]:
    """Returns the parts of a folded prompt that were not understood: neither known phrases nor stopwords."""
    found: list[str] = []
    for stretch in re.split(r"[\0,;:!?()\"]|\.(?=\s|$)", known.sub(" \0 ", text)):
        words = re.findall(r"[\w'/+.-]*\w", stretch)
        telling = [place for place, word in enumerate(words) if not _is_filler(word)]
        if telling:
            found.append(" ".join(words[telling[0] : telling[-1] + 1]))
    return tuple(dict.fromkeys(found))


def _is_filler(word: str) -> bool:
    return (
        len(word) == 1
        or word in FILLERS
        or re.fullmatch(r"\d+(?:\.\d+)?(?:x|%)?|[ahbl]\d{2,3}s?|t4|v100|g[hb]200", word) is not None
    )


def modifiers_sentence(
    constraints: tuple[Constraint, ...],
    preferences: tuple[Preference, ...],
    sizes: tuple[Mapping[str, int], ...],
    unknown: tuple[str, ...],
) -> str:
    """Returns sentences that restate the modifiers, to follow the metric's sentence."""
    parts = []
    if constraints:
        parts.append(f"Must hold: {', '.join(one.words for one in constraints)}.")
    wanted = [one.words for one in preferences if not one.avoid]
    if wanted:
        parts.append(f"Tried first: {', '.join(wanted)}.")
    avoided = [one.words for one in preferences if one.avoid]
    if avoided:
        parts.append(f"Not tried: {', '.join(avoided)}.")
    if sizes:
        listed = "; ".join(", ".join(f"{name} = {value}" for name, value in size.items()) for size in sizes)
        parts.append(f"Decided at {listed}.")
    if unknown:
        parts.append(f"Not understood: {', '.join(repr(one) for one in unknown)}.")
    return "".join(f" {part}" for part in parts)
