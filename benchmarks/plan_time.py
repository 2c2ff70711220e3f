"""How long `entrain plan --cluster` takes on real size manifests, and how good its plans are.

For every manifest with encoder work and every size of LLM the whole command runs several times, all
its options at their defaults: processor time, which other programs disturb less than wall time, and
the plan's simulated step over the lower bound of all plans. Where asked for, others' plans for the same
replicas and tensor parallelism are simulated on the same held-out batches.

Example:
    python benchmarks/plan_time.py --manifests ../shared/data/manifests --output page.md
"""

import statistics
import sys
import tempfile

import machine
from machine import table
from manifests import VISION, chosen
from plans import (
    PLANNERS,
    Case,
    baseline_regrets,
    case_arguments,
    command_text,
    layout,
    regret_text,
    seconds_text,
)

ASKED_S = 2.0


def parse_arguments():
    parser = case_arguments(__doc__, "configs/clusters/h100-64.toml", "analytic:h100")
    parser.add_argument("--llms", default="1b,3b")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--others", default="", help="manifests to simulate others' plans on")
    parser.add_argument("--steps", type=int, default=10, help="held-out batches, with --others")
    parser.add_argument("--evaluations", type=int, default=100, help="of the policy, with --others")
    parser.add_argument("--output", default="", help="Markdown page (default: standard output)")
    return parser.parse_args()


def row_of(name, llm, report, seconds):
    times = seconds_text(seconds)
    if report is None:
        return [name, llm.upper(), "nothing fits", times, "", "", "", ""]
    best = report["candidates"][0]
    over = best["step_s"] / report["lower_bound_s"]
    further = report["further_batches"]
    return [
        *(name, llm.upper(), layout(report["plan"]), times, str(report["simulated_steps"])),
        *("yes" if report["complete"] else "no", str(further), f"{over:.2f}"),
    ]


def compare(case, report, draws=1):
    """Time lost by plans of other planners on held-out batches, one cell each."""
    ours = case.step_times(case.write_plan("ours", report["plan"]))
    if ours is None:
        return ["ours does not fit them"] * len(PLANNERS)
    return [
        regret_text(baseline_regrets(case, planner, ours, report["plan"], draws))
        for planner in PLANNERS
    ]


def measure(options):
    """Rows of both tables, and every case's processor time."""
    rows, losses, medians = [], [], []
    for manifest in chosen(options):
        for frozen in ("", "vision") if manifest in VISION else ("",):
            for llm in options.llms.split(","):
                with tempfile.TemporaryDirectory() as folder:
                    case = Case(options, manifest, llm, folder)
                    extra = ("--freeze", frozen) if frozen else ()
                    runs = [case.timed_plan(*extra) for _ in range(options.repeats)]
                    report, seconds = runs[-1][0], [run[1] for run in runs]
                    name = f"{manifest}, {frozen} frozen" if frozen else manifest
                    rows.append(row_of(name, llm, report, seconds))
                    medians.append(statistics.median(seconds))
                    print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
                    if report and not frozen and manifest in options.others.split(","):
                        losses.append([manifest, llm.upper(), *compare(case, report)])
    return rows, losses, medians


def page(options, rows, losses, medians, load):
    yield command_text("plan_time.py", options)
    yield ""
    yield f"{machine.describe()}; {load}. Processor time of the whole command in seconds: median"
    yield f"(least … largest) of {options.repeats} runs; global batch {options.batch}."
    yield ""
    header = ["manifest", "LLM", "plan: replicas x (stages x devices)", "seconds"]
    header += ["simulated steps", "proven", "further batches checked", "step over bound"]
    yield from table(header, rows)
    yield ""
    late = sum(seconds > ASKED_S for seconds in medians)
    yield (
        f"- {len(rows)} cases: {statistics.median(medians):.2f} s in the median, "
        f"{max(medians):.2f} s at most; {late} over {ASKED_S:.0f} s."
    )
    if losses:
        yield ""
        yield f"Mean step time under others' plans over that under the found one, less 1, in %, over {options.steps}"
        yield f"held-out batches: policy `entrain` at {options.evaluations} evaluations, `1f1b`; the planners that take"
        yield "replicas and tensor parallelism have the found plan's, `b-min` chooses its own."
        yield ""
        yield from table(["manifest", "LLM", *PLANNERS], losses)


def main():
    options = parse_arguments()
    load = machine.OtherLoad()
    rows, losses, medians = measure(options)
    machine.give(
        "\n".join(page(options, rows, losses, medians, load.text())) + "\n", options.output
    )


if __name__ == "__main__":
    main()
