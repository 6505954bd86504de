"""Comparison of codecs on a corpus: encodable rows, decoded versions, length of answers, and speed of augmentation.

    python -m benchmarks.upskill_codecs CORPUS [--rows 2000] [--codec mixed-2] [--out results.txt]

Rows are drawn by chance from all of the corpus; those for analyses have no version and are counted in tokens only. A version came
back byte for byte, or in the same statements with other blanks or comments. Tokens are of a vocabulary of 4096 that is learned
from the rows themselves. Seconds are CPU seconds of one core.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import describe
from kernelmate.suggest.codec import OFFERING, codec_named
from kernelmate.suggest.codec.base import Codec, NotEncodable, UndecodableAnswer
from kernelmate.suggest.codec.splitting import canonical
from kernelmate_training.augmentation import Augmentation, AugmentationRates
from kernelmate_training.batches import Packer
from kernelmate_training.encoded import Encoded, encode
from kernelmate_training.examples import TASKS, format_examples, lines_of, question_of, version_of
from kernelmate_training.plans import TASK_WEIGHTS
from kernelmate_training.vocabulary import train_tokenizer

CONTEXT, VOCABULARY = 2048, 4096
KINDS = {
    "as they are": {},
    "names": {"names": 1.0},
    "and line numbers": {"names": 1.0, "numbers": 1.0},
    "and facts": {"names": 1.0, "numbers": 1.0, "facts": 0.15},
    "as in starter.toml": {"names": 0.8, "numbers": 0.5, "facts": 0.15, "words": 0.5, "lines": 0.5, "offers": 0.25},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--codec", action="append", default=[])
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    lines = lines_of(given.corpus)
    lines = random.Random(1).sample(lines, min(given.rows, len(lines)))
    said = [f"{describe()} · python -m benchmarks.upskill_codecs CORPUS --rows {len(lines)}", ""]
    for name in given.codec or OFFERING:
        said += [*report(lines, name), ""]
    text = "\n".join(said)
    print(text)
    if given.out is not None:
        given.out.write_text(text, encoding="utf-8")


def report(lines: Sequence[str], name: str) -> Iterator[str]:
    """Lines about one codec."""
    codec = codec_named(name)
    counts = came_back([json.loads(line) for line in lines], codec)
    pairs = sum(counts[kind] for kind in ("bytes", "statements", "differs", "unreadable", "untold"))
    told = ", ".join(f"{kind} {counts[kind]}" for kind in ("bytes", "statements", "differs", "unreadable", "untold"))
    yield f"{name}: of {pairs} versions came back: {told}"
    begun = time.process_time()
    found = format_examples(lines, name, processes=1)
    seconds = time.process_time() - begun
    texts = (text for one in found.examples for text in (one.prompt, one.answer))
    tokenizer = train_tokenizer(texts, codec.vocabulary(), codec.end, VOCABULARY)
    data, too_long = encode(found.examples, tokenizer, CONTEXT)
    answers = data.lengths - data.answers
    for number, task in enumerate(TASKS):
        chosen = data.tasks == number
        if chosen.any():
            yield f"  {task}: {chosen.sum()} examples, prompt {data.answers[chosen].mean():.1f} tokens, answer {answers[chosen].mean():.1f} on average, {np.median(answers[chosen]):.0f} in the middle"  # fmt: skip
    tokens = int(data.starts[-1])
    yield f"  {too_long} examples longer than {CONTEXT} tokens; vocabulary {tokenizer.get_vocab_size()}; telling {tokens / seconds:,.0f} tokens/s of a core"  # fmt: skip
    for what, how in KINDS.items():
        varying = Augmentation(AugmentationRates.of(how), tokenizer.to_str()) if how else None
        yield f"  batches, {what}: {speed(data, varying):,.0f} tokens/s of a core"


def came_back(rows: Sequence[dict[str, Any]], codec: Codec) -> Counter[str]:
    """Counts versions by the result of a round trip through the codec.

    The keys are equal `bytes` or `statements`, `differs`, `unreadable`, and `untold` for what the codec cannot encode.
    """
    counts: Counter[str] = Counter()
    for number, row in enumerate(rows):
        question = question_of(row, number)
        if question.task == "analyse":
            continue
        after = version_of(row["after"])
        try:
            got = codec.ask(question).read(codec.answer(question, after, row.get("reasoning") or ())).version
        except NotEncodable:
            counts["untold"] += 1
            continue
        except UndecodableAnswer:
            counts["unreadable"] += 1
            continue
        if got == after:
            counts["bytes"] += 1
        elif got is not None and got.launch == after.launch and statements(got.text, question.kernel) == statements(after.text, question.kernel):  # fmt: skip
            counts["statements"] += 1
        else:
            counts["differs"] += 1
    return counts


def statements(text: str, kernel: str) -> list[list[str]]:
    return [line.texts for line in canonical(text, kernel).lines]


def speed(data: Encoded, varying: Augmentation | None) -> float:
    """Tokens a second of making batches, packing included."""
    packer = Packer(data, 16, CONTEXT, TASK_WEIGHTS, 1, varying=varying)
    packer.batch([[0]])
    rows = packer.epoch_rows(0)
    begun = time.process_time()
    made = [packer.batch(rows[at : at + 16], (at, 0)).filled for at in range(0, len(rows), 16)]
    return sum(made) / (time.process_time() - begun)


if __name__ == "__main__":
    main()
