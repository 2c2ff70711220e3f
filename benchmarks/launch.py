"""How benchmarks start runs of the program: ranks as threads, or as processes under torchrun."""

import os
import subprocess
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


def train(options, values, processes=0):
    """Trains `options.config` with these settings to its end; leaves with what went wrong."""
    full = [*command(options.entrain, processes), "train", options.config, *settings(values)]
    result = subprocess.run(
        full, env=environment(options.package), capture_output=True, text=True, check=False
    )
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, full))}\n{result.stdout}{result.stderr}")
