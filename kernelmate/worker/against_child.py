"""The torch process, `python -m kernelmate.worker.against_child SCRATCH`: times one computation of PyTorch beside a kernel.

It reads its job from the folder, and leaves there its answer and the bytes of its results. The function may be the user's: the process is
confined as that of references is, holds no expected results, and ends after its answer. Without a GPU it computes the results, and times nothing.
"""

from __future__ import annotations

import inspect
import os
import pickle
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from kernelmate.backends.base import ArrayArgument, Run
from kernelmate.backends.cuda.gpu_lock import GpuLock
from kernelmate.backends.processes import die_with_parent
from kernelmate.checks.userfiles import MOST_MESSAGE, load_function
from kernelmate.confinement import ancestors, confine
from kernelmate.errors import KernelmateError
from kernelmate.records import Compiled, Computation, Speedup, Target, Timing

JOB, ANSWER = "job", "answer"
"""Files in the folder."""

CACHES = (
    "TMPDIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TORCH_EXTENSIONS_DIR", "CUPY_CACHE_DIR", "CUDA_CACHE_PATH", "MPLCONFIGDIR",
    "KERNELMATE_CACHE_DIR",
)  # fmt: skip
"""Variables with folders to which libraries write; the process may write only in its scratch folder."""


@dataclass(frozen=True, slots=True)
class TimedKernel:
    """The kernel beside which a computation is timed.

    Attributes:
        device: the GPU's number.
        gpu: its UUID, which names its lock.
        compiled: the kernel.
        target: what it is compiled for.
        restored: arrays that are reset before each launch.
        budget_s: seconds for the timing.
    """

    device: int
    gpu: str
    compiled: Compiled
    target: Target
    restored: frozenset[str]
    budget_s: float


@dataclass(frozen=True, slots=True)
class AgainstJob:
    """One computation to be timed. The worker writes it; arrays are NumPy's.

    Attributes:
        computation: the computation.
        directory: folder that the user's function is named relative to.
        run: the kernel's launch, with the arrays.
        scalars: the contract's scalars, and its sizes, by name.
        inputs: arrays that the function may take.
        results: name, shape and dtype of each result, in order.
        kernel: what it is timed beside; None to compute the results on the CPU.
    """

    computation: Computation
    directory: str
    run: Run
    scalars: Mapping[str, float]
    inputs: tuple[str, ...]
    results: tuple[tuple[str, tuple[int, ...], str], ...]
    kernel: TimedKernel | None


class AgainstAnswer(msgspec.Struct, frozen=True):
    """Times of a computation and of the kernel beside it; `why` is the reason for their absence."""

    why: str | None = None
    timing: Timing | None = None
    kernel: Timing | None = None
    speedup: Speedup | None = None
    precision: str = ""


class ComputationUnusable(Exception):
    """The computation has no time; the message says why, as a clause."""


def main(folder: str) -> int:
    """Answers the job in a folder."""
    die_with_parent()
    scratch = Path(folder)
    job: AgainstJob = pickle.loads((scratch / JOB).read_bytes())  # noqa: S301 -- the worker wrote it
    os.environ |= dict.fromkeys(CACHES, folder)
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # its pool of processes needs sockets
    tempfile.tempdir = None
    (scratch / ANSWER).write_bytes(msgspec.json.encode(_answer(job, scratch)))
    sys.stdout.flush()
    # Freeing arrays of a lost context would print an error for each.
    os._exit(0)


def _answer(job: AgainstJob, scratch: Path) -> AgainstAnswer:
    try:
        # Before the process is confined: a library may write where it is installed when it is first imported.
        import torch
    except Exception as error:  # noqa: BLE001 -- a missing library shows in many ways, and all mean the same
        missing = isinstance(error, ModuleNotFoundError)
        return AgainstAnswer(
            "PyTorch is not installed there: pip install 'kernelmate[torch]'" if missing else _words(error)
        )
    torch.set_num_threads(1)  # threads are started on first use, and would not be confined
    opened: list[Any] = []
    kernel = job.kernel
    lock = None if kernel is None else GpuLock(kernel.gpu)  # its files cannot be opened later
    confine(scratch, ancestors(), None if kernel is None else lambda: opened.append(_opened(kernel)))
    try:
        return _measured(job, scratch, opened[0] if opened else None, lock)
    except KernelmateError as error:
        return AgainstAnswer(error.message.rstrip("."))
    except ComputationUnusable as reason:
        return AgainstAnswer(str(reason))
    except Exception as error:  # noqa: BLE001 -- whatever it raises, this computation has no time
        return AgainstAnswer(_words(error))


def _opened(kernel: TimedKernel) -> Any:
    """Returns the GPU's backend, with torch's context opened as well; an error in its place."""
    import torch

    from kernelmate.backends.cuda.backend import CudaBackend

    try:
        backend = CudaBackend(kernel.device)
        torch.cuda.set_device(kernel.device)
        torch.zeros(1, device="cuda")
    except (KernelmateError, RuntimeError, AssertionError) as error:
        return error
    return backend


def _measured(job: AgainstJob, scratch: Path, backend: Any, lock: GpuLock | None) -> AgainstAnswer:
    """Computes the results once, then times the computation, whose results in the end must be of the same form.

    Raises:
        ComputationUnusable: it cannot be called, or not be timed.
    """
    if isinstance(backend, Exception):
        raise ComputationUnusable(f"PyTorch cannot use the GPU: {_words(backend)}")
    import torch

    precision = _set_precision(torch, tf32=job.computation.tf32)
    function = _function(job, scratch)
    arrays = {
        one.name: one.data for one in job.run.arguments if isinstance(one, ArrayArgument) and one.name in job.inputs
    }
    if backend is None:
        from kernelmate.backends.cuda.torch_timing import bits_of, tensor_of

        with torch.no_grad():
            given = {
                name: tensor_of(array.copy().view(bits_of(array.dtype)), array.dtype) for name, array in arrays.items()
            }
            results = function(given)
        _leave(results, job, scratch)
        return AgainstAnswer("needs a GPU", precision=precision)
    assert job.kernel is not None
    assert lock is not None
    backend.turns = lock
    answer, results = _timed(job.run, job.kernel, backend, function, arrays)
    if _precision(torch) != precision:
        raise ComputationUnusable("the function changes the precision settings of torch")
    _leave(results, job, scratch)
    return msgspec.structs.replace(answer, precision=precision)


def _timed(
    run: Run,
    kernel: TimedKernel,
    backend: Any,
    function: Callable[[Mapping[str, Any]], tuple[Any, ...]],
    arrays: Mapping[str, Any],
) -> tuple[AgainstAnswer, tuple[Any, ...]]:
    """Times a function and the kernel in the same blocks; returns also the results of its last replay.

    Raises:
        ComputationUnusable: the function changes an input, cannot be captured, or the kernel's launch failed.
    """
    from kernelmate.backends.cuda.torch_timing import ReplayedKernel, TorchVersion
    from kernelmate.backends.timed import CannotCapture, TimedFault
    from kernelmate.measure.timing import measure

    module = backend.load(kernel.compiled, kernel.target, emulated=False)
    other = TorchVersion(function, {name: (array.shape, array.dtype) for name, array in arrays.items()})
    versions = [(other, run.shape), (ReplayedKernel(module, run.shape), run.shape)]
    try:
        with backend.timer(versions, run, kernel.restored) as timer:
            with backend.turns.alone() as alone:  # torch.compile has finished
                seen = measure(timer, kernel.budget_s, full=True, alone=alone, outputs=False)
            timer.launch(0, 1)
            results = tuple(one.clone() for one in other.results)
            changed = [name for name in arrays if name not in kernel.restored and timer.changed(name)]
    except (CannotCapture, TimedFault) as error:
        raise ComputationUnusable(str(error)) from None
    if changed:
        raise ComputationUnusable(f"the function changes its argument {changed[0]}")
    return AgainstAnswer(None, seen.timings[0], seen.timings[1], seen.speedup), results


def _set_precision(torch: Any, *, tf32: bool) -> str:
    """Matches the precision of products to the kernel's; returns the settings in words."""
    matmul = torch.backends.cuda.matmul
    matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
    matmul.allow_fp16_reduced_precision_reduction = matmul.allow_bf16_reduced_precision_reduction = False
    return _precision(torch)


def _precision(torch: Any) -> str:
    matmul = torch.backends.cuda.matmul
    on = matmul.allow_tf32 or torch.backends.cudnn.allow_tf32
    narrow = matmul.allow_fp16_reduced_precision_reduction or matmul.allow_bf16_reduced_precision_reduction
    return f"TF32 {'on' if on else 'off'}, 16-bit products summed in {'16 bits' if narrow else 'float32'}"


def _function(job: AgainstJob, scratch: Path) -> Callable[[Mapping[str, Any]], tuple[Any, ...]]:
    """Returns the function of tensors by argument that gives all results.

    Raises:
        ComputationUnusable: it takes something that the kernel does not have.
        ReferenceFailed: its file cannot be loaded.
    """
    import torch

    from kernelmate.checks.reference import spelled

    computation, where, folder = job.computation, job.computation.function, Path(job.directory)
    if where is None:
        (scratch / "computation.py").write_text(
            f"import math\n\nimport torch\n\n\n{computation.source}", encoding="utf-8"
        )
        where, folder = "computation.py:computation", scratch
    python = load_function(where, folder, None)
    parameters = inspect.signature(python).parameters
    takes_all = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
    names = {spelled(name): name for name in (*job.inputs, *job.scalars)}
    lacking = [one.name for one in parameters.values() if one.default is one.empty and one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL) and one.name not in names]  # fmt: skip
    if lacking:
        raise ComputationUnusable(f"{where} takes {', '.join(lacking)}, and the kernel has no such argument")
    taken = {given: name for given, name in names.items() if takes_all or given in parameters}
    scalars = {given: job.scalars[name] for given, name in taken.items() if name in job.scalars}
    called = torch.compile(python, dynamic=False) if computation.name == "compile" else python

    def call(tensors: Mapping[str, Any]) -> tuple[Any, ...]:
        made = called(**{given: tensors[name] for given, name in taken.items() if name in tensors}, **scalars)
        return tuple(made) if isinstance(made, tuple | list) else (made,)

    return call


def _leave(results: tuple[Any, ...], job: AgainstJob, scratch: Path) -> None:
    """Writes the bytes of the results.

    Raises:
        ComputationUnusable: their number, shapes or dtypes are not those of the kernel's outputs.
    """
    import torch

    if len(results) != len(job.results):
        raise ComputationUnusable(f"it returns {len(results)} arrays, and the kernel has {len(job.results)} outputs")
    for number, (made, (name, shape, dtype)) in enumerate(zip(results, job.results, strict=True)):
        if not torch.is_tensor(made):
            raise ComputationUnusable(f"it returns no tensor for {name}, but {type(made).__name__}")
        got = str(made.dtype).removeprefix("torch.")
        if tuple(made.shape) != shape or got != dtype:
            raise ComputationUnusable(
                f"it returns {got}{list(made.shape)} for {name}, and the kernel has {dtype}{list(shape)}"
            )
        held = made.detach().contiguous().cpu().reshape(-1).view(torch.uint8)
        np.asarray(held).tofile(scratch / f"result{number}")


def _words(error: BaseException) -> str:
    """Returns the first line of an exception with its type, truncated, without a full stop and what cannot be encoded."""
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    text = text[:MOST_MESSAGE].encode("utf-8", "backslashreplace").decode()
    return f"{type(error).__name__}: {text}".rstrip(": .")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
