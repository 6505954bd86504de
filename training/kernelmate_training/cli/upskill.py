"""`kernelmate upskill`: training of a model that writes kernels, from corpus to exam, or one step of it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kernelmate.cli.options import output_of, output_options
from kernelmate.cli.stopping import print_note
from kernelmate.errors import UsageError
from kernelmate_training.cli.examine import examine

if TYPE_CHECKING:
    from kernelmate_training.settings import Upskill

CONFIG = click.argument("config", metavar="CONFIG.toml", type=click.Path(path_type=Path))
OnLine = Callable[[str], None]


@click.group(
    epilog="""\b
Examples:
  kernelmate upskill run examples/upskill/tiny.toml --dry-run
  kernelmate upskill run examples/upskill/tiny.toml
  kernelmate upskill generate starter.toml
  kernelmate upskill train starter.toml --model starter-35m
  kernelmate upskill collect my-corpus
  kernelmate upskill export starter.toml --model starter-35m --kind q8_0
  kernelmate upskill exam starter.toml --model starter-35m
  kernelmate upskill examine starter
  torchrun --nproc-per-node=4 -m kernelmate upskill train starter.toml --model starter-80m

\b
An interrupted step continues when the same command is given again. docs/upskill.md describes configurations;
--dry-run shows time, memory and cost."""
)
def upskill() -> None:
    """Train a model that rewrites kernels: corpus of judged pairs, training, export, exam."""


upskill.add_command(examine)


@upskill.command(short_help="Run all steps.")
@CONFIG
@click.option("--dry-run", is_flag=True, help="Show time, memory and cost, and do nothing.")
@output_options(quiet=True)
def run(config: Path, dry_run: bool, **options: Any) -> int:
    r"""Generate the corpus, train, export and examine every model of CONFIG.toml.

    \b
    Examples:
      kernelmate upskill run examples/upskill/tiny.toml
      kernelmate upskill run examples/upskill/starter.toml --dry-run
    """
    settings, output = _read(config), output_of(options)
    if dry_run:
        return _estimate(settings, output.as_json, output)
    from kernelmate_training.pipeline import Pipeline

    outcome = Pipeline(settings, told=_told(output.quiet or output.as_json)).run()
    if output.as_json:
        output.document(
            {"schema": 1, "results": outcome.results, "problems": outcome.problems, "seconds": outcome.seconds}
        )
    else:
        for name, result in outcome.results.items():
            click.echo(_summary(name, result))
    return 1 if outcome.problems else 0


@upskill.command(short_help="Generate and judge a corpus.")
@CONFIG
@click.option("--seconds", type=click.FloatRange(min=1), help="End after this time, with the results so far.")
@click.option("--dry-run", is_flag=True, help="Show time, memory and cost, and do nothing.")
@output_options(quiet=True)
def generate(config: Path, seconds: float | None, dry_run: bool, **options: Any) -> int:
    """Generate the corpus of CONFIG.toml: pairs of kernels, each judged on this machine's GPUs or on the emulator."""
    settings, output = _read(config), output_of(options)
    if dry_run:
        return _estimate(settings, output.as_json, output)
    from kernelmate_training.pipeline import generate as generated
    from kernelmate_training.pipeline import gpu_numbers

    if settings.corpus.folder is not None:
        raise UsageError("The configuration names a corpus that is there already.", file=str(settings.corpus.folder))
    told = _told(output.quiet or output.as_json)
    figures = generated(settings, gpus=gpu_numbers(), seconds=seconds, whole=seconds is None, told=told)
    if output.as_json:
        output.document({"schema": 1, "corpus": figures})
    else:
        click.echo(f"The corpus is in {settings.corpus_folder}.")
    return 0


@upskill.command(short_help="Make a corpus of the versions that you judged.")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "--history", "history_file", type=click.Path(path_type=Path), help="The history file; by default your own."
)
def collect(folder: Path, history_file: Path | None) -> int:
    r"""Make a corpus in FOLDER of accepted and rejected versions in the history.

    Nothing leaves this machine. Versions of files with a kernel of the exam are left out.

    \b
    Examples:
      kernelmate upskill collect my-corpus
    """
    from kernelmate_training.pipeline import collect as collected

    count = collected(folder, history_file)
    click.echo(f"{count} pairs in {folder}.")
    return 0 if count else 1


@upskill.command(short_help="Train models, or fine-tune one.")
@CONFIG
@click.option("--model", metavar="NAME", help="A model of the configuration; by default all.")
@click.option("--seconds", type=click.FloatRange(min=1), help="Seconds of training at most, for each model.")
@click.option("--dry-run", is_flag=True, help="Show time, memory and cost, and do nothing.")
@output_options(quiet=True)
def train(config: Path, model: str | None, seconds: float | None, dry_run: bool, **options: Any) -> int:
    """Train the models of CONFIG.toml in this process, one after the other, on this machine's first GPU.

    Under torchrun the processes train one model together. Ctrl-C saves and ends; the same command continues.
    """
    settings, output = _read(config), output_of(options)
    if dry_run:
        return _estimate(settings, output.as_json, output)
    from kernelmate_training.training_job import train_model

    told = _told(output.quiet or output.as_json)
    found: dict[str, Any] = {}
    for section in settings.models if model is None else _chosen(settings, model):
        found[section.name] = train_model(settings, section, seconds=seconds, told=told)
        if settings.rounds.kind != "none" and found[section.name]["finished"]:
            from kernelmate_training.rounds import improve

            found[section.name] |= improve(settings, section, told=told)
    finetune = settings.finetune
    if finetune is not None and model in (None, finetune.name):
        from kernelmate_training.finetuning import finetune as finetuned

        found[finetune.name] = finetuned(settings, told=told)
    if output.as_json:
        output.document({"schema": 1, "results": found})
    else:
        for name, facts in found.items():
            click.echo(_summary(name, {"trained": facts}))
    return 0 if all(facts.get("finished", True) for facts in found.values()) else 1


@upskill.command(short_help="Write a trained model as a GGUF file.")
@CONFIG
@click.option("--model", metavar="NAME", help="A model of the configuration; by default all.")
@click.option("--kind", type=click.Choice(["f32", "f16", "q8_0", "q5_0", "q4_0"]), help="The type of the matrices.")
@click.option("--compare", is_flag=True, help="Compare llama.cpp's logits with torch's.")
def export(config: Path, model: str | None, kind: str | None, compare: bool) -> int:
    """Write models of CONFIG.toml as GGUF files beside them, tokenizer, codec and card included."""
    settings = _read(config)
    from kernelmate_training.training_job import export_model

    for name in _names(settings, model):
        path = export_model(settings, name, kind=kind)
        click.echo(f"{path} ({path.stat().st_size / 1e6:.1f} MB)")
        if compare:
            _compare(settings, name, path)
    return 0


@upskill.command(short_help="Examine a trained model.")
@CONFIG
@click.option("--model", metavar="NAME", help="A model of the configuration; by default all.")
@output_options(quiet=True)
def exam(config: Path, model: str | None, **options: Any) -> int:
    """Draw a model's answers to the exam with torch, and judge each on this machine.

    `kernelmate upskill examine` examines a GGUF file in the way in which users ask it.
    """
    settings, output = _read(config), output_of(options)
    from kernelmate_training.pipeline import examine, write_exam_prompts
    from kernelmate_training.training_job import sample_prompts

    told = _told(output.quiet or output.as_json)
    settings = settings.model_copy(update={"exam": settings.exam.model_copy(update={"run": True})})
    found = {}
    for name in _names(settings, model):
        write_exam_prompts(settings, _codec(settings, name), told)
        sample_prompts(settings, name, told=told)
        found[name] = examine(settings, name, told)
    output.document({"schema": 1, "exams": found})
    return 0


def _read(config: Path) -> Upskill:
    from kernelmate_training.settings import read_settings

    return read_settings(config)


def _chosen(settings: Upskill, name: str) -> tuple[Any, ...]:
    if settings.finetune is not None and settings.finetune.name == name:
        return ()
    return (settings.model(name),)


def _names(settings: Upskill, name: str | None) -> list[str]:
    if name is not None:
        _chosen(settings, name)
        return [name]
    own = [model.name for model in settings.models]
    return [*own, settings.finetune.name] if settings.finetune is not None else own


def _codec(settings: Upskill, name: str) -> str:
    if settings.finetune is not None and settings.finetune.name == name:
        return settings.finetune.codec
    return settings.model(name).codec


def _told(quiet: bool) -> OnLine:
    if quiet:
        return lambda line: None
    return lambda line: click.echo(line, err=True)


def _estimate(settings: Upskill, as_json: bool, output: Any) -> int:
    from kernelmate.backends.cuda.driver import read_driver
    from kernelmate.report.json import plain
    from kernelmate_training.estimating import estimate

    driver = read_driver()
    found = estimate(settings, () if driver is None else tuple(gpu.name for gpu in driver.gpus))
    if as_json:
        output.document({"schema": 1, "estimate": plain(found)})
        return 0
    for line in found.lines:
        time = "time not known" if line.seconds is None else _duration(line.seconds)
        memory = "" if line.memory is None else f", {line.memory / 2**30:.1f} GiB"
        click.echo(f"{line.step}: {time}{memory} ({line.basis})")
    where = f"{len(found.gpus)} x {found.gpus[0]}, about ${found.dollars:.2f}" if found.gpus else "the CPU, at no cost"
    click.echo(f"In all about {_duration(found.seconds)} on {where}. Estimated; nothing was done.")
    return 0


def _duration(seconds: float) -> str:
    sign, seconds = ("-" if seconds < 0 else ""), abs(seconds)
    if seconds < 120:
        return f"{sign}{seconds:.0f} s"
    return f"{sign}{seconds / 60:.0f} min" if seconds < 7200 else f"{sign}{seconds / 3600:.1f} h"


def _summary(name: str, result: dict[str, Any]) -> str:
    facts = result.get("trained") or {}
    parts = [f"{name}:"]
    if facts.get("loss") is not None:
        parts.append(f"loss {facts['loss']:.4f} after {facts.get('steps')} steps and {facts.get('seconds')} s")
    if result.get("gguf"):
        parts.append(f"-> {result['gguf']}")
    parts += [f"({problem})" for problem in result.get("problems") or ()]
    return " ".join(parts)


def _compare(settings: Upskill, name: str, path: Path) -> None:
    from kernelmate_training.parity import compare

    found = compare(path, settings.model_folder(name), "__global__ void f(float* x) { x[threadIdx.x] *= 2.0f; }")
    print_note(
        f"llama.cpp against torch: tokens {'alike' if found.same_tokens else 'DIFFERENT'}, largest difference of logits "
        f"{found.largest:.4f} (they spread {found.spread:.2f}), same likeliest token at {found.agree:.0%} of places"
    )
    if not found.same_tokens:
        sys.exit(1)
