"""Preprocessor lines of CUDA text: macros, the `#include` lines that device code needs and their headers, matching brackets."""

from __future__ import annotations

import functools
import hashlib
import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path, PurePath
from typing import Literal

from kernelmate.compiler.prelude import words_of
from kernelmate.compiler.project_headers import HEADERS, include_folder, nearest_header
from kernelmate.config import project_folder
from kernelmate.source.tokens import LexedText, Token, lex

STATEMENTS = words_of("if else for while do switch case return break continue goto try catch asm")
"""Keywords that start a statement, not a declaration."""

OPENING = {"(": ")", "[": "]", "{": "}"}
BRACKETS = frozenset("()[]{}")
"""Opening and closing brackets."""


@dataclass(frozen=True, slots=True)
class Macro:
    """One `#define`: `words` are the identifiers in its body; `pastes` is True if it uses `##`."""

    name: str
    function: bool
    words: tuple[str, ...]
    pastes: bool


@lru_cache(maxsize=256)
def macros_of(text: str) -> tuple[Macro, ...]:
    """Returns the macros that a text defines, in order."""
    return tuple(macro for macro in map(_macro, lex(text).directives) if macro is not None)


def _macro(line: Sequence[Token]) -> Macro | None:
    if len(line) < 3 or line[1].text != "define":
        return None
    function = len(line) > 3 and line[3].text == "(" and line[3].start == line[2].end
    body = line[3:]
    words = tuple(token.text for token in body if token.kind == "word")
    texts = [token.text for token in body]
    return Macro(line[2].text, function, words, ("#", "#") in pairwise(texts))


def find_closers(lexed: LexedText) -> dict[int, int]:
    """Returns the index, among the tokens of code, of the closing bracket for each opening one.

    An unclosed brace is assumed to end before the next line that starts with a word in the first column.
    """
    code = lexed.code
    found: dict[int, int] = {}
    stack: list[int] = []
    saved: list[tuple[int, ...]] = []
    lost: list[int] = []
    conditions = iter(_conditions(code, lexed.directives))
    pending = next(conditions, None)
    for index in [index for index, word in enumerate(lexed.words) if word in BRACKETS]:
        while pending is not None and pending[0] <= index:
            stack = _branch(stack, saved, lost, pending[1])
            pending = next(conditions, None)
        if code[index].text in OPENING:
            stack.append(index)
        else:
            _close(code, stack, found, index)
    while pending is not None and pending[0] < len(code):
        stack = _branch(stack, saved, lost, pending[1])
        pending = next(conditions, None)
    for opening in (*stack, *lost):
        if code[opening].text == "{" and opening not in found:
            found[opening] = _next_at_margin(lexed.text, code, opening)
    return found


def _branch(stack: list[int], saved: list[tuple[int, ...]], lost: list[int], kind: str) -> list[int]:
    """Updates the stack of open brackets; each branch of an `#if` starts with those that were open before it."""
    if kind == "if":
        saved.append(tuple(stack))
    elif kind.startswith("el") and saved:
        lost.extend(stack[len(saved[-1]) :])
        return list(saved[-1])
    elif kind == "endif" and saved:
        saved.pop()
    return stack


def _conditions(code: Sequence[Token], directives: Sequence[Sequence[Token]]) -> Iterator[tuple[int, str]]:
    index = 0
    for line in directives:
        word = line[1].text if len(line) > 1 else ""
        if not word.startswith(("if", "el", "endif")):
            continue
        while index < len(code) and code[index].start < line[0].start:
            index += 1
        yield index, "if" if word.startswith("if") else word


def _close(code: Sequence[Token], stack: list[int], found: dict[int, int], index: int) -> None:
    text = code[index].text
    if text == "}":
        # A closing brace also closes round and square brackets left open before it.
        while stack and code[stack[-1]].text != "{":
            stack.pop()
    if stack and OPENING[code[stack[-1]].text] == text:
        found[stack.pop()] = index


def _next_at_margin(text: str, code: Sequence[Token], opening: int) -> int:
    for index in range(opening + 1, len(code)):
        start = code[index].start
        at_margin = start == 0 or text[start - 1] == "\n"
        if at_margin and code[index].kind == "word" and code[index].text not in STATEMENTS:
            return index
    return len(code)


_STANDARD = words_of(
    "algorithm any array atomic barrier bit bitset cassert cctype cerrno cfenv cfloat charconv chrono cinttypes climits "
    "clocale cmath compare complex concepts condition_variable coroutine csetjmp csignal cstdarg cstddef cstdint cstdio "
    "cstdlib cstring ctime cuchar cwchar cwctype deque exception execution expected filesystem format forward_list "
    "fstream functional future generator initializer_list iomanip ios iosfwd iostream istream iterator latch limits list "
    "locale map mdspan memory memory_resource mutex new numbers numeric optional ostream print queue random ranges ratio "
    "regex scoped_allocator semaphore set shared_mutex source_location span sstream stack stdexcept stop_token streambuf "
    "string string_view strstream syncstream system_error thread tuple type_traits typeindex typeinfo unordered_map "
    "unordered_set utility valarray variant vector version "
    "assert.h complex.h ctype.h errno.h fenv.h float.h inttypes.h limits.h locale.h math.h setjmp.h signal.h stdalign.h "
    "stdarg.h stdatomic.h stdbool.h stddef.h stdint.h stdio.h stdlib.h string.h strings.h tgmath.h threads.h time.h "
    "uchar.h wchar.h wctype.h malloc.h alloca.h memory.h values.h "
    "unistd.h pthread.h fcntl.h getopt.h dirent.h dlfcn.h execinfo.h libgen.h netdb.h poll.h sched.h semaphore.h "
    "termios.h windows.h io.h direct.h process.h intrin.h immintrin.h x86intrin.h omp.h mpi.h zlib.h"
)
"""Standard, POSIX and Windows headers; the prelude declares what device code can use of them."""

_HOST = re.compile(
    r"""(?: sys/ | arpa/ | net/ | netinet/ | linux/ | bits/ | boost/ | Eigen/ | gtest/ | gmock/ | benchmark/ | opencv
        | torch/ | ATen/ | c10/ | pybind11/ | Python\.h | nlohmann/ | fmt/ | spdlog/ | absl/ | tbb/ | GL/ | GLFW/ | SDL
        | nvtx3/ | nvToolsExt | nvml\.h | nccl | cudnn | cublas | cusparse | cusolver | cufft | nvjpeg | npp | curand\.h
        | cuda\.h | cuda_runtime\.h | cuda_runtime_api\.h | cuda_profiler | cudaProfiler | driver_ | cudaTypedefs
        | device_launch_parameters\.h | cuda_gl_interop | cuda_egl | cuda_d3d | cuda_vdpau | cufile\.h | nvrtc\.h
        | helper_ | cuda_occupancy\.h )""",
    re.VERBOSE,
)
"""Headers of host libraries, and CUDA headers whose declarations are built into NVRTC."""

_HOST_ONLY = re.compile(r"(?:nlohmann/|(?:json/)?json\.hpp|pybind11/|spdlog/|gtest/|gmock/|catch2/)")
"""Headers of libraries that no device code uses, which projects often contain."""

_NEEDED_BY: tuple[tuple[str, str], ...] = (
    ("cooperative_groups", "cooperative_groups"),
    ("cub/", "cub"),
    ("thrust/", "thrust"),
    ("cuda/", "cuda"),
    ("nv/", "nv"),
    ("mma.h", "nvcuda"),
    ("cutlass/", "cutlass"),
    ("cute/", "cute"),
)
"""Prefixes of headers that are slow to compile, each with the word that indicates their use."""

_VERSIONS = {"thrust": "thrust/version.h", "cub": "cub/version.cuh", "cuda": "cuda/version"}
"""Headers with the version of a library, by its folder: NVRTC reads them as they are, and each header of the library brings it."""
_VERSION_MACRO = re.compile(r"\b(?:THRUST|CUB|CCCL)_(?:[A-Z]+_)?VERSION\b")

_HOST_PARTS = ("cutlass/util/", "cutlass/library/", "cutlass/profiler/")
"""Folders of these libraries with code for host compilers; their host code is blanked, as in project headers."""

_RAW = ("cub/", "thrust/", "cutlass/", "cute/", "cooperative_groups")
_RAW_WITHOUT_SUFFIX = ("cuda/", "nv/")
"""Libraries that support NVRTC and are passed to it unchanged; libcu++'s headers have no suffix, those of a project's own folder `cuda` have one."""

STANDARD_HEADERS = tuple(sorted(_STANDARD))
"""Standard headers, which libraries include but do not need under NVRTC, since the prelude replaces them."""

UMBRELLA = "kernelmate_cub.h"
"""Replacement for `cub/cub.cuh`, which NVRTC cannot compile."""

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*["<]([^">\n]+)[">]', re.MULTILINE)
_MOST_RAW = 4000

Fate = Literal["project", "raw", "blank", "missing"]


@dataclass(frozen=True, slots=True)
class Include:
    """One `#include`: the name as written, `quoted` (True for quotes), and the offsets of its line.

    `computed` is True if a macro gives the name.
    """

    name: str
    quoted: bool
    start: int
    end: int
    computed: bool = False


@dataclass(frozen=True, slots=True)
class ResolvedInclude:
    """Treatment of an include, and the header's file if it was found; `guessed` is True if no include path leads to it."""

    fate: Fate
    path: Path | None = None
    guessed: bool = False


def read_include(text: str, line: Sequence[Token]) -> Include | None:
    """Parses a preprocessor line as an include; None for another line."""
    if len(line) < 3 or line[1].text not in ("include", "include_next", "import"):
        return None
    written = text[line[2].start : line[-1].end]
    quoted = re.match(r'"([^"\n]+)"|<([^>\n]+)>', written)
    if quoted is None:
        return Include(written, False, line[0].start, line[-1].end, computed=True)
    return Include(quoted[1] or quoted[2], quoted[1] is not None, line[0].start, line[-1].end)


@dataclass(frozen=True, slots=True)
class IncludeSearch:
    """Search path of headers: the user's folders, then CUDA's, then, with `guess`, the nearest in the project."""

    user: tuple[Path, ...]
    system: tuple[Path, ...]
    guess: bool = True

    def readable(self, path: Path, beside: Path) -> bool:
        """Returns True if compiled text may include this file: it has a header's suffix, or is in the project.

        A user who opens a file has not chosen its includes, and compiler messages may quote included text.
        """
        real = path.resolve()
        if real.suffix.lower() in HEADERS or any(real.is_relative_to(place.resolve()) for place in self.system):
            return True
        project = project_folder(beside)
        return real.is_relative_to(project) and not any(p.startswith(".") for p in real.relative_to(project).parts)

    def find(self, include: Include, beside: Path) -> ResolvedInclude:
        """Resolves an include of a file in the folder `beside`."""
        name = include.name
        if include.computed:
            # Only the compiler knows the name that a macro gives, and it would read any file of the machine.
            return ResolvedInclude("missing")
        if _HOST_ONLY.match(name):
            return ResolvedInclude("blank")
        places = (beside, *self.user) if include.quoted else self.user
        mine = next((place / name for place in places if (place / name).is_file()), None)
        if mine is not None and _HOST.match(name) and not mine.resolve().is_relative_to(project_folder(beside)):
            # A host library stays one where its folder is on the search path.
            mine = None
        if mine is not None and not (name in _STANDARD and not include.quoted):
            return self._read(name, mine, beside)
        if name in _STANDARD or _HOST.match(name):
            return ResolvedInclude("blank")
        theirs = next((place / name for place in self.system if (place / name).is_file()), None)
        if theirs is not None:
            return ResolvedInclude("raw", theirs)
        guessed = nearest_header(name, beside) if self.guess else None
        if guessed is None:
            return ResolvedInclude("missing")
        return replace(self._read(name, guessed, beside), guessed=True)

    def _read(self, name: str, path: Path, beside: Path) -> ResolvedInclude:
        """Returns the treatment of a header that is not CUDA's own; NVRTC itself reads those of libraries."""
        if not is_library(name):
            return ResolvedInclude("project" if self.readable(path, beside) else "missing", path)
        reached = _closure([path], self.also_in([include_folder(name, path)]))
        return ResolvedInclude("raw" if all(self.readable(one, beside) for one in reached) else "missing", path)

    def also_in(self, folders: Iterable[Path]) -> IncludeSearch:
        """Returns the search path with further folders of the user."""
        return replace(self, user=(*self.user, *folders))


def is_library(name: str) -> bool:
    """Returns True for a header of a library that NVRTC reads unchanged."""
    if name.startswith(_RAW_WITHOUT_SUFFIX):
        return not PurePath(name).suffix
    return name.startswith(_RAW) and not name.startswith(_HOST_PARTS)


def is_standard(name: str) -> bool:
    """Returns True for a header of the standard library or of the operating system."""
    return name in _STANDARD or name.startswith(("sys/", "linux/", "bits/"))


def is_needed(name: str, words: Collection[str]) -> bool:
    """Returns True if device code that contains these words may need a header that NVRTC reads unchanged."""
    if name.startswith("curand"):
        return any(word.startswith("curand") for word in words)
    return all(word in words for prefix, word in _NEEDED_BY if name.startswith(prefix))


def version_header(name: str, path: Path, texts: Iterable[str]) -> str | None:
    """Returns a substitute for a library's header that device code does not need, if a text reads the library's version macro.

    Args:
        name: the header as it is included.
        path: its file.
        texts: the texts of the project's files.
    """
    version = _VERSIONS.get(name.partition("/")[0])
    if version is None or not any(_VERSION_MACRO.search(text) for text in texts):
        return None
    return version if (include_folder(name, path) / version).is_file() else None


def cub_umbrella(words: Collection[str], system: Sequence[Path]) -> str:
    """Returns `#include` lines for the CUB classes among these words, such as `cub/block/block_reduce.cuh`."""
    lines = []
    for word in sorted(words):
        if not re.fullmatch(r"(?:Block|Warp|Thread|Grid)[A-Z]\w*", word):
            continue
        snake = re.sub(r"(?<!^)(?=[A-Z])", "_", word).lower()
        name = f"cub/{snake.partition('_')[0]}/{snake}.cuh"
        if any((place / name).is_file() for place in system):
            lines.append(f"#include <{name}>\n")
    return "".join(lines) or "namespace cub {}\n"


def digest_of_raw(paths: Sequence[Path], search: IncludeSearch) -> str:
    """Returns a hash of the user's headers that NVRTC reads unchanged, and of everything they include.

    CUDA's own headers are not hashed; their versions are part of the cache key.
    """
    digest = hashlib.sha256()
    for path in sorted(_closure(paths, search)):
        digest.update(str(path).encode() + b"\0" + _content_hash(path, path.stat().st_mtime_ns))
    return digest.hexdigest()


def _closure(paths: Sequence[Path], search: IncludeSearch) -> set[Path]:
    seen: set[Path] = set()
    waiting = [path for path in paths if not any(path.is_relative_to(place) for place in search.system)]
    while waiting and len(seen) < _MOST_RAW:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        for name in _names_in(path, path.stat().st_mtime_ns):
            found = next((p / name for p in (path.parent, *search.user) if (p / name).is_file()), None)
            if found is not None:
                waiting.append(Path(os.path.normpath(found)))
    return seen


@functools.lru_cache(maxsize=8192)
def _content_hash(path: Path, changed: int) -> bytes:  # noqa: ARG001 -- `changed` makes the cache see edits
    return hashlib.sha256(path.read_bytes()).digest()


@functools.lru_cache(maxsize=8192)
def _names_in(path: Path, changed: int) -> tuple[str, ...]:  # noqa: ARG001
    return tuple(_INCLUDE.findall(path.read_text(encoding="utf-8", errors="replace")))


def includes_of(text: str) -> Iterator[Include]:
    """Yields all includes of a text, in order."""
    for line in lex(text).directives:
        include = read_include(text, line)
        if include is not None:
            yield include


_CONDITION = re.compile(r"^[ \t]*#[ \t]*(?:if|ifdef|elif)\b(.*)$", re.MULTILINE)
_PLATFORM = frozenset({"CUDA", "CUDNN", "CUBLAS", "CURAND", "GPU", "NVCC"})
_SWITCHED = frozenset({"HAVE", "HAS", "USE", "USING", "WITH", "ENABLE", "ENABLED", "BUILD", "FOUND", "SUPPORT", "GPU"})
_OTHERS = frozenset(
    {"NO", "NOT", "WITHOUT", "DISABLE", "DISABLED", "HIP", "ROCM", "SYCL", "OPENCL", "METAL", "VERSION", "ARCH"}
)


def cuda_switches(texts: Collection[str], given: Collection[str]) -> tuple[str, ...]:
    """Returns the macros by which a project's build enables its CUDA code, such as `HAVE_CUDA`, that nothing defines.

    Args:
        texts: the unit and the project's headers.
        given: names of the macros that the options define.
    """
    named = {
        word
        for text in texts
        for condition in _CONDITION.findall(text)
        for word in re.findall(r"(?<![!\w])(?:defined[ (]*)?([A-Za-z]\w*)", condition.partition("//")[0])
        if _is_switch(set(word.upper().split("_"))) and word not in given
    }
    defined = re.compile(rf"^[ \t]*#[ \t]*define[ \t]+({'|'.join(sorted(named))})\b", re.MULTILINE)
    return tuple(sorted(named - {name for text in texts for name in (defined.findall(text) if named else ())}))


def _is_switch(parts: set[str]) -> bool:
    """Returns True if the parts of a macro's name say that it enables CUDA, and neither another platform nor a version."""
    platforms = parts & _PLATFORM
    return bool(platforms) and len(parts & (_SWITCHED | _PLATFORM)) > 1 and not parts & _OTHERS
