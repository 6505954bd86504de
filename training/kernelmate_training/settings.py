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
    """A section of the file; an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class CorpusSection(Section):
    """`[corpus]`: source of the pairs.

    Attributes:
        folder: folder of an existing corpus; None generates one.
        pairs: number of pairs.
        seconds: time limit, after which the pairs so far are used.
        workers: number of processes; None for all cores.
        backend: `auto` judges on a GPU if there is one.
        families: names of families; empty for all.
        history: True to include the user's own accepted versions.
    """

    folder: Path | None = None
    pairs: int = Field(default=60_000, gt=0)
    seconds: float | None = Field(default=None, gt=0)
    workers: int | None = Field(default=None, gt=0)
    backend: Literal["auto", "cuda", "emulator"] = "auto"
    families: tuple[str, ...] = ()
    history: bool = False


class TrainingSection(Section):
    """`[training]`, and `training` of a model: training from scratch, with keys as in `TrainingPlan`."""

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
    """`[[models]]`: one model trained from scratch; its shape as in `Shape`.

    Attributes:
        codec: name of its codec.
        vocabulary: number of tokens, special ones included.
        copies: copies of each pair with different placeholder numbers.
        share: fraction of the corpus' problems that it is trained on.
        training: keys that override `[training]`.
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
        """Returns the model's shape with the size of the learned vocabulary."""
        return Shape(vocabulary, self.hidden, self.layers, self.heads, self.kv_heads or self.heads, self.feed_forward, self.context)  # fmt: skip


class FineTuneSection(Section):
    """`[finetune]`: a causal Hugging Face model that is trained on the corpus by low-rank adapters.

    Attributes:
        base: a repository's name or a folder.
        revision: revision of the repository.
        codec: name of its codec.
        random: True to use a tiny model with random weights and `base`'s architecture, for tests of the pipeline.
        rank, alpha, dropout, targets: parameters of LoRA; targets are the projections that get adapters.
        quantised: True to keep the frozen weights in four bits (QLoRA; needs a GPU and bitsandbytes).
        rate, epochs, batch, accumulate: parameters of training; a step has `accumulate` times `batch` examples.
        steps: number of steps in place of `epochs`.
        context: largest number of tokens of a text; longer ones are left out.
        replay: share of general examples or earlier corpora, mixed in against forgetting.
        replay_from: JSONL file of these, with `prompt` and `answer`.
        task_weights: shares of the tasks among the examples.
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
    """`[rounds]`: further training on a model's own judged answers.

    Attributes:
        kind: `self` learns correct and better answers; `contrastive` shows judged versions in the prompt and weights
            answers by their reward; `both` alternates these; `grpo` is policy optimisation; `none`.
        rounds: number of rounds.
        prompts: number of questions of a round.
        k: answers to each.
        temperature: sampling temperature.
        seconds: time limit of sampling and judging in a round.
        steps: training steps after each round.
        rate: learning rate.
        clip: largest log speedup that counts.
        keep: largest number of answers to one question that are learned.
        most_tokens: largest number of tokens of an answer; None for that of `[sampling]`.
        ratio, kl, passes, batch: parameters of `grpo`, as in `Policy`.
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
    """`[sampling]`: answers to the exam's prompts, sampled by torch after training.

    Attributes:
        prompts: folder with the exam's files `CODEC.jsonl`; None samples nothing.
        k: answers to each prompt, the first of them greedy.
        temperature: temperature of the second answer; that of the last is higher by `spread`.
        top_p, redraws, most_tokens, seed: as in `Drawing`.
        renumber: True to number placeholders differently in the prompt of each answer that is not greedy.
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
    """`[export]`: GGUF files with matrices of format `kind`; `compare` compares llama.cpp's logits with torch's."""

    kind: Literal["f32", "f16", "q8_0", "q5_0", "q4_0"] = "q8_0"
    compare: bool = False


class ExamSection(Section):
    """`[exam]`: the exam after export, on this machine.

    Attributes:
        run: True to run it.
        k: answers to each goal.
        recipes: largest number of recipes' versions to judge; 0 for none.
        goals: names of goals; empty for all.
        jobs: number of goals attempted at once.
    """

    run: bool = False
    k: int = Field(default=8, gt=0)
    recipes: int = Field(default=0, ge=0)
    goals: tuple[str, ...] = ()
    jobs: int = Field(default=1, gt=0)


class BudgetSection(Section):
    """`[budget]`: time limits in seconds of the steps of `run`, None for no limit.

    At its limit, a step ends, and the next one uses its results so far.
    """

    total: float | None = Field(default=None, gt=0)
    generate: float | None = Field(default=None, gt=0)
    prepare: float | None = Field(default=None, gt=0)
    train: float | None = Field(default=None, gt=0)
    finish: float = Field(default=60.0, gt=0)
    price_per_gpu_hour: float = Field(default=4.0, ge=0)


class Upskill(Section):
    """The whole configuration; relative paths are relative to the file's folder.

    Attributes:
        name: name of the configuration.
        folder: folder for all results.
        seed: seed of corpus and training.
        licence: licence of the models.
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
        """Folder of the exam's prompts: the configured one, or `prompts` in the configuration's folder."""
        return self.sampling.prompts or self.folder / "prompts"

    @property
    def corpus_folder(self) -> Path:
        """Folder of the corpus, which need not exist yet."""
        return self.corpus.folder or self.folder / "corpus"

    def model_folder(self, name: str) -> Path:
        """Returns the folder of a model's run."""
        return self.folder / "models" / name

    def model(self, name: str) -> ModelSection:
        """Returns a model by its name.

        Raises:
            UsageError: there is no such model.
        """
        for model in self.models:
            if model.name == name:
                return model
        known = ", ".join(model.name for model in self.models)
        raise UsageError(f"There is no model {name!r} in the configuration.", hint=f"Models are: {known}.")

    def plan(self, model: ModelSection, seconds: float | None = None) -> TrainingPlan:
        """Returns a model's training plan; `seconds` is an upper limit of its duration."""
        section = TrainingSection.model_validate({**self.training.model_dump(), **model.training})
        values = section.model_dump()
        schedule = Schedule(**{"form": values.pop("schedule"), **{key: values.pop(key) for key in ("warmup", "decay", "final")}})  # fmt: skip
        if seconds is not None:
            values["seconds"] = min(seconds, values["seconds"] or seconds)
        elif values["seconds"] is None and values["steps"] is None:
            raise ValueError("[training] needs steps or seconds")
        return TrainingPlan(schedule=schedule, seed=self.seed, **values)


def read_settings(path: Path) -> Upskill:
    """Read a configuration: TOML, or the JSON of `Upskill.model_dump_json`.

    Raises:
        UsageError: the file cannot be read, or a value is invalid; the message gives the key.
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
    """Returns the document with absolute paths."""
    document = dict(document)
    for section, key in ((None, "folder"), ("corpus", "folder"), ("sampling", "prompts"), ("finetune", "replay_from")):
        home = document if section is None else document.get(section)
        if isinstance(home, dict) and isinstance(home.get(key), str):
            changed = {**home, key: str(base / Path(home[key]).expanduser())}
            document = changed if section is None else {**document, section: changed}
    return document
