"""Adapters: balanced batches in the trainer that is there already, and a log of what its steps cost."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from entrain.sampler import BalancedBatchSampler

_PATCH = 14  # pixels of a patch, where the model's config does not say
_OF_LOADER = ("num_workers", "pin_memory", "worker_init_fn", "prefetch_factor", "persistent_workers",
              "multiprocessing_context")  # fmt: skip
_OF_COSTS = ("profile", "measured", "freeze", "ignore_modality")  # options of entrain.costs()


def balanced_loader(
    dataset: Any,
    sampler: BalancedBatchSampler,
    *,
    collate_fn: Callable[[list[Any]], Any] | None = None,
    accelerator: Any = None,
    **options: Any,
) -> Any:
    """A DataLoader of this rank's microbatches, with `set_epoch()`.

    dataset: map-style, as long as the sampler's costs. accelerator: of accelerate; the loader then
    moves batches to its device and takes part in its gradient accumulation. Do not give the loader to
    accelerator.prepare(): that would shard batches of one rank among all ranks again.
    options: of torch.utils.data.DataLoader.

    Raises ValueError for a data set of another length.
    """
    from torch.utils.data import DataLoader

    if len(dataset) != len(sampler.costs):
        raise ValueError(
            f"the data set has {len(dataset)} samples and the costs are of {len(sampler.costs)}: "
            "index it again"
        )

    class BalancedLoader(DataLoader):
        def set_epoch(self, epoch: int) -> None:
            sampler.set_epoch(epoch)

    loader = BalancedLoader(dataset, batch_sampler=sampler, collate_fn=collate_fn, **options)
    if accelerator is None:
        return loader
    from accelerate.data_loader import prepare_data_loader

    prepared = prepare_data_loader(
        loader, accelerator.device, num_processes=1, process_index=0, put_on_device=True
    )
    accelerator._dataloaders.append(prepared)  # known to it, as if it had prepared it
    return prepared


def balance_trainer(
    trainer: Any,
    costs: Any,
    *,
    layout: str = "ddp",
    model: Any = None,
    padded: bool = True,
    **options: Any,
) -> BalancedBatchSampler:
    """Gives a transformers.Trainer (TRL's SFTTrainer too) balanced batches; call it before train().

    costs     of trainer.train_dataset in its order: Costs, or an Index (`model` then as in Model.of();
              default: the trainer's model).
    layout    "ddp", or "fsdp" where the trainer shards weights (FSDP, DeepSpeed ZeRO-3).
    padded    the collator pads a microbatch to its longest sequence; False for one that packs.
    options   of BalancedBatchSampler. Batch sizes are the trainer's arguments. Costs of an Index are
              analytic, of an A40; others come of entrain.costs(index, model, profile=…, measured=…).

    The loss has to be the mean over the target tokens of the whole step, or samples of small
    microbatches weigh more. For many models the trainer does that itself; for those that it averages
    microbatch by microbatch (Qwen-VL, Gemma 3, …) its compute_loss_func becomes token_mean_loss, unless
    it has one. Resuming and epochs are the trainer's own.

    Raises ValueError for streaming data sets and data sets of another length than the costs, TypeError
    for options of costs.
    """
    for name in _OF_COSTS:
        if name in options:
            raise TypeError(
                f"balance_trainer() takes no {name}=: give it the costs, "
                f"balance_trainer(trainer, entrain.costs(index, trainer.model, {name}=…))"
            )
    if not hasattr(trainer.train_dataset, "__len__"):
        raise ValueError("the trainer's data set has no length: a sampler needs one that has")
    arguments = trainer.args
    world = arguments.world_size
    sampler = BalancedBatchSampler(
        costs,
        model=trainer.model if model is None else model,
        layout=layout,
        global_batch=arguments.train_batch_size * world * arguments.gradient_accumulation_steps,
        microbatch=arguments.train_batch_size,
        rank=arguments.process_index,
        world_size=world,
        padded=padded,
        dataset=trainer.train_dataset,
        seed=arguments.data_seed if arguments.data_seed is not None else arguments.seed,
        **options,
    )
    if not trainer.model_accepts_loss_kwargs and trainer.compute_loss_func is None:
        trainer.compute_loss_func = token_mean_loss
    original = trainer.get_train_dataloader

    def get_train_dataloader() -> Any:
        own = original()
        given = {name: getattr(own, name) for name in _OF_LOADER if hasattr(own, name)}
        loader = balanced_loader(
            own.dataset,
            sampler,
            collate_fn=own.collate_fn,
            accelerator=trainer.accelerator,
            **given,
        )
        known = trainer.accelerator._dataloaders
        known[:] = [other for other in known if other is not own]  # which is replaced
        return loader

    trainer.get_train_dataloader = get_train_dataloader
    return sampler


def token_mean_loss(outputs: Any, labels: Any, num_items_in_batch: Any = None) -> Any:
    """A compute_loss_func for transformers.Trainer: of a causal LM, the mean over the step's tokens."""
    from transformers.loss.loss_utils import ForCausalLMLoss

    logits = outputs["logits"]
    return ForCausalLMLoss(
        logits, labels, vocab_size=logits.shape[-1], num_items_in_batch=num_items_in_batch
    )


class StepLog:
    """Sizes and times of the microbatches of one rank, as JSON lines: what audit(measured=…) takes.

    path: written line by line; the log of another run is replaced, a file of another kind refused
    (ValueError). A line: {"tokens": [sample], "padded_tokens": n, "images": [[width, height]],
    "seconds": s}.

    >>> log = StepLog("/tmp/entrain-doc-log.jsonl")
    >>> with log.microbatch({"input_ids": [[1, 2, 3], [4, 5, 6]]}):
    ...     pass  # forward and backward
    >>> len(log.entries)
    1
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        if self.path.exists() and self.path.read_bytes()[:10] not in (b"", b'{"tokens":'):
            raise ValueError(f"{path}: holds something else than a StepLog; name another file")
        self.entries: list[dict[str, Any]] = []
        self.path.write_text("")

    @contextmanager
    def microbatch(self, inputs: Mapping[str, Any]) -> Iterator[None]:
        """Around forward and backward of a batch as the model takes it."""
        begin = _now()
        yield
        self.add(inputs, _now() - begin)

    def add(self, inputs: Mapping[str, Any], seconds: float) -> None:
        """A microbatch that took `seconds`.

        Raises ValueError for a time that is not above 0, and for a batch without input_ids.
        """
        if not 0 < seconds < float("inf"):
            raise ValueError(f"a microbatch of {seconds} s; a time is above 0")
        entry = sizes_of(inputs) | {"seconds": seconds}
        self.entries.append(entry)
        with self.path.open("a") as file:
            file.write(json.dumps(entry) + "\n")


def callback(path: str | Path) -> Any:
    """A transformers.TrainerCallback that writes a StepLog of rank 0 to `path`.

    Times are from a microbatch's forward to the end of its backward. On several ranks they contain
    the wait for the others; log a run on one rank to measure costs.
    """
    from transformers import TrainerCallback

    class Log(TrainerCallback):
        def __init__(self) -> None:
            first = os.environ.get("RANK", "0") == "0"
            self.log = StepLog(path) if first else None
            self.begun: tuple[Mapping[str, Any], float] | None = None

        def on_train_begin(self, args: Any, state: Any, control: Any, **known: Any) -> None:
            if self.log is not None:
                known["model"].register_forward_pre_hook(self._begin, with_kwargs=True)

        def _begin(self, module: Any, words: Any, inputs: Mapping[str, Any]) -> None:
            if module.training:
                self.begun = (inputs, _now())

        def _end(self) -> None:
            if self.begun is not None and self.log is not None:
                inputs, begin = self.begun
                self.log.add(inputs, _now() - begin)
                self.begun = None

        def on_substep_end(self, args: Any, state: Any, control: Any, **known: Any) -> None:
            self._end()

        def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **known: Any) -> None:
            self._end()

    return Log()


def sizes_of(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Of a batch as a model takes it: tokens of each sample, tokens computed, sizes of images.

    Knows input_ids with attention_mask, image_grid_thw (Qwen-VL) and pixel_values [image, 3, height,
    width] (LLaVA, SigLIP, InternVL). Raises ValueError for a batch without input_ids.
    """
    if "input_ids" not in inputs:
        raise ValueError(f"a batch without input_ids; it has {', '.join(inputs) or 'nothing'}")
    ids = inputs["input_ids"]
    mask = inputs.get("attention_mask")
    rows = [[1] * len(row) for row in ids] if mask is None else mask
    tokens = [int(sum(row)) for row in (rows.tolist() if hasattr(rows, "tolist") else rows)]
    result = {"tokens": tokens, "padded_tokens": len(ids) * max(len(row) for row in ids)}
    grid, pixels = inputs.get("image_grid_thw"), inputs.get("pixel_values")
    if grid is not None:
        result["images"] = [[int(w) * _PATCH, int(h) * _PATCH] for _, h, w in grid.tolist()]
    elif pixels is not None and len(pixels.shape) >= 4:
        count = 1
        for extent in pixels.shape[:-3]:
            count *= extent
        result["images"] = [[pixels.shape[-1], pixels.shape[-2]]] * count
    else:
        result["images"] = []
    return result


def _now() -> float:
    import sys

    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()
