"""Exported models: llama.cpp reads the same tokens, gives the same logits, and answers what torch answers."""

from __future__ import annotations

import json
import urllib.request
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="export needs the extra `train`")
gguf = pytest.importorskip("gguf", reason="export needs the extra `train`")

from kernelmate.errors import UsageError  # noqa: E402
from kernelmate.suggest.local.engine_settings import EngineSettings  # noqa: E402
from kernelmate.suggest.local.engines import start_engine  # noqa: E402
from kernelmate.suggest.local.library import read_facts  # noqa: E402
from kernelmate_training.gguf_files import OFFERS_KEY, Label, paired, quantised, write_gguf  # noqa: E402
from kernelmate_training.parity import compare, reference_logits  # noqa: E402
from kernelmate_training.shapes import Shape  # noqa: E402
from kernelmate_training.torch_folders import ModelFolder, llama_config, load_folder, load_llama, save_folder  # noqa: E402
from kernelmate_training.torch_llama import Llama  # noqa: E402
from kernelmate_training.torch_sampling import Drawing, sample  # noqa: E402
from kernelmate_training.vocabulary import PAD  # noqa: E402
from tests.unit.training.small_models import shaken  # noqa: E402

LABEL = Label("tiny", "mixed-2", "Apache-2.0", "# A card", "abc", more={OFFERS_KEY: "0123456789abcdef"})
TEXT = "<|ask|>float x = a[i] +  <v1>;\n\n  for (int <v2> = 0; x != 1.5e-3f; ++i)\n\tsum += 42;"
ENGINES = [name for name in ("xllamacpp", "llama_cpp") if find_spec(name)]


@pytest.fixture(scope="module")
def llama(tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("llama")
    shape = Shape(
        tokenizer.get_vocab_size() + 3, hidden=64, layers=2, heads=4, kv_heads=2, feed_forward=96, context=128
    )
    facts = {"codec": "mixed-2", "end": "<|end|>", "pad": PAD}
    # The same model each time: llama.cpp keeps keys and values in 16 bits, so of models drawn anew some are at a tie somewhere.
    torch.manual_seed(7)
    save_folder(folder, shaken(Llama(shape), seed=1), tokenizer.to_str(), facts)
    return folder


@pytest.fixture(scope="module")
def qwen2(tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("qwen2")
    config = transformers.Qwen2Config(
        vocab_size=tokenizer.get_vocab_size(), hidden_size=64, intermediate_size=96, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128, tie_word_embeddings=False,
        bos_token_id=0, eos_token_id=0, pad_token_id=1,
    )  # fmt: skip
    shaken(transformers.Qwen2ForCausalLM(config), seed=1).save_pretrained(folder)
    (folder / "tokenizer.json").write_text(tokenizer.to_str())
    return folder


def export(folder: Path, kind: Any) -> Path:
    found = load_folder(folder)
    path = folder / f"m-{kind}.gguf"
    write_gguf(path, found.config, {name: one.float().numpy() for name, one in found.tensors.items()}, found.tokenizer, LABEL, kind)  # fmt: skip
    return path


def test_our_model_is_hugging_faces_llama(llama: Path) -> None:
    transformers = pytest.importorskip("transformers")
    found = load_folder(llama)
    tokens = torch.randint(2, 200, (1, 40))
    theirs = transformers.AutoModelForCausalLM.from_pretrained(llama)
    with torch.no_grad():
        expected = theirs(tokens).logits[0].numpy()
        assert np.abs(reference_logits(found, tokens[0].tolist()) - expected).max() < 1e-4


@pytest.mark.skipif("llama_cpp" not in ENGINES, reason="logits come from llama-cpp-python, which is not installed")
@pytest.mark.parametrize("kind", ["f32", "q8_0"])
@pytest.mark.parametrize("architecture", ["llama", "qwen2"])
def test_logits_of_llama_cpp_are_torchs(request: pytest.FixtureRequest, architecture: str, kind: str) -> None:
    folder = request.getfixturevalue(architecture)
    found = compare(export(folder, kind), folder, TEXT)
    assert found.same_tokens
    # llama.cpp keeps keys and values in half precision, and weights this large carry rounding far.
    assert found.largest < (0.02 if kind == "f32" else 0.5) * found.spread
    assert found.agree > (0.97 if kind == "f32" else 0.75)


@pytest.mark.skipif(not ENGINES, reason="no binding of llama.cpp is installed")
@pytest.mark.parametrize("kind", ["f32", "q8_0"])
def test_the_models_server_answers_what_torch_answers(llama: Path, kind: str) -> None:
    found = load_folder(llama)
    model = load_llama(found).eval()
    from tokenizers import Tokenizer

    torchs = sample(model, Tokenizer.from_str(found.tokenizer), [TEXT], Drawing(most_tokens=16))[0]
    address = start_engine(EngineSettings(str(export(llama, kind)), "tiny", "key", 128, parallel=1, threads=1))
    if ENGINES[0] != "xllamacpp":
        pytest.skip("llama-cpp-python's server here is asked by chat alone")
    body = {"prompt": TEXT, "n_predict": 16, "temperature": 0.0, "top_k": 1}
    request = urllib.request.Request(
        f"{address}/completion",
        json.dumps(body).encode(),
        {"Content-Type": "application/json", "Authorization": "Bearer key"},
    )
    with urllib.request.urlopen(request) as answer:
        text = json.loads(answer.read())["content"]
    same = len(text) if kind == "f32" else 4
    assert text[:same] == torchs.text[:same]
    assert text


def test_the_file_says_what_it_is(llama: Path) -> None:
    path = export(llama, "q8_0")
    fields = {name: field.contents() for name, field in gguf.GGUFReader(path).fields.items() if len(field.data) == 1}
    assert fields["kernelmate.codec"] == "mixed-2"
    assert fields["kernelmate.card"] == "# A card"
    facts = read_facts(path)
    assert facts["licence"] == "Apache-2.0"
    assert facts["quantization"] == "Q8_0"
    assert facts["context"] == 128
    assert facts["offers"] == "0123456789abcdef"
    assert facts["parameters"] == load_llama(load_folder(llama)).shape.parameters


def test_placeholders_are_written_and_the_end_is_not(llama: Path) -> None:
    fields = gguf.GGUFReader(export(llama, "f16")).fields
    tokens, types = fields["tokenizer.ggml.tokens"].contents(), fields["tokenizer.ggml.token_type"].contents()
    kinds = dict(zip(tokens, types, strict=True))
    assert kinds["<v1>"] == gguf.TokenType.USER_DEFINED
    assert kinds["<|end|>"] == kinds[PAD] == gguf.TokenType.CONTROL
    assert types[-1] == gguf.TokenType.UNUSED


@pytest.mark.parametrize(("kind", "most"), [("f16", 1e-3), ("q8_0", 8e-3), ("q5_0", 0.07), ("q4_0", 0.15)])
def test_what_is_stored_is_near_what_was_given(kind: Any, most: float) -> None:
    array = np.random.default_rng(0).standard_normal((8, 64)).astype(np.float32)
    stored, how = quantised(array, kind)
    back = gguf.quants.dequantize(stored, how)
    assert np.abs(back - array).max() < most * np.abs(array).max()
    assert stored.nbytes < array.nbytes


def test_rows_are_paired_as_llama_cpp_turns_them() -> None:
    rows = np.arange(8)[:, None]
    assert paired(rows, 1)[:, 0].tolist() == [0, 4, 1, 5, 2, 6, 3, 7]
    assert paired(rows, 2)[:, 0].tolist() == [0, 2, 1, 3, 4, 6, 5, 7]


def test_other_architectures_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="'gpt2' cannot be exported; llama and qwen2 can"):
        write_gguf(tmp_path / "x.gguf", {"model_type": "gpt2"}, {}, "{}", LABEL)


def test_a_damaged_folder_is_said(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(UsageError, match="cannot be read"):
        load_folder(tmp_path)


def test_weights_that_do_not_fit_are_said(llama: Path, tokenizer: Any) -> None:
    found = load_folder(llama)
    other = llama_config(Shape(99, hidden=32, layers=1, heads=2, kv_heads=2, feed_forward=32, context=16))
    with pytest.raises(UsageError, match="do not fit"):
        load_llama(ModelFolder(other, found.tensors, found.tokenizer))
