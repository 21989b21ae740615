"""Fine-tunes with adapters, as the documentation of their libraries writes them, of a small Llama and a text of letters."""

import os
import sys
from tempfile import TemporaryDirectory

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, Trainer, TrainingArguments

KIND = sys.argv[1]
SIZES = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 2}
LENGTH, ROWS = 64, 8192
SHARDED = {"version": 2, "fsdp_version": 2, "transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"]}


def build_model():
    return LlamaForCausalLM(LlamaConfig(**SIZES, vocab_size=128, use_cache=False))


def adapters():
    from peft import LoraConfig

    return LoraConfig(r=8, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")


def tune_with_trl(folder, common):
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    letters = Tokenizer(models.WordLevel({chr(i): i for i in range(128)}, unk_token="?"))
    letters.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=letters, unk_token="?", pad_token="~", eos_token="|")
    texts = Dataset.from_dict({"text": ["a text of some length"] * ROWS})
    asked = SFTConfig(output_dir=folder, max_length=LENGTH, fsdp="full_shard auto_wrap", fsdp_config=SHARDED, **common)
    SFTTrainer(build_model(), args=asked, train_dataset=texts, processing_class=tokenizer, peft_config=adapters()).train()


def tune_with_peft(folder, common):
    from peft import get_peft_model

    row = torch.zeros(LENGTH, dtype=torch.long)
    model = get_peft_model(build_model(), adapters())
    asked = TrainingArguments(output_dir=folder, **common)
    Trainer(model, asked, train_dataset=[{"input_ids": row, "labels": row}] * ROWS).train()


def tune_with_accelerate(_, __):
    from accelerate import Accelerator

    accelerator = Accelerator()
    model = build_model()
    optimizer = torch.optim.AdamW(model.parameters())
    rows = torch.utils.data.DataLoader([torch.zeros(LENGTH, dtype=torch.long)] * ROWS, batch_size=2)
    model, optimizer, rows = accelerator.prepare(model, optimizer, rows)
    for tokens in rows:
        accelerator.backward(model(input_ids=tokens, labels=tokens).loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


with TemporaryDirectory() as place:
    os.environ["FSDP_VERSION"] = "2"
    said = {"per_device_train_batch_size": 2, "max_steps": 9, "bf16": True, "save_strategy": "no", "report_to": "none"}
    {"sft": tune_with_trl, "lora": tune_with_peft, "accelerate": tune_with_accelerate}[KIND](place, said)
