"""Fine-tuning of a causal Hugging Face model on a corpus: TRL trains PEFT's low-rank adapters, then exports.

It runs on one GPU, or on several if started by `accelerate launch`. An interrupted run resumes from its newest
checkpoint.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelmate.errors import EnvironmentFailed, UsageError
from kernelmate.suggest.codec import codec_named
from kernelmate_training.examples import TASKS, Example, format_examples, lines_of
from kernelmate_training.journal import Journal
from kernelmate_training.requirements import require_packages
from kernelmate_training.settings import FineTuneSection, Upskill
from kernelmate_training.vocabulary import PAD, train_tokenizer

if TYPE_CHECKING:
    from datasets import Dataset


OnLine = Callable[[str], None]
NEEDED = ("torch", "transformers", "peft", "trl", "datasets", "accelerate")
CHECKPOINT_STEPS = 100
WARMUP = 0.03


def finetune(settings: Upskill, told: OnLine = lambda line: None) -> dict[str, Any]:
    """Fine-tune the configuration's base, merge the adapters and store the model; returns its figures.

    Raises:
        UsageError: base or corpus cannot be used.
        EnvironmentFailed: packages or a GPU are missing, or the hub cannot be reached.
    """
    section = settings.finetune
    assert section is not None
    require_packages((*NEEDED, "bitsandbytes") if section.quantised else NEEDED, "Fine-tuning")
    begun = time.monotonic()
    folder = settings.model_folder(section.name)
    folder.mkdir(parents=True, exist_ok=True)
    lines = lines_of(settings.corpus_folder)
    found = format_examples(lines, section.codec, seed=settings.seed)
    learned = [example for example in found.examples if not example.held_out]
    if not learned:
        raise UsageError(
            f"The codec {section.codec} can encode no example of this corpus.", file=str(settings.corpus_folder)
        )
    model, tokenizer = base_of(section, settings.seed, learned)
    texts = fitting(mixed(learned, section, settings.seed), tokenizer, section.context, codec_named(section.codec).end)
    told(f"{len(texts)} examples, {sum(found.left_out.values())} that cannot be told")
    if not texts:
        raise UsageError(
            f"Every example is longer than context = {section.context} tokens.", hint="Raise finetune.context."
        )
    steps, loss, adapted = _trained(settings, section, model, tokenizer, texts, folder, told)
    if os.environ.get("RANK", "0") != "0":
        # One of several processes stores the model, which is equal in all.
        return {"name": section.name, "steps": steps, "loss": loss, "finished": True}
    merged = _merged(section, folder, adapted)
    merged.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    facts = {
        "name": section.name, "codec": section.codec, "licence": settings.licence, "base": section.base,
        "parameters": sum(parameter.numel() for parameter in merged.parameters()), "steps": steps, "loss": loss,
        "finished": True, "seconds": round(time.monotonic() - begun, 1), "chat_template": tokenizer.chat_template,
        "end": tokenizer.eos_token, "pad": tokenizer.pad_token,
        "corpus": {"lines": len(lines), "corpus_sha256": hashlib.sha256("\n".join(lines).encode()).hexdigest(), "train": {"examples": len(texts)}},
    }  # fmt: skip
    (folder / "kernelmate.json").write_text(json.dumps(facts, indent=1), encoding="utf-8")
    return facts


def base_of(section: FineTuneSection, seed: int, examples: Sequence[Example]) -> tuple[Any, Any]:
    """Returns the base and its tokenizer: from the hub or a folder, or tiny with random weights.

    Raises:
        EnvironmentFailed: the hub cannot be reached, or four-bit weights are requested without a GPU.
        UsageError: there is no such base.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    if section.random:
        return random_base(section, seed, examples)
    options: dict[str, Any] = {"revision": section.revision}
    if torch.cuda.is_available():
        options["dtype"] = torch.bfloat16
    if section.quantised:
        if not torch.cuda.is_available():
            raise EnvironmentFailed("QLoRA holds its weights in four bits on a GPU, and there is none.", hint="Set finetune.quantised = false.")  # fmt: skip
        from transformers import BitsAndBytesConfig

        options["quantization_config"] = BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=torch.bfloat16,
        )
    try:
        tokenizer = AutoTokenizer.from_pretrained(section.base, revision=section.revision)
        model = AutoModelForCausalLM.from_pretrained(section.base, **options)
    except (OSError, ValueError) as error:
        raise EnvironmentFailed(
            f"The base {section.base} cannot be loaded: {str(error).splitlines()[0]}",
            hint="Check the name and the network, or download it first and give its folder.",
        ) from None
    return model, tokenizer


def mixed(examples: Sequence[Example], section: FineTuneSection, seed: int) -> list[Example]:
    """Returns as many draws as there are examples, each task by its share, mixed with the replay buffer's.

    Raises:
        UsageError: the replay buffer cannot be read.
    """
    drawn: list[Example] = []
    chance = random.Random(seed)  # noqa: S311 -- no secret
    present = [task for task in TASKS if any(example.task == task for example in examples)]
    whole = sum(section.task_weights.get(task, 0.0) for task in present) or 1.0
    for task in present:
        members = [example for example in examples if example.task == task]
        count = round(len(examples) * section.task_weights.get(task, 0.0) / whole)
        while count > 0:
            drawn += chance.sample(members, min(count, len(members)))
            count -= len(members)
    buffer = _replayed(section)
    wanted = round(len(drawn) * section.replay / (1 - section.replay)) if buffer else 0
    drawn += [chance.choice(buffer) for _ in range(wanted)]
    chance.shuffle(drawn)
    return drawn


def _replayed(section: FineTuneSection) -> list[Example]:
    if section.replay_from is None or not section.replay:
        return []
    try:
        rows = [
            json.loads(line) for line in section.replay_from.read_text(encoding="utf-8").splitlines() if line.strip()
        ]
        return [Example(str(row["prompt"]), str(row["answer"]), "replay", "", held_out=False, messages=(("user", str(row["prompt"])),)) for row in rows]  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"The replay buffer cannot be read: {error}.", file=str(section.replay_from)) from None


def fitting(examples: Sequence[Example], tokenizer: Any, context: int, end: str) -> list[dict[str, Any]]:
    """Returns examples in TRL's form, a prompt and a completion, without those that are too long.

    Messages are formatted by the tokenizer's chat template. The codec's end token is left out, because TRL appends the
    tokenizer's own to each completion.
    """
    texts = []
    for example in examples:
        if example.messages:
            messages = [{"role": role, "content": text} for role, text in example.messages]
            prompt = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        else:
            prompt = example.prompt
        answer = example.answer.removesuffix(end)
        if len(tokenizer(prompt + answer, add_special_tokens=False).input_ids) < context:
            texts.append({"prompt": prompt, "completion": answer})
    return texts


def _trained(settings: Upskill, section: FineTuneSection, model: Any, tokenizer: Any, texts: list[dict[str, Any]], folder: Path, told: OnLine) -> tuple[int, float, Any]:  # fmt: skip
    """Trains adapters and stores them in `adapter`.

    Returns the number of steps, the mean loss, and the adapted model.
    """
    import torch
    from datasets import Dataset, disable_progress_bars
    from peft import LoraConfig, prepare_model_for_kbit_training
    from transformers import PrinterCallback, TrainerCallback
    from trl import SFTConfig, SFTTrainer

    journal = Journal(folder / "log.jsonl")

    class Log(TrainerCallback):
        """Forwards the trainer's figures."""

        def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any) -> None:
            figures = {name: value for name, value in (logs or {}).items() if isinstance(value, (int, float))}
            journal.write("step", step=state.global_step, **figures)
            if "loss" in figures:
                told(f"step {state.global_step} of {state.max_steps}  loss {float(figures['loss']):.4f}")

    if section.quantised:
        model = prepare_model_for_kbit_training(model)
    gpu = torch.cuda.is_available()
    arguments = SFTConfig(
        output_dir=str(folder / "checkpoints"),
        num_train_epochs=section.epochs,
        max_steps=section.steps or -1,
        per_device_train_batch_size=section.batch,
        gradient_accumulation_steps=section.accumulate,
        gradient_checkpointing=gpu,
        learning_rate=section.rate,
        lr_scheduler_type="cosine",
        warmup_steps=WARMUP,
        logging_steps=1 if section.steps and section.steps < 100 else 10,
        save_steps=CHECKPOINT_STEPS,
        save_total_limit=2,
        bf16=gpu,
        use_cpu=not gpu,
        max_length=section.context,
        completion_only_loss=True,
        eos_token=tokenizer.eos_token,
        report_to=[],
        seed=settings.seed,
        disable_tqdm=True,
    )
    adapters = LoraConfig(
        r=section.rank,
        lora_alpha=section.alpha,
        lora_dropout=section.dropout,
        target_modules=list(section.targets),
        task_type="CAUSAL_LM",
    )
    disable_progress_bars()
    data: Dataset = Dataset.from_list(texts)
    trainer = SFTTrainer(model=model, args=arguments, train_dataset=data, processing_class=tokenizer, peft_config=adapters, callbacks=[Log()])  # fmt: skip
    trainer.remove_callback(PrinterCallback)
    cut = sorted((folder / "checkpoints").glob("checkpoint-*"))
    done = trainer.train(resume_from_checkpoint=bool(cut))
    trainer.model.save_pretrained(folder / "adapter")
    return int(done.global_step), float(done.training_loss), trainer.model


def _merged(section: FineTuneSection, folder: Path, adapted: Any) -> Any:
    """Returns the base with its adapters merged into the weights.

    Adapters are not merged into four-bit weights: the base is loaded again at full precision.
    """
    if not section.quantised:
        return adapted.merge_and_unload()
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained(section.base, revision=section.revision, dtype=torch.bfloat16)
    return PeftModel.from_pretrained(base, folder / "adapter").merge_and_unload()


END, BEGIN = "<|im_end|>", "<|im_start|>"
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""Chat template of Qwen's models, without their default system message."""
VOCABULARY = 1024
SHAPE = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}  # fmt: skip


def random_base(section: FineTuneSection, seed: int, examples: Sequence[Example]) -> tuple[Any, Any]:
    """Returns a tiny model and its tokenizer, with the architecture of `base`.

    Args:
        section: the configuration, whose context length the model gets.
        seed: seed of the weights.
        examples: examples from which the vocabulary is learned.
    """
    import torch
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    specials = [BEGIN, *codec_named(section.codec).vocabulary()]
    texts = [text for example in examples[:2000] for text in (example.prompt, example.answer, *(part for _, part in example.messages))]  # fmt: skip
    learned = train_tokenizer(texts, [one for one in specials if one != END], END, VOCABULARY + len(specials))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=learned, eos_token=END, bos_token=END, pad_token=PAD)
    tokenizer.chat_template = CHATML
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=learned.get_vocab_size(),
        max_position_embeddings=section.context,
        tie_word_embeddings=True,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=1,
        **SHAPE,
    )
    return Qwen2ForCausalLM(config), tokenizer
