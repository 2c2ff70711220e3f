"""How benchmarks run the program: its commands, and training with ranks as threads or under torchrun."""

import argparse
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path


def parser(doc, entrain="build/release/entrain/cli/entrain"):
    """A parser of arguments with the program and the page; doc: of the benchmark, its first line counts."""
    result = argparse.ArgumentParser(description=doc.splitlines()[0])
    result.add_argument("--entrain", default=entrain)
    result.add_argument("--output", default="", help="Markdown page to write (default: print)")
    return result


def run(*command, allowed=(0,), **options):
    """What a command gave (subprocess.CompletedProcess); leaves with what it said where it failed.

    allowed: exit codes of success. options: of subprocess.run().
    """
    words = list(map(str, command))
    result = subprocess.run(words, capture_output=True, text=True, check=False, **options)
    if result.returncode not in allowed:
        sys.exit(f"{' '.join(words)}\n{result.stdout}{result.stderr}")
    return result


def rows(folder):
    """The records of a run, most of them of a step each."""
    return [json.loads(line) for line in (Path(folder) / "metrics.jsonl").read_text().splitlines()]


@dataclass(frozen=True)
class Layout:
    """Ranks of one kind: lanes and replicas, threads or processes."""

    lanes: int
    replicas: int
    processes: bool = False

    def name(self):
        ranks = self.lanes * self.replicas
        kind = "processes" if self.processes else "threads"
        return f"{ranks} {kind}: {self.lanes} lanes × {self.replicas}"

    def num_processes(self):
        """As train() takes it; 0: ranks are threads."""
        return self.lanes * self.replicas if self.processes else 0


# A small run of an encoder lane and an LLM lane, in the folder of its files.
TWO_LANES = """
output = "run"
steps = {steps}
model = "{model}"
[data]
train = "train.csv"
global_batch = {batch}
[plan]
replicas = 1
num_slots = 4
evaluations = 50
[plan.stages]
vision = 1
llm = 1
[optimizer]
warmup_steps = 1
[execution]
deadline_seconds = 120
"""


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
    run(*full, env=environment(options.package))
