"""What holding oversized samples across steps wins, and what it does to the order of samples.

For every size manifest: the mean simulated step time of two policies under two schedules with
`--hold` 1 (off), 4 and 16, on the best plan of 8 lanes, and how many samples come in another step
than the one that draws them, how far away, and how uneven the work of steps becomes. Work is that of
`entrain cost`. Means, not medians: few steps take all oversized samples. With `--ranks`, Python's
sampler too (its package is needed): predicted steps of FSDP ranks with `hold`.

Example:
    python benchmarks/hold.py --data data/manifests --output page.md
"""

import collections
import csv
import json
import math
import statistics
import sys
import tempfile
from pathlib import Path

import launch
import machine
from machine import table
from manifests import AUDIO, VISION, inputs

HOLD = (1, 4, 16)
POLICIES = ("entrain", "lpt-2d")
SCHEDULES = ("1f1b", "entrain")
PROFILE = "analytic:a40"


def parse():
    parser = launch.parser(__doc__)
    parser.add_argument("--data", required=True, help="folder of size manifests")
    parser.add_argument("--only", default="", help="comma-separated manifests (default: all)")
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--replicas", type=int, default=4)
    parser.add_argument("--ranks", type=int, default=0, help="of the sampler; 0: leave it out")
    return parser.parse_args()


class Case:
    """A manifest under the best plan of 8 lanes for its drawn order."""

    def __init__(self, options, manifest, folder):
        self.options = options
        self.folder = Path(folder)
        self.sizes = inputs(options.data, manifest, "3b", PROFILE)
        self.batches = ["--global-batch", options.batch]
        self.plan = self.folder / "plan.json"
        lanes = ["--lanes", 8, "--replicas", options.replicas]
        self.run("plan", *self.batches, *lanes, "--output", self.plan)
        self.work = self._work()
        self.steps = self._steps()

    def run(self, command, *arguments):
        words = [self.options.entrain, command, *self.sizes, *arguments, "--force"]
        return launch.run(*words).stdout

    def _steps(self):
        """Whole windows: the longest one, or whole epochs where those are shorter."""
        epoch = len(self.work) // self.options.batch
        if epoch < 4 or epoch >= max(HOLD):  # drawn with replacement, or a long epoch
            return max(HOLD)
        return epoch * math.ceil(max(HOLD) / epoch)

    def _work(self):
        """Seconds of every sample in all modules."""
        file = self.folder / "costs.csv"
        self.run("cost", "--output", file)
        times = ("_forward_s", "_backward_s")
        return {
            row["sample_id"]: sum(float(row[key]) for key in row if key.endswith(times))
            for row in csv.DictReader(file.open())
        }

    def step_times(self, hold):
        """(policy, schedule) -> its mean step time in seconds."""
        file = self.folder / "cases.csv"
        self.run("simulate", *self.batches, "--plan", self.plan, "--steps", self.steps,
                 "--policy", ",".join(POLICIES), "--schedule", ",".join(SCHEDULES),
                 "--memory", "free", "--hold", hold, "--csv", file)  # fmt: skip
        times = collections.defaultdict(list)
        for row in csv.DictReader(file.open()):
            times[row["policy"], row["schedule"]].append(float(row["step_s"]))
        return {case: statistics.fmean(values) for case, values in times.items()}

    def drawn(self, hold):
        """[step] the ids of its samples; a repeated one has its id several times."""
        steps = []
        for step in range(self.steps):
            assigned = json.loads(
                self.run("assign", *self.batches, "--plan", self.plan, "--policy", "sequential",
                         "--hold", hold, "--step", step, "--json")
            )  # fmt: skip
            slots = [slot for replica in assigned["replicas"] for slot in replica["modules"]["llm"]]
            steps.append([sample.split("~")[0] for slot in slots for sample in slot])
        return steps


def distances(before, after):
    """Steps between where a sample was drawn and where it comes, of those that moved."""
    places = [collections.defaultdict(list), collections.defaultdict(list)]
    for known, steps in zip(places, (before, after), strict=True):
        for step, samples in enumerate(steps):
            for sample in samples:
                known[sample].append(step)
    lost = [sample for sample in places[0] if len(places[0][sample]) != len(places[1][sample])]
    if lost:
        sys.exit(f"not drawn as often when held: {', '.join(lost[:5])}")
    pairs = (zip(places[0][sample], places[1][sample], strict=True) for sample in places[0])
    return [abs(a - b) for pair in pairs for a, b in pair if a != b]


def evenness(steps, work):
    """Standard deviation over mean of the work of steps, and the largest over the mean."""
    sums = [sum(work[sample] for sample in samples) for samples in steps]
    mean = statistics.fmean(sums)
    return statistics.pstdev(sums) / mean, max(sums) / mean


def time_rows(manifest, times):
    for policy in POLICIES:
        for schedule in SCHEDULES:
            seconds = [times[hold][policy, schedule] for hold in HOLD]
            cells = [f"{value:.3f}" for value in seconds]
            cells += [f"{100 * (value / seconds[0] - 1):+.1f}" for value in seconds[1:]]
            yield [manifest, policy, schedule, *cells]


def order_rows(manifest, case):
    before = case.drawn(1)
    for hold in HOLD:
        after = before if hold == 1 else case.drawn(hold)
        moved = distances(before, after)
        spread, largest = evenness(after, case.work)
        share = 100 * len(moved) / sum(map(len, before))
        far = [f"{statistics.fmean(moved):.1f}", str(max(moved))] if moved else ["–", "–"]
        yield [manifest, str(hold), f"{share:.1f}", *far, f"{100 * spread:.0f}", f"{largest:.2f}"]


def sampler_row(options, manifest, case):
    """Mean predicted step of an epoch's first steps, and the evenness of their work."""
    from entrain import BalancedBatchSampler, Index, costs

    index = Index(Path(options.data) / f"{manifest}.csv")
    known = costs(index, case.sizes[3], profile=PROFILE)
    cells = [manifest]
    for hold in (1, 16):
        sampler = BalancedBatchSampler(
            known, layout="fsdp", global_batch=options.batch, rank=0, world_size=options.ranks,
            microbatch=options.batch // (4 * options.ranks), hold=hold,
        )  # fmt: skip
        steps = [sampler.step(i) for i in range(min(16, sampler.steps_per_epoch))]
        work = [step.perfect_seconds for step in steps]
        spread = 100 * statistics.pstdev(work) / statistics.fmean(work)
        cells += [f"{statistics.fmean(step.seconds for step in steps):.3f}", f"{spread:.0f}"]
    return cells


def main():
    options = parse()
    manifests = options.only.split(",") if options.only else [*VISION, *AUDIO, "qmsum_longtext"]
    times, orders, sampled = [], [], []
    for manifest in manifests:
        with tempfile.TemporaryDirectory() as folder:
            case = Case(options, manifest, folder)
            rows = list(time_rows(manifest, {hold: case.step_times(hold) for hold in HOLD}))
            times += rows
            orders += order_rows(manifest, case)
            if options.ranks > 0 and len(case.work) >= 2 * options.batch:
                sampled.append(sampler_row(options, manifest, case))
            print(*rows[0], file=sys.stderr)
    machine.give(page(options, times, orders, sampled), options.output)


def page(options, times, orders, sampled):
    holds = [f"hold {hold}" for hold in HOLD]
    changes = [f"{name}, %" for name in holds[1:]]
    time_table = table(["manifest", "policy", "schedule", *holds, *changes], times)
    order_header = ["manifest", "hold", "moved, %", "mean distance", "largest distance"]
    order_table = table([*order_header, "work, std %", "largest / mean"], orders)
    text = f"""# Oversized samples held across steps, simulated

Command: `python benchmarks/hold.py --data MANIFESTS --ranks {options.ranks}`

{machine.describe()}; simulated, analytic A40 profile, Llama-3 3B with Qwen2.5-VL's vision or audio
encoder, all trained; {options.replicas} replicas × 8 lanes, {options.batch} samples a step, 16 to 30
steps of seed 0 (whole windows, or whole epochs where an epoch has fewer than 16 steps), memory free,
default evaluations.

## Step time

Mean over steps in seconds, and the change against `hold = 1` (off).

"""
    text += "\n".join(time_table)
    text += """

## Order of samples

Moved: samples that come in another step than the one that draws them, % of all, and how many steps
away they come. Work of steps: standard deviation in % of the mean, and the largest over the mean.

"""
    text += "\n".join(order_table) + "\n"
    if sampled:
        header = [f"hold {hold}{what}" for hold in (1, 16) for what in (", s", ", std %")]
        text += f"""
## Python's sampler

FSDP, {options.ranks} ranks, 4 microbatches each: the mean predicted step of an epoch's first 16 steps (or
all), and the standard deviation of the work of steps in % of its mean.

"""
        text += "\n".join(table(["manifest", *header], sampled)) + "\n"
    return text


if __name__ == "__main__":
    main()
