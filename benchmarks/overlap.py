"""What sending gradients while the last backward runs is worth, by the link they are reduced over.

Paced runs of several replicas with a sharded optimizer, three ways: the reduction overlapped with the
backward's tail (`execution.overlap_reduction`, the default), after it, and over a link that takes no
time. Ranks, messages, order and the ranks' agreement on when buckets are there are real; operations
and reductions wait for their predicted times. Hidden: what of the time that the reduction adds to a
step the overlap takes off again.

Example:
    python benchmarks/overlap.py configs/vlm-small.toml --profile data/vlm-small/profile.json
"""

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

import launch
import machine
from launch import Layout

WARM_UP = 2  # steps of a run that do not count
NO_TIME = 1e18  # bytes per second
WAYS = {"overlapped": (True, None), "after": (False, None), "free": (False, NO_TIME)}
SCHEDULES = ("1f1b", "entrain")


LAYOUTS = (Layout(2, 2), Layout(2, 4), Layout(4, 2), Layout(2, 2, processes=True))


def train(options, folder, layout, schedule, bandwidth, overlap):
    """Counted rows of one paced run's metrics.jsonl."""
    profile = json.loads(Path(options.profile).read_text())
    profile["reduce_bytes_per_second"] = bandwidth
    path = folder / "profile.json"
    path.write_text(json.dumps(profile))
    settings = {
        "output": folder / "run",
        "steps": options.steps + WARM_UP,
        "plan.profile": path,
        "plan.replicas": layout.replicas,
        "plan.stages.vision": layout.lanes // 2,
        "plan.stages.llm": layout.lanes - layout.lanes // 2,
        "plan.num_slots": 4,
        "plan.schedule": schedule,
        "plan.shard_optimizer": "true",
        "data.global_batch": 16 * layout.replicas,
        "data.validation": "",
        "execution.paced": "true",
        "execution.overlap_reduction": str(overlap).lower(),
        "execution.trace_step": -1,
    }
    launch.train(options, settings, layout.num_processes())
    return launch.rows(folder / "run")[WARM_UP:]


def hidden(medians):
    """Share of what the reduction adds to a step that the overlap takes off."""
    return (medians["after"] - medians["overlapped"]) / (medians["after"] - medians["free"])


def row(options, folder, layout, schedule, bandwidth):
    """One line of the table."""
    runs = {
        way: train(options, folder, layout, schedule, at or bandwidth, overlap)
        for way, (overlap, at) in WAYS.items()
    }
    measured = {way: statistics.median(s["step_s"] for s in rows) for way, rows in runs.items()}
    predicted = {
        way: statistics.median(s["predicted_step_s"] for s in rows) for way, rows in runs.items()
    }
    error = statistics.median(
        abs(s["predicted_step_s"] - s["step_s"]) / s["step_s"] for s in runs["overlapped"]
    )
    cells = [layout.name(), schedule, f"{bandwidth / 1e9:g}"]
    cells += [f"{1e3 * measured[way]:.1f}" for way in WAYS]
    cells += [f"**{measured['after'] / measured['overlapped']:.3f}**"]
    cells += [f"{100 * hidden(measured):.0f} %", f"{100 * hidden(predicted):.0f} %"]
    cells += [f"{100 * error:.1f} %"]
    print(" | ".join(cells), file=sys.stderr)
    return f"| {' | '.join(cells)} |"


def page(options, rows, busy):
    bandwidths = " ".join(f"{bandwidth:g}" for bandwidth in options.gigabytes)
    return "\n".join(
        [
            "# Gradient reductions overlapped with the last backward: step times",
            "",
            (
                f"Command: `python benchmarks/overlap.py {options.config} --steps {options.steps} "
                f"--gigabytes {bandwidths}`"
            ),
            "",
            f"{machine.describe()}; paced compute, {busy}.",
            "",
            (
                f"Medians of {options.steps} steps each, a sharded optimizer on 16 samples a "
                "replica. Overlapped: buckets of gradients leave while the stage's last backward runs. "
                "After: they leave when it has ended (`execution.overlap_reduction = false`). Free: "
                "over a link that takes no time. Hidden: the share of (after − free) that the "
                "overlap takes off, measured and predicted. Error: of the predicted step times with "
                "overlap, the median. All runs of a line share their batches."
            ),
            "",
            (
                "| ranks | schedule | all-reduce GB/s | overlapped ms | after ms | free ms | after / "
                "overlapped | hidden | predicted | error |"
            ),
            "|---|---|---|---|---|---|---|---|---|---|",
            *rows,
            "",
        ]
    )


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("config", help="run file of a model with one encoder, `vision`")
    parser.add_argument("--profile", default="data/vlm-small/profile.json")
    parser.add_argument("--steps", type=int, default=6, help="counted steps of each run")
    parser.add_argument(
        "--gigabytes", type=float, nargs="+", default=[1.0, 0.2], help="a second, of the all-reduce"
    )
    parser.add_argument("--entrain", default="build/release/entrain/cli/entrain")
    parser.add_argument("--package", default="build/release/python", help="for torchrun")
    parser.add_argument("--output", help="Markdown page to write; default: standard output")
    return parser.parse_args()


def main():
    options = parse()
    load = machine.OtherLoad()
    with tempfile.TemporaryDirectory() as folder:
        rows = [
            row(options, Path(folder), layout, schedule, 1e9 * gigabytes)
            for layout in LAYOUTS
            for schedule in SCHEDULES
            for gigabytes in options.gigabytes
        ]
    machine.give(page(options, rows, load.text()), options.output)


if __name__ == "__main__":
    main()
