"""Balanced batches for VeOmni: a loader of its registry, chosen by `data.dataloader.type: entrain`.

    torchrun --nproc-per-node 2 examples/trainers/veomni_loader.py

trains the small model with what the loader yields: for every step the list of its microbatches.
"""

import json

import torch
import torch.distributed as dist
from loops import ACCUMULATION, MICROBATCH, leave, train_step, wrap
from tiny_vlm import TinyData, collate, tiny_model

import entrain


class StepLoader:
    """Yields a step at a time, as VeOmni's trainer takes it; its state is the sampler's."""

    def __init__(self, loader, sampler):
        self.loader, self.sampler = loader, sampler

    def __len__(self):
        return self.sampler.steps_per_epoch

    def __iter__(self):
        step = []
        for batch in self.loader:
            step.append(batch)
            if len(step) == self.sampler.microbatches:
                yield step
                step = []

    def set_epoch(self, epoch):
        self.loader.set_epoch(epoch)

    def state_dict(self):
        return self.sampler.state_dict()

    def load_state_dict(self, state_dict):
        self.sampler.load_state_dict(state_dict)


def build_entrain_dataloader(
    dataset, micro_batch_size, global_batch_size, collate_fn=None, seed=0, num_workers=0, **_
):
    """`dataset`: indexable. Other settings of VeOmni's own loader are not needed."""
    costs = entrain.costs(entrain.Index.from_rows(dataset.rows()), tiny_model())
    sampler = entrain.BalancedBatchSampler(
        costs,
        layout="fsdp",
        global_batch=global_batch_size,
        microbatch=micro_batch_size,
        padded=True,
        every_rank_has=["vision"],
        order=lambda epoch: range(len(dataset)),
        seed=seed,
    )
    loader = entrain.balanced_loader(
        dataset, sampler, collate_fn=collate_fn, num_workers=num_workers
    )
    return StepLoader(loader, sampler)


def registry():
    """VeOmni's; where its package does not import beside this version of transformers, the same class
    alone."""
    try:
        from veomni.data.data_loader import DATALOADER_REGISTRY

        return DATALOADER_REGISTRY
    except ImportError as error:
        print(f"veomni.data does not import: {error}")
    import importlib.util
    from pathlib import Path

    folder = Path(importlib.util.find_spec("veomni").submodule_search_locations[0])
    spec = importlib.util.spec_from_file_location("registry", folder / "utils" / "registry.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Registry("dataloader")


def main():
    dist.init_process_group("gloo")
    loaders = registry()
    loaders.register("entrain")(build_entrain_dataloader)
    world = dist.get_world_size()
    loader = loaders["entrain"](
        TinyData(96),
        micro_batch_size=MICROBATCH,
        global_batch_size=MICROBATCH * ACCUMULATION * world,
        collate_fn=collate,
    )
    model = wrap("fsdp2", tiny_model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader.set_epoch(0)
    losses = [train_step(model, optimizer, step, torch.Tensor.backward) for step in loader]
    if dist.get_rank() == 0:
        print(json.dumps({"losses": losses}))
    leave()


if __name__ == "__main__":
    main()
