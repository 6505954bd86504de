"""Run of a configuration: corpus, models in parallel on the available GPUs, export, sampled answers and the exam.

Each step has its time limit. A step that exceeds it is ended, and the next step uses its results so far.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernelmate.errors import EnvironmentFailed, KernelmateError, UsageError
from kernelmate_training.journal import Journal
from kernelmate_training.preparing import FILE, FinishedSteps, first_open, key_of, model_keys
from kernelmate_training.settings import ModelSection, Upskill

OnLine = Callable[[str], None]
GRACE_S = 20.0
"""Seconds that a process gets to store its results after it was asked to end."""
POLL_S = 0.2
LEAST_S = 1.0
"""Seconds below which training is not started."""


@dataclass(slots=True)
class Outcome:
    """Outcome of a pipeline: the models' results by name, and the failures."""

    results: dict[str, dict[str, Any]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class _Running:
    """A running training process: its model, its GPU, its time limit, and how much of its output has been printed."""

    model: ModelSection
    place: int | None
    process: subprocess.Popen[bytes]
    limit: float | None
    shown: dict[str, int] = field(default_factory=dict)

    def over(self) -> bool:
        """Returns True if the process has ended, or exceeded its time limit."""
        return self.process.poll() is not None or (self.limit is not None and time.monotonic() > self.limit)


class Pipeline:
    """One run of a configuration.

    Args:
        settings: the configuration.
        gpus: numbers of the GPUs to use; None for all of the machine.
        told: called with lines of progress.
    """

    def __init__(self, settings: Upskill, gpus: tuple[int, ...] | None = None, told: OnLine = lambda line: None) -> None:  # fmt: skip
        self._settings, self._told = settings, told
        # Started processes read this copy, so later changes of the file have no effect.
        self._config = settings.folder / "settings.json"
        self._begun = time.monotonic()
        self._gpus = gpu_numbers() if gpus is None else gpus
        self._journal = Journal(settings.folder / "run.jsonl")
        self.outcome = Outcome()

    def run(self) -> Outcome:
        """Run all steps; a step that fails is recorded, and later steps that do not need it still run.

        Raises:
            KernelmateError: there is no corpus, which every step needs.
        """
        self._settings.folder.mkdir(parents=True, exist_ok=True)
        self._config.write_text(self._settings.model_dump_json(indent=1), encoding="utf-8")
        budget = self._settings.budget
        with self._timed("generate"):
            self._generate(budget.generate)
        with self._timed("prepare"):
            self._prepare()
        if self._settings.exam.run:
            with self._timed("prompts"):
                self._prompts()
        with self._timed("train"):
            self._train(self._until(budget.train, after=budget.finish))
        if self._settings.finetune is not None:
            with self._timed("finetune"):
                self._finetune()
        if self._settings.exam.run:
            with self._timed("exam"):
                self._exam()
        self._write()
        return self.outcome

    def _until(self, own: float | None, after: float = 0.0) -> float | None:
        """Returns the seconds that a step has: its own limit, or the remaining total less `after` for later steps."""
        total = self._settings.budget.total
        left = None if total is None else max(total - (time.monotonic() - self._begun) - after, 5.0)
        return left if own is None else min(own, left) if left is not None else own

    @contextlib.contextmanager
    def _timed(self, step: str) -> Iterator[None]:
        begun = time.monotonic()
        self._told(f"[{begun - self._begun:6.1f} s] {step}")
        try:
            yield
        finally:
            self.outcome.seconds[step] = round(time.monotonic() - begun, 1)
            self._journal.write(step, seconds=self.outcome.seconds[step])

    def _generate(self, seconds: float | None) -> None:
        if self._settings.corpus.folder is not None:
            return

        # A corpus that ended at its time limit is complete too: more pairs would invalidate all results made from it.
        made = read_manifest(self._settings.corpus_folder)
        if made and FinishedSteps(self._settings.folder).has("corpus", corpus_key(self._settings)):
            self._told(f"the corpus is there: {made['rows']} pairs")
            return
        made = generate(self._settings, gpus=self._gpus, seconds=self._until(seconds), told=self._told)
        self._journal.write("corpus", **made)

    def _prepare(self) -> None:
        """Prepares the data once for each codec, vocabulary and context, before processes would each do so."""
        from kernelmate_training.preparing import prepare_all

        if not self._settings.models:
            return
        for name, facts in prepare_all(self._settings, self._told).items():
            if isinstance(facts, KernelmateError):
                self._failed(f"{name}: {facts}")
                continue
            self._told(f"{name}: {facts['train']['examples']} examples, {facts['train']['tokens']} tokens")
            self._journal.write("prepared", model=name, **facts)

    def _prompts(self) -> None:
        """Writes the exam's prompts, which the models answer where they are trained."""
        for codec in sorted({model.codec for model in self._settings.models}):
            try:
                write_exam_prompts(self._settings, codec, self._told)
            except KernelmateError as error:
                self._failed(f"prompts for {codec}: {error}")

    def _train(self, seconds: float | None) -> None:
        """Trains every model in a process of its own: one per GPU at a time, or one after the other without a GPU.

        A free GPU gets the next model. A model whose `training` sets its seconds gets them as far as time remains; the
        others share the rest.
        """
        failed = {problem.partition(":")[0] for problem in self.outcome.problems}
        waiting = [model for model in self._settings.models if model.name not in failed and not self._is_done(model)]
        places: list[int | None] = list(self._gpus) or [None]
        deadline = None if seconds is None else time.monotonic() + seconds
        running: list[_Running] = []
        try:
            while waiting or running:
                for place in [place for place in places if place not in {one.place for one in running}]:
                    if waiting:
                        share = -(-(len(waiting) + len(running)) // len(places))
                        running += self._begun_one(waiting.pop(0), place, deadline, share)
                time.sleep(POLL_S)
                for one in running:
                    self._show(one.model, one.shown)
                for one in [one for one in running if one.over()]:
                    running.remove(one)
                    self._finished(one)
        finally:
            for one in running:
                self._finished(one)

    def _is_done(self, model: ModelSection) -> bool:
        """Returns True if a model is finished; its stored result is then used."""
        folder = self._settings.model_folder(model.name)
        if not (folder / FILE).is_file() or first_open(folder, model_keys(self._settings, model)) is not None:
            return False
        self._told(f"{model.name}: done before")
        self._take(model)
        return model.name in self.outcome.results

    def _begun_one(self, model: ModelSection, place: int | None, deadline: float | None, share: int) -> list[_Running]:
        """Starts a model's process; returns an empty list if no time is left for it.

        Args:
            model: the model.
            place: number of its GPU.
            deadline: deadline of all training.
            share: number of models that share the remaining time, one after the other.
        """
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left < LEAST_S:
            self._failed(f"{model.name}: no time was left to train it.")
            return []
        own = model.training.get("seconds")
        seconds = left if left is None else left / share if own is None else min(float(own), left)
        limit = None if seconds is None else time.monotonic() + seconds + self._settings.budget.finish
        return [_Running(model, place, self._start(model, place, seconds), limit)]

    def _start(self, model: ModelSection, gpu: int | None, seconds: float | None) -> subprocess.Popen[bytes]:
        folder = self._settings.model_folder(model.name)
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "kernelmate_training", str(self._config), model.name]
        command += ["--finish", str(self._settings.budget.finish)]
        command += [] if seconds is None else ["--seconds", str(seconds)]
        # On a busy CPU, threads that spin while they wait take processor time from the others.
        environment = {"OMP_WAIT_POLICY": "PASSIVE", **os.environ}
        if gpu is not None:
            environment["CUDA_VISIBLE_DEVICES"] = str(gpu)
        with (folder / "output.txt").open("ab") as output:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment)

    def _finished(self, one: _Running) -> None:
        """Reads the results of a process; a running one is asked to end, and killed after `GRACE_S`."""
        self._show(one.model, one.shown)
        self._end(one.model, one.process)
        self._show(one.model, one.shown)
        self._take(one.model)

    def _end(self, model: ModelSection, process: subprocess.Popen[bytes]) -> None:
        if process.poll() is None:
            self._failed(f"{model.name}: it took longer than its budget and was ended.")
            process.terminate()
            try:
                process.wait(GRACE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        elif process.returncode:
            self._failed(f"{model.name}: its process ended with status {process.returncode}; see output.txt beside it.")

    def _show(self, model: ModelSection, shown: dict[str, int]) -> None:
        """Forwards the new output of the model's process."""
        try:
            with (self._settings.model_folder(model.name) / "output.txt").open(encoding="utf-8", errors="replace") as file:  # fmt: skip
                file.seek(shown.get(model.name, 0))
                for line in file.readlines():
                    self._told(f"{model.name}: {line.rstrip()}")
                shown[model.name] = file.tell()
        except OSError:
            return

    def _take(self, model: ModelSection) -> None:
        path = self._settings.model_folder(model.name) / "result.json"
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return
        self.outcome.results[model.name] = found
        self.outcome.problems += [f"{model.name}: {problem}" for problem in found["problems"]]
        self._journal.write("model", **found)

    def _finetune(self) -> None:
        from kernelmate_training.finetuning import finetune

        assert self._settings.finetune is not None
        try:
            self.outcome.results[self._settings.finetune.name] = finetune(self._settings, told=self._told)
        except KernelmateError as error:
            self._failed(f"{self._settings.finetune.name}: {error}")

    def _exam(self) -> None:

        names = [*self.outcome.results]
        for name in names:
            try:
                self.outcome.results[name]["exam"] = examine(self._settings, name, told=self._told)
            except KernelmateError as error:
                self._failed(f"{name}: {error}")

    def _failed(self, problem: str) -> None:
        self.outcome.problems.append(problem)
        self._journal.write("problem", what=problem)
        self._told(problem)

    def _write(self) -> None:
        document = {"results": self.outcome.results, "problems": self.outcome.problems, "seconds": self.outcome.seconds}
        (self._settings.folder / "outcome.json").write_text(json.dumps(document, indent=1, default=str), encoding="utf-8")  # fmt: skip


def gpu_numbers() -> tuple[int, ...]:
    """Returns the numbers of this machine's GPUs, as the driver counts them, or those in CUDA_VISIBLE_DEVICES."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return tuple(int(part) for part in visible.split(",") if part.strip().isdigit())
    from kernelmate.backends.cuda.driver import read_driver

    driver = read_driver()
    return () if driver is None else tuple(range(len(driver.gpus)))


def generate(settings: Upskill, *, gpus: tuple[int, ...], seconds: float | None = None, whole: bool = True, told: OnLine = lambda line: None) -> dict[str, Any]:  # fmt: skip
    """Generate and judge the pairs that the configuration requests; returns the corpus' figures.

    Args:
        settings: the configuration.
        gpus: numbers of the GPUs to use.
        seconds: time limit, in addition to the configuration's own.
        whole: True if the pairs at the time limit count as the complete corpus.
        told: called with lines of progress.

    Raises:
        UsageError: the folder contains another corpus.
        EnvironmentFailed: a GPU is requested and there is none.
    """
    from kernelmate_training.corpus import Progress, build
    from kernelmate_training.corpus import Settings as Wanted

    section = settings.corpus
    if section.backend == "cuda" and not gpus:
        raise EnvironmentFailed(
            "corpus.backend asks for a GPU, and there is none.", hint='Set corpus.backend = "auto".'
        )
    limits = [limit for limit in (seconds, section.seconds) if limit is not None]
    wanted = Wanted(
        folder=settings.corpus_folder,
        count=section.pairs,
        seed=settings.seed,
        backend="cuda" if gpus and section.backend != "emulator" else "emulator",
        workers=section.workers,
        devices=gpus or (0,),
        families=section.families,
        limit_s=min(limits) if limits else None,
    )
    last = 0.0

    def line(at: Progress) -> None:
        nonlocal last
        if at.seconds - last >= 5.0:
            last = at.seconds
            told(f"{at.rows} of {at.wanted} pairs, {at.groups} problems, {at.seconds:.0f} s")

    build(wanted, line)
    if whole:
        FinishedSteps(settings.folder).mark("corpus", corpus_key(settings))
    return read_manifest(settings.corpus_folder)


def corpus_key(settings: Upskill) -> str:
    """Returns the key of the settings that a corpus depends on."""
    return key_of(settings.seed, settings.corpus.model_dump(exclude={"workers"}))


def read_manifest(folder: Path) -> dict[str, Any]:
    """Returns a corpus' stored figures; empty if there are none."""
    try:
        found = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def write_exam_prompts(settings: Upskill, codec: str, told: OnLine = lambda line: None) -> Path:
    """Returns the file of the exam's prompts for a codec, and writes it if it does not exist; that takes some minutes.

    Raises:
        UsageError: there is no such codec or goal.
        EnvironmentFailed: the compiler is missing.
    """
    from kernelmate_training.exam.goals import load_exam
    from kernelmate_training.exam.prompts import write_prompts

    path = settings.prompts_folder / f"{codec}.jsonl"
    done, key = FinishedSteps(settings.folder), key_of(load_exam(settings.exam.goals).sha256, settings.exam.goals)
    # Prompts of the user are kept; generated ones are written again if other goals are requested.
    stale = settings.sampling.prompts is None and not done.has(f"prompts of {codec}", key)
    if stale or not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        written, untold = write_prompts(partial, codec, settings.exam.goals)
        partial.replace(path)
        done.mark(f"prompts of {codec}", key)
        told(f"{written} prompts of the exam" + (f", {len(untold)} cannot be told by {codec}" if untold else ""))
    return path


def examine(settings: Upskill, name: str, told: OnLine = lambda line: None) -> dict[str, Any]:
    """Judge the answers of a model to the exam; results are stored beside the model, and an interrupted run resumes.

    Raises:
        UsageError: the model has no answers yet.
        EnvironmentFailed: compiler or worker are missing.
    """
    from kernelmate.report.json import plain
    from kernelmate_training.exam.attempts import Terms
    from kernelmate_training.exam.running import Wanted, run
    from kernelmate_training.torch_folders import load_folder

    folder = settings.model_folder(name)
    answers = folder / "answers.jsonl"
    if not answers.is_file():
        raise UsageError(
            f"The model {name} has no answers.", file=str(answers), hint="Name the exam's prompts in [sampling]."
        )
    section = settings.exam
    wanted = Wanted(
        goals=section.goals,
        answers=answers,
        codec=load_folder(folder).codec,
        model=name,
        terms=Terms(k=section.k, recipes=section.recipes),
        jobs=section.jobs,
    )
    result = run(
        wanted, on_goal=lambda goal, done, total: told(f"{name}: {done} of {total} goals"), keep=folder / "exam.jsonl"
    )
    document: dict[str, Any] = plain(result)
    return document


def collect(folder: Path, history_file: Path | None = None) -> int:
    """Make a corpus from the history; returns its number of pairs.

    Args:
        folder: the destination.
        history_file: the history; None for the user's own.

    Raises:
        HistoryUnavailable: the history cannot be read.
        UsageError: the folder contains another corpus.
    """
    from kernelmate.config import load_settings
    from kernelmate.history.database import default_path
    from kernelmate_training.corpus import collect as collected

    settings = load_settings()
    return collected(folder, history_file or settings.history_file or default_path())
