"""Facts about this machine for `doctor`. Each probe is guarded and limited in time, since drivers may crash or hang."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from kernelmate.errors import UsageError
from kernelmate.report.machine import Check
from kernelmate.report.words import byte_words, one_line, plural

if TYPE_CHECKING:
    from kernelmate.config import Settings

PROBE_S = 20.0
"""Seconds after which a probe of the driver or of a library is abandoned."""

NVRTC_PROBE = """
from kernelmate.compiler.child import load_library
library = load_library()
archs = library.architectures()
major, minor = library.version()
print(f"NVRTC {major}.{minor}, sm_{min(archs)} to sm_{max(archs)}")
"""
CUPY_PROBE = """
import json
import sys
from kernelmate.backends.cuda.driver import missing_for_gpu
from kernelmate.backends.cuda.driver import read_driver
device = int(sys.argv[1])
missing = missing_for_gpu(device)
if missing is None:
    import cupy
    seen = cupy.cuda.runtime.getDeviceCount()
    gpu = read_driver().gpus[device]
    said = f"CuPy {cupy.__version__}, {seen} GPU(s) visible to it; kernels run on {gpu.name} (--backend auto, cuda)"
    if gpu.mps:
        said += ". It is shared by the Multi-Process Service: the fault of one kernel ends other programs' work too"
    print(json.dumps([said]))
else:
    print(json.dumps(missing))
"""
KEY_VARIABLE = "ANTHROPIC_API_KEY"


def run_checks(settings: Settings) -> tuple[Check, ...]:
    """Runs every check of `doctor`, the most important first."""
    looks: list[tuple[str, Callable[[], Check]]] = [
        ("python", python),
        ("compiler", compiler),
        ("headers", headers),
        ("disassembler", disassembler),
        ("gpu", gpu),
        ("cupy", lambda: cupy(settings)),
        ("isolation", isolation),
        *([("device", lambda: remote_machine(settings))] if settings.place.host is not None else []),
        ("roofs", lambda: roofs(settings)),
        ("cache", lambda: cache(settings)),
        ("charts", charts),
        ("triton", triton),
        ("model", lambda: model(settings)),
        ("claude", claude),
    ]
    return tuple(_guarded(name, one) for name, one in looks)


def _guarded(name: str, one: Callable[[], Check]) -> Check:
    try:
        return one()
    except Exception as error:  # noqa: BLE001 -- a check that fails is itself something to report
        return Check(name, "missing", f"could not be looked at: {type(error).__name__}: {one_line(str(error))}")


def python() -> Check:
    """Checks the interpreter and the platform."""
    return Check(
        "python",
        "ok",
        f"Python {platform.python_version()} on {platform.system()} {platform.machine()}, {sys.executable}",
    )


def compiler() -> Check:
    """Checks NVRTC, without which there is no verdict."""
    if sys.platform == "darwin":
        return Check(
            "compiler",
            "broken",
            "NVIDIA publishes no NVRTC for macOS.",
            "Use KernelMate on Linux or Windows, or over ssh.",
        )
    from kernelmate.compiler.cuda_toolkit import cuda_major

    worked, said = _python_probe(NVRTC_PROBE)
    if worked:
        return Check("compiler", "ok", said)
    wheels = (
        "nvidia-cuda-nvrtc-cu12 (version 12)" if cuda_major() == 12 else "cuda-bindings nvidia-cuda-nvrtc (version 13)"
    )
    advice = f"{sys.executable} -m pip install --force-reinstall {wheels}"
    return Check("compiler", "broken", f"NVRTC cannot be loaded: {said}", advice)


def headers() -> Check:
    """Checks CUDA's and CCCL's headers: cuda_fp16.h, cooperative_groups.h, cuda/std."""
    from kernelmate.compiler.cuda_toolkit import HEADERS, cuda_major, header_root

    root = header_root()
    if root.toolkit is not None:
        return Check("headers", "ok", f"of the toolkit {root.version} in {root.toolkit}: {root.reason}")
    missing = [wheel for wheel in HEADERS[cuda_major()] if _version(wheel) is None]
    if not missing:
        return Check("headers", "ok", f"{root.version}: {root.reason}")
    detail = f"not installed: {', '.join(missing)}"
    advice = (
        f"{sys.executable} -m pip install {' '.join(missing)} (version {cuda_major()}), "
        "for kernels that include CUDA headers"
    )
    return Check("headers", "missing", detail, advice)


def disassembler() -> Check:
    """Checks nvdisasm, which reads SASS."""
    version = _version("nvidia-cuda-nvdisasm")
    if version is not None:
        return Check("disassembler", "ok", f"nvidia-cuda-nvdisasm {version}")
    found = shutil.which("nvdisasm")
    if found:
        return Check("disassembler", "ok", found)
    return Check(
        "disassembler", "missing", "there is no nvdisasm", f"{sys.executable} -m pip install nvidia-cuda-nvdisasm"
    )


def gpu() -> Check:
    """Checks GPUs and driver, as nvidia-smi reports them."""
    program = shutil.which("nvidia-smi")
    advice = "None is needed: kernels run in the emulator and times are predicted. Measured times need an NVIDIA GPU."
    if program is None:
        return Check("gpu", "missing", "no NVIDIA driver: there is no nvidia-smi", advice)
    query = [program, "--query-gpu=name,memory.total,driver_version,compute_cap", "--format=csv,noheader"]
    worked, said = _run(query)
    if not worked:
        return Check("gpu", "missing", f"nvidia-smi failed: {said}", advice)
    gpus = [", ".join(part.strip() for part in line.split(",")) for line in said.splitlines() if line.strip()]
    if not gpus:
        return Check("gpu", "missing", "nvidia-smi lists no GPU", advice)
    shown = "; ".join(gpus[:4]) + (f"; and {len(gpus) - 4} more" if len(gpus) > 4 else "")
    return Check("gpu", "ok", f"{plural(len(gpus), 'GPU')}: {shown} (name, memory, driver, compute capability)")


def cupy(settings: Settings) -> Check:
    """Checks that CuPy can run kernels on this machine."""
    index = 0 if settings.place.host is not None else settings.place.index
    worked, said = _python_probe(CUPY_PROBE, str(index))
    if not worked:
        return Check("cupy", "broken", f"it cannot use the GPU: {said}", "Reinstall CuPy, and check the driver.")
    detail, *advice = json.loads(said)
    if not advice:
        return Check("cupy", "ok", detail)
    return Check("cupy", "missing", f"--backend cuda cannot run here: {detail}", advice[0])


def isolation() -> Check:
    """Checks the restrictions that this system can put on worker and reference processes (docs/security.md)."""
    from kernelmate.confinement import MEASURES

    if not sys.platform.startswith("linux"):
        return Check("isolation", "missing", "references run in the worker, unconfined: only Linux has what it takes")
    worked, said = _run([sys.executable, "-P", "-m", "kernelmate.confinement"])
    if not worked:
        return Check(
            "isolation", "missing", f"could not be tried: {said}", "Do not judge projects that you do not trust."
        )
    held = [name for name in json.loads(said) if name in MEASURES]
    lacking = [f"{name} ({effect})" for name, effect in MEASURES.items() if name not in held]
    if not lacking:
        return Check("isolation", "ok", f"in force for references: {', '.join(held)}")
    detail = f"in force for references: {', '.join(held) or 'nothing'}; this kernel lacks {', '.join(lacking)}"
    return Check("isolation", "missing", detail, "Do not judge projects that you do not trust on this system.")


def roofs(settings: Settings) -> Check:
    """Lists GPUs with measured peak rates, measured here or copied from another machine."""
    from kernelmate.measure.calibration import load
    from kernelmate.report.machine import calibration_words

    measured = load(settings.calibration_file)
    if measured:
        return Check("roofs", "ok", "; ".join(map(calibration_words, measured)))
    return Check(
        "roofs", "missing", "rooflines are drawn with data sheets", "To measure them, where there is a GPU: kernelmate calibrate"
    )  # fmt: skip


def remote_machine(settings: Settings) -> Check:
    """Checks the remote machine (over ssh) that the settings name: that a worker of this version starts there, and which GPU it has."""
    from kernelmate.errors import KernelmateError
    from kernelmate.session.devices import make_worker

    worker = make_worker(settings, "emulator" if settings.backend == "emulator" else "cuda")
    began = time.monotonic()
    try:
        machine = worker.machine()
    except KernelmateError as error:
        return Check("device", "missing", f"{settings.place}: {error.message}", error.hint or "")
    finally:
        worker.close()
    if machine.problem is not None:
        return Check("device", "missing", f"{settings.place}: {machine.problem[0]}", machine.problem[1])
    has = machine.gpu or "the emulator"
    return Check(
        "device", "ok", f"{settings.place}: a worker there is ready in {time.monotonic() - began:.1f} s, with {has}"
    )


def cache(settings: Settings) -> Check:
    """Checks the folder of compiled kernels, its size, and the free space."""
    folder = cache_folder(settings)
    files = list(_files(folder))
    detail = f"{folder}, {plural(len(files), 'file')}, {byte_words(sum(files))}"
    problem = _why_not_writable(folder)
    if problem is None:
        return Check(
            "cache", "ok", f"{detail}, {byte_words(shutil.disk_usage(_existing(folder)).free)} free on its disk"
        )
    advice = "Everything works without it, only slower. Set KERNELMATE_CACHE_DIR to a folder that can be written."
    return Check("cache", "missing", f"{detail}, not writable: {problem}", advice)


def cache_folder(settings: Settings) -> Path:
    """Returns the folder of compiled kernels, whether or not it exists."""
    if settings.cache_dir is not None:
        return settings.cache_dir
    import platformdirs

    return platformdirs.user_cache_path("kernelmate", appauthor=False)


def charts() -> Check:
    """Checks Plotly, which `--html` needs."""
    version = _version("plotly")
    if version is not None:
        return Check("charts", "ok", f"plotly {version}")
    return Check("charts", "missing", "plotly is not installed", "For --html: pip install 'kernelmate[report]'")


def triton() -> Check:
    """Checks Triton, which compiles functions with `@triton.jit`."""
    version = _version("triton")
    if version is not None:
        return Check("triton", "ok", f"triton {version}")
    advice = "For Triton kernels: pip install 'kernelmate[triton]'; there are wheels for Linux alone."
    return Check("triton", "missing", "triton is not installed", advice)


def model(settings: Settings) -> Check:
    """Checks the device for a local model, and the model in use."""
    from kernelmate.session.authors import model_library

    if settings.model_url is not None:
        return Check("model", "ok", f"{settings.model or 'the default model'} at {settings.model_url}")
    engines = [f"{name} {version}" for name in ("xllamacpp", "llama-cpp-python") if (version := _version(name))]
    optional = "Optional: candidates come from the built-in recipes without one."
    if not engines:
        return Check("model", "missing", "no llama.cpp", f"{optional} To use one: pip install 'kernelmate[local]'.")
    library = model_library(settings)
    used = library.current()
    if used is None:
        advice = f"{optional} To use one: kernelmate model add FILE.gguf."
        return Check("model", "missing", f"{engines[0]}, but no model is in use", advice)
    try:
        library.check(used)
    except UsageError as error:
        return Check("model", "missing", f"{engines[0]}; {error.message}", error.hint or optional)
    return Check("model", "ok", f"{used.name}, served by {engines[0]}")


def claude() -> Check:
    """Checks that Claude can be used; the key's value is neither printed nor stored."""
    installed = _version("anthropic")
    key = bool(os.environ.get(KEY_VARIABLE))
    detail = f"anthropic {installed}" if installed else "the anthropic package is not installed"
    detail += f", {KEY_VARIABLE} is {'present' if key else 'not set'}"
    if installed and key:
        return Check("claude", "ok", detail)
    steps = ([] if installed else ["pip install 'kernelmate[claude]'"]) + ([] if key else [f"set {KEY_VARIABLE}"])
    return Check(
        "claude", "missing", detail, "Optional; nothing is ever sent unasked. To use it: " + ", then ".join(steps) + "."
    )


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _python_probe(code: str, *arguments: str) -> tuple[bool, str]:
    """Runs code in a separate interpreter, because loading a driver's library can crash or hang a process."""
    return _run([sys.executable, "-c", code, *arguments])


def _run(command: list[str]) -> tuple[bool, str]:
    """Runs a command; returns success, and all output after success, else the most informative line."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PROBE_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False, f"no answer within {PROBE_S:.0f} s"
    except OSError as error:
        return False, error.strerror or str(error)
    if done.returncode == 0:
        return True, done.stdout.strip()
    said = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
    return False, one_line(said[-1])[:200] if said else f"exit status {done.returncode}"


def _files(folder: Path) -> Iterator[int]:
    """Yields the sizes of all files below a folder, in bytes."""
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                yield os.lstat(os.path.join(parent, name)).st_size
            except OSError:
                continue


def _existing(folder: Path) -> Path:
    return next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())


def _why_not_writable(folder: Path) -> str | None:
    """Returns the reason why no file can be written there; None if one can, tested in the nearest existing folder."""
    try:
        with tempfile.TemporaryFile(dir=_existing(folder)) as probe:
            probe.write(b"0" * 4096)
    except OSError as error:
        return error.strerror or str(error)
    return None
