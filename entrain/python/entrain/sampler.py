"""Balanced batches for the trainer that people have: BalancedBatchSampler.

Layouts: "fsdp" where ranks meet in every layer of every microbatch (FSDP, FSDP2, ZeRO-3): a step costs
the sum over microbatches and modules of the slowest rank. "ddp" where they meet once a step (DDP,
ZeRO-1, ZeRO-2): a step costs the slowest rank's sum. "pp" for the replicas of a pipeline: all
microbatches are made alike in every module.
"""

from __future__ import annotations

import hashlib
import math
import operator
import os
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from entrain import _core
from entrain.data import Costs, Index
from entrain.data import costs as costs_of

_LAYOUTS = ("fsdp", "ddp", "pp")
_FORMAT = "entrain.sampler"
_VERSION = 3


@dataclass(frozen=True)
class Step:
    """One optimizer step of all ranks.

    microbatches: [microbatch][rank] -> indices of samples. num_target_tokens: of all ranks and
    microbatches (0 where the costs have none): divide the summed loss of every microbatch by it.
    seconds: predicted step; with "pp" that of microbatches that all take as long as the slowest.
    perfect_seconds: all work / ranks.
    """

    microbatches: list[list[list[int]]]
    num_samples: int
    num_target_tokens: int
    seconds: float
    perfect_seconds: float


class BalancedBatchSampler:
    """A batch sampler for `torch.utils.data.DataLoader(dataset, batch_sampler=…)`.

    Yields this rank's microbatches, step by step: lists of sample indices. All ranks have equally many
    of them, none is empty, and every sample comes once an epoch (with drop_last less the last samples
    that fill no step). Every step trains the same set of samples as without balancing.

    costs          Costs, or an Index with `model` (entrain.costs() makes them, and has more options).
    layout         "fsdp", "ddp" or "pp": which trainers are which is in docs/sampler.md.
    global_batch   samples of an optimizer step, a multiple of world_size × microbatch.
    microbatch     samples of a rank's microbatch on average; their number varies.
    rank, world_size  default: of torch.distributed where it is initialized, else torchrun's RANK and
                   WORLD_SIZE, else 0 and 1.
    order          epoch -> permutation of all samples (a list), the same on every rank; "torch": that of
                   DistributedSampler(seed=seed); default: a seeded one of Entrain, as `entrain export`.
    hold           a number of steps within which oversized samples are gathered in few steps, as a
                   run's data.hold: a change of order. 0 or 1: off.
    padded         the trainer pads sequences to a microbatch's longest.
    max_tokens, max_bytes  of a microbatch, as computed. Without either: no more than the drawn order
                   of the same step needs.
    every_rank_has modules, such as "vision" or a list, of which every microbatch of every rank has a
                   sample.
    dataset        to check its length against the costs'.

    Raises ValueError for options that contradict each other or the costs, naming a sample that exceeds
    a limit alone; TypeError for one of another type; RuntimeError naming the step where no assignment
    keeps them.
    Cost: a step of 4,096 samples takes about 50 ms in a background thread, one step ahead.

    >>> costs = Costs({"llm": [1.0, 2.0, 3.0, 4.0]}, tokens=[1, 2, 3, 4])
    >>> ranks = [BalancedBatchSampler(costs, layout="ddp", global_batch=4, microbatch=2, rank=rank,
    ...                               world_size=2) for rank in (0, 1)]
    >>> sorted(sorted(microbatch) for sampler in ranks for microbatch in sampler)
    [[0, 3], [1, 2]]
    """

    def __init__(
        self,
        costs: Costs | Index,
        *,
        model: object | None = None,
        layout: str = "fsdp",
        global_batch: int,
        microbatch: int,
        rank: int | None = None,
        world_size: int | None = None,
        seed: int = 0,
        order: str | Callable[[int], Sequence[int]] | None = None,
        hold: int = 1,
        padded: bool = False,
        max_tokens: int | None = None,
        max_bytes: int | None = None,
        every_rank_has: str | Iterable[str] = (),
        drop_last: bool = True,
        search_steps: int = 200_000,
        dataset: object | None = None,
    ):
        rank, world_size = _place(rank, world_size)
        if isinstance(costs, Index) and model is not None:
            costs = costs_of(costs, model)
        if not isinstance(costs, Costs):
            raise TypeError(
                f"{type(costs).__name__} given; Costs, or an Index with model=, are needed"
            )
        numbers = {"global_batch": global_batch, "microbatch": microbatch, "rank": rank,
                   "world_size": world_size, "seed": seed, "hold": hold, "max_tokens": max_tokens,
                   "max_bytes": max_bytes, "search_steps": search_steps}  # fmt: skip
        _check_numbers(numbers)
        _check_options(layout, global_batch, microbatch, rank, world_size, order)
        if dataset is not None and len(dataset) != len(costs):  # type: ignore[arg-type]
            raise ValueError(
                f"the data set has {len(dataset)} samples and the costs are of {len(costs)}: "  # type: ignore[arg-type]
                "index it again"
            )
        self.costs = costs
        self.layout = layout
        self.global_batch = global_batch
        self.rank = rank
        self.world_size = world_size
        self.microbatches = global_batch // (world_size * microbatch)
        self.seed = seed
        self.drop_last = drop_last
        self.hold = max(1, hold)
        self.padded = padded
        self.max_tokens = max_tokens
        self.max_bytes = max_bytes
        needed = [every_rank_has] if isinstance(every_rank_has, str) else list(every_rank_has)
        self.everywhere = _places_of(needed, costs.modules)
        self.search_steps = search_steps
        self.epoch = 0
        self._order = order
        self._next_step = 0
        self._permutation: tuple[int, Sequence[int]] | None = None
        self._ahead: dict[tuple[int, int], Future[list[Step]]] = {}
        self._pool: ThreadPoolExecutor | None = None
        self._work = [
            [round(1e9 * values[sample]) for values in costs.seconds.values()]
            for sample in range(len(costs))
        ]
        self._samples_of_core = self._of_core()
        if self.steps_per_epoch == 0:
            raise ValueError(
                f"{len(costs)} samples do not fill a global batch of {global_batch}; "
                "give a smaller one"
            )
        self._refuse_oversized()

    # Length and place.

    @property
    def steps_per_epoch(self) -> int:
        """Optimizer steps; a last step is dropped unless it can give every rank equally many
        microbatches (drop_last=False keeps one that has enough samples for that)."""
        whole, rest = divmod(len(self.costs), self.global_batch)
        if not self.drop_last and rest >= self.world_size * self.microbatches:
            whole += 1
        return whole

    def __len__(self) -> int:
        """Microbatches of this rank in an epoch."""
        return self.steps_per_epoch * self.microbatches

    def set_epoch(self, epoch: int) -> None:
        """Begins `epoch` at its first step, unless a loaded state is within it."""
        _check_numbers({"epoch": epoch})
        if epoch != self.epoch:
            self.epoch = epoch
            self._next_step = 0

    def state_dict(self, step: int | None = None) -> dict[str, int | str]:
        """Where to go on, independent of the number of ranks (format: docs/sampler.md).

        step: optimizer steps done in this epoch; default: those whose microbatches were all handed
        out. A DataLoader with workers asks ahead of the training: give it the steps you count.
        """
        if step is not None and not 0 <= step <= self.steps_per_epoch:
            raise ValueError(f"step {step}; allowed are 0 to {self.steps_per_epoch}")
        return {
            "format": _FORMAT,
            "version": _VERSION,
            "epoch": self.epoch,
            "step": self._next_step if step is None else step,
            "seed": self.seed,
            "global_batch": self.global_batch,
            "hold": self.hold,
            "order": self._order_name(self.epoch),
            "num_samples": len(self.costs),
            "digest": self.costs.digest,
        }

    def load_state_dict(self, state: Mapping[str, int | str]) -> None:
        """Goes on where `state` was taken, at any number of ranks.

        Raises ValueError for a state of another format, other samples, another order, seed or batch.
        """
        if state.get("format") != _FORMAT or state.get("version") != _VERSION:
            raise ValueError(
                f"a state of format {state.get('format')!r} version {state.get('version')!r}; "
                f"{_FORMAT!r} version {_VERSION} is needed"
            )
        step, epoch = state.get("step"), state.get("epoch")
        if not (isinstance(epoch, int) and epoch >= 0):
            raise ValueError(f"the state has epoch {epoch!r}; it is at least 0")
        mine = self.state_dict() | {"order": self._order_name(epoch)}
        for key, own in mine.items():
            if key not in ("epoch", "step") and state.get(key) != own:
                raise ValueError(
                    f"the state has {key} {state.get(key)!r} and this sampler {own!r}: it belongs "
                    "to other samples or settings"
                )
        if not (isinstance(step, int) and 0 <= step <= self.steps_per_epoch):
            raise ValueError(
                f"the state has step {step!r}; allowed are 0 to {self.steps_per_epoch}"
            )
        self.epoch, self._next_step = epoch, step

    # Batches.

    def __iter__(self) -> Iterator[list[int]]:
        if self._next_step >= self.steps_per_epoch:
            self._next_step = 0  # a state at the end of an epoch: set_epoch() names the next one
        for step in range(self._next_step, self.steps_per_epoch):
            ranks = self.step(step).microbatches
            for microbatch, samples in enumerate(ranks):
                if microbatch + 1 == len(ranks):
                    self._next_step = step + 1
                yield list(samples[self.rank])
        self._next_step = 0

    def step(self, step: int) -> Step:
        """Step `step` of this epoch, of all ranks. Computes the following steps ahead.

        Raises ValueError for a step that the epoch does not have.
        """
        if not 0 <= step < self.steps_per_epoch:
            raise ValueError(f"step {step}; allowed are 0 to {self.steps_per_epoch - 1}")
        window = step // self.hold
        key = (self.epoch, window)
        future = self._ahead.get(key)
        steps = future.result() if future else self._balance_window(*key)
        done: Future[list[Step]] = Future()
        done.set_result(steps)
        self._ahead = {key: done, **{k: v for k, v in self._ahead.items() if k > key}}
        following = (self.epoch, window + 1)
        if following not in self._ahead and (window + 1) * self.hold < self.steps_per_epoch:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(1, thread_name_prefix="entrain-sampler")
            self._ahead[following] = self._pool.submit(self._balance_window, *following)
        return steps[step % self.hold]

    def check(self) -> None:
        """Balances every step of this epoch: raises what a run would raise later."""
        for window in range(math.ceil(self.steps_per_epoch / self.hold)):
            self._balance_window(self.epoch, window)

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_pool": None, "_ahead": {}, "_samples_of_core": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._samples_of_core = self._of_core()

    def _of_core(self) -> _core.Samples:
        tokens, sizes = self.costs.tokens, self.costs.bytes
        return _core.Samples(self._work, [int(n) for n in tokens], [int(n) for n in sizes])

    def _samples(self, epoch: int, first: int, last: int) -> list[int]:
        """Samples of steps first … last - 1 in drawn order."""
        return list(self._order_of(epoch)[first * self.global_batch : last * self.global_batch])

    def _order_of(self, epoch: int) -> Sequence[int]:
        known = self._permutation
        if known is None or known[0] != epoch:
            known = self._permutation = (epoch, self._permute(epoch))
        return known[1]

    def _order_name(self, epoch: int) -> str:
        """Of a function of the epoch: a digest of what it gives for this one."""
        if not callable(self._order):
            return self._order or "entrain"
        samples = struct.pack(f"<{len(self.costs)}q", *self._order_of(epoch))
        return hashlib.blake2b(samples, digest_size=8).hexdigest()

    def _permute(self, epoch: int) -> Sequence[int]:
        count = len(self.costs)
        if self._order is None:
            return _core.epoch_rows(count, self.seed, epoch)
        if self._order == "torch":
            import torch

            generator = torch.Generator().manual_seed(self.seed + epoch)
            return torch.randperm(count, generator=generator).tolist()
        order = list(self._order(epoch))  # type: ignore[operator]
        if sorted(order) != list(range(count)):
            raise ValueError(
                f"the order of epoch {epoch} is no permutation of the {count} samples: it has "
                f"{len(order)} entries, {len(set(order))} of them different"
            )
        return order

    def _balance_window(self, epoch: int, window: int) -> list[Step]:
        first = window * self.hold
        last = min(first + self.hold, self.steps_per_epoch)
        samples = self._samples(epoch, first, last)
        result = []
        for step, members in enumerate(self._held(samples, last - first), first):
            try:
                result.append(self._assign(members, _core.step_seed(self.seed, epoch, step)))
            except RuntimeError as error:
                raise RuntimeError(f"epoch {epoch}, step {step}: {error}") from None
        return result

    def _held(self, samples: list[int], steps: int) -> list[list[int]]:
        """[step] its samples, equally many in every step, with those that the window holds gathered; a
        smaller last step stays as drawn."""
        size = self.global_batch
        whole = len(samples) // size
        if self.hold > 1 and whole > 1:
            weights = [sum(self._work[sample]) for sample in samples[: whole * size]]
            places = _core.hold_oversized(weights, whole)
            samples = [samples[place] for place in places] + samples[whole * size :]
        return [samples[i * size : (i + 1) * size] for i in range(steps)]

    def _settings(self) -> _core.Settings:
        # Alike microbatches: as if every one were a rank, all of which meet.
        alike = self.layout == "pp"
        return _core.Settings(
            layout="fsdp" if alike else self.layout,
            ranks=self.world_size * self.microbatches if alike else self.world_size,
            microbatches=1 if alike else self.microbatches,
            padded=self.padded,
            max_tokens=self.max_tokens or 0,
            max_bytes=self.max_bytes or 0,
            limit_as_drawn=not (self.max_tokens or self.max_bytes),
            everywhere=self.everywhere,
            search_steps=self.search_steps,
            module_names=self.costs.modules,
        )

    def _assign(self, samples: list[int], seed: int) -> Step:
        cells, slowest, perfect = self._samples_of_core.balance(self._settings(), samples, seed)
        targets = self.costs.target_tokens
        tokens = sum(targets[sample] for sample in samples) if targets else 0
        if self.layout != "pp":
            return Step(cells, len(samples), tokens, 1e-9 * slowest, 1e-9 * perfect)
        count = self.microbatches
        rows = [cells[0][i * self.world_size : (i + 1) * self.world_size] for i in range(count)]
        return Step(rows, len(samples), tokens, 1e-9 * slowest * count, 1e-9 * perfect * count)

    def measure(self, microbatches: list[list[list[int]]]) -> Step:
        """The step of any microbatches, [microbatch][rank] samples, with its predicted time."""
        samples = [sample for ranks in microbatches for rank in ranks for sample in rank]
        # [microbatch][rank][module]
        times = [[self._module_times(members) for members in ranks] for ranks in microbatches]
        if self.layout == "ddp":
            slowest = max(sum(sum(rank) for rank in column) for column in zip(*times, strict=True))
        elif self.layout == "pp":
            every = [rank for ranks in times for rank in ranks]
            slowest = len(times) * sum(max(module) for module in zip(*every, strict=True))
        else:
            slowest = sum(max(module) for ranks in times for module in zip(*ranks, strict=True))
        work = sum(sum(self._work[sample]) for sample in samples)
        targets = self.costs.target_tokens
        return Step(
            microbatches,
            len(samples),
            sum(targets[sample] for sample in samples) if targets else 0,
            1e-9 * slowest,
            1e-9 * work / self.world_size,
        )

    def _module_times(self, members: list[int]) -> list[float]:
        columns = list(zip(*(self._work[sample] for sample in members), strict=True))
        times = [float(sum(column)) for column in columns]
        if self.padded:
            times[-1] = float(len(members) * max(columns[-1]))
        return times

    def _refuse_oversized(self) -> None:
        limits = (("tokens", self.costs.tokens, self.max_tokens),
                  ("bytes", self.costs.bytes, self.max_bytes))  # fmt: skip
        for what, values, most in limits:
            over = [i for i, value in enumerate(values) if most and value > most]
            if over:
                names = [
                    str(self.costs.ids[i]) if self.costs.ids else f"number {i}" for i in over[:5]
                ]
                raise ValueError(
                    f"{len(over)} samples have more than {most} {what} alone: {', '.join(names)}"
                    f"{' …' if len(over) > 5 else ''}; leave them out, shorten them, or raise max_{what}"
                )


def _place(rank: int | None, world_size: int | None) -> tuple[int, int]:
    if (rank is None) != (world_size is None):
        raise ValueError("rank and world_size belong together: give both or neither")
    if rank is not None and world_size is not None:
        return rank, world_size
    try:
        import torch.distributed as dist
    except ImportError:
        pass
    else:
        if dist.is_available() and dist.is_initialized():
            return dist.get_rank(), dist.get_world_size()
    given = os.environ.get("RANK"), os.environ.get("WORLD_SIZE")
    if None in given:
        return 0, 1
    try:
        return int(given[0]), int(given[1])  # type: ignore[arg-type]
    except ValueError:
        raise ValueError(
            f"the environment has RANK {given[0]!r}, WORLD_SIZE {given[1]!r}"
        ) from None


def _check_numbers(numbers: Mapping[str, object]) -> None:
    """None is allowed where an option has it; anything else is a whole number of at least 0."""
    for name, value in numbers.items():
        if value is None:
            continue
        try:
            whole = operator.index(value)  # type: ignore[arg-type]
        except TypeError:
            raise TypeError(f"{name} is {value!r}; a whole number is needed") from None
        if not 0 <= whole < 2**63:
            raise ValueError(f"{name} is {value}; it is at least 0 and below 2^63")


def _check_options(
    layout: str,
    global_batch: int,
    microbatch: int,
    rank: int,
    world_size: int,
    order: object,
) -> None:
    if not (order in (None, "torch") or callable(order)):
        kind = ValueError if isinstance(order, str) else TypeError
        raise kind(f"order is {order!r}; allowed are 'torch' and a function of the epoch")
    if layout not in _LAYOUTS:
        raise ValueError(f"layout {layout!r}; allowed: {', '.join(_LAYOUTS)}")
    if world_size < 1 or not 0 <= rank < world_size:
        raise ValueError(f"rank {rank} of {world_size} ranks; allowed are 0 to {world_size - 1}")
    if microbatch < 1 or global_batch < 1 or global_batch % (world_size * microbatch) != 0:
        raise ValueError(
            f"a global batch of {global_batch} samples is no multiple of {world_size} ranks × "
            f"{microbatch} samples"
        )


def _places_of(names: list[str], modules: list[str]) -> list[int]:
    for name in names:
        if name not in modules:
            raise ValueError(f"every_rank_has names {name!r}; the modules are {', '.join(modules)}")
    return [modules.index(name) for name in names]
