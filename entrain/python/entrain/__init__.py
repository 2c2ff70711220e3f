"""Entrain for Python: `torchrun --nproc-per-node N -m entrain train run.toml` trains on N processes.

`python -m entrain train …` is `entrain train …`. From Python, run_program().
"""

import torch

from entrain._build import TORCH_VERSION, VERSION

__version__ = VERSION


def check_torch(found, built_against=TORCH_VERSION):
    """Whether this build runs with a torch of version `found`: its minor version must be the same.

    Raises ImportError with both versions, instead of the undefined symbols that would come of it.
    """

    def minor(version):
        return version.split("+")[0].split(".")[:2]

    if minor(found) != minor(built_against):
        raise ImportError(
            f"this build of entrain {VERSION} belongs to torch {built_against}, and torch {found} "
            "is installed: install that one, or build again with `make clean build`"
        )


check_torch(torch.__version__)

# Torch has to be loaded by now, and be the right one.
from entrain._engine import run_program

__all__ = ["check_torch", "run_program"]
