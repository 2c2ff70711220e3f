"""Balanced batches for torchtitan: a BaseDataLoader to name in a job's config.

    torchrun --nproc-per-node 2 examples/trainers/titan_loader.py

trains the small model with what the loader yields; in a job, `dataloader = BalancedTitanLoader.Config(…)`.
"""

import json
from dataclasses import dataclass

import torch
import torch.distributed as dist
from loops import ACCUMULATION, MICROBATCH, leave, train_step, wrap
from tiny_vlm import TinyData, collate, tiny_model
from torchtitan.components.dataloader import BaseDataLoader, DataloaderExhaustedError

import entrain


class BalancedTitanLoader(BaseDataLoader):
    """Yields (inputs, labels) of this rank's microbatches; its state is the sampler's."""

    @dataclass(kw_only=True, slots=True)
    class Config(BaseDataLoader.Config):
        samples: int = 96
        accumulation: int = ACCUMULATION

    def __init__(self, config, *, dp_world_size, dp_rank, local_batch_size, **_):
        self.data = TinyData(config.samples)  # your data set
        costs = entrain.costs(entrain.Index.from_rows(self.data.rows()), tiny_model())
        self.sampler = entrain.BalancedBatchSampler(
            costs,
            layout="fsdp",
            global_batch=local_batch_size * dp_world_size * config.accumulation,
            microbatch=local_batch_size,
            rank=dp_rank,
            world_size=dp_world_size,
            padded=True,
            every_rank_has=["vision"],
            order=lambda epoch: range(config.samples),
        )
        self.loader = entrain.balanced_loader(self.data, self.sampler, collate_fn=collate)

    def __iter__(self):
        for batch in self.loader:
            yield batch, batch.pop("labels")
        raise DataloaderExhaustedError

    def state_dict(self):
        return self.sampler.state_dict()

    def load_state_dict(self, state_dict):
        self.sampler.load_state_dict(state_dict)


def main():
    dist.init_process_group("gloo")
    config = BalancedTitanLoader.Config()
    loader = config.build(
        dp_world_size=dist.get_world_size(), dp_rank=dist.get_rank(), local_batch_size=MICROBATCH
    )
    model = wrap("fsdp2", tiny_model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses, batches = [], iter(loader)
    try:
        while True:
            step = [next(batches) for _ in range(config.accumulation)]
            joined = [inputs | {"labels": labels} for inputs, labels in step]
            losses.append(train_step(model, optimizer, joined, torch.Tensor.backward))
    except DataloaderExhaustedError:
        pass
    if dist.get_rank() == 0:
        print(json.dumps({"losses": losses}))
    leave()


if __name__ == "__main__":
    main()
