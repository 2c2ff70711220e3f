"""Measured step time of policies on two real cores: one encoder lane, one LLM lane, real arithmetic.

Runs `entrain train` for every variant in turn, several rounds, so that all variants see the same
machine in the same minutes; compares medians of step times, and sets the simulator's ratio beside
the measured one. Checks its own answer: equal global batches must give equal losses (the policies
only move work within a step), or it fails.

Example:
    python benchmarks/two_cores.py configs/vlm-small.toml --rounds 3 --steps 12 --output page.md
"""

import argparse
import statistics
import sys
import tempfile

import launch
import machine

VARIANTS = {
    "sequential": ["plan.policy=sequential"],
    "random": ["plan.policy=random"],
    "lpt-2d": ["plan.policy=lpt-2d"],
    "entrain without shape, slots, deferral": [
        "plan.policy=entrain",
        'plan.without=["shape", "slots", "deferral"]',
    ],
    "entrain without slots, deferral": [
        "plan.policy=entrain",
        'plan.without=["slots", "deferral"]',
    ],
    "entrain without deferral": ["plan.policy=entrain", 'plan.without=["deferral"]'],
    "entrain": ["plan.policy=entrain"],
    "entrain without chunks": ["plan.policy=entrain", 'plan.without=["chunks"]'],
}
# The others do what they say under any plan, this one only where the plan allows chunks.
ASKED_FOR = {"entrain without chunks"}


def train(options, variant, folder):
    """Step records of one short run of a variant."""
    command = [options.entrain, "train", options.config, "--set", f"output={folder}"]
    settings = [f"steps={options.steps}", "execution.trace_step=-1", "data.validation="]
    for setting in settings + VARIANTS[variant] + options.set:
        command += ["--set", setting]
    launch.run(*command)
    return launch.rows(folder)


def measure(options):
    """Per variant, the records of every round; variants interleaved."""
    records = {variant: [] for variant in options.variants}
    for round_index in range(options.rounds):
        for variant in options.variants:
            with tempfile.TemporaryDirectory() as folder:
                records[variant].append(train(options, variant, folder))
            print(f"round {round_index + 1}/{options.rounds}: {variant}", file=sys.stderr)
    return records


def check_losses(records):
    """Every policy trains on the same batches, so the losses must agree to rounding."""
    reference = [step["loss"] for step in records["sequential"][0]]
    for variant, rounds in records.items():
        for steps in rounds:
            for step, expected in zip(steps[:10], reference, strict=False):
                if abs(step["loss"] - expected) > 1e-3 * abs(expected):
                    sys.exit(f"{variant}, step {step['step']}: loss {step['loss']}, not {expected}")


def steady(steps):
    """Step times without the first two steps, which still warm caches and read-ahead."""
    return [step["step_s"] for step in steps[2:]]


def table(records, baseline):
    """Rows of the result: medians, spread over rounds, measured and predicted ratio."""
    base = statistics.median(t for steps in records[baseline] for t in steady(steps))
    base_predicted = statistics.median(
        step["predicted_step_s"] for steps in records[baseline] for step in steps[2:]
    )
    rows = []
    for variant, rounds in records.items():
        medians = [statistics.median(steady(steps)) for steps in rounds]
        base_medians = [statistics.median(steady(steps)) for steps in records[baseline]]
        ratios = [b / m for b, m in zip(base_medians, medians, strict=True)]
        times = [t for steps in rounds for t in steady(steps)]
        predicted = statistics.median(
            step["predicted_step_s"] for steps in rounds for step in steps[2:]
        )
        bubble = statistics.median(step["bubble"] for steps in rounds for step in steps[2:])
        chunks = statistics.mean(step["chunks"] for steps in rounds for step in steps[2:])
        rows.append(
            f"| {variant} | {statistics.median(times) * 1e3:.0f} | {min(medians) * 1e3:.0f}–"
            f"{max(medians) * 1e3:.0f} | {base / statistics.median(times):.3f} | "
            f"{min(ratios):.3f}–{max(ratios):.3f} | {base_predicted / predicted:.3f} | "
            f"{predicted * 1e3:.0f} | {bubble:.3f} | {chunks:.1f} |"
        )
    return rows


def page(options, records):
    """The result page as Markdown."""
    arguments = " ".join(
        [options.config]
        + [f"--set '{s}'" for s in options.set]
        + [f"--variant '{name}'" for name in options.asked_variants]
    )
    lines = [
        f"# {options.title}",
        "",
        (
            f"Command: `python benchmarks/two_cores.py {arguments} --rounds {options.rounds} "
            f"--steps {options.steps}`"
        ),
        "",
        (f"{machine.describe()}; two lanes, one thread a lane; real arithmetic, fp32."),
        "",
        (
            f"Every variant trains {options.steps} steps in each of {options.rounds} rounds, variants in "
            "turn; the first two steps of a run are not counted. Ratios are `sequential` / variant of "
            "medians; the range is over rounds. Losses of the first steps agree over all variants."
        ),
        "",
        (
            "| policy | step ms (median) | medians of rounds | measured ratio | range | predicted ratio "
            "| predicted ms | bubble | chunks a step |"
        ),
        "|---|---|---|---|---|---|---|---|---|",
        *table(records, "sequential"),
        "",
    ]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("config", help="run file with one encoder lane and one LLM lane")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of all variants")
    parser.add_argument("--steps", type=int, default=12, help="steps of each short run")
    parser.add_argument("--set", action="append", default=[], help="path.to.key=value for all")
    parser.add_argument(
        "--variant",
        action="append",
        dest="variants",
        choices=list(VARIANTS),
        help="run this one beside `sequential`; may be repeated (default: all but "
        + ", ".join(sorted(ASKED_FOR))
        + ")",
    )
    parser.add_argument("--title", default="Two cores, one encoder lane and one LLM lane")
    parser.add_argument("--entrain", default="build/release/entrain/cli/entrain")
    parser.add_argument("--output", help="Markdown page to write; default: standard output")
    options = parser.parse_args()
    options.asked_variants = options.variants or []
    asked = options.variants or [variant for variant in VARIANTS if variant not in ASKED_FOR]
    options.variants = ["sequential"] + [name for name in asked if name != "sequential"]
    records = measure(options)
    check_losses(records)
    text = page(options, records)
    machine.give(text, options.output)


if __name__ == "__main__":
    main()
