"""transformers.Trainer or TRL's SFTTrainer with balanced batches.

    torchrun --nproc-per-node 2 examples/trainers/hf_trainer.py --sampler balanced

`--sampler own` trains with the trainer's own one: losses of steps are the same up to summation order.
"""

import argparse
import json
import os

import datasets
import transformers
from loops import leave
from tiny_vlm import TinyData, collate, tiny_model

import entrain


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sampler", choices=["balanced", "own"], default="balanced")
    parser.add_argument("--trainer", choices=["hf", "sft"], default="hf")
    parser.add_argument("--samples", type=int, default=96)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--accumulation", type=int, default=2)
    parser.add_argument("--output", default="runs/hf")
    parser.add_argument("--save-steps", type=int, default=0)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--stop-after", type=int, default=-1, help="steps; a run to be resumed")
    parser.add_argument(
        "--seen", help="file, .RANK is added: a line of indices for each microbatch that was read"
    )
    parser.add_argument("--measured", help="file of sizes and times, for entrain.audit(measured=…)")
    return parser.parse_args()


class Collator:
    """Collates samples by number, and notes which ones it was given."""

    def __init__(self, data, path):
        self.data = data
        self.file = open(path, "a", buffering=1) if path else None  # noqa: SIM115

    def __call__(self, rows):
        if self.file:
            self.file.write(",".join(str(row["index"]) for row in rows) + "\n")
        return collate([self.data[row["index"]] for row in rows])


class StopAfter(transformers.TrainerCallback):
    def __init__(self, steps):
        self.steps = steps

    def on_step_end(self, args, state, control, **known):
        control.should_training_stop |= state.global_step == self.steps


def main():
    options = arguments()
    data = TinyData(options.samples)
    training = {
        "output_dir": options.output,
        "num_train_epochs": options.epochs,
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": options.accumulation,
        "train_sampling_strategy": "sequential",  # of the trainer's own sampler
        "dataloader_drop_last": True,
        "learning_rate": 1e-3,
        "lr_scheduler_type": "constant",
        "logging_steps": 1,
        "save_strategy": "steps" if options.save_steps else "no",
        "save_steps": options.save_steps or 500,
        "report_to": "none",
        "use_cpu": True,
        "bf16": False,
        "disable_tqdm": True,
        "remove_unused_columns": False,
        "ddp_find_unused_parameters": True,  # of a microbatch without an image
        "seed": 0,
    }
    rank = os.environ.get("RANK", "0")
    # TRL takes nothing but a datasets.Dataset, of tokens; images are made by the collator.
    tokens = [data[i]["input_ids"].tolist() for i in range(len(data))]
    common = {
        "model": tiny_model(),
        "train_dataset": datasets.Dataset.from_dict(
            {"index": range(len(data)), "input_ids": tokens, "labels": tokens}
        ),
        "data_collator": Collator(data, options.seen and f"{options.seen}.{rank}"),
        "callbacks": [StopAfter(options.stop_after)],
    }
    if options.measured:
        common["callbacks"].append(entrain.callback(options.measured))
    if options.trainer == "sft":
        import trl

        given = trl.SFTConfig(**training, dataset_kwargs={"skip_prepare_dataset": True})
        trainer = trl.SFTTrainer(**common, args=given, processing_class=tokenizer())
    else:
        trainer = transformers.Trainer(**common, args=transformers.TrainingArguments(**training))
    if options.sampler == "balanced":
        # The three lines.
        index = entrain.Index.from_rows(data.rows())
        entrain.balance_trainer(trainer, index, order=lambda epoch: range(len(data)))
    elif not trainer.model_accepts_loss_kwargs:
        # For the comparison: without it the trainer averages the means of microbatches.
        trainer.compute_loss_func = entrain.token_mean_loss
    trainer.train(resume_from_checkpoint=options.resume or None)
    if rank == "0":
        print(json.dumps([row["loss"] for row in trainer.state.log_history if "loss" in row]))
    if trainer.args.world_size > 1:
        leave()


def tokenizer():
    """TRL asks for one; nothing here is tokenized by it."""
    from tokenizers import Tokenizer, models

    plain = Tokenizer(models.WordLevel({"<pad>": 0, "<eos>": 2}, unk_token="<pad>"))
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=plain, pad_token="<pad>", eos_token="<eos>"
    )


if __name__ == "__main__":
    main()
