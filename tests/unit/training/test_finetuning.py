"""A fine-tune without a download: a tiny random Qwen2 through TRL and PEFT, merged, exported, served by llama.cpp."""

from __future__ import annotations

import json
import urllib.request
from importlib.util import find_spec
from pathlib import Path

import pytest

for package in ("torch", "trl", "peft", "datasets", "gguf"):
    pytest.importorskip(package, reason="fine-tuning needs the extra `train`")

from kernelmate.suggest.codec import codec_named  # noqa: E402
from kernelmate.suggest.local.engine_settings import EngineSettings  # noqa: E402
from kernelmate.suggest.local.engines import start_engine  # noqa: E402
from kernelmate.suggest.local.library import read_facts  # noqa: E402
from kernelmate_training.examples import Example  # noqa: E402
from kernelmate_training.finetuning import finetune, mixed  # noqa: E402
from kernelmate_training.journal import events  # noqa: E402
from kernelmate_training.settings import FineTuneSection, Upskill  # noqa: E402
from kernelmate_training.training_job import export_model  # noqa: E402

CORPUS = Path(__file__).resolve().parents[2] / "data" / "upskill"
BASE = "Qwen/Qwen2.5-Coder-3B-Instruct"


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Upskill:
    section = FineTuneSection(base=BASE, name="tiny", codec="chat-1", random=True, steps=3, batch=2, accumulate=1)
    document = {"name": "ft", "folder": tmp_path_factory.mktemp("ft"), "corpus": {"folder": CORPUS}}
    return Upskill.model_validate({**document, "finetune": section.model_dump()})


@pytest.fixture(scope="module")
def folder(settings: Upskill) -> Path:
    facts = finetune(settings)
    assert facts["steps"] == 3
    return settings.model_folder("tiny")


def test_adapters_are_learned_and_merged(folder: Path) -> None:
    adapter = json.loads((folder / "adapter" / "adapter_config.json").read_text())
    assert (adapter["r"], adapter["lora_alpha"]) == (32, 64)
    assert set(adapter["target_modules"]) == {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj"}
    assert len(list(events(folder / "log.jsonl", "step"))) >= 3
    config = json.loads((folder / "config.json").read_text())
    assert config["model_type"] == "qwen2"


@pytest.mark.skipif(find_spec("xllamacpp") is None, reason="needs the extra `local`")
def test_the_merged_model_loads_in_llama_cpp_and_answers(settings: Upskill, folder: Path) -> None:
    path = export_model(settings, "tiny", kind="q8_0")
    assert read_facts(path)["architecture"] == "qwen2"
    address = start_engine(EngineSettings(str(path), "tiny", "key", 2048, parallel=1, threads=1))
    body = {"model": "tiny", "messages": [{"role": "user", "content": "__global__ void f() {}"}], "max_tokens": 8}
    request = urllib.request.Request(
        f"{address}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json", "Authorization": "Bearer key"}
    )  # fmt: skip
    with urllib.request.urlopen(request) as answer:
        usage = json.loads(answer.read())["usage"]
    assert usage["completion_tokens"] > 0


def test_the_end_stands_once_behind_what_is_learned(folder: Path) -> None:
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    ends = [token["content"] for token in tokenizer["added_tokens"] if token["special"]]
    assert "<|im_end|>" in ends
    assert codec_named("chat-1").end == "<|im_end|>"


def examples(task: str, count: int) -> list[Example]:
    return [Example(f"{task} {number}", "a", task, "", held_out=False) for number in range(count)]


def test_tasks_and_the_replay_buffer_are_mixed_in_their_shares(tmp_path: Path) -> None:
    buffer = tmp_path / "replay.jsonl"
    buffer.write_text('{"prompt": "old", "answer": "known"}\n')
    section = FineTuneSection(base=BASE, replay=0.2, replay_from=buffer)
    drawn = mixed([*examples("generate", 80), *examples("analyse", 10), *examples("debug", 10)], section, seed=1)
    counts = {task: sum(one.task == task for one in drawn) for task in ("generate", "analyse", "debug", "replay")}
    assert counts == {"generate": 40, "analyse": 30, "debug": 30, "replay": 25}
