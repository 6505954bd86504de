"""The device that a session's kernels run on, and the GPU that its figures are for."""

from __future__ import annotations

from kernelmate.backends.cuda.driver import missing_for_gpu, read_driver, require_gpu
from kernelmate.compiler import find_target
from kernelmate.config import Settings
from kernelmate.errors import UsageError
from kernelmate.records import BackendName, Device, Target
from kernelmate.session.packing import files_of
from kernelmate.worker.client import Worker, WorkerSetup
from kernelmate.worker.remote import Remote


def make_worker(settings: Settings, backend: BackendName) -> Worker:
    """Creates the worker that the settings describe: local or behind ssh."""
    place = settings.place
    opening = WorkerSetup(backend, place.index, settings.device_memory_mb, spare=backend == "cuda")
    remote = None
    if place.host is not None:
        remote = Remote(place.host, settings.ssh_options, settings.remote_worker, files_of)
    return Worker(memory_limit_mb=settings.memory_limit_mb, opening=opening, remote=remote)


def choose_backend(asked: str, place: Device) -> BackendName:
    """Return the backend to use: if unspecified, a GPU that is usable or named, else the emulator.

    Raises:
        BackendUnavailable: the GPU was requested and cannot be used.
    """
    if asked == "emulator":
        return "emulator"
    if place.host is not None:
        return "cuda"  # whether it can be used there, the worker there will say
    if asked == "cuda":
        require_gpu(place.index)
        return "cuda"
    if place.index:
        require_gpu(place.index)
    return "cuda" if missing_for_gpu(place.index) is None else "emulator"


def choose_target(asked: str | None, backend: BackendName, place: Device) -> Target | None:
    """Return the GPU that figures refer to: the requested one, else the one that kernels run on.

    The result is None if only the worker knows it.

    Raises:
        UsageError: there is no such target.
    """
    if asked is not None or backend == "emulator":
        return find_target(asked)
    if place.host is not None:
        return None
    driver = read_driver()
    if driver is None or place.index >= len(driver.gpus):
        return find_target(None)
    gpu = driver.gpus[place.index]
    return target_of(gpu.name, gpu.capability)


def target_of(name: str, capability: tuple[int, int]) -> Target:
    """Return the table entry of a GPU, else one of its architecture.

    Raises:
        UsageError: the table has neither.
    """
    try:
        return find_target(name)
    except UsageError:
        return find_target(f"sm_{capability[0]}{capability[1]}")
