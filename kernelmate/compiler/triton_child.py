"""The process that compiles Triton kernels, `python -m kernelmate.compiler.triton_child`.

Triton evaluates parts of a kernel's text in Python during compilation. The process is therefore confined before the
first text arrives, executes only the texts that `kernelmate.source.triton_modules` extracts from files, and gives
it access only to Triton's public functions, not to the modules that define them.
"""

from __future__ import annotations

import json
import linecache
import os
import sys
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kernelmate.compiler.child import serve
from kernelmate.compiler.frames import CompileJob, CompileOutput
from kernelmate.confinement import ancestors, confine

_NOT_EMULATED = (
    "wgmma.",
    "cp.async.bulk",
    "mbarrier.",
    "fence.proxy",
    "setmaxnreg",
    "tcgen05.",
    "griddepcontrol",
    "elect.sync",
)
"""PTX instructions from sm_90a on, some of which the emulator runs; code with them is also compiled for sm_80, to be emulated."""

EMULATED_CAPABILITY = 80


def main() -> int:
    """Serves jobs until the input ends; the argument names the folder that the process may write to."""
    scratch = sys.argv[1]
    os.environ |= dict.fromkeys(("TMPDIR", "TRITON_CACHE_DIR", "TRITON_HOME", "HOME"), scratch)
    os.environ["TRITON_DEFAULT_FP_FUSION"] = "1"
    # Triton's own cache does not see the values of names that a kernel takes from a module, nor which function a name stands for.
    os.environ["TRITON_ALWAYS_COMPILE"] = "1"
    missing = None
    try:
        # Before the process is confined: a library may write where it is installed when it is first imported.
        import triton  # noqa: F401
    except Exception as error:  # noqa: BLE001 -- a missing library shows in many ways, and all mean the same
        missing = f"{type(error).__name__}: {error}"
    confine(Path(scratch), ancestors())
    return serve(lambda job: CompileOutput(False, "", missing=missing) if missing else _compile(job))


def _compile(job: CompileJob) -> CompileOutput:
    """Compiles the function `job.expressions[0]` of `job.text`, with the arguments that the JSON in `job.options` describes."""
    given = json.loads(job.options[0])
    try:
        function = _defined(job, given["modules"])
        capability = int(given["capability"])
        output = _compiled(function, given, capability)
        facts, ptx = json.loads(output.log) | {"chosen": _chosen(given["modules"])}, output.ptx
        if capability > EMULATED_CAPABILITY and any(word in output.ptx for word in _NOT_EMULATED):
            try:
                emulated = _compiled(function, given, EMULATED_CAPABILITY)
            except Exception as error:  # noqa: BLE001 -- as below, but the target's own code is there
                facts |= {"not_emulated": _told(error)["message"]}
            else:
                facts, ptx = facts | {"emulated": json.loads(emulated.log)}, emulated.ptx
        return CompileOutput(True, json.dumps(facts), ptx, output.cubin, output.lowered)
    except Exception as error:  # noqa: BLE001 -- whatever the compiler raises is about the kernel
        return CompileOutput(False, json.dumps(_told(error)))


def _compiled(function: Any, given: Mapping[str, Any], capability: int) -> CompileOutput:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, compiler

    # It visits an error's cause twice, 2^n times at the n-th call, to shorten a traceback that nothing here prints.
    compiler.filter_traceback = lambda error: None
    names = [parameter.name for parameter in function.params]
    constants = {
        name: getattr(triton.language, value["tl"]) if isinstance(value, dict) else value
        for name, value in given["constants"].items()
    }
    attributes = {(names.index(name),): [["tt.divisibility", 16]] for name in given["divisible"]}
    signature = {name: given["signature"][name] for name in names}
    source = ASTSource(function, signature, constants, attributes)
    kernel = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=dict(given["settings"]))
    facts = kernel.metadata._asdict()
    kept = ("shared", "global_scratch_size", "profile_scratch_size")
    log = json.dumps({name: facts.get(name) for name in kept})
    return CompileOutput(True, log, _with_own_lines(kernel.asm["ptx"]), kernel.asm["cubin"], (facts["name"],))


def _with_own_lines(ptx: str) -> str:
    """Returns PTX in which all lines of an inline assembly text have the source line of its first line.

    LLVM increments the source line for each line of such a text.
    """
    lines, place, inside = [], "", False
    for line in ptx.split("\n"):
        inside = line.strip() == "// begin inline asm" or (inside and line.strip() != "// end inline asm")
        if line.lstrip().startswith(".loc"):
            place = place if inside and place else line
            line = place
        elif not inside:
            place = ""
        lines.append(line)
    return "\n".join(lines)


def _defined(job: CompileJob, files: Sequence[Mapping[str, Any]]) -> Any:
    """Returns the kernel, defined by the texts of its files, each in a module of its own."""
    import triton

    library = _public_library()
    modules = [types.ModuleType(f"kernelmate_triton_kernel_{number}") for number, _ in enumerate(files)]
    for module, file in zip(modules, files, strict=True):
        name, text, scope = file["name"], file["text"], vars(module)
        # Triton looks up the source of the decorated function by its file name.
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        meanings = _meanings(library, file["library"])
        scope |= {"_kernelmate_jit": triton.jit, "_kernelmate_constexpr": triton.language.constexpr, "__file__": name}
        scope |= meanings
        sys.modules[module.__name__] = module
        exec(compile(text, name, "exec"), scope)  # noqa: S102 -- literals and definitions alone, see triton_modules
        scope |= meanings
    for module, file in zip(modules, files, strict=True):
        for name, origin in file["imported"].items():
            value = _imported(modules, files, *origin)
            if value is not None and name not in _meanings(library, file["library"]):
                vars(module)[name] = value
    return vars(modules[0])[job.expressions[0]]


def _meanings(library: types.ModuleType, names: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Returns the objects for names of triton: for each, the first candidate that this version of triton has.

    A name that none has is reported where it is used.
    """
    found = {name: [_found(library, path) for path in paths] for name, paths in names.items()}
    return {
        name: next(value for value in values if value is not None)
        for name, values in found.items()
        if any(value is not None for value in values)
    }


def _chosen(files: Sequence[Mapping[str, Any]]) -> list[tuple[int, str, str]]:
    """Returns the chosen definition of each name that branches on the version of triton define in several ways."""
    library, told = _public_library(), []
    for number, file in enumerate(files):
        for name in file["chosen"]:
            found = [(path, _found(library, path)) for path in file["library"][name]]
            found = [(path, value) for path, value in found if value is not None]
            if any(value is not found[0][1] for _, value in found):
                told.append((number, name, found[0][0]))
    return told


def _imported(modules: Sequence[types.ModuleType], files: Sequence[Mapping[str, Any]], number: int, name: str) -> Any:
    """Returns the object that a name of a file refers to, through further imports; None if nothing defines it.

    Names that begin with two underscores are Python's own, such as the table of its functions.
    """
    seen = set()
    while (number, name) not in seen:
        seen.add((number, name))
        if not name:
            return modules[number]
        if name in vars(modules[number]) and not name.startswith("__"):
            return vars(modules[number])[name]
        if name not in files[number]["imported"]:
            return None
        number, name = files[number]["imported"][name]
    return None


def _public_library() -> types.ModuleType:
    """Returns replacements of triton's modules with only their public functions, types and values."""
    import triton
    import triton.language as tl
    from triton.language import extra
    from triton.language.extra.cuda import libdevice

    top, language = types.ModuleType("triton"), _public(tl, "triton.language")
    device = _public(libdevice, libdevice.__name__)
    vars(language)["math"] = _public(tl.math, "triton.language.math")
    vars(language)["extra"] = outer = _public(extra, extra.__name__)
    vars(outer)["libdevice"] = device
    vars(outer)["cuda"] = inner = types.ModuleType("triton.language.extra.cuda")
    vars(inner)["libdevice"] = device
    vars(top).update(language=language, cdiv=triton.cdiv, next_power_of_2=triton.next_power_of_2, jit=triton.jit)
    return top


def _public(module: types.ModuleType, name: str) -> types.ModuleType:
    stand_in = types.ModuleType(name)
    for key, value in vars(module).items():
        if not key.startswith("_") and not isinstance(value, types.ModuleType):
            vars(stand_in)[key] = value
    return stand_in


def _found(library: types.ModuleType, path: str) -> Any:
    """Returns the object that a dotted name of triton refers to; None for names that lead to Python's own objects."""
    value: Any = library
    for step in path.split(".")[1:]:
        value = None if step.startswith("_") else getattr(value, step, None)
    return value


def _told(error: BaseException) -> dict[str, Any]:
    """Returns an error's message, and the innermost position in the kernel's text along its chain of causes."""
    place, message = None, ""
    cause: BaseException | None = error
    while cause is not None:
        node = getattr(cause, "node", None)
        if node is not None and hasattr(node, "lineno"):
            # Lines of the tree count from the first line of the function whose text is `src`.
            place = (node.lineno, getattr(node, "col_offset", 0) + 1, getattr(cause, "src", None))
        own = getattr(cause, "error_message", None) if node is not None else str(cause) or type(cause).__name__
        message = own or message
        cause = cause.__cause__
    return {"message": message, "place": place}


if __name__ == "__main__":
    sys.exit(main())
