"""Entrain: multimodal LLMs trained without idle devices.

Data and models, by sizes alone:
    Index    samples: from an index, shards, JSON lines, a table, a `datasets.Dataset`, dictionaries
    Model    layers and widths: Model.from_hf("config.json"), Model.from_toml(…)
    costs()  what each sample costs in each module

In your own trainer:
    BalancedBatchSampler  batches whose ranks finish together (docs/sampler.md)
    balance_trainer()     the same for transformers.Trainer and TRL's SFTTrainer
    balanced_loader()     a DataLoader for accelerate and plain loops
    StepLog, callback()   sizes and times of a real run, for audit(measured=…)

Before anything is changed:
    audit()     what imbalance costs a run, and what would remove it
    plan(), assign(), simulate()  Entrain's own pipelines, without a device

Training with Entrain: `torchrun --nproc-per-node N -m entrain train run.toml`, or run_program().

>>> import entrain
>>> index = entrain.Index.from_rows([
...     {"images": [(640, 80 * n)], "response_tokens": 20} for n in range(1, 33)])
>>> found = entrain.audit(index, "configs/models/qwen2.5-vl-llama-1b.toml", ranks=2, microbatch=2)
>>> mean = {row["policy"]: row["over_perfect"] for row in found.rows()}
>>> mean["entrain"] < mean["random"]
True
"""

import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from entrain._build import TORCH_VERSION, VERSION

if TYPE_CHECKING:
    from entrain.data import Costs, Index, Model, costs
    from entrain.sampler import BalancedBatchSampler, Step
    from entrain.study import (
        Assignment,
        Audit,
        Plan,
        Simulation,
        assign,
        audit,
        plan,
        simulate,
    )
    from entrain.trainers import (
        StepLog,
        balance_trainer,
        balanced_loader,
        callback,
        token_mean_loss,
    )

__version__ = VERSION
__all__ = [
    "Assignment",
    "Audit",
    "BalancedBatchSampler",
    "Costs",
    "Index",
    "Model",
    "Plan",
    "Simulation",
    "Step",
    "StepLog",
    "assign",
    "audit",
    "balance_trainer",
    "balanced_loader",
    "callback",
    "check_torch",
    "costs",
    "load_engine",
    "plan",
    "run_program",
    "simulate",
    "token_mean_loss",
]

# Loaded when they are asked for: a process that tokenizes or trains needs none of them.
_HOMES = {
    "entrain.data": ("Costs", "Index", "Model", "costs"),
    "entrain.sampler": ("BalancedBatchSampler", "Step"),
    "entrain.study": (
        *("Assignment", "Audit", "Plan", "Simulation"),
        *("assign", "audit", "plan", "simulate"),
    ),
    "entrain.trainers": (
        "StepLog",
        "balance_trainer",
        "balanced_loader",
        "callback",
        "token_mean_loss",
    ),
}


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(module), name)
    raise AttributeError(f"module 'entrain' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(["__version__", *__all__])


def check_torch(found: str, built_against: str = TORCH_VERSION) -> None:
    """Whether this build runs with a torch of version `found`: its minor version must be the same.

    Raises ImportError with both versions, instead of the undefined symbols that would come of it.
    """

    def minor(version: str) -> list[str]:
        return version.split("+")[0].split(".")[:2]

    if minor(found) != minor(built_against):
        raise ImportError(
            f"this build of entrain {VERSION} belongs to torch {built_against}, and torch {found} "
            "is installed: install that one, or build again with `make clean build`"
        )


def load_engine() -> Any:
    """The module `_engine`, loaded behind the torch that it was built against.

    Raises ImportError when this installation has no engine, and when torch is missing or another
    minor version.
    """
    if not any(Path(__file__).parent.glob("_engine*.so")):
        raise ImportError(
            "this installation has no engine, which trains and measures: `make build` builds it, "
            "or `pip install` with ENTRAIN_ENGINE=ON (docs/python.md)"
        )
    import torch

    check_torch(torch.__version__)
    from entrain import _engine

    return _engine


def run_program(
    arguments: Sequence[str],
    process_group: str = "",
    make_device_groups: Callable[[], list[str]] | None = None,
    restarted: bool = False,
) -> int:
    """Runs `entrain` with these arguments ("train", "run.toml", …) and returns its exit code.

    All commands, those that need the engine included. Of `train`, `process_group` is the name of the c10d group whose ranks train together, this process among
    them; empty: ranks are threads of this process. `make_device_groups()` makes two more groups of all
    ranks with a backend for GPUs and returns their names, for `execution.device_messages = "nccl"`.
    `restarted`: an attempt of the same launcher failed before this one.
    """
    engine = load_engine()
    return int(engine.run_program(list(arguments), process_group, make_device_groups, restarted))
