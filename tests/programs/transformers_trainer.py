"""Trains a tiny language model with the Trainer of transformers: 8 steps of 2 batches; `evaluate`: evaluates between.

Prints the number of steps last.
"""

import os
import sys

os.environ["TRANSFORMERS_OFFLINE"] = "1"

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments


class Words(torch.utils.data.Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, number):
        ids = torch.arange(number, number + 16) % 64
        return {"input_ids": ids, "labels": ids}


class Count(TrainerCallback):
    steps = 0

    def on_step_end(self, arguments, state, control, **more):
        self.steps += 1


torch.set_num_threads(1)
counter = Count()
model = GPT2LMHeadModel(
    GPT2Config(vocab_size=64, n_positions=32, n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0)
)
arguments = TrainingArguments(
    output_dir="out",
    num_train_epochs=2,
    per_device_train_batch_size=4,
    per_device_eval_batch_size=4,
    gradient_accumulation_steps=2,
    eval_strategy="steps" if "evaluate" in sys.argv else "no",
    eval_steps=2,
    save_strategy="no",
    report_to=[],
    use_cpu=True,
    disable_tqdm=True,
)
Trainer(model, arguments, train_dataset=Words(32), eval_dataset=Words(8), callbacks=[counter]).train()
print(counter.steps)
