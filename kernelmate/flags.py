"""Allow-list of the compiler options that a contract, a setting or a build may give, in nvcc's and NVRTC's spellings.

Some options of NVRTC and ptxas write files, read files, or insert text before the unit. An option is refused unless it
is known to affect only the generated code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

_ALLOWED = re.compile(
    r"-D.+|--define-macro=.+|-U\w+|--undefine-macro=\w+|-I.+"
    r"|--?std=(?:c|gnu)\+\+(?:11|14|17|20|23)|--?use_fast_math|--?maxrregcount=\d+|--ptxas-options=.+"
    r"|--?(?:fmad|ftz|prec-div|prec-sqrt|builtin-move-forward|builtin-initializer-list)=(?:true|false)"
    r"|--?(?:device-debug|extra-device-vectorization|restrict|device-int128|device-float128|device-as-default-execution-space|default-device)"
    r"|--?default-stream=(?:legacy|null|per-thread)|--?diag-(?:error|suppress|warn)=[\d,]+|-w|--disable-warnings"
)
_IGNORED = re.compile(
    r"-O[0-9s]?|-g|-G|-lineinfo|--generate-line-info|--?expt-relaxed-constexpr|--?(?:expt-)?extended-lambda"
    r"|-x=?(?:cu)?|-c|-rdc=false|--relocatable-device-code=false|-m64|-(?:gencode|arch|code)=?[\w,=\[\]\"'. -]*|--generate-code=?[\w,=\[\]. -]*"
    r"|-W[\w=+-]*|-f(?!mad|ftz)(?!.*(?:trace|dump|save|file|record|plugin|profile|prefix|embed|output|path))[\w=+-]*"
)
"""Options that NVRTC does not have or applies by default; they are dropped."""

_ASSEMBLER = re.compile(
    r"-v|--verbose|-w|--disable-warnings|-O[0-4]|--opt-level[= ]?[0-4]|(?:-dlcm|--def-load-cache|-dscm|--def-store-cache)=\w+"
    r"|--?maxrregcount[= ]?\d+|--warn-on-(?:spills|local-memory-usage|double-precision-use)|--?(?:allow-expensive-optimizations|fmad)=(?:true|false)"
    r"|(?:-preserve-relocs|--preserve-relocs|--position-independent-code)(?:=(?:true|false))?"
)
_WITH_VALUE = {
    "-Xptxas": "--ptxas-options=", "--ptxas-options": "--ptxas-options=", "-D": "-D", "--define-macro": "--define-macro=",
    "-U": "-U", "--undefine-macro": "--undefine-macro=", "-I": "-I", "--include-path": "-I", "-isystem": "-I", "-std": "--std=", "--std": "--std=",
    "-maxrregcount": "--maxrregcount=", "--maxrregcount": "--maxrregcount=",
}  # fmt: skip
"""Options with a value after `=` or in the next word, mapped to the form in which NVRTC receives them."""

_DROPPED_WITH_VALUE = frozenset(
    {"-Xcompiler", "--compiler-options", "-gencode", "--generate-code", "-arch", "-code", "-x"}
)
_HOST = re.compile(r"(?:-Xcompiler|--compiler-options)=.*", re.DOTALL)


class RefusedOption(ValueError):
    """An option that is not on the allow-list; the message names it and gives the reason."""


def allowed(flags: Sequence[str]) -> tuple[str, ...]:
    """Returns the options in NVRTC's spelling, joined to their values, without those that only nvcc has.

    Raises:
        RefusedOption: an option is not on the list.
    """
    return tuple(_spelled(flags))


def _spelled(flags: Sequence[str]) -> Iterator[str]:
    waiting = list(flags)
    while waiting:
        flag = waiting.pop(0)
        if any(ord(character) < 32 for character in flag):
            raise RefusedOption(f"{flag!r} holds a control character.")
        name, equals, value = flag.partition("=")
        if name in _WITH_VALUE:
            if not equals and not waiting:
                raise RefusedOption(f"{flag} needs a value.")
            flag = _WITH_VALUE[name] + (value if equals else waiting.pop(0))
        elif flag in _DROPPED_WITH_VALUE and waiting:
            waiting.pop(0)
            continue
        flag = flag.replace("=gnu++", "=c++")
        if _HOST.fullmatch(flag) or _IGNORED.fullmatch(flag):
            continue
        if not _ALLOWED.fullmatch(flag):
            raise RefusedOption(
                f"The compiler option {flag} is refused: only options that change nothing but the generated code are allowed."
            )
        if flag.startswith("--ptxas-options="):
            _check_assembler(flag)
        yield flag


def _check_assembler(flag: str) -> None:
    for option in filter(None, re.split(r"[,\s]+(?=-)", flag.partition("=")[2])):
        if not _ASSEMBLER.fullmatch(option):
            raise RefusedOption(
                f"The assembler's option {option} is refused: only options that change nothing but the generated code are allowed."
            )
