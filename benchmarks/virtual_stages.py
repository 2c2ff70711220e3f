"""Where several stages a lane win: the fastest split with and without them, on every manifest.

`entrain plan --lanes 8 --virtual-stages auto` under the policy and the schedule `entrain`: every
split of the lanes with one stage a lane, and with 2, 3, … stages of each module, simulated unless
its lower bound rules it out.

Example:
    python benchmarks/virtual_stages.py --manifests MANIFESTS --output page.md
"""

import json
import statistics
import sys

import launch
import machine
from machine import table
from manifests import AUDIO, chosen, inputs


def parse():
    parser = launch.parser(__doc__)
    parser.add_argument("--manifests", required=True, help="folder of size manifests")
    parser.add_argument("--only", default="", help="comma-separated manifests (default: all)")
    parser.add_argument("--llms", default="1b,3b")
    parser.add_argument("--frozen", default="no,yes", help="encoders frozen: no, yes")
    parser.add_argument("--lanes", type=int, default=8)
    parser.add_argument("--replicas", type=int, default=4)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument(
        "--batches", type=int, default=3, help="drawn batches that each is timed on"
    )
    parser.add_argument("--evaluations", type=int, default=300, help="of every simulated split")
    return parser.parse_args()


def splits_of(options, manifest, llm, frozen):
    command = [options.entrain, "plan", *inputs(options.manifests, manifest, llm)]
    command += ["--global-batch", options.batch]
    command += ["--lanes", options.lanes, "--replicas", options.replicas, "--schedule", "entrain"]
    command += ["--virtual-stages", "auto", "--evaluations", options.evaluations, "--json"]
    command += ["--batches", options.batches]
    command += ["--freeze", "audio" if manifest in AUDIO else "vision"] if frozen else []
    splits = json.loads(launch.run(*command).stdout)["splits"]
    return [split for split in splits if not split["reason"]]


def name_of(split):
    modules = zip(split["lanes"], split["virtual_stages"], strict=True)
    return " + ".join(f"{lanes}" if each == 1 else f"{lanes}x{each}" for lanes, each in modules)


def row_of(options, manifest, llm, frozen):
    splits = splits_of(options, manifest, llm, frozen)
    plain = next(split for split in splits if max(split["virtual_stages"]) == 1)
    several = next((split for split in splits if max(split["virtual_stages"]) > 1), None)
    cells = [manifest, llm.upper(), "yes" if frozen else "no", name_of(plain)]
    cells += [f"{plain['step_s']:.3f}"]
    if several is None:
        return [*cells, "–", "–", "–", "–"], 1.0
    ratio = plain["step_s"] / several["step_s"]
    memory = several["peak_bytes"] / max(1, plain["peak_bytes"])
    return [
        *cells,
        name_of(several),
        f"{several['step_s']:.3f}",
        f"{ratio:.3f}",
        f"{memory:.2f}",
    ], ratio


def main():
    options = parse()
    rows, ratios = [], []
    for manifest in chosen(options):
        for llm in options.llms.split(","):
            for frozen in options.frozen.split(","):
                row, ratio = row_of(options, manifest, llm, frozen == "yes")
                rows.append(row)
                ratios.append(ratio)
                print(" ".join(row), file=sys.stderr, flush=True)
    wins = sum(ratio > 1.0 for ratio in ratios)
    header = ["manifest", "LLM", "frozen", "one stage a lane", "step s", "several", "step s"]
    header += ["one over several", "bytes, several over one"]
    page = [
        "# Where several stages a lane win",
        "",
        f"{machine.describe()}; simulated, analytic A40 profile; {options.lanes} lanes ×",
        f"{options.replicas} replicas, {options.batch} samples, {options.evaluations} evaluations.",
        f"Policy and schedule `entrain`, memory free, mean of {options.batches} batches. `3x2`: 3 lanes of 2 stages.",
        "",
        f"Several stages a lane are faster in {wins} of {len(ratios)} cases; one over several:",
        f"median {statistics.median(ratios):.3f}, best {max(ratios):.3f}, worst {min(ratios):.3f}.",
        "",
        *table(header, rows),
        "",
    ]
    machine.give("\n".join(page), options.output)


if __name__ == "__main__":
    main()
