"""Disassembles CUBINs with `nvdisasm`, and counts instructions by class."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import IO

from kernelmate.compiler.cuda_toolkit import find_tool
from kernelmate.errors import CompilerUnavailable
from kernelmate.records import Compiled

_TIMEOUT_S = 60
_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?\w+\s+)?([A-Z][A-Z0-9_.]*)", re.MULTILINE)

_CLASSES: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (name, re.compile(rf"(?:{pattern})(?:\.|$)"))
    for name, pattern in (
        ("tensor", r"H?[HBIDQ]MMA\w*|[HQIDB]GMMA|UTC\w*MMA|WARPGROUP\w*"),
        ("fp64", r"D(?:ADD|MUL|FMA|SETP|MNMX)"),
        ("fp16", r"H(?:ADD2|MUL2|FMA2|SET2|SETP2|MNMX2)\w*|HFMA2\w*|F2FP"),
        ("fp32", r"U?F(?:ADD|MUL|FMA|SETP|SET|MNMX|SEL|CHK|SWZADD)\w*"),
        ("sfu", r"MUFU"),
        ("convert", r"[FIU]2[FIU]\w*|FRND|I2FP|F2IP"),
        ("atomic", r"ATOM\w*|RED|REDG|REDAS"),
        ("global_load", r"LDG\w*|LDGSTS"),
        ("global_store", r"STG\w*"),
        ("shared_load", r"LDS\w*"),
        ("shared_store", r"STS\w*|STSM"),
        ("local", r"LDL\w*|STL\w*"),
        ("constant_load", r"LDC\w*|ULDC\w*|LDCU\w*"),
        ("generic_memory", r"LD|ST|UBLK\w*|UTMA\w*|CCTL\w*|MEMBAR|FENCE|ERRBAR"),
        ("texture", r"TEX\w*|TLD\w*|TXQ|SU(?:LD|ST|ATOM|RED)\w*"),
        ("shuffle", r"SHFL|REDUX|CREDUX|VOTE\w*|MATCH"),
        ("barrier", r"BAR|SYNCS?|DEPBAR|LDGDEPBAR|BSYNC|BSSY|WARPSYNC|NANOSLEEP|UCGABAR\w*|ARRIVES|ACQBULK"),
        ("control", r"BRA\w*|BRX\w*|JMP\w*|CALL|RET|EXIT|BREAK|BMOV|KILL|BPT|ENDCOLLECTIVE|YIELD|RPCMOV|PREEXIT"),
        ("move", r"U?MOV\w*|U?SEL|S2U?R|CS2R|R2UR\w*|R2P|P2R|U?PRMT|S2UR|MOVM|GETLMEMBASE|SETLMEMBASE|U?LEPC"),
        ("none", r"NOP"),
        ("int", r"U?(?:IADD\w*|IMAD\w*|IMUL\w*|ISETP|LEA|LOP3?|PLOP3|SHF|SHL|SHR|IABS|IMNMX|VIMNMX\w*|VIADD\w*|POPC|FLO"
                r"|BREV|BMSK|SGXT|IDP\w*|ISCADD|IADD3|VABSDIFF\w*)"),
    )
)  # fmt: skip
"""Instruction classes by opcode; the first match counts. Opcodes: CUDA Binary Utilities, "Instruction Set Reference"."""


def disassemble(compiled: Compiled, *options: str) -> str:
    """Disassemble a kernel's CUBIN, as `nvdisasm --print-code` with further options prints it.

    Raises:
        CompilerUnavailable: there is no `nvdisasm`, or it failed on this code.
        ValueError: the kernel was not compiled.
    """
    if not compiled.ok:
        raise ValueError(f"{compiled.name} was not compiled, so there is no code to show")
    return disassembling(compiled, *options)()


def disassembling(compiled: Compiled, *options: str) -> Callable[[], str]:
    """Starts `disassemble` in the background (it takes half a second); the returned function waits for the result.

    Raises:
        CompilerUnavailable: there is no `nvdisasm`, or it cannot be started. The returned function raises it as well.
        ValueError: the kernel was not compiled.
    """
    if not compiled.ok:
        raise ValueError(f"{compiled.name} was not compiled, so there is no code to show")
    tool = find_tool("nvdisasm")
    if tool is None:
        raise CompilerUnavailable("nvdisasm is not installed.", hint="Run: pip install nvidia-cuda-nvdisasm")
    return _begun(tool, compiled.cubin, options)


@lru_cache(maxsize=32)
def _begun(tool: Path, cubin: bytes, options: tuple[str, ...]) -> Callable[[], str]:
    """Starts a run of `nvdisasm`; results are cached, since versions may differ only in their launch."""
    return _Running(tool, cubin, options).text


class _Running:
    """An `nvdisasm` process in the background; it writes to files, so that it never blocks on a full pipe.

    On Linux the files are unnamed, so that none remains if this process is killed.
    """

    def __init__(self, tool: Path, cubin: bytes, options: tuple[str, ...]) -> None:
        self._text: str | None = None
        self._files = contextlib.ExitStack()
        self._out, self._err = (self._files.enter_context(tempfile.TemporaryFile()) for _ in range(2))  # noqa: SIM115 -- closed with the others
        try:
            code, handles = self._named(cubin)
            self._process = subprocess.Popen(
                [tool, "--print-code", *options, code],
                stdin=subprocess.DEVNULL,
                stdout=self._out,
                stderr=self._err,
                pass_fds=handles,
            )
        except OSError as error:
            self._files.close()
            raise CompilerUnavailable(f"nvdisasm did not run: {error}.", hint="Install it again.") from None

    def _named(self, cubin: bytes) -> tuple[str, tuple[int, ...]]:
        """Returns a path to the CUBIN for the tool, and the file descriptors that the tool must inherit."""
        if sys.platform == "linux":
            file = self._files.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 -- likewise
            file.write(cubin)
            file.flush()
            return f"/proc/self/fd/{file.fileno()}", (file.fileno(),)
        folder = Path(self._files.enter_context(tempfile.TemporaryDirectory(prefix="kernelmate-")))
        (folder / "kernel.cubin").write_bytes(cubin)
        return str(folder / "kernel.cubin"), ()

    def text(self) -> str:
        """Waits for the process to end, and returns its output."""
        if self._text is None:
            self._text = self._read()
            self._files.close()
        return self._text

    def _read(self) -> str:
        try:
            status = self._process.wait(_TIMEOUT_S)
            printed, complaint = _text_of(self._out), _text_of(self._err)
        except (OSError, subprocess.TimeoutExpired) as error:
            self._process.kill()
            self._process.wait()
            raise CompilerUnavailable(f"nvdisasm did not run: {error}.", hint="Install it again.") from None
        if status != 0:
            reason = (complaint or printed).strip().splitlines()
            raise CompilerUnavailable(
                f"nvdisasm failed: {reason[0] if reason else status}.",
                hint="It may be older than the compiler; run: pip install --upgrade nvidia-cuda-nvdisasm",
            )
        return printed


def _text_of(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode("utf-8")


def sass(compiled: Compiled) -> str:
    """Returns the kernel's instructions with source lines, as `nvdisasm` prints them.

    Raises:
        CompilerUnavailable: there is no `nvdisasm`, or it failed on this code.
        ValueError: the kernel was not compiled.
    """
    return _section(disassemble(compiled, "--print-line-info"), compiled.lowered_name)


def sass_mix(compiled: Compiled) -> Mapping[str, int]:
    """Counts the kernel's instructions by class, statically; padding is left out.

    Raises:
        CompilerUnavailable: there is no `nvdisasm`, or it failed on this code.
        ValueError: the kernel was not compiled.
    """
    return mix_of(_INSTRUCTION.findall(sass(compiled)))


def mix_of(opcodes: Iterable[str]) -> Mapping[str, int]:
    """Counts opcodes by class, the most frequent class first; padding is left out."""
    counts = Counter(class_of(opcode) for opcode in opcodes)
    del counts["none"]
    return dict(counts.most_common())


def class_of(opcode: str) -> str:
    """Returns the class of a SASS opcode (`LDG.E.128`), by the SM unit that it uses; `other` if unknown."""
    return next((name for name, pattern in _CLASSES if pattern.match(opcode)), "other")


def _section(text: str, symbol: str) -> str:
    """Returns one function's section of a disassembly; the whole text if there is no such section."""
    starts = list(re.finditer(r"^\s*\.section\s+\.text\.(\S+?),", text, re.MULTILINE))
    for index, match in enumerate(starts):
        if match[1] == symbol:
            end = starts[index + 1].start() if index + 1 < len(starts) else len(text)
            return text[match.start() : end]
    return text
