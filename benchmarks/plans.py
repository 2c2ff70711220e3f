"""Static plans on real size manifests: what ours could still gain, and what others' plans lose.

For every manifest with encoder work and every size of LLM, on 16 A40s (analytic profile):

1. `entrain plan` finds the static plan, and re-plans each of many further batches by itself: the
   regret, the most that any dynamic scheme could gain over it;
2. `one-sample`, `four-samples` (several draws each), `b-min` and `megatron-even` plan for the same
   replicas and tensor parallelism (`b-min` chooses its own);
3. all plans are simulated on the same held-out batches under the policy `entrain` and `1f1b`: the
   regret of each against ours.

A killed run goes on: cases that are done lie in OUTPUT.cases.jsonl until the page is complete.

Example:
    python benchmarks/plans.py --manifests ../shared/data/manifests --output page.md
"""

import argparse
import csv
import json
import platform
import resource
import statistics
import sys
import tempfile
from pathlib import Path

import launch
import machine
from machine import table
from manifests import chosen, inputs

LLMS = "1b,3b,8b"
HELD_OUT_SEED = 1000  # of the batches that plans are compared on
NO_PLAN = 4  # exit code: nothing fits


def case_arguments(description, cluster, profile):
    """A parser with what a Case reads."""
    parser = argparse.ArgumentParser(description=description.split("\n", maxsplit=1)[0])
    parser.add_argument("--entrain", default="build/release/entrain/cli/entrain")
    parser.add_argument("--manifests", required=True, help="folder of size manifests")
    parser.add_argument("--cluster", default=cluster)
    parser.add_argument("--profile", default=profile)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--only", default="", help="comma-separated manifests (default: all)")
    parser.add_argument(
        "--trained", action="store_true", help="only plans that `entrain train` runs, as by default"
    )
    return parser


def parse_arguments():
    parser = case_arguments(__doc__, "configs/clusters/a40-16.toml", "analytic:a40")
    parser.add_argument("--regret-batches", type=int, default=100)
    parser.add_argument("--steps", type=int, default=40, help="held-out batches")
    parser.add_argument("--draws", type=int, default=6, help="of one and of four samples")
    parser.add_argument("--evaluations", type=int, default=200, help="of the policy, a step")
    parser.add_argument("--llms", default=LLMS)
    parser.add_argument("--output", required=True, help="Markdown page to write")
    return parser.parse_args()


class Case:
    """One manifest and model: the commands' common arguments."""

    def __init__(self, options, manifest, llm, folder):
        self.options = options
        self.folder = Path(folder)
        self.inputs = inputs(options.manifests, manifest, llm, options.profile)
        self.inputs += ["--cluster", options.cluster, "--global-batch", options.batch]

    def run(self, command, *extra, program=""):
        """The command's report; None where it says that nothing fits. program: another build's."""
        line = [program or self.options.entrain, command, *self.inputs, *extra, "--json"]
        if command == "plan" and not self.options.trained:  # with context parallelism
            line.append("--for-study")
        result = launch.run(*line, allowed=(0, NO_PLAN))
        return None if result.returncode == NO_PLAN else json.loads(result.stdout)

    def timed_plan(self, *extra, program=""):
        """The report of `plan`, and its processor time in seconds."""
        begun = children_seconds()
        return self.run("plan", *extra, program=program), children_seconds() - begun

    def write_plan(self, name, plan):
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps(plan))
        return path

    def step_times(self, plan_file):
        """Step time of every held-out batch; None where the plan does not fit on one."""
        path = self.folder / "cases.csv"
        path.unlink(missing_ok=True)
        report = self.run(
            "simulate",
            *("--plan", plan_file, "--policy", "entrain", "--schedule", "1f1b"),
            *("--seed", HELD_OUT_SEED, "--steps", self.options.steps),
            *("--evaluations", self.options.evaluations, "--csv", path),
        )
        if report is None:
            return None
        with path.open(newline="") as file:
            times = [row["step_s"] for row in csv.DictReader(file)]
        return None if "" in times else [float(time) for time in times]


def children_seconds():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def seconds_text(seconds):
    """Median (least … largest)."""
    return f"{statistics.median(seconds):.2f} ({min(seconds):.2f} … {max(seconds):.2f})"


def command_text(script, options):
    """The command that a page says it was made by."""
    command = f"python {' '.join([f'benchmarks/{script}', *sys.argv[1:]])}"
    return f"Command: `{command.replace(options.manifests, 'MANIFESTS')}`"


def layout(plan):
    """Replicas and every module's stages x degree, as "2 x (vision 3, llm 5 x TP 2)"."""
    parts = []
    for name, module in plan["modules"].items():
        degree = module.get("tensor_parallel", 1) * module.get("context_parallel", 1)
        stages = f"{name} {len(module['stages'])}"
        parts.append(stages + (f" x {degree}" if degree > 1 else ""))
    return f"{plan['replicas']} x ({', '.join(parts)})"


def devices_of_replica(plan):
    devices = 0
    for lane in plan["lanes"]:
        module = plan["modules"][lane[0][0]]  # of a lane with several all have as many
        devices += module.get("tensor_parallel", 1) * module.get("context_parallel", 1)
    return devices


def baseline_regrets(case, planner, ours, plan, draws):
    """Mean step time under the planner's plans over that under ours, less 1; None: nothing fits."""
    degree = max(module.get("tensor_parallel", 1) for module in plan["modules"].values())
    # All modules on one lane, or each on its own: where ours has fewer devices for that, with half the
    # degree and twice the lanes.
    while 1 < devices_of_replica(plan) // degree < len(plan["modules"]):
        degree //= 2
    shape = (
        () if planner == "b-min" else ("--replicas", plan["replicas"], "--tensor-parallel", degree)
    )
    regrets = []
    known = {}
    for draw in range(draws):
        report = case.run("plan", "--planner", planner, "--seed", draw, *shape)
        if report is None:
            regrets.append(None)
            continue
        key = json.dumps(report["plan"]["modules"]) + str(report["plan"]["replicas"])
        if key not in known:
            known[key] = case.step_times(case.write_plan("other", report["plan"]))
        times = known[key]
        regrets.append(times and statistics.fmean(times) / statistics.fmean(ours) - 1)
    return regrets


def regret_text(regrets):
    """In per cent: mean (least to largest), and how many did not fit."""
    found = [100 * regret for regret in regrets if regret is not None]
    if not found:
        return "nothing fits"
    text = f"{statistics.fmean(found):.1f}"
    if len(regrets) > 1:
        text += f" ({min(found):.1f}–{max(found):.1f})"
    missing = len(regrets) - len(found)
    return text + (f", {missing} do not fit" if missing else "")


PLANNERS = ("one-sample", "four-samples", "b-min", "megatron-even")


def study(options, manifest, llm):
    """One row of each table, and the figures for the summary."""
    with tempfile.TemporaryDirectory() as folder:
        case = Case(options, manifest, llm, folder)
        report = case.run("plan", "--regret-batches", options.regret_batches)
        if report is None:
            return [manifest, llm.upper(), "nothing fits"], None, None
        plan = report["plan"]
        best = report["candidates"][0]
        ours = case.step_times(case.write_plan("ours", plan))
        if ours is None:
            return [manifest, llm.upper(), "no held-out batch fits"], None, None
        regret = report["regret"]
        b_min = plan["certificate"].get("b_min", 0)
        row = [manifest, llm.upper(), layout(plan), f"{best['step_s']:.2f}"]
        row += [f"{best['step_s'] / report['lower_bound_s']:.3f}"]
        row += ["yes" if report["complete"] else "no", str(b_min) if b_min else "none"]
        row += [f"{100 * regret['regret']:.2f}", f"{100 * regret['most']:.0f}"]
        others = {}
        for planner in PLANNERS:
            draws = options.draws if planner in ("one-sample", "four-samples") else 1
            others[planner] = baseline_regrets(case, planner, ours, plan, draws)
    return row, [manifest, llm.upper()] + [regret_text(others[p]) for p in PLANNERS], others


def page(options, rows, losses, regrets):
    """Both tables and what they come to."""
    header = ["manifest", "LLM", "plan: replicas x (stages x devices)", "step s", "over bound"]
    header += ["proven", "b_min", "regret %", "at most %"]
    yield "## The static plan, and the possible gain of re-planning"
    yield ""
    yield f"`regret`: mean over {options.regret_batches} further batches of the step under the static"
    yield "plan over that under the fastest plan found for the batch alone, at no cost of switching;"
    yield "`at most`: over the lower bound of all plans on the batch, which no dynamic scheme beats."
    yield "`over bound`: simulated step over the lower bound over all plans and assignments."
    yield ""
    yield from table(header, [row + [""] * (len(header) - len(row)) for row in rows])
    yield ""
    yield "## Time lost by plans of other planners"
    yield ""
    yield f"Mean step time over {options.steps} held-out batches under their plan over that under"
    yield "ours, less 1, in %: policy `entrain`, `1f1b` and"
    yield f"{options.evaluations} evaluations for both. {options.draws} draws of one and of four"
    yield "samples: mean (least to largest)."
    yield ""
    yield from table(["manifest", "LLM", *PLANNERS], losses)
    yield ""
    for planner in PLANNERS:
        means = [
            statistics.fmean(found)
            for of in regrets
            if (found := [regret for regret in of[planner] if regret is not None])
        ]
        if means:
            figures = (statistics.median(means), min(means), max(means))
            yield (
                f"- `{planner}`: median of {len(means)} cases "
                + "{:.1%}, {:.1%} to {:.1%}.".format(*figures)
            )


def read_cases(path):
    """Cases that an earlier, unfinished run of the same command has done."""
    if not path.exists():
        return {}
    return {tuple(case["key"]): case for case in map(json.loads, path.read_text().splitlines())}


def main():
    options = parse_arguments()
    done_file = Path(options.output + ".cases.jsonl")
    done = read_cases(done_file)
    cases = []
    for manifest in chosen(options):
        for llm in options.llms.split(","):
            key = (manifest, llm, options.cluster, options.batch, options.regret_batches)
            key += (options.steps, options.draws, options.evaluations)
            if key not in done:
                row, loss, of = study(options, manifest, llm)
                done[key] = {"key": key, "row": row, "loss": loss, "regrets": of}
                with done_file.open("a") as file:
                    print(json.dumps(done[key]), file=file)
            cases.append(done[key])
            print(" | ".join(cases[-1]["row"]), file=sys.stderr, flush=True)
    planned = [case for case in cases if case["loss"] is not None]
    lines = ["# Static plans on real size manifests, 16 A40s", ""]
    lines += [command_text("plans.py", options), ""]
    lines += [
        f"Commit {machine.commit()}; {platform.system()} {platform.machine()}; simulated, analytic A40"
    ]
    lines += [
        f"profile; global batch {options.batch}; see `configs/clusters/` for the cluster.",
        "",
    ]
    lines += page(
        options,
        [case["row"] for case in cases],
        [case["loss"] for case in planned],
        [case["regrets"] for case in planned],
    )
    unfinished = Path(options.output + ".partial")
    unfinished.write_text("\n".join(lines) + "\n")
    unfinished.rename(options.output)
    done_file.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
