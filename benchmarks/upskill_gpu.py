"""Makes the starter's models on a machine with GPUs, in minutes, and packs what is worth bringing back.

    python -m benchmarks.upskill_gpu CONFIG.toml --out FOLDER [--prompts FOLDER] [--folder WORK] [--set training.seconds=60]
    python -m benchmarks.upskill_gpu --smoke --out FOLDER        # a minute: does it compile, how fast is it

The whole way is `kernelmate upskill run`; each step has its budget in CONFIG.toml, and what is there at the end is packed
even where a step failed. In FOLDER: `small.tar.gz` (logs, answers, cards, tokenizers), `corpus.jsonl.xz` (or `.gz`) and the
GGUF files, those first that choose best on held-out families, cut into pieces that `cat NAME.gguf.* > NAME.gguf` puts together.
"""

from __future__ import annotations

import argparse
import gzip
import json
import shutil
import subprocess
import tarfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kernelmate.errors import KernelmateError
from kernelmate_training.pipeline import Pipeline
from kernelmate_training.settings import Upskill, read_settings

PIECE = 15 << 20
"""Bytes of a file that comes back, at most."""
FILES, TOTAL = 8, 62 << 20
SMALL = ("*.jsonl", "*.json", "*.md", "*.txt")
NOT_SMALL = ("corpus.jsonl", "parts.jsonl", "rejected.jsonl")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path, nargs="?")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--prompts", type=Path, help="folder with CODEC.jsonl of the exam")
    parser.add_argument("--folder", type=Path, help="where to work; the configuration's when not given")
    parser.add_argument("--corpus", type=Path, help="a corpus that is there already")
    parser.add_argument(
        "--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="changes the configuration"
    )
    parser.add_argument("--smoke", action="store_true", help="measure speed on made-up tokens, no corpus")
    parser.add_argument("--seconds", type=float, default=25.0, help="of each model in --smoke")
    parser.add_argument("--tiny", action="store_true", help="with --smoke: a size that a CPU can do")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    if given.smoke:
        smoke(given.out, given.seconds, tiny=given.tiny)
        return
    settings = changed(read_settings(given.config), given)
    begun = time.monotonic()
    try:
        outcome = Pipeline(settings, told=say).run()
        say(json.dumps({"problems": outcome.problems, "seconds": outcome.seconds}))
    except KernelmateError as error:
        say(f"stopped: {error}")
    finally:
        for line in pack(settings, given.out):
            say(line)
        say(f"{time.monotonic() - begun:.1f} s in all")


def say(line: str) -> None:
    print(line, flush=True)


def changed(settings: Upskill, given: argparse.Namespace) -> Upskill:
    """The configuration with what the command line says."""
    document: dict[str, Any] = settings.model_dump()
    if given.folder is not None:
        document["folder"] = given.folder.resolve()
    if given.prompts is not None:
        document["sampling"]["prompts"] = given.prompts.resolve()
    if given.corpus is not None:
        document["corpus"]["folder"] = given.corpus.resolve()
    for change in given.set:
        path, _, value = change.partition("=")
        *sections, key = path.split(".")
        place = document
        for section in sections:
            place = place[section]
        place[key] = json.loads(value)
    return Upskill.model_validate(document)


def pack(settings: Upskill, out: Path) -> Iterator[str]:
    """Fill the folder with what comes back, the most important first; gives a line for each file."""
    small = pack_small(settings.folder, out)
    left, files = TOTAL - small.stat().st_size, FILES - 1
    yield f"{small.name}: {small.stat().st_size / 1e6:.1f} MB"
    names = sorted((model.name for model in settings.models), key=lambda name: -chooses_well(settings, name))
    models = [settings.model_folder(name) / f"{name}-{settings.export.kind}.gguf" for name in names]
    yield "by their choices on held-out families: " + ", ".join(f"{n} {chooses_well(settings, n):.3f}" for n in names)
    for number, path in enumerate(models):
        size = path.stat().st_size if path.is_file() else 0
        # One file is kept for the corpus, which comes after the first model.
        if size and size <= left and -(-size // PIECE) <= files - (number == 0):
            pieces = list(cut(path, out))
            left, files = left - size, files - len(pieces)
            yield f"{path.name}: {size / 1e6:.1f} MB in {len(pieces)} pieces"
        elif size:
            yield f"{path.name}: {size / 1e6:.1f} MB, no room"
        if number == 0 and (corpus := settings.corpus_folder / "corpus.jsonl").is_file():
            packed = squeezed(corpus, out, min(PIECE, left))
            left, files = left - packed.stat().st_size, files - 1
            yield f"{packed.name}: {packed.stat().st_size / 1e6:.1f} MB"


def chooses_well(settings: Upskill, name: str) -> float:
    """The share of a model's first choices that are good on held-out families, tasks by their weights; 0 if it is not known."""
    try:
        facts = json.loads((settings.model_folder(name) / "kernelmate.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return 0.0
    weights = settings.training.task_weights
    found = {task: figures["first"] for task, figures in (facts.get("choices") or {}).items()}
    total = sum(weights.get(task, 0.0) for task in found)
    return sum(weights.get(task, 0.0) * first for task, first in found.items()) / total if total else 0.0


def pack_small(folder: Path, out: Path) -> Path:
    """Logs, answers, cards and tokenizers in one archive."""
    small = out / "small.tar.gz"
    with tarfile.open(small, "w:gz", compresslevel=6) as archive:
        for path in small_files(folder):
            archive.add(path, path.relative_to(folder))
    return small


def small_files(folder: Path) -> list[Path]:
    """Logs, answers, cards, tokenizers; prepared tokenizers stand beside their models once more and are left out."""
    found = {path for pattern in SMALL for path in folder.rglob(pattern)}
    return sorted(path for path in found if path.name not in NOT_SMALL and "prepared" not in path.parts)


def cut(path: Path, out: Path) -> Iterator[Path]:
    """A file in pieces: NAME.00, NAME.01, ..."""
    with path.open("rb") as file:
        for number, piece in enumerate(iter(lambda: file.read(PIECE), b"")):
            target = out / f"{path.name}.{number:02d}"
            target.write_bytes(piece)
            yield target


def pieces_of(paths: Sequence[Path], record: Path, out: Path, left: int, files: int) -> Iterator[str]:
    """Bring as many pieces of files as there is room for, those that no earlier call brought; a file made again is brought again.

    Args:
        paths: of the files, the most wanted first.
        record: keeps what was brought.
        out: the folder that comes back.
        left: bytes that have room in it.
        files: that have room in it.
    """
    brought = set(json.loads(record.read_text())) if record.is_file() else set()
    waiting = 0
    for path in paths:
        size, count = path.stat().st_size, 0
        for number, start in enumerate(range(0, size, PIECE)):
            mark = f"{path.name}.{number:02d} of {path.stat().st_mtime_ns}"
            length = min(PIECE, size - start)
            if mark in brought:
                continue
            if length > left or not files:
                waiting += 1
                continue
            with path.open("rb") as file:
                file.seek(start)
                (out / f"{path.name}.{number:02d}").write_bytes(file.read(length))
            brought.add(mark)
            left, files, count = left - length, files - 1, count + 1
        if count:
            yield f"{path.name}: {size / 1e6:.1f} MB, {count} pieces of {-(-size // PIECE)}"
    record.write_text(json.dumps(sorted(brought)), encoding="utf-8")
    if waiting:
        yield f"{waiting} more pieces: `fetch` brings them"


def squeezed(corpus: Path, out: Path, room: int) -> Path:
    """The corpus packed; its last lines are left out until it fits."""
    lines = corpus.read_bytes().splitlines(keepends=True)
    while True:
        packed = _packed(b"".join(lines), out)
        if packed.stat().st_size <= room or len(lines) < 2:
            return packed
        lines = lines[: int(len(lines) * 0.9 * room / packed.stat().st_size)]


def _packed(data: bytes, out: Path) -> Path:
    if shutil.which("xz"):
        target = out / "corpus.jsonl.xz"
        with target.open("wb") as file:
            subprocess.run(["xz", "-T0", "-6", "--stdout"], input=data, stdout=file, check=True)
        return target
    target = out / "corpus.jsonl.gz"
    target.write_bytes(gzip.compress(data, 6))
    return target


def smoke(out: Path, seconds: float, *, tiny: bool) -> None:
    """Speed of training and of sampling on made-up tokens; what is not what it should be is printed, not raised."""
    import torch

    from kernelmate_training.encoded import Encoded
    from kernelmate_training.plans import TrainingPlan
    from kernelmate_training.shapes import Shape
    from kernelmate_training.torch_device import place
    from kernelmate_training.torch_llama import _agrees, best_way
    from kernelmate_training.torch_trainer import Trainer

    random = np.random.default_rng(0)
    texts = [
        random.integers(2, 4000, random.integers(200, 900)).astype(np.uint16) for _ in range(200 if tiny else 20000)
    ]
    starts = np.concatenate([[0], np.cumsum([len(text) for text in texts])]).astype(np.int64)
    data = Encoded(
        np.concatenate(texts), starts, np.array([len(text) * 4 // 5 for text in texts]), np.zeros(len(texts), np.uint8)
    )
    sizes = {"tiny": (64, 2, 2, 128)} if tiny else {"35m": (512, 10, 8, 1408), "80m": (768, 11, 12, 2048)}
    with place("auto") as here:
        say(f"{here.name}, torch {torch.__version__}, attention {best_way(here.device).__name__}")
        if here.device.type == "cuda":
            try:
                say(f"varlen agrees with masked: {_agrees(here.device)}")
            except Exception as error:  # noqa: BLE001 -- the very thing to be told
                say(f"varlen failed: {type(error).__name__}: {error}")
        for name, (hidden, layers, heads, wide) in sizes.items():
            shape = Shape(4096, hidden, layers, heads, heads, wide, 2048)
            for rows in (2,) if tiny else (32, 64):
                torch._dynamo.reset()
                folder = out / f"smoke-{name}-{rows}"
                plan = TrainingPlan(
                    seconds=seconds,
                    tokens_per_step=rows * 2048,
                    held_out_s=0,
                    checkpoint_s=1e9,
                    log_steps=2 if tiny else 10,
                )
                trainer = Trainer(plan, shape, data, None, folder, here)
                done = trainer.run()
                log = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
                first = next((event["seconds"] for event in log if event["event"] == "first step"), None)
                steps = [event for event in log if event["event"] == "step"]
                say(
                    f"{name} {rows} rows: {done.tokens_per_s:,.0f} tokens/s, MFU {steps[-1]['mfu'] if steps else None}, first step {first} s, loss {done.loss:.3f}"
                )
                if here.device.type == "cuda":
                    say(f"  peak memory {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB")
                    torch.cuda.reset_peak_memory_stats()
                for path in folder.glob("step-*"):
                    path.unlink()
            _smoke_sampling(trainer.model, tiny=tiny)


def _smoke_sampling(model: Any, *, tiny: bool) -> None:
    from kernelmate_training.torch_sampling import Drawing, sample
    from kernelmate_training.vocabulary import train_tokenizer

    tokenizer = train_tokenizer(["float a = b[i] + c;"] * 3, ["@end"], "@end", 400)
    prompts = ["float a = b[i] + c; " * 20] * (4 if tiny else 120)
    begun = time.monotonic()
    drawn = sample(
        model.eval(),
        tokenizer,
        prompts,
        Drawing(k=9, temperature=0.8, greedy_first=True, most_tokens=8 if tiny else 200),
    )
    seconds = time.monotonic() - begun
    say(f"  sampling: {len(drawn)} answers, {sum(one.tokens for one in drawn)} tokens in {seconds:.1f} s")


if __name__ == "__main__":
    main()
