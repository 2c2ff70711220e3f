"""Balanced batches for Megatron-Core: what `--dataloader-type external` takes, an iterator of microbatches.

    torchrun --nproc-per-node 2 examples/trainers/megatron_external.py

In a pretraining script, `train_valid_test_datasets_provider` returns `microbatches(…), None, None`, and
`--dataloader-type external --calculate-per-token-loss` are given. Here Megatron's forward_step and backward_step train
the small model on CPUs.
"""

import json

import torch
import torch.distributed as dist
from loops import ACCUMULATION, MICROBATCH, leave
from megatron.core import parallel_state
from megatron.core.enums import ModelType
from megatron.core.pipeline_parallel import schedules
from megatron.core.transformer import TransformerConfig
from tiny_vlm import TinyData, collate, tiny_model

import entrain


def microbatches(data, costs, rank, world):
    """This data-parallel rank's microbatches, epoch after epoch."""
    sampler = entrain.BalancedBatchSampler(
        costs,
        layout="pp",
        global_batch=MICROBATCH * world * ACCUMULATION,
        microbatch=MICROBATCH,
        rank=rank,
        world_size=world,
        padded=True,
        every_rank_has=["vision"],
        order=lambda epoch: range(len(data)),
    )
    epoch = 0
    while True:
        loader = entrain.balanced_loader(data, sampler, collate_fn=collate)
        loader.set_epoch(epoch)
        yield from loader
        epoch += 1


def forward_step(batches, model):
    """As Megatron's schedules call it: the output, and a function of the loss summed over tokens."""
    batch = next(batches)
    labels = batch.pop("labels")[:, 1:].flatten()

    def loss_of(logits):
        summed = torch.nn.functional.cross_entropy(
            logits[:, :-1].flatten(0, 1), labels, ignore_index=-100, reduction="sum"
        )
        return summed, (labels != -100).sum().int(), {"loss": summed.detach()}

    return model(**batch).logits, loss_of


def train_step(batches, model, optimizer, config):
    """forward_backward_no_pipelining() without GPUs, on which alone it counts tokens."""
    reported, tokens = [], torch.zeros([], dtype=torch.int)
    for number in range(ACCUMULATION):
        output, count = schedules.forward_step(
            forward_step,
            batches,
            model,
            ACCUMULATION,
            None,
            reported,
            config,
            cp_group_size=1,
            current_microbatch=number,
        )
        tokens += count
        schedules.backward_step(None, output, None, ModelType.encoder_or_decoder, config)
    # As its optimizer does with --calculate-per-token-loss.
    loss = sum(entry["loss"] for entry in reported)
    for value in [tokens, loss]:
        dist.all_reduce(value)
    for parameter in model.parameters():
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        dist.all_reduce(parameter.grad)
        parameter.grad /= tokens
    optimizer.step()
    optimizer.zero_grad()
    return (loss / tokens).item()


def main():
    dist.init_process_group("gloo")
    parallel_state.initialize_model_parallel()
    rank = parallel_state.get_data_parallel_rank()
    world = parallel_state.get_data_parallel_world_size()
    data, model = TinyData(96), tiny_model()
    model.set_input_tensor = lambda tensors: None  # of a pipeline's former stage
    costs = entrain.costs(entrain.Index.from_rows(data.rows()), model)
    config = TransformerConfig(
        num_layers=1, hidden_size=8, num_attention_heads=1, calculate_per_token_loss=True
    )
    batches = microbatches(data, costs, rank, world)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    steps = len(data) // (MICROBATCH * world * ACCUMULATION)
    losses = [train_step(batches, model, optimizer, config) for _ in range(steps)]
    if rank == 0:
        print(json.dumps({"losses": losses}))
    leave()


if __name__ == "__main__":
    main()
