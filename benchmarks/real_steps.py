"""Simulated against measured step times of real training runs, step by step.

Two kinds of runs, each for two policies and three schedules. *Real*: one lane and two lanes compute on
real data, one thread a lane; predictions rest on `entrain profile`. *Paced*: many lanes as threads
wait for predicted times instead of computing, so that only executor and simulator are compared.

The machine is profiled anew before and after every real run, and a run's predictions are those of the
profile before it, times the mean of both profiles' speed over that one's: a virtual core's speed
varies by a fifth within a minute, which no earlier profile can contain. The difference of
neighbouring profiles measures this variation. Equal global batches must give equal losses, or the script fails.

Example:
    python benchmarks/real_steps.py configs/vlm-small.toml --output page.md
"""

import argparse
import itertools
import json
import statistics
import sys
import tempfile
import time
import tomllib
from pathlib import Path

import launch
import machine

POLICIES = ("sequential", "entrain")
SCHEDULES = ("1f1b", "entrain-fused", "entrain")
WARM_UP = 2  # steps of a run that do not count: caches, read-ahead


def profile(options, files, lanes):
    """Measures the machine once more, as each of so many lanes at once sees it; its speed."""
    launch.run(
        *(options.entrain, "profile", "--model", options.model, "-o", profile_of(files, lanes)),
        *("--lanes", lanes, *options.profile_options),
    )
    return speed(options, files, lanes)


def profile_of(files, lanes):
    """The profile for so many real lanes."""
    return files["folder"] / f"profile-{lanes}.json"


class Variant:
    """One way to run: lanes, policy, schedule."""

    def __init__(self, lanes, paced, policy, schedule):
        self.lanes = lanes
        self.paced = paced
        self.policy = policy
        self.schedule = schedule
        self.steps = []  # [round][step] of metrics.jsonl
        self.drifts = []  # [round] what predictions are multiplied by

    def name(self):
        return f"{'paced' if self.paced else 'real'}, {self.lanes} {plural(self.lanes, 'lane')}"

    def rounds(self):
        """[round][step that counts] its record, and the factor of its prediction."""
        pairs = zip(self.steps, self.drifts, strict=True)
        return [[(step, drift) for step in steps[WARM_UP:]] for steps, drift in pairs]

    def counted(self):
        """(record, factor) of every step that counts."""
        return list(itertools.chain.from_iterable(self.rounds()))

    def round_errors(self):
        """[round][step] (predicted - measured) / measured."""
        return [
            [(drift * s["predicted_step_s"] - s["step_s"]) / s["step_s"] for s, drift in steps]
            for steps in self.rounds()
        ]

    def errors(self):
        """(predicted - measured) / measured of every step that counts."""
        return list(itertools.chain.from_iterable(self.round_errors()))

    def size_of(self, predicted):
        """Median size of the error of what that says of a step's record."""
        return statistics.median(
            abs(predicted(step) - step["step_s"]) / step["step_s"] for step, _ in self.counted()
        )

    def size_before(self):
        """Median size of the error by the profile before each run alone."""
        return self.size_of(lambda step: step["predicted_step_s"])

    def size_at_run_speed(self):
        """Median size of the error of what the run expected, by the speed of the steps before."""
        return self.size_of(lambda step: step["expected_step_s"])

    def size_at_own_speed(self):
        """Median size of the error where all times are stretched as the step's own compute was."""
        return self.size_of(
            lambda step: (
                step["predicted_step_s"]
                * of_lanes(step, "busy_s")
                / of_lanes(step, "predicted_busy_s")
            )
        )

    def compute_times(self):
        """Sums over a step's lanes: predicted compute, processor time of it, its wall time."""
        return [
            (
                drift * of_lanes(step, "predicted_busy_s"),
                of_lanes(step, "processor_s"),
                of_lanes(step, "busy_s"),
            )
            for step, drift in self.counted()
        ]

    def compute_error(self):
        """Median of (predicted - processor time) / processor time of all lanes' compute."""
        return statistics.median(
            (predicted - processor) / processor for predicted, processor, _ in self.compute_times()
        )

    def core_share(self):
        """Median share of its compute's wall time that a lane had a core."""
        return statistics.median(processor / busy for _, processor, busy in self.compute_times())


def of_lanes(step, key):
    return sum(lane[key] for lane in step["lanes"])


def plural(count, noun):
    return noun if count == 1 else noun + "s"


def variants_of(options):
    lanes = [(count, False) for count in options.lanes]
    lanes += [(count, True) for count in options.paced_lanes]
    return [
        Variant(count, paced, policy, schedule)
        for count, paced in lanes
        for schedule in SCHEDULES
        for policy in POLICIES
    ]


def plan_settings(options, lanes, paced, files):
    """What makes the plan of a variant, as train settings."""
    if paced and lanes > 8:
        return {
            "model": files["deep"],
            "plan.profile": files["deep_profile"],
            "plan.stages.vision": lanes // 2,
            "plan.stages.llm": lanes - lanes // 2,
        }
    if lanes == 1:
        return {"plan.single_lane": "true"}
    plan = files["folder"] / f"plan-{lanes}.json"
    if not plan.exists():
        launch.run(
            *(options.entrain, "plan", "--lanes", lanes, "--index", options.train),
            *("--model", options.model, "--profile", profile_of(files, 1 if paced else lanes)),
            *("--global-batch", options.global_batch, "--num-slots", options.num_slots),
            *("--evaluations", 50, "-o", plan),
        )
    return {"plan.file": plan}


def deepen(options, files, lanes):
    """A model with layers for so many lanes, and the profile of the same layers for it."""
    text = Path(options.model).read_text()
    layers = max(1, lanes // 2 - 2)
    lines = [
        f"num_layers = {layers}" if line.startswith("num_layers") else line
        for line in text.splitlines()
    ]
    files["deep"].write_text("\n".join(lines) + "\n")
    document = json.loads(profile_of(files, 1).read_text())
    document["model_digest"] = ""
    files["deep_profile"].write_text(json.dumps(document))


def train(options, variant, files):
    """Step records of one run."""
    output = files["folder"] / "run"
    settings = {
        "output": output,
        "steps": options.steps + WARM_UP,
        "plan.profile": profile_of(files, 1 if variant.paced else variant.lanes),
        "plan.policy": variant.policy,
        "plan.schedule": variant.schedule,
        "plan.num_slots": options.num_slots,
        "data.global_batch": options.global_batch,
        "data.validation": "",
        "execution.trace_step": -1,
        "execution.paced": str(variant.paced).lower(),
        **plan_settings(options, variant.lanes, variant.paced, files),
    }
    words = ["train", options.config, *launch.settings(settings), "--overwrite"]
    launch.run(options.entrain, *words)
    return launch.rows(output)


def check_losses(variants):
    """Every real run trains on the same batches, so that losses agree to rounding."""
    real = [variant for variant in variants if not variant.paced]
    for variant in real:
        for steps in variant.steps:
            for step, first in zip(steps[:10], real[0].steps[0], strict=False):
                if abs(step["loss"] - first["loss"]) > 1e-3 * abs(first["loss"]):
                    sys.exit(
                        f"{variant.name()}, {variant.schedule}, {variant.policy}, step "
                        f"{step['step']}: loss {step['loss']}, not {first['loss']}"
                    )


def measure(options, variants, folder):
    """Runs all rounds; {lanes: [profile] seconds that it says of one sample's compute}."""
    files = {
        "folder": Path(folder),
        "deep": Path(folder) / "deep.toml",
        "deep_profile": Path(folder) / "deep-profile.json",
    }
    speeds = {}
    for lanes in options.lanes:
        own = [variant for variant in variants if variant.lanes == lanes and not variant.paced]
        speeds[lanes] = [profile(options, files, lanes)]
        for round_index in range(options.rounds):
            begun = time.monotonic()
            for variant in own:
                variant.steps.append(train(options, variant, files))
                speeds[lanes].append(profile(options, files, lanes))
                before, after = speeds[lanes][-2:]
                variant.drifts.append((before + after) / 2 / before)
            print(
                f"{lanes} {plural(lanes, 'lane')}, round {round_index + 1}/{options.rounds}: "
                f"{time.monotonic() - begun:.0f} s",
                file=sys.stderr,
            )
    paced = [variant for variant in variants if variant.paced]
    if paced:
        profile(options, files, 1)
        deepen(options, files, max(options.paced_lanes))
    for variant in paced:
        for _ in range(options.rounds):
            variant.steps.append(train(options, variant, files))
            variant.drifts.append(1.0)
    return speeds


def speed(options, files, lanes):
    """Seconds of forward and backward of a mean sample by the profile: one number for the machine."""
    table = files["folder"] / "costs.csv"
    launch.run(
        *(options.entrain, "cost", "--index", options.train, "--model", options.model),
        *("--profile", profile_of(files, lanes), "-o", table),
    )
    header, *rows = table.read_text().splitlines()
    columns = [i for i, name in enumerate(header.split(",")) if name.endswith("_s")]
    return sum(float(row.split(",")[i]) for row in rows for i in columns) / len(rows)


def percent(value, sign=False):
    return f"{100 * value:+.1f} %" if sign else f"{100 * value:.1f} %"


def rows_of(variants):
    """The result's table."""
    rows = []
    for variant in variants:
        steps = variant.counted()
        errors = sorted(variant.errors())
        sizes = sorted(abs(error) for error in errors)
        by_round = [statistics.median(errors) for errors in variant.round_errors()]
        quarter = len(errors) // 4
        rows.append(
            f"| {variant.name()} | {variant.schedule} | {variant.policy} | "
            f"{1e3 * statistics.median(d * s['predicted_step_s'] for s, d in steps):.0f} | "
            f"{1e3 * statistics.median(s['step_s'] for s, _ in steps):.0f} | "
            f"**{percent(statistics.median(sizes))}** | {percent(variant.size_before())} | "
            f"{percent(variant.size_at_run_speed())} | "
            + ("|" if variant.paced else f"{percent(variant.size_at_own_speed())} | ")
            + f"{percent(errors[quarter], True)} … "
            f"{percent(errors[-1 - quarter], True)} | {percent(sizes[-1])} | "
            f"{', '.join(percent(error, True) for error in by_round)} | "
            + ("|" if variant.paced else f"{percent(variant.compute_error(), True)} | ")
            + ("|" if variant.paced else f"{percent(variant.core_share())} |")
        )
    return rows


def summary(variants):
    """One line a kind of run."""
    lines = []
    for name in dict.fromkeys(variant.name() for variant in variants):
        errors = [e for v in variants if v.name() == name for e in v.errors()]
        lines.append(
            f"- {name}: median error {percent(statistics.median(map(abs, errors)))} over "
            f"{len(errors)} steps, bias {percent(statistics.median(errors), True)}"
        )
    return lines


def speed_variation(lanes, speeds):
    """How far the machine's profiles differ, as a line of the page."""
    steps = [abs(b - a) / a for a, b in itertools.pairwise(speeds)]
    return (
        f"- The machine by its {len(speeds)} profiles for {lanes} {plural(lanes, 'lane')}: "
        f"{1e3 * min(speeds):.1f} to {1e3 * max(speeds):.1f} ms of forward and backward of a mean "
        f"sample; from one to the next {percent(statistics.median(steps))} in the median, "
        f"{percent(max(steps))} at most."
    )


def page(options, variants, speeds, busy):
    """The result page as Markdown."""
    arguments = " ".join(
        [options.config, f"--rounds {options.rounds}", f"--steps {options.steps}"]
        + [f"--global-batch {options.global_batch}", f"--num-slots {options.num_slots}"]
        + ["--lanes", *map(str, options.lanes), "--paced-lanes", *map(str, options.paced_lanes)]
        + [f"--profile-seconds {options.profile_seconds}", f"--max-tokens {options.max_tokens}"]
    )
    return "\n".join(
        [
            "# Simulated against measured step times",
            "",
            f"Command: `python benchmarks/real_steps.py {arguments}`",
            "",
            f"{machine.describe()}; one thread a lane, fp32, {busy}.",
            "",
            (
                f"Every variant trains {options.steps} counted steps in each of {options.rounds} "
                "rounds, variants in turn; before and after each real run a profile is measured "
                f"(`entrain profile {' '.join(options.profile_options)}`, with `--lanes` for more "
                "than one lane), and predictions are those of the profile before, times the mean of "
                "both profiles' speed over that one's. As the run expected it: the prediction by the "
                "profile before, times measured over predicted compute of the run's eight steps "
                "before (`expected_step_s`). At the step's own speed: the prediction times "
                "the step's measured compute over its predicted one, all lanes together, which "
                "leaves out how fast the machine was and keeps order, waits and messages. Error of a step: (predicted − measured) / "
                "measured; the middle half is that of signed errors. Real lanes compute "
                "on real samples; paced lanes wait for predicted times. `entrain-fused` is the "
                "schedule `entrain` without weight gradients split off. Losses of the "
                "first steps agree over all real variants. Compute error: lanes' forward and "
                "backward, predicted against processor time, which others on the machine disturb "
                "little. Core share: processor time over wall time of that compute; what it lacks "
                "to 100 % is taken by others or by the run's own helper threads (decoding, "
                "assignment), and lengthens the measured step."
            ),
            "",
            (
                "| run | schedule | policy | predicted ms | measured ms | median error | by the "
                "profile before alone | as the run expected it | at the step's own speed | middle half "
                "| worst "
                "| bias by round | compute error "
                "| core share |"
            ),
            "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
            *rows_of(variants),
            "",
            *summary(variants),
            "",
            *(speed_variation(lanes, of_lanes) for lanes, of_lanes in speeds.items()),
            "",
        ]
    )


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("config", help="run file of a model with one encoder, `vision`")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=4, help="counted steps of each run")
    parser.add_argument("--global-batch", type=int, default=16)
    parser.add_argument("--num-slots", type=int, default=4)
    parser.add_argument("--lanes", type=int, nargs="*", default=[1, 2], help="of real runs")
    parser.add_argument("--paced-lanes", type=int, nargs="*", default=[8, 16])
    parser.add_argument("--profile-seconds", type=int, default=8)
    parser.add_argument("--max-tokens", type=int, default=4096, help="of the profile")
    parser.add_argument("--entrain", default="build/release/entrain/cli/entrain")
    parser.add_argument("--output", help="Markdown page to write; default: standard output")
    options = parser.parse_args()
    document = tomllib.loads(Path(options.config).read_text())
    options.model = document["model"]
    options.train = document["data"]["train"]
    options.profile_options = [
        "--max-tokens", str(options.max_tokens), "--seconds", str(options.profile_seconds),
    ]  # fmt: skip
    return options


def main():
    options = parse()
    variants = variants_of(options)
    load = machine.OtherLoad()
    with tempfile.TemporaryDirectory() as folder:
        speeds = measure(options, variants, folder)
    check_losses(variants)
    text = page(options, variants, speeds, load.text())
    machine.give(text, options.output)


if __name__ == "__main__":
    main()
