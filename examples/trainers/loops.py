"""Plain training loops with balanced batches: DDP, FSDP2, accelerate.

    torchrun --nproc-per-node 2 examples/trainers/loops.py --wrap fsdp2

`--sampler own` deals samples to ranks in order instead: losses are the same up to summation order.
"""

import argparse
import contextlib
import json
import os
import sys
import time

import torch
import torch.distributed as dist
from tiny_vlm import TinyData, collate, tiny_model

import entrain

MICROBATCH, ACCUMULATION = 4, 2


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wrap", choices=["ddp", "fsdp2", "accelerate"], default="ddp")
    parser.add_argument("--sampler", choices=["balanced", "own", "grouped"], default="balanced")
    parser.add_argument("--samples", type=int, default=96)
    parser.add_argument("--index", help="CSV file whose sizes are taken (tiny_vlm.py)")
    parser.add_argument("--microbatch", type=int, default=MICROBATCH)
    parser.add_argument("--accumulation", type=int, default=ACCUMULATION)
    parser.add_argument("--largest", type=int, default=12, help="size of the largest images")
    parser.add_argument("--scale", type=float, default=1.0, help="of images of --index")
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--shuffle", action="store_true")
    parser.add_argument("--write-log", help="file for sizes and times of microbatches, of one rank")
    parser.add_argument("--measured", help="such a file, whose times scale the sampler's costs")
    return parser.parse_args()


class Dealt:
    """What DistributedSampler does: samples in order, or sorted by `key` within a step, to ranks."""

    def __init__(self, order, rank, world, options, key=None):
        self.order, self.rank, self.world, self.key = order, rank, world, key
        self.microbatch, self.accumulation = options.microbatch, options.accumulation

    def __len__(self):
        size = self.microbatch * self.world * self.accumulation
        return self.accumulation * (len(self.order) // size)

    def __iter__(self):
        size = self.microbatch * self.world * self.accumulation
        for begin in range(0, len(self.order) - size + 1, size):
            step = self.order[begin : begin + size]
            if self.key:  # neighbours in length are in a microbatch of all ranks
                step = sorted(step, key=self.key)
            for part in range(self.accumulation):
                ranks = step[part * self.microbatch * self.world :][: self.microbatch * self.world]
                if self.key:
                    yield ranks[self.rank :: self.world]
                else:
                    yield ranks[self.rank * self.microbatch :][: self.microbatch]


def make_loader(options, data, model, accelerator):
    rank, world = dist.get_rank(), dist.get_world_size()
    order = list(range(len(data)))
    if options.shuffle:
        order = torch.randperm(len(data), generator=torch.Generator().manual_seed(0)).tolist()
    if options.sampler != "balanced":
        key = data.tokens if options.sampler == "grouped" else None
        sampler = Dealt(order, rank, world, options, key)
        return torch.utils.data.DataLoader(data, batch_sampler=sampler, collate_fn=collate), None
    index = entrain.Index.from_rows(data.rows())
    costs = entrain.costs(index, model, profile="analytic:cpu-2core", measured=options.measured)
    sampler = entrain.BalancedBatchSampler(
        costs,
        layout="fsdp" if options.wrap == "fsdp2" else "ddp",
        global_batch=options.microbatch * world * options.accumulation,
        microbatch=options.microbatch,
        padded=True,
        every_rank_has=["vision"],
        order=lambda epoch: order,
        dataset=data,
    )
    loader = entrain.balanced_loader(data, sampler, collate_fn=collate, accelerator=accelerator)
    return loader, sampler


def wrap(how, model, accelerator=None):
    if how == "accelerate":
        return accelerator.prepare(model)
    if how == "ddp":
        return torch.nn.parallel.DistributedDataParallel(model)
    from torch.distributed.fsdp import fully_shard

    for block in [*model.model.visual.blocks, *model.model.language_model.layers]:
        fully_shard(block)
    return fully_shard(model)


def synchronizes(model, last):
    """Gradients are summed over ranks in a step's last microbatch alone (FSDP2 shards: in each)."""
    if last or not hasattr(model, "no_sync"):
        return contextlib.nullcontext()
    return model.no_sync()


def train_step(model, optimizer, batches, backward, log=None):
    """The mean loss over the target tokens of all ranks' microbatches."""
    counts = torch.tensor(float(sum((b["labels"][:, 1:] != -100).sum() for b in batches)))
    dist.all_reduce(counts)
    total = torch.zeros(())
    for number, batch in enumerate(batches):
        labels = batch.pop("labels")[:, 1:].flatten()
        logged = log.microbatch(batch) if log else contextlib.nullcontext()
        with logged, synchronizes(model, number + 1 == len(batches)):
            logits = model(**batch).logits[:, :-1].flatten(0, 1)
            summed = torch.nn.functional.cross_entropy(
                logits, labels, ignore_index=-100, reduction="sum"
            )
            # Ranks' gradients are averaged: hence their number.
            backward(summed * dist.get_world_size() / counts)
        total += summed.detach()
    optimizer.step()
    optimizer.zero_grad()
    dist.all_reduce(total)
    return (total / counts).item()


def leave():
    """Ends the process without taking Gloo's threads down, which at times ends in an abort."""
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)


def main():
    options = arguments()
    accelerator = None
    if options.wrap == "accelerate":
        from accelerate import Accelerator

        accelerator = Accelerator(cpu=True)
    else:
        dist.init_process_group("gloo")
    data = TinyData(options.samples, options.largest, options.index, options.scale)
    model = tiny_model(options.width, options.layers)
    loader, sampler = make_loader(options, data, model, accelerator)
    model = wrap(options.wrap, model, accelerator)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    backward = accelerator.backward if accelerator else torch.Tensor.backward
    log = entrain.StepLog(options.write_log) if options.write_log else None
    losses, seconds = [], []
    for epoch in range(options.epochs):
        if sampler:
            loader.set_epoch(epoch)
        batches = iter(loader)
        while step := [
            batch for _, batch in zip(range(options.accumulation), batches, strict=False)
        ]:
            begin = time.perf_counter()
            losses.append(train_step(model, optimizer, step, backward, log))
            seconds.append(time.perf_counter() - begin)
    if dist.get_rank() == 0:
        print(json.dumps({"losses": losses, "seconds": seconds}))
    leave()


if __name__ == "__main__":
    main()
