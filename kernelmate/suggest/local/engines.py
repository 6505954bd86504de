"""llama.cpp in this process, by one of its installed Python packages; only the model server's process imports this."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

from kernelmate.suggest.local.engine_settings import BATCH, EngineSettings

_KEPT: list[object] = []


def engine_name() -> str | None:
    """Returns the package that would be used; None if there is none."""
    return next((name for name in ("xllamacpp", "llama_cpp") if find_spec(name) is not None), None)


def start_engine(settings: EngineSettings, name: str | None = None) -> str:
    """Loads the model and serves it on the loopback interface; returns the address once requests are accepted.

    Args:
        settings: the settings of the model.
        name: the package; None for the first that is installed.

    Raises:
        Exception: any error of llama.cpp while loading.
    """
    engines: dict[str, Callable[[EngineSettings], str]] = {"xllamacpp": _xllamacpp, "llama_cpp": _llama_cpp}
    return engines[name or engine_name() or "xllamacpp"](settings)


def _xllamacpp(settings: EngineSettings) -> str:
    import xllamacpp

    wanted = xllamacpp.CommonParams()
    wanted.model.path = settings.model
    wanted.model_alias = {settings.alias}
    wanted.hostnames = ["127.0.0.1"]
    wanted.port = 0
    wanted.api_keys = [settings.key]
    wanted.n_parallel = settings.parallel
    wanted.n_ctx = settings.context * settings.parallel
    wanted.n_gpu_layers = settings.gpu_layers
    # A request whose client has disconnected is dropped between two batches.
    wanted.n_batch = BATCH
    wanted.ui = False
    if settings.threads is not None:
        wanted.cpuparams.n_threads = settings.threads
    server = xllamacpp.Server(wanted)
    # It serves as long as the object lives.
    _KEPT.append(server)
    return str(server.listening_address)


def _llama_cpp(settings: EngineSettings) -> str:
    from kernelmate.suggest.local.binding import Binding
    from kernelmate.suggest.local.chat_server import serve

    return serve(Binding(settings), settings)
