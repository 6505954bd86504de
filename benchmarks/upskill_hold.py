"""Makes models on a machine that is lent for half an hour: commands that share a folder, each with its seconds.

    python -m benchmarks.upskill_hold generate CONFIG.toml --state /tmp/hold --out FOLDER --seconds 330
    python -m benchmarks.upskill_hold train    CONFIG.toml --state /tmp/hold --out FOLDER --seconds 560 --prompts PROMPTS
    python -m benchmarks.upskill_hold answers  CONFIG.toml --state /tmp/hold --out FOLDER --seconds 120 --prompts PROMPTS
    python -m benchmarks.upskill_hold rounds   CONFIG.toml --state /tmp/hold --out FOLDER --seconds 300 --prompts PROMPTS
    python -m benchmarks.upskill_hold fetch    CONFIG.toml --state /tmp/hold --out FOLDER
    python -m benchmarks.upskill_hold all      CONFIG.toml --smoke --state FOLDER --out FOLDER     # minutes, on two CPU cores

`generate` draws and judges a corpus on all GPUs and cores. `train` trains the configuration's models on it, or on one brought along
(`--corpus`): one per GPU at a time, for the seconds that a model's `training.seconds` or `--spend NAME=SECONDS` give it, the others
sharing what is left. It draws answers to the exam, which any machine can judge afterwards
(`python -m kernelmate_training.exam run --answers`); `--judge SECONDS` has them judged there by the emulator on all cores. With
`--no-answers` it only trains, and `answers` draws those of all models at once afterwards. `rounds` takes the model that chooses best
on held-out families (or `--model`; never by the exam, which is for saying what a model is worth) and lets copies of it play rounds of
several kinds at once, several on a GPU, judged by the emulator on all cores, with questions of the corpus; then they answer the exam.
Whatever is there when a stage's seconds are over is packed: `small.tar.gz` with logs, answers and results, the corpus, and GGUF files in
pieces that `cat NAME.gguf.* > NAME.gguf` puts together, those of the models that choose best first; what found no room is brought by
`fetch`, given as often as there is more.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.upskill_gpu import FILES, PIECE, TOTAL, changed, chooses_well, cut, pack_small, pieces_of, say, squeezed
from kernelmate.errors import KernelmateError
from kernelmate_training.settings import Upskill, read_settings

PACKING_S = 20.0
"""Seconds that packing takes, kept at the end of each stage."""
ASSEMBLING = 0.07
"""Share of the seconds of `generate` in which what was judged is put together."""
FINISH_S = 45.0
"""Seconds for drawing answers."""
EXPORT_S, LOADING_S = 25.0, 15.0
"""Seconds for loading torch, looking at choices and writing a GGUF file, and until torch and a model are loaded."""
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "self": {"kind": "self"},
    "contrastive": {"kind": "contrastive"},
    "both": {"kind": "both"},
    "grpo": {"kind": "grpo", "rate": 1e-5, "kl": 0.1, "k": 8, "temperature": 1.0},
}
"""Rounds that copies of the best model play at once."""
ROUNDS: Mapping[str, Any] = {"rounds": 40, "prompts": 64, "k": 4, "seconds": 40.0, "steps": 6, "most_tokens": 96}
"""Rounds where the configuration has none: as many as there is time for."""
EXAM_TARGET = "H100 SXM"
"""The GPU that emulated results are for, so that they can be joined with others."""
SMOKE: Mapping[str, Any] = {
    "corpus": {"pairs": 40, "seconds": 60.0, "backend": "emulator"},
    "training": {
        "steps": 30,
        "seconds": None,
        "tokens_per_step": 2048,
        "rate": 3e-3,
        "log_steps": 10,
        "held_out_s": 0,
        "workers": 0,
    },
    "rounds": {"rounds": 1, "prompts": 2, "k": 2, "seconds": 40.0, "steps": 4},
    "sampling": {"k": 2, "most_tokens": 24},
    "shape": {"vocabulary": 1500, "hidden": 32, "layers": 1, "heads": 2, "feed_forward": 64, "context": 1536},
}
"""Values that `--smoke` sets in a configuration."""
SMOKE_GOALS = ("rotate-image-coalescing", "fix-trapezoid")


@dataclass(frozen=True, slots=True)
class Hold:
    """One stage: what is to be done, where, and until when.

    `judging` are the seconds that judging answers may take; `answers` says whether models answer as soon as they are trained.
    """

    settings: Upskill
    out: Path
    seconds: float
    smoke: bool
    model: str = ""
    judging: float = 0.0
    answers: bool = True
    begun: float = field(default_factory=time.monotonic)

    @property
    def left(self) -> float:
        """Seconds until packing has to begin."""
        return self.seconds - (time.monotonic() - self.begun) - PACKING_S


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", choices=(*STAGES, "all"))
    parser.add_argument("config", type=Path)
    parser.add_argument("--state", type=Path, required=True, help="what the stages share; not what comes back")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=560.0, help="of this stage, packing included")
    parser.add_argument("--prompts", type=Path, help="folder with CODEC.jsonl of the exam")
    parser.add_argument("--corpus", type=Path, help="a corpus that is there already, in place of `generate`")
    parser.add_argument(
        "--model", default="", help="that plays rounds; unless given, the one that chooses best on held-out families"
    )
    parser.add_argument(
        "--judge", type=float, default=0.0, help="seconds in which answers are judged; else that is left to others"
    )
    parser.add_argument(
        "--spend", action="append", default=[], metavar="NAME=SECONDS", help="of training for one model"
    )
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="of the models; may be repeated")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE")
    parser.add_argument("--no-answers", action="store_true", help="only train; `answers` draws them afterwards")
    parser.add_argument("--smoke", action="store_true", help="a size that a CPU can do")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    given.folder = given.state
    settings = spent(only(changed(read_settings(given.config), given), given.only), given.spend)
    for stage in STAGES if given.stage == "all" else (given.stage,):
        judging = given.judge if given.smoke else min(given.judge, given.seconds / 3)
        hold = Hold(settled(settings, smoke=given.smoke), given.out, given.seconds, given.smoke, given.model, judging, not given.no_answers)  # fmt: skip
        say(f"== {stage}: {hold.seconds:.0f} s, {os.cpu_count()} cores, GPUs {gpus()}")
        try:
            STAGES[stage](hold)
        except KernelmateError as error:
            say(f"stopped: {error}")
        finally:
            for line in pack(hold, stage):
                say(line)
            say(f"== {stage}: {time.monotonic() - hold.begun:.1f} s in all")


def only(settings: Upskill, names: Sequence[str]) -> Upskill:
    """The configuration with those of its models that are named, in their order there; with all where none is.

    Raises:
        UsageError: there is no such model.
    """
    wanted = {settings.model(name).name for name in names}
    kept = tuple(model for model in settings.models if not wanted or model.name in wanted)
    return settings.model_copy(update={"models": kept})


def spent(settings: Upskill, seconds: Sequence[str]) -> Upskill:
    """The configuration with the seconds of training that the command line gives to some models.

    Raises:
        UsageError: there is no such model.
    """
    document: dict[str, Any] = settings.model_dump()
    for name, _, value in (one.partition("=") for one in seconds):
        place = settings.models.index(settings.model(name))
        document["models"][place]["training"] = {**document["models"][place]["training"], "seconds": float(value)}
    return Upskill.model_validate(document)


def settled(settings: Upskill, *, smoke: bool) -> Upskill:
    """The configuration with what a hold decides: its budgets, and in a smoke run all sizes."""
    document: dict[str, Any] = settings.model_dump()
    document["exam"]["run"] = False
    if smoke:
        for section in ("corpus", "training", "rounds", "sampling"):
            document[section].update(SMOKE[section])
        document["models"] = [{**model, **SMOKE["shape"], "copies": 1, "training": {}} for model in document["models"]]
    elif settings.rounds.kind == "none":
        document["rounds"].update(ROUNDS)
    if document["sampling"]["prompts"] is None:
        document["sampling"]["prompts"] = settings.folder / "prompts"
    return Upskill.model_validate(document)


def gpus() -> tuple[int, ...]:
    from kernelmate_training.pipeline import gpu_numbers

    return gpu_numbers()


def generate(hold: Hold) -> None:
    """A corpus, drawn and judged until its share of the seconds is over; what an earlier command judged is gone on with."""
    from kernelmate_training.pipeline import generate as make

    made = make(hold.settings, gpus=gpus(), seconds=hold.left * (1 - ASSEMBLING), told=say)
    say(
        json.dumps({key: made.get(key) for key in ("rows", "groups", "lost", "duplicates", "tasks", "splits", "about")})
    )


def train(hold: Hold) -> None:
    """The configuration's models, their answers to the exam, and, where there is time for it, the answers judged."""
    from kernelmate_training.pipeline import Pipeline

    settings = on_corpus(hold.settings)
    if hold.answers:
        write_prompts(settings, smoke=hold.smoke)
    total = None if hold.smoke else max(hold.left - hold.judging, 30.0)
    document = settings.model_dump()
    document["budget"] = {"total": total, "finish": FINISH_S if hold.answers else EXPORT_S}
    document["sampling"] |= {} if hold.answers else {"prompts": None}
    outcome = Pipeline(Upskill.model_validate(document), told=say).run()
    say(json.dumps({"problems": outcome.problems, "seconds": outcome.seconds}))
    examine(hold, settings, [model.name for model in settings.models])


def answers(hold: Hold) -> None:
    """The answers of all models that are trained, at once: several on each GPU, since most of the time each waits for its own processor."""
    settings = on_corpus(hold.settings)
    write_prompts(settings, smoke=hold.smoke)
    names = [model.name for model in settings.models]
    there = [name for name in names if (settings.model_folder(name) / "kernelmate.json").is_file()]
    config = settings.folder / "answers.json"
    config.write_text(settings.model_dump_json(indent=1), encoding="utf-8")
    places: Sequence[int | None] = gpus() or (None,)
    seconds = max(hold.left - LOADING_S, 10.0)
    started = []
    for number, name in enumerate(there):
        command = [sys.executable, "-m", "kernelmate_training", str(config), name, "--answer", "--finish", str(seconds)]
        started.append(started_in(settings.model_folder(name) / "output.txt", command, places[number % len(places)]))
    wait(started, hold.left)
    for name in there:
        say(f"{name}: {last_lines(settings.model_folder(name) / 'output.txt', 1)}")


def fetch(hold: Hold) -> None:
    """Nothing but what `pack` does: bring more of what is there."""
    say(f"{hold.settings.folder}: what did not come back yet")


def rounds(hold: Hold) -> None:
    """Rounds of several kinds at once, each by a copy of one model; then their answers to the exam, judged where there is time for it."""
    from kernelmate_training.round_process import copy_model

    settings = on_corpus(hold.settings)
    write_prompts(settings, smoke=hold.smoke)
    best = hold.model or ranked(settings, [model.name for model in settings.models])[0]
    places: Sequence[int | None] = gpus() or (None,)
    workers = max((os.cpu_count() or 1) // len(VARIANTS), 1)
    seconds = max(hold.left - hold.judging - FINISH_S, 20.0)
    say(f"{best} plays {', '.join(VARIANTS)}: {seconds:.0f} s, {workers} processes each")
    names, started = [], []
    for number, (kind, change) in enumerate(VARIANTS.items()):
        name = f"{best}-{kind}"
        copy_model(settings, best, name)
        started.append(start_playing(settings, best, name, change, places[number % len(places)], workers, seconds))
        names.append(name)
    wait(started, seconds + FINISH_S + 300.0 if hold.smoke else max(hold.left, 10.0))
    for name in names:
        say(f"{name}: {last_lines(settings.model_folder(name) / 'output.txt', 4)}")
    examine(hold, settings, names)


STAGES = {"generate": generate, "train": train, "answers": answers, "rounds": rounds, "fetch": fetch}


def on_corpus(settings: Upskill) -> Upskill:
    """The configuration with the corpus that is there, so that none is generated."""
    document = settings.model_dump()
    document["corpus"]["folder"] = settings.corpus_folder
    return Upskill.model_validate(document)


def write_prompts(settings: Upskill, *, smoke: bool) -> None:
    """The exam's prompts of each codec, where they were not brought along; writing them judges every kernel once."""
    from kernelmate_training.exam.prompts import write_prompts as write

    folder = settings.sampling.prompts
    assert folder is not None
    folder.mkdir(parents=True, exist_ok=True)
    for codec in sorted({model.codec for model in settings.models}):
        path = folder / f"{codec}.jsonl"
        if not path.is_file():
            say(f"prompts of the exam for {codec} are written here")
            write(path, codec, SMOKE_GOALS if smoke else ())


def start_playing(
    settings: Upskill, best: str, name: str, change: Mapping[str, Any], gpu: int | None, workers: int, seconds: float
) -> subprocess.Popen[bytes]:
    """A process in which a copy plays rounds; it shares what was prepared for the model that it is a copy of."""
    document = settings.model_dump(mode="json")
    # A copy is named after its model, whose name may begin with another one's.
    model = max((one for one in document["models"] if best.startswith(one["name"])), key=lambda one: len(one["name"]))
    document["models"] = [{**model, "name": name}]
    document["rounds"].update(change)
    document["corpus"]["workers"] = workers
    folder = settings.model_folder(name)
    config = folder / "settings.json"
    config.write_text(json.dumps(document, indent=1), encoding="utf-8")
    # A round that has begun is played to its end: what it may take is left for it.
    begins = max(seconds - document["rounds"]["seconds"] - 30.0, 1.0)
    command = [sys.executable, "-m", "kernelmate_training", str(config), name, "--play"]
    command += ["--seconds", str(begins), "--finish", str(FINISH_S)]
    return started_in(folder / "output.txt", command, gpu)


def examine(hold: Hold, settings: Upskill, names: Sequence[str], backend: str = "emulator") -> None:
    """Have answers judged, all models' at once, if there is time for it; what is judged when the time is over counts, and is said to be part of it."""
    there = [name for name in names if (settings.model_folder(name) / "answers.jsonl").is_file()]
    say(f"answers of {', '.join(there) or 'no model'}")
    if not hold.judging:
        return
    cores = os.cpu_count() or 1
    jobs = 6 if backend == "cuda" else max(cores // max(len(there), 1), 1)
    deadline = min(hold.judging, max(hold.left, 10.0))
    codecs = {
        name: json.loads((settings.model_folder(name) / "kernelmate.json").read_text())["codec"] for name in there
    }
    started = []
    for name in there:
        folder = settings.model_folder(name)
        command = [sys.executable, "-m", "kernelmate_training.exam", "run", "--answers", str(folder / "answers.jsonl")]
        command += [
            "--codec",
            codecs[name],
            "--model",
            name,
            "--k",
            str(min(settings.exam.k, settings.sampling.k)),
            "--recipes",
            "0",
        ]
        command += ["--backend", backend, "--jobs", str(jobs), "-o", str(result_of(folder, backend))]
        command += [part for goal in (SMOKE_GOALS if hold.smoke else ()) for part in ("--goals", goal)]
        target = {"KERNELMATE_TARGET": EXAM_TARGET} if backend == "emulator" else {}
        started.append(started_in(folder / f"exam-{backend}.txt", command, None, target))
    wait(started, deadline)
    for name in there:
        say(f"{name} on {backend}: {standing(settings, name, backend)}")


def result_of(folder: Path, backend: str) -> Path:
    return folder / f"exam-{backend}.json"


def judged_goals(settings: Upskill, name: str, backend: str = "emulator") -> list[dict[str, Any]]:
    """Returns the results of the goals that were judged; of an interrupted exam, those in its partial file."""
    path = result_of(settings.model_folder(name), backend)
    if path.is_file():
        found: list[dict[str, Any]] = json.loads(path.read_text())["goals"]
        return found
    part = path.with_name(path.name + ".part")
    lines = part.read_text().splitlines() if part.is_file() else []
    documents = [json.loads(line) for line in lines if line.endswith("}")]
    return [one for one in documents if "attempts" in one]


def standing(settings: Upskill, name: str, backend: str = "emulator") -> dict[str, int]:
    """Goals that were judged, and those with an answer that was right, better, met; the greedy answer's own beside them."""
    from kernelmate_training.exam.records import read_goal

    goals = [read_goal(goal) for goal in judged_goals(settings, name, backend)]
    levels = {level: sum(goal.reached(level, ("model",)) for goal in goals) for level in ("met", "better", "right")}  # type: ignore[arg-type]
    return {"goals": len(goals), **levels, "greedy met": sum(goal.reached("met", ("model",), 1) for goal in goals)}


def ranked(settings: Upskill, names: Sequence[str]) -> list[str]:
    """Models that were kept, by their choices on held-out families; where these are equal or not known, in the order given.

    The exam has no say: by picking the model that does best in it, its figures would be picked as well.
    """
    there = [name for name in names if (settings.model_folder(name) / "kernelmate.json").is_file()]
    if not there:
        raise KernelmateError("No model was trained.", hint="Run the stage `train` first.")
    return sorted(there, key=lambda name: -chooses_well(settings, name))


def started_in(output: Path, command: Sequence[str], gpu: int | None, more: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:  # fmt: skip
    """A process whose words go into a file."""
    environment = {"OMP_WAIT_POLICY": "PASSIVE", **os.environ, **(more or {})}
    if gpu is not None:
        environment["CUDA_VISIBLE_DEVICES"] = str(gpu)
    with output.open("ab") as file:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=environment)


def wait(started: Sequence[subprocess.Popen[bytes]], seconds: float) -> None:
    """Until all have ended; those that have not by then are asked to, and made to ten seconds later."""
    end = time.monotonic() + seconds
    for number, sign in enumerate((None, signal.SIGINT, signal.SIGKILL)):
        for process in started:
            if sign is not None and process.poll() is None:
                process.send_signal(sign)
        for process in started:
            try:
                process.wait(max(end + 10.0 * number - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                continue


def last_lines(path: Path, count: int) -> str:
    try:
        return " | ".join(path.read_text(encoding="utf-8", errors="replace").splitlines()[-count:])
    except OSError:
        return "nothing was said"


def pack(hold: Hold, stage: str) -> Iterator[str]:
    """Fill the folder that comes back: what is small, then the corpus after `generate`, else pieces of models not brought yet."""
    small = pack_small(hold.settings.folder, hold.out)
    left, files = TOTAL - small.stat().st_size, FILES - 1
    yield f"{small.name}: {small.stat().st_size / 1e6:.1f} MB"
    if stage == "generate":
        corpus = hold.settings.corpus_folder / "corpus.jsonl"
        if corpus.is_file():
            packed = squeezed(corpus, hold.out, left)
            size = packed.stat().st_size
            pieces = len(list(cut(packed, hold.out))) if size > PIECE else 1
            if size > PIECE:
                packed.unlink()
            yield f"{packed.name}: {size / 1e6:.1f} MB in {pieces} pieces"
        return
    folder = hold.settings.folder / "models"
    names = [path.name for path in sorted(folder.glob("*")) if (path / "kernelmate.json").is_file()]
    # What has played rounds is what a stage of rounds was for.
    order = [name for name in ranked(hold.settings, names) if stage != "rounds" or has_played(name)] if names else []
    models = [path for name in order for path in (folder / name).glob("*.gguf")]
    yield from pieces_of(models, hold.settings.folder / "brought.json", hold.out, left, files)


def has_played(name: str) -> bool:
    """True if a model of this name is a copy that played rounds."""
    return any(name.endswith(f"-{kind}") for kind in VARIANTS)


if __name__ == "__main__":
    main()
