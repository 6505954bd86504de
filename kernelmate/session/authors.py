"""Selection of a search's authors by settings and command line.

Recipes, the local model, Claude, or another package's suggester.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from kernelmate.config import Settings
from kernelmate.errors import UsageError
from kernelmate.records import Kernel
from kernelmate.suggest.base import AuthorFailed, Suggester
from kernelmate.suggest.claude import Claude
from kernelmate.suggest.codec import CHAT
from kernelmate.suggest.consent import Ask, Consents, OutgoingText, workspace_of
from kernelmate.suggest.local.author import LocalModel
from kernelmate.suggest.local.engines import engine_name
from kernelmate.suggest.local.library import ModelLibrary
from kernelmate.suggest.local.serving import Endpoint, ModelServer, ServerSettings
from kernelmate.suggest.local.starter import shipped
from kernelmate.suggest.plugins import load_plugin, plugin_names
from kernelmate.suggest.prices import SpendingBudget
from kernelmate.suggest.router import Router

BUILT_IN = ("auto", "synthesis", "recipes", "local", "claude")
RECIPES_FIRST = 16
"""Maximum number of recipe candidates if other authors follow and share the search's limit of judged candidates."""

RECIPES_BEFORE_SMALL = 24
"""Maximum number of recipe candidates if only a small model follows, which needs few of the 32 candidates that a search judges by default."""
SMALL_MODEL_SAMPLES = 8
"""Default number of attempts per round of a model with a codec of its own; each takes a second or two."""


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """Options of one search for its authors.

    Attributes:
        author: `auto`, `synthesis`, `recipes`, `local`, `claude`, or the name of another package's suggester.
        samples: attempts of the local model in a round; None for the setting's.
        rounds: number of rounds.
        ask: asks for consent before text goes to another machine.
        on_step: called with each step.
        on_text: called with text as it arrives.
        stop: returns True to end the search.
        spending: Claude's budget, for searches that share one; None for a separate budget of this search.
    """

    author: str = "auto"
    samples: int | None = None
    rounds: int = 1
    ask: Ask = lambda outgoing: False
    on_step: Callable[[str], None] | None = None
    on_text: Callable[[str], None] | None = None
    stop: Callable[[], bool] = lambda: False
    spending: SpendingBudget | None = None


def authors(settings: Settings, kernel: Kernel, options: SearchOptions) -> Sequence[Suggester]:
    """Returns the suggesters of one search.

    Raises:
        UsageError: the author does not exist, or the model of an author requested by name is missing.
    """
    if options.author not in BUILT_IN:
        if options.author not in plugin_names():
            raise UsageError(
                f"There is no author {options.author!r}.",
                hint=f"Authors are {', '.join([*BUILT_IN, *plugin_names()])}.",
            )
        return (load_plugin(options.author),)
    if kernel.unit.language == "triton":
        return (_triton(options.author),)
    from kernelmate.suggest.synthesis import Synthesis

    if kernel.parts and options.author not in {"auto", "synthesis"}:
        raise UsageError(
            f"The author {options.author} changes one kernel, and {kernel.name} is a pipeline.",
            hint="Leave --author out to have it written as one kernel, or optimize one of its kernels by name.",
        )
    if options.author == "synthesis" or kernel.parts:
        return (Synthesis(),)
    router = Router(
        samples=options.samples or settings.samples,
        rounds=options.rounds,
        may_write=settings.claude_may_write or options.author == "claude",
        on_step=options.on_step,
    )
    if options.author in {"auto", "recipes"}:
        # Recipes load the tree-sitter grammar, which checking and judging do not need.
        from kernelmate.suggest.offline import Offline

        router.recipes = Offline()
    small = False
    if options.author in {"auto", "local"}:
        router.local = local = local_model(settings, kernel, options, wanted=options.author == "local")
        small = local is not None and local.codec != CHAT
        if small and options.samples is None and "samples" not in settings.model_fields_set:
            router.samples = SMALL_MODEL_SAMPLES
    if options.author == "claude" or (options.author == "auto" and settings.claude):
        router.reviewer = _claude(settings, kernel, options)
    if router.recipes is not None and (router.local is not None or router.reviewer is not None):
        from kernelmate.suggest.offline import Offline

        router.recipes = Offline(most=RECIPES_BEFORE_SMALL if small and router.reviewer is None else RECIPES_FIRST)
    return (Synthesis(), router) if options.author == "auto" else (router,)


def _triton(author: str) -> Suggester:
    """Returns the author of Triton kernels.

    Raises:
        UsageError: a model was asked for by name, but models write only CUDA.
    """
    if author not in {"auto", "recipes"}:
        raise UsageError(
            f"The author {author} writes CUDA, and this is a Triton kernel.",
            hint="Leave --author out: a Triton kernel is changed by recipes.",
        )
    from kernelmate.suggest.triton import TritonRecipes

    return TritonRecipes()


def local_model(settings: Settings, kernel: Kernel, options: SearchOptions, *, wanted: bool) -> LocalModel | None:
    """Returns the model in use; None if there is none and none was requested by name.

    Raises:
        UsageError: none is set up and one was wanted, or the one that is named does not exist.
    """
    if settings.model_url is not None:
        name = settings.model or "default"
        endpoint = Endpoint(settings.model_url.rstrip("/"), name, _key(settings))
        agree = _agreement(settings.model_url, name, kernel, options)
        codec = settings.model_codec or CHAT
        return LocalModel(
            lambda: endpoint,
            name,
            on_text=options.on_text,
            stop=options.stop,
            agree=agree,
            codec=codec,
            answer_s=settings.model_answer_s,
        )
    library = model_library(settings)
    model = library.find(settings.model) if settings.model is not None else library.current()
    if model is not None and model == library.starter and not wanted and engine_name() is None:
        # The user did not choose it, and no engine here can serve it, so recipes are the only author.
        return None
    if model is None:
        if wanted:
            raise UsageError(
                "No local model is set up.",
                hint="Add one: `kernelmate model add FILE.gguf`, or OWNER/NAME of a repository.",
            )
        return None
    server = model_server(settings)
    return LocalModel(
        lambda: server.ensure(model, options.stop),
        model.name,
        on_text=options.on_text,
        stop=options.stop,
        codec=model.codec or CHAT,
        taught=model.offers,
        answer_s=settings.model_answer_s,
    )


def model_library(settings: Settings) -> ModelLibrary:
    """Returns the user's models, and the model shipped with KernelMate unless disabled."""
    return ModelLibrary(settings.models_dir, shipped() if settings.starter else None)


def model_server(settings: Settings) -> ModelServer:
    """Returns the user's model server, configured by the settings."""
    wanted = ServerSettings(
        context=settings.model_context,
        gpu_layers=None if settings.model_gpu_layers == "auto" else settings.model_gpu_layers,
        threads=settings.model_threads,
        idle_s=settings.model_idle_s,
    )
    return ModelServer(wanted, library=model_library(settings))


def _agreement(url: str, model: str, kernel: Kernel, options: SearchOptions) -> Callable[[str], bool] | None:
    """Returns a function that asks, once per workspace, before text goes to another machine; None for a local server."""
    host = urlsplit(url).hostname or ""
    if host in {"localhost", "127.0.0.1", "::1"}:
        return None
    workspace, consents = workspace_of(Path(kernel.unit.path)), Consents()

    def agree(text: str) -> bool:
        if consents.given(workspace, host):
            return True
        if not options.ask(OutgoingText(text, host, model, None, workspace)):
            return False
        consents.give(workspace, host)
        return True

    return agree


def _key(settings: Settings) -> str | None:
    """Returns the key of another server, from the environment alone."""
    import os

    return os.environ.get(settings.model_key_variable)


def _claude(settings: Settings, kernel: Kernel, options: SearchOptions) -> Claude:
    return Claude(
        spending=options.spending or SpendingBudget(settings.claude_budget_usd),
        consents=Consents(),
        ask=options.ask,
        workspace=workspace_of(Path(kernel.unit.path)),
        model=settings.claude_model,
        on_text=options.on_text,
        stop=options.stop,
        answer_s=settings.model_answer_s,
    )


__all__ = [
    "BUILT_IN",
    "AuthorFailed",
    "OutgoingText",
    "SearchOptions",
    "SpendingBudget",
    "authors",
    "local_model",
    "model_library",
    "model_server",
]
