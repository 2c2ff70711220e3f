"""How benchmarks start runs of the program: ranks as threads, or as processes under torchrun."""

import os
import sys


def command(entrain, processes=0, restarts=0):
    """What stands before `train`: the program, or torchrun with so many processes."""
    if processes == 0:
        return [str(entrain)]
    return [
        *[sys.executable, "-m", "torch.distributed.run", "--standalone"],
        *["--nproc-per-node", str(processes), "--max-restarts", str(restarts)],
        *["-m", "entrain"],
    ]


def environment(package):
    """The environment in which torchrun's processes find the Python package of this build."""
    return os.environ | {"PYTHONPATH": str(package), "OMP_NUM_THREADS": "1"}


def settings(values):
    """{key: value} as arguments of `train`."""
    return [part for key, value in values.items() for part in ("--set", f"{key}={value}")]
