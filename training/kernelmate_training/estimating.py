"""Estimate of a configuration's cost before it runs: time, memory, tokens and money, each with its basis."""

from __future__ import annotations

import os
from dataclasses import dataclass

from kernelmate_training.settings import FineTuneSection, ModelSection, Upskill
from kernelmate_training.shapes import Shape, peak_flops

UTILISATION = 0.3
"""Fraction of the peak rate that training reaches with compiled layers and FlashAttention.

Measured on an H200: 21 % at 15 million parameters, 27 % at 33 million, 33 % at 80 million
(`benchmarks/results/upskill_run.txt`).
"""
FINETUNE_UTILISATION = 0.35
"""Assumed fraction for fine-tuning; no fine-tune of a large base was measured."""
CPU_FLOPS_PER_CORE = 7.0e9
"""Float32 FLOP/s of one core, measured in training the tiny configuration's model.

Two cores of an AMD EPYC trained 13,000 tokens/s. Larger models come nearer to a core's peak.
"""
EMULATED_ROWS_PER_CORE_S = 1.7
"""Judged pairs of a corpus per core and second on the emulator: 7,296 rows on 32 cores in 135 s.

Source: `benchmarks/results/upskill_run.txt`.
"""
GPU_ROWS_PER_CORE_S = 2.8
"""Judged pairs per core and second if two GPUs judge and time: 22,781 rows on 32 cores in 251 s.

Source: `benchmarks/results/upskill_run.txt`.
"""
START_S = 5.0
"""Seconds until processes have loaded the compiler and the emulator, or torch."""
ANSWERS_PER_CORE_S = 1.6
"""Answers judged in rounds, per core and second, on the emulator."""
EXAM_ANSWER_S = 3.0
"""Seconds for judging one answer to the exam with all guards: 349 answers of the starter model in 1,061 s."""
EXAM_PROMPT_S = 2.0
"""Seconds for one question of the exam, whose kernel is judged first."""
TOKENS_PER_EXAMPLE = 300
"""Average tokens of prompt and answer of a corpus' pair: 29.7 million tokens in 98,012 examples of that run."""
KNOWN_BASES = {
    "Qwen/Qwen2.5-Coder-0.5B-Instruct": (0.494e9, 24, 896),
    "Qwen/Qwen2.5-Coder-1.5B-Instruct": (1.544e9, 28, 1536),
    "Qwen/Qwen2.5-Coder-3B-Instruct": (3.086e9, 36, 2048),
    "Qwen/Qwen2.5-Coder-7B-Instruct": (7.616e9, 28, 3584),
    "Qwen/Qwen2.5-Coder-14B-Instruct": (14.77e9, 48, 5120),
}
"""Parameters, layers and width of base models, from their repositories' `config.json`."""
FINETUNE_TOKENS_PER_EXAMPLE = 1500


@dataclass(frozen=True, slots=True)
class Line:
    """One line of an estimate: the step, seconds, bytes of GPU memory, and their basis; None for unknown figures."""

    step: str
    seconds: float | None
    memory: float | None
    basis: str


@dataclass(frozen=True, slots=True)
class Estimate:
    """The estimated cost; `dollars` is the price of the GPU hours, 0 without a GPU."""

    lines: tuple[Line, ...]
    dollars: float
    gpus: tuple[str, ...]

    @property
    def seconds(self) -> float:
        """Seconds of all steps whose time is known."""
        return sum(line.seconds or 0.0 for line in self.lines)


def estimate(settings: Upskill, gpus: tuple[str, ...], cores: int | None = None) -> Estimate:
    """Returns the estimated cost of a configuration on a machine.

    Args:
        settings: the configuration.
        gpus: names of the machine's GPUs; empty without one.
        cores: number of CPU cores; None for this machine's.
    """
    cores = cores or os.cpu_count() or 1
    lines = [_corpus(settings, bool(gpus), cores)]
    parallel = max(len(gpus), 1)
    trained = [_model(settings, model, gpus, cores) for model in settings.models]
    lines += trained
    if parallel > 1 and len(trained) > 1:
        each = [line.seconds or 0.0 for line in trained]
        saved = sum(each) - sum(max(each[at : at + parallel]) for at in range(0, len(each), parallel))
        lines.append(
            Line("training at once", -saved, None, f"{len(trained)} models on {parallel} GPUs, each on its own")
        )
    if settings.finetune is not None:
        lines.append(_finetune(settings, settings.finetune, gpus))
    lines += _rounds(settings, trained, cores)
    lines += _exam(settings)
    found = Estimate(tuple(lines), 0.0, gpus)
    dollars = found.seconds / 3600 * len(gpus) * settings.budget.price_per_gpu_hour
    return Estimate(tuple(lines), round(dollars, 2), gpus)


def _corpus(settings: Upskill, gpu: bool, cores: int) -> Line:
    section = settings.corpus
    if section.folder is not None:
        return Line("corpus", 0.0, None, f"there already: {section.folder}")
    rate = (GPU_ROWS_PER_CORE_S if gpu and section.backend != "emulator" else EMULATED_ROWS_PER_CORE_S) * min(cores, section.workers or cores)  # fmt: skip
    wanted = START_S + section.pairs / rate
    limits = [limit for limit in (section.seconds, settings.budget.generate) if limit is not None]
    seconds = min([wanted, *limits])
    pairs = int(min(section.pairs, max(seconds - START_S, 0.0) * rate))
    return Line(
        "corpus", seconds, None, f"about {pairs} of {section.pairs} pairs at {rate:.1f} a second on {cores} cores"
    )


def _model(settings: Upskill, model: ModelSection, gpus: tuple[str, ...], cores: int) -> Line:
    shape = model.shape(model.vocabulary)
    plan = settings.plan(model)
    peak = peak_flops(gpus[0]) if gpus else None
    rate = peak * UTILISATION if peak else CPU_FLOPS_PER_CORE * cores
    speed = rate / shape.training_flops(TOKENS_PER_EXAMPLE / 2)
    by_steps = None if plan.steps is None else START_S + plan.steps * plan.tokens_per_step / speed
    limits = [limit for limit in (by_steps, plan.seconds, settings.budget.train) if limit is not None]
    seconds = min(limits)
    rows = plan.rows_at_once or max(plan.tokens_per_step // shape.context, 1)
    memory = training_bytes(shape, rows, bf16=bool(gpus))
    basis = f"{shape.parameters / 1e6:.1f}M parameters, about {speed:,.0f} tokens a second, {seconds * speed / 1e6:,.1f}M tokens"
    return Line(model.name, seconds, memory, basis)


def _rounds(settings: Upskill, trained: list[Line], cores: int) -> list[Line]:
    """Returns the lines for rounds of models trained from scratch: answers judged on the emulator, then training."""
    section = settings.rounds
    if section.kind == "none":
        return []
    kinds = 2 if section.kind == "both" else 1
    judged = min(START_S + section.prompts * section.k / (ANSWERS_PER_CORE_S * cores), section.seconds)
    seconds = 0.0
    for model, line in zip(settings.models, trained, strict=True):
        steps = settings.plan(model).steps
        step = (line.seconds or 0.0) / steps if steps else 0.1
        seconds += section.rounds * kinds * (judged + section.steps * step)
    basis = f"{section.rounds} x {kinds} rounds of {section.prompts} questions with {section.k} answers each"
    return [Line("rounds", min(seconds, len(trained) * section.seconds * 2), None, basis)]


def _exam(settings: Upskill) -> list[Line]:
    """Returns the line for the exam of every model, with its questions once for each codec."""
    if not settings.exam.run:
        return []
    from kernelmate_training.exam.goals import load_exam

    section, models = settings.exam, len(settings.models) + (settings.finetune is not None)
    goals = len(load_exam(section.goals).goals)
    codecs = len({model.codec for model in settings.models})
    versions = section.k + section.recipes
    seconds = goals * (models * versions * EXAM_ANSWER_S + codecs * EXAM_PROMPT_S) / min(section.jobs, goals)
    return [Line("exam", seconds, None, f"{goals} goals, {versions} versions each, judged on the emulator")]


def training_bytes(shape: Shape, rows: int, *, bf16: bool) -> float:
    """Returns the bytes for training from scratch: weights, gradients, two moments in float32, and activations.

    A layer stores about 14 values of the hidden width and 4 of the feed-forward width for each token, the loss three of
    the vocabulary's size; counted in the code of `torch_llama`.
    """
    tokens = rows * shape.context
    kept = shape.layers * (14 * shape.hidden + 4 * shape.feed_forward) * (2 if bf16 else 4)
    return 16.0 * shape.parameters + tokens * (kept + shape.vocabulary * 10.0)


def _finetune(settings: Upskill, section: FineTuneSection, gpus: tuple[str, ...]) -> Line:
    if section.random:
        return Line(section.name, 60.0, None, "a tiny model with random weights")
    known = KNOWN_BASES.get(section.base)
    if known is None:
        return Line(section.name, None, None, f"{section.base}: its size is not known here")
    parameters, layers, width = known
    examples = settings.corpus.pairs / max(1 - section.replay, 1e-9)
    tokens = examples * FINETUNE_TOKENS_PER_EXAMPLE * section.epochs
    if section.steps is not None:
        tokens = min(tokens, section.steps * section.batch * section.accumulate * FINETUNE_TOKENS_PER_EXAMPLE)
    memory = finetune_bytes(parameters, layers, width, section)
    peak = peak_flops(gpus[0]) if gpus else None
    basis = f"{parameters / 1e9:.1f}G frozen parameters in {'four bits' if section.quantised else 'bf16'}, {tokens / 1e6:,.0f}M tokens"
    if peak is None:
        return Line(section.name, None, memory, f"{basis}; without a known GPU no time can be said")
    # Forward and backward through frozen weights are 4 operations per weight, recomputed activations 2 more.
    seconds = tokens * 6 * parameters / (peak * FINETUNE_UTILISATION * len(gpus))
    return Line(section.name, seconds, memory, basis)


def finetune_bytes(parameters: float, layers: int, width: int, section: FineTuneSection) -> float:
    """Returns the bytes for a fine-tune: weights, adapters with optimiser, layer inputs, one layer's activations."""
    frozen = parameters * (0.56 if section.quantised else 2.0)
    adapters = 2 * section.rank * width * 1.6 * len(section.targets) * layers * 16
    tokens = section.batch * section.context
    return frozen + adapters + tokens * (layers * width * 2 + 40 * width + 152_000 * 6.0)
