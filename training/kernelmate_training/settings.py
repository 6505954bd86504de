"""Configuration of `kernelmate upskill` from a TOML file: corpus, models, training, export, and time limits of the steps."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from kernelmate.errors import UsageError
from kernelmate_training.augmentation import AugmentationRates
from kernelmate_training.plans import TASK_WEIGHTS, Form, Schedule, TrainingPlan
from kernelmate_training.shapes import Shape

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]


class Section(BaseModel):
    """A part of the file; an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class CorpusSection(Section):
    """`[corpus]`: where pairs come from.

    Attributes:
        folder: of a corpus that is there already; None generates one.
        pairs: wanted. seconds: after which what there is is taken. workers: processes; None for all cores.
        backend: `auto` judges on a GPU where there is one. families: names; empty for all.
        history: take the user's own accepted versions in, too.
    """

    folder: Path | None = None
    pairs: int = Field(default=60_000, gt=0)
    seconds: float | None = Field(default=None, gt=0)
    workers: int | None = Field(default=None, gt=0)
    backend: Literal["auto", "cuda", "emulator"] = "auto"
    families: tuple[str, ...] = ()
    history: bool = False


class TrainingSection(Section):
    """`[training]`, and `training` of a model: how models from scratch are trained; keys as in `TrainingPlan`."""

    steps: int | None = Field(default=None, gt=0)
    seconds: float | None = Field(default=None, gt=0)
    tokens_per_step: int = Field(default=65_536, gt=0)
    rows_at_once: int | None = Field(default=None, gt=0)
    optimiser: Literal["adamw", "muon"] = "muon"
    rate: float = Field(default=2e-3, gt=0)
    schedule: Form = "wsd"
    warmup: float = Field(default=0.02, ge=0, lt=1)
    decay: float = Field(default=0.4, gt=0, le=1)
    final: float = Field(default=0.02, ge=0, le=1)
    weight_decay: float = Field(default=0.1, ge=0)
    clip: float = Field(default=1.0, gt=0)
    task_weights: dict[str, float] = Field(default_factory=lambda: dict(TASK_WEIGHTS))
    prompt_weight: float = Field(default=0.0, ge=0)
    least_answer: int = Field(default=0, ge=0)
    full_gain: float = Field(default=0.0, ge=0)
    checkpoint_s: float = Field(default=120.0, gt=0)
    log_steps: int = Field(default=10, gt=0)
    held_out_s: float = Field(default=30.0, ge=0)
    held_out_steps: int | None = Field(default=None, gt=0)
    patience: int = Field(default=0, ge=0)
    cooldown: float = Field(default=0.25, gt=0, le=1)
    dropout: float = Field(default=0.0, ge=0, lt=1)
    augment: dict[str, float] = Field(default_factory=dict)
    workers: int = Field(default=0, ge=0)
    precision: Literal["auto", "bf16", "float32"] = "auto"
    compile: bool | None = None

    @model_validator(mode="after")
    def _known(self) -> TrainingSection:
        AugmentationRates.of(self.augment)
        return self


class ModelSection(Section):
    """`[[models]]`: one model from scratch; shapes as in `Shape`.

    Attributes:
        codec: how it is asked and answers. vocabulary: tokens, special ones included.
        copies: of each pair, with placeholders numbered otherwise. share: of the corpus' problems that it sees.
        training: what differs from `[training]`.
    """

    name: Name
    codec: str = "mixed-2"
    vocabulary: int = Field(default=4096, gt=300)
    hidden: int = Field(default=512, gt=0)
    layers: int = Field(default=10, gt=0)
    heads: int = Field(default=8, gt=0)
    kv_heads: int | None = Field(default=None, gt=0)
    feed_forward: int = Field(default=1408, gt=0)
    context: int = Field(default=2048, gt=0)
    copies: int = Field(default=1, gt=0)
    share: float = Field(default=1.0, gt=0, le=1)
    training: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _fits(self) -> ModelSection:
        self.shape(self.vocabulary)
        return self

    def shape(self, vocabulary: int) -> Shape:
        """The model's shape with a vocabulary as learned."""
        return Shape(vocabulary, self.hidden, self.layers, self.heads, self.kv_heads or self.heads, self.feed_forward, self.context)  # fmt: skip


class FineTuneSection(Section):
    """`[finetune]`: a causal model of Hugging Face that learns from the corpus by low-rank adapters.

    Attributes:
        base: a repository's name or a folder. revision: of the repository. codec: how it is asked.
        random: a tiny model with random weights and `base`'s architecture name is taken instead, for tests of the whole way.
        rank, alpha, dropout, targets: of LoRA; targets are the projections that get adapters.
        quantised: hold the frozen weights in four bits (QLoRA; needs a GPU and bitsandbytes).
        rate, epochs, batch, accumulate: of training; `batch` examples at once, `accumulate` times a step.
        context: tokens of a text at most; longer ones are left out.
        replay: share of examples of general text or earlier corpora mixed in against forgetting; `replay_from`: a JSONL file
            with `prompt` and `answer`.
    """

    base: str
    name: Name = "finetuned"
    revision: str | None = None
    codec: str = "chat-1"
    random: bool = False
    rank: int = Field(default=32, gt=0)
    alpha: int = Field(default=64, gt=0)
    dropout: float = Field(default=0.05, ge=0, lt=1)
    targets: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj")
    quantised: bool = False
    rate: float = Field(default=2e-4, gt=0)
    epochs: float = Field(default=5.0, gt=0)
    steps: int | None = Field(default=None, gt=0)
    batch: int = Field(default=8, gt=0)
    accumulate: int = Field(default=4, gt=0)
    context: int = Field(default=4096, gt=0)
    replay: float = Field(default=0.1, ge=0, lt=1)
    replay_from: Path | None = None
    task_weights: dict[str, float] = Field(default_factory=lambda: dict(TASK_WEIGHTS))


class RoundsSection(Section):
    """`[rounds]`: further training on what a model found itself, judged.

    Attributes:
        kind: `self` learns right and better answers; `contrastive` shows judged versions first and weighs answers by their
            reward; `both` plays these in turn; `grpo` moves the model by what each answer was worth against the others; `none`.
        rounds: how many. prompts: problems asked in a round. k: answers to each. temperature: of the draws.
        seconds: of sampling and judging in a round. steps: of training after each.
        clip: log speed-ups are clipped here. keep: most answers of one problem that are learned. rate: of learning.
        most_tokens: of an answer; None for as many as in `[sampling]`.
        ratio, kl, passes, batch: of `grpo`, as in `Policy`.
    """

    kind: Literal["none", "self", "contrastive", "both", "grpo"] = "none"
    rounds: int = Field(default=1, gt=0)
    prompts: int = Field(default=512, gt=0)
    k: int = Field(default=4, gt=0)
    temperature: float = Field(default=0.8, gt=0)
    seconds: float = Field(default=120.0, gt=0)
    steps: int = Field(default=100, gt=0)
    rate: float = Field(default=3e-4, gt=0)
    clip: float = Field(default=1.5, gt=0)
    keep: int = Field(default=2, gt=0)
    most_tokens: int | None = Field(default=None, gt=0)
    ratio: float = Field(default=0.2, gt=0, lt=1)
    kl: float = Field(default=0.04, ge=0)
    passes: int = Field(default=2, gt=0)
    batch: int = Field(default=64, gt=0)


class SamplingSection(Section):
    """`[sampling]`: answers to the exam's prompts, drawn by torch where the models were trained.

    Attributes:
        prompts: folder with `CODEC.jsonl` as the exam writes it; None samples nothing.
        k: answers to each prompt, the first of them greedy. temperature: of the second; `spread` more of the last.
        top_p, redraws: as in `Drawing`. renumber: answers that are not greedy see names numbered otherwise, each its own way.
    """

    prompts: Path | None = None
    k: int = Field(default=9, gt=0)
    temperature: float = Field(default=0.7, gt=0)
    spread: float = Field(default=0.5, ge=0)
    top_p: float = Field(default=0.95, gt=0, le=1)
    redraws: int = Field(default=2, ge=0)
    renumber: bool = True
    most_tokens: int = Field(default=768, gt=0)
    seed: int = 1


class ExportSection(Section):
    """`[export]`: GGUF files; `kind` of their matrices. `compare` holds llama.cpp's logits against torch's."""

    kind: Literal["f32", "f16", "q8_0", "q5_0", "q4_0"] = "q8_0"
    compare: bool = False


class ExamSection(Section):
    """`[exam]`: run after export, on this machine; `k` answers to each goal; `goals` by name, empty for all.

    Attributes:
        recipes: most versions of recipes that are judged beside them; 0 for none. jobs: goals at once.
    """

    run: bool = False
    k: int = Field(default=8, gt=0)
    recipes: int = Field(default=0, ge=0)
    goals: tuple[str, ...] = ()
    jobs: int = Field(default=1, gt=0)


class BudgetSection(Section):
    """`[budget]`: seconds that each step of `run` may take, None for no limit; what a step has then is what the next gets."""

    total: float | None = Field(default=None, gt=0)
    generate: float | None = Field(default=None, gt=0)
    prepare: float | None = Field(default=None, gt=0)
    train: float | None = Field(default=None, gt=0)
    finish: float = Field(default=60.0, gt=0)
    price_per_gpu_hour: float = Field(default=4.0, ge=0)


class Upskill(Section):
    """The whole file. Relative paths are from the file's folder.

    Attributes:
        name: of the undertaking. folder: where everything is kept. seed: of corpus and training. licence: of the models.
    """

    name: Name
    folder: Path
    seed: int = 1
    licence: str = "Apache-2.0"
    corpus: CorpusSection = Field(default_factory=CorpusSection)
    training: TrainingSection = Field(default_factory=TrainingSection)
    models: tuple[ModelSection, ...] = ()
    finetune: FineTuneSection | None = None
    rounds: RoundsSection = Field(default_factory=RoundsSection)
    sampling: SamplingSection = Field(default_factory=SamplingSection)
    export: ExportSection = Field(default_factory=ExportSection)
    exam: ExamSection = Field(default_factory=ExamSection)
    budget: BudgetSection = Field(default_factory=BudgetSection)

    @model_validator(mode="after")
    def _whole(self) -> Upskill:
        names = [model.name for model in self.models]
        if len(set(names)) < len(names):
            raise ValueError("two models have the same name")
        if not self.models and self.finetune is None:
            raise ValueError("there is neither a [[models]] nor a [finetune]")
        for model in self.models:
            self.plan(model)
        return self

    @property
    def prompts_folder(self) -> Path:
        """The folder of the exam's prompts: as the configuration says, or beside what is made."""
        return self.sampling.prompts or self.folder / "prompts"

    @property
    def corpus_folder(self) -> Path:
        """Folder of the corpus, which need not exist yet."""
        return self.corpus.folder or self.folder / "corpus"

    def model_folder(self, name: str) -> Path:
        """Returns the folder of a model's run."""
        return self.folder / "models" / name

    def model(self, name: str) -> ModelSection:
        """A model by its name.

        Raises:
            UsageError: there is none.
        """
        for model in self.models:
            if model.name == name:
                return model
        known = ", ".join(model.name for model in self.models)
        raise UsageError(f"There is no model {name!r} in the configuration.", hint=f"Models are: {known}.")

    def plan(self, model: ModelSection, seconds: float | None = None) -> TrainingPlan:
        """Returns a model's training plan; `seconds`, where given, is an upper limit of its duration."""
        section = TrainingSection.model_validate({**self.training.model_dump(), **model.training})
        values = section.model_dump()
        schedule = Schedule(**{"form": values.pop("schedule"), **{key: values.pop(key) for key in ("warmup", "decay", "final")}})  # fmt: skip
        if seconds is not None:
            values["seconds"] = min(seconds, values["seconds"] or seconds)
        elif values["seconds"] is None and values["steps"] is None:
            raise ValueError("[training] needs steps or seconds")
        return TrainingPlan(schedule=schedule, seed=self.seed, **values)


def read_settings(path: Path) -> Upskill:
    """Read a configuration: TOML, or the JSON that `Upskill.model_dump_json` gives.

    Raises:
        UsageError: it cannot be read, or something in it is wrong; the message says where.
    """
    try:
        text = path.read_text(encoding="utf-8")
        document = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except (tomllib.TOMLDecodeError, json.JSONDecodeError) as error:
        raise UsageError(f"This is not {path.suffix[1:].upper() or 'TOML'}: {error}.", file=str(path)) from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"The configuration cannot be read: {error}.", file=str(path)) from None
    try:
        return Upskill.model_validate(_absolute(document, path.resolve().parent))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        said = first["msg"].removeprefix("Value error, ")
        more = f" There are {error.error_count() - 1} more mistakes." if error.error_count() > 1 else ""
        raise UsageError(f"{where}: {said}.{more}", file=str(path), hint="`kernelmate upskill run --help` names examples.") from None  # fmt: skip


def _absolute(document: dict[str, Any], base: Path) -> dict[str, Any]:
    """The document with its paths made absolute."""
    document = dict(document)
    for section, key in ((None, "folder"), ("corpus", "folder"), ("sampling", "prompts"), ("finetune", "replay_from")):
        home = document if section is None else document.get(section)
        if isinstance(home, dict) and isinstance(home.get(key), str):
            changed = {**home, key: str(base / Path(home[key]).expanduser())}
            document = changed if section is None else {**document, section: changed}
    return document
