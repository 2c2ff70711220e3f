"""How near the default search of `entrain plan --cluster` comes to a long one.

For every manifest with encoder work and every size of LLM: the step of the default plan over that of
the best plan of a long search, and over the lower bound of all plans, with the processor time of both.
With --before the other search is the default one of another build, run in turns with this one.

Example:
    python benchmarks/plan_search.py --manifests ../shared/data/manifests --simulations 1000
"""

import statistics
import sys
import tempfile

import machine
from machine import table
from manifests import chosen
from plans import Case, case_arguments, command_text, layout, seconds_text


def parse_arguments():
    parser = case_arguments(__doc__, "configs/clusters/h100-64.toml", "analytic:h100")
    parser.add_argument("--llms", default="1b,3b")
    parser.add_argument("--repeats", type=int, default=2, help="of the default search")
    parser.add_argument("--simulations", type=int, default=10_000, help="of the long search")
    parser.add_argument(
        "--before", default="", help="another build's `entrain`, instead of the long search"
    )
    parser.add_argument("--output", default="", help="Markdown page (default: standard output)")
    return parser.parse_args()


def row_of(case, options):
    """Cells after the case's name, the default step over the long search's, and the time."""
    runs = [case.timed_plan() for _ in range(options.repeats)]
    seconds = [run[1] for run in runs]
    spread, report = seconds_text(seconds), runs[0][0]
    if options.before:
        best, long_seconds = case.timed_plan(program=options.before)
    else:
        best, long_seconds = case.timed_plan("--simulations", options.simulations)
    if report is None or best is None:
        return ["nothing fits", spread, "", "", "", f"{long_seconds:.1f}"], None, seconds
    steps = [found["candidates"][0]["step_s"] for found in (report, best)]
    over = steps[0] / steps[1]
    bound = steps[0] / report["lower_bound_s"]
    cells = [layout(report["plan"]), spread, f"{1000 * steps[0]:.0f}", f"{over:.4f}"]
    return [*cells, f"{bound:.2f}", f"{long_seconds:.1f}"], over, seconds


def measure(options):
    rows, overs, medians = [], [], []
    for manifest in chosen(options):
        for llm in options.llms.split(","):
            with tempfile.TemporaryDirectory() as folder:
                cells, over, seconds = row_of(Case(options, manifest, llm, folder), options)
            rows.append([manifest, llm.upper(), *cells])
            overs += [over] if over is not None else []
            medians.append(statistics.median(seconds))
            print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
    return rows, overs, medians


def page(options, rows, overs, medians, load):
    yield command_text("plan_search.py", options)
    yield ""
    yield f"{machine.describe()}; {load}. Processor time in seconds: median (least … largest) of"
    other = (
        "of the build before"
        if options.before
        else f"long search of {options.simulations} simulated steps a part"
    )
    yield f"{options.repeats} default searches; one {other}."
    yield ""
    header = ["manifest", "LLM", "plan: replicas x (stages x devices)", "seconds", "step, ms"]
    name = "before" if options.before else "long search"
    yield from table([*header, f"over {name}", "over bound", f"{name}, seconds"], rows)
    yield ""
    yield (
        f"- {len(rows)} cases: default over {name} {statistics.mean(overs):.4f} in the mean, "
        f"{max(overs):.4f} at most; {statistics.median(medians):.2f} s in the median, "
        f"{max(medians):.2f} s at most."
    )


def main():
    options = parse_arguments()
    load = machine.OtherLoad()
    rows, overs, medians = measure(options)
    text = "\n".join(page(options, rows, overs, medians, load.text())) + "\n"
    machine.give(text, options.output)


if __name__ == "__main__":
    main()
