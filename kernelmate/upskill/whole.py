"""The whole way by one call: corpus, models at once on as many GPUs as there are, export, answers, exam.

Each step has its budget. One that overruns is ended and what it has is what the next step gets.
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
from typing import Any

from kernelmate.errors import KernelmateError
from kernelmate.upskill.journal import Journal
from kernelmate.upskill.settings import ModelSection, Upskill

Told = Callable[[str], None]
GRACE_S = 20.0
"""Seconds that a process gets to save what it has, after it was asked to end."""
POLL_S = 0.2


@dataclass(slots=True)
class Outcome:
    """What the whole way came to: the models' results by name, and what went wrong."""

    results: dict[str, dict[str, Any]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)


class Whole:
    """One undertaking.

    Args:
        settings: what is to be done.
        gpus: numbers of the GPUs that may be used; None for all of the machine.
        told: lines about how far it is.
    """

    def __init__(self, settings: Upskill, gpus: tuple[int, ...] | None = None, told: Told = lambda line: None) -> None:  # fmt: skip
        self._settings, self._told = settings, told
        # The processes that are started read what is meant now, not what a file says later.
        self._config = settings.folder / "settings.json"
        self._begun = time.monotonic()
        self._gpus = gpu_numbers() if gpus is None else gpus
        self._journal = Journal(settings.folder / "run.jsonl")
        self.outcome = Outcome()

    def run(self) -> Outcome:
        """Do all of it; a step that fails is noted, and what can go on without it goes on.

        Raises:
            KernelmateError: there is no corpus, without which nothing goes on.
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
        """Seconds that a step has: its own, or what is left of the whole less what must come after it."""
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
        from kernelmate.upskill.generating import generate

        made = generate(self._settings, gpus=self._gpus, seconds=self._until(seconds), told=self._told)
        self._journal.write("corpus", **made)

    def _prepare(self) -> None:
        """Once for each codec, vocabulary and context, before processes that would each do it."""
        from kernelmate.upskill.preparing import prepare

        for model in self._settings.models:

            def told(what: str, done: int, total: int, name: str = model.name) -> None:
                self._told(f"{name}: {what} {done}/{total}")

            try:
                facts = prepare(self._settings, model, told).facts
            except KernelmateError as error:
                self._failed(f"{model.name}: {error}")
                continue
            self._told(f"{model.name}: {facts['train']['examples']} examples, {facts['train']['tokens']} tokens")
            self._journal.write("prepared", model=model.name, **facts)

    def _prompts(self) -> None:
        """Of the exam, which the models answer where they are trained."""
        from kernelmate.upskill.examining import write_exam_prompts

        for codec in sorted({model.codec for model in self._settings.models}):
            try:
                write_exam_prompts(self._settings, codec, self._told)
            except KernelmateError as error:
                self._failed(f"prompts for {codec}: {error}")

    def _train(self, seconds: float | None) -> None:
        """Every model in a process of its own: one per GPU at a time, or one after the other without."""
        failed = {problem.partition(":")[0] for problem in self.outcome.problems}
        waiting = [model for model in self._settings.models if model.name not in failed]
        places: list[int | None] = list(self._gpus) or [None]
        turns = -(-len(waiting) // len(places)) if waiting else 1
        each = None if seconds is None else seconds / turns
        limit = None if each is None else each + self._settings.budget.finish
        for at in range(0, len(waiting), len(places)):
            turn = zip(waiting[at : at + len(places)], places, strict=False)
            self._wait([(model, self._start(model, gpu, each)) for model, gpu in turn], limit)

    def _start(self, model: ModelSection, gpu: int | None, seconds: float | None) -> subprocess.Popen[bytes]:
        folder = self._settings.model_folder(model.name)
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "kernelmate.upskill", str(self._config), model.name]
        command += ["--finish", str(self._settings.budget.finish)]
        command += [] if seconds is None else ["--seconds", str(seconds)]
        # On a busy CPU, threads that spin while they wait for each other take the time that the others need.
        environment = {"OMP_WAIT_POLICY": "PASSIVE", **os.environ}
        if gpu is not None:
            environment["CUDA_VISIBLE_DEVICES"] = str(gpu)
        with (folder / "output.txt").open("ab") as output:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment)

    def _wait(self, started: list[tuple[ModelSection, subprocess.Popen[bytes]]], limit: float | None) -> None:
        """Until all have ended; at the limit they are asked to, and after a while made to."""
        deadline = None if limit is None else time.monotonic() + limit
        shown: dict[str, int] = {}
        try:
            while any(process.poll() is None for _, process in started):
                if deadline is not None and time.monotonic() > deadline:
                    break
                time.sleep(POLL_S)
                for model, _ in started:
                    self._show(model, shown)
        finally:
            for model, process in started:
                self._show(model, shown)
                self._end(model, process)
        for model, _ in started:
            self._take(model)

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
        """Pass on what the model's process has said since."""
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
        from kernelmate.upskill.finetuning import finetune

        assert self._settings.finetune is not None
        try:
            self.outcome.results[self._settings.finetune.name] = finetune(self._settings, told=self._told)
        except KernelmateError as error:
            self._failed(f"{self._settings.finetune.name}: {error}")

    def _exam(self) -> None:
        from kernelmate.upskill.examining import examine

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
    """The GPUs of this machine, as the driver numbers them; those that CUDA_VISIBLE_DEVICES names, where it is set."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return tuple(int(part) for part in visible.split(",") if part.strip().isdigit())
    from kernelmate.backends.cuda.driver import read_driver

    driver = read_driver()
    return () if driver is None else tuple(range(len(driver.gpus)))
