"""The sampler against other ways to distribute a step's samples, simulated on real size manifests.

Runs `entrain audit` for every manifest with encoder work, 8 to 512 ranks and each layout (FSDP, DDP,
FSDP padded): once with the default search, over some steps, and once with a long one on the first
of them. A manifest with too few samples for a step is drawn with replacement. Every case becomes a
line of `--results`, so that a broken run goes on where it was; `--output` is the page made of them.

Example:
    python benchmarks/sampler_simulated.py --data data/manifests --results cases.jsonl --output page.md
"""

import concurrent.futures
import json
import statistics
import sys
from collections import defaultdict
from pathlib import Path

import launch
import machine
from machine import table
from manifests import chosen, inputs

LAYOUTS = {"fsdp": (), "ddp": ("--layout", "ddp"), "padded": ("--padded",)}
LIMITS = {"unlimited": ("--unlimited",), "limited": ()}
MICROBATCHES, MICROBATCH = 4, 4


def parse():
    parser = launch.parser(__doc__, entrain="build/core/entrain/cli/entrain")
    parser.add_argument("--data", default="", help="folder of size manifests; without it, skipped")
    parser.add_argument("--only", default="", help="comma-separated manifests (default: all)")
    parser.add_argument("--ranks", default="8,32,128,512")
    parser.add_argument("--limits", default="unlimited,limited")
    parser.add_argument("--steps", type=int, default=4, help="with the default search")
    parser.add_argument("--long", type=int, default=3_000_000, help="steps of the long search")
    parser.add_argument("--long-limits", default="unlimited", help="which are searched for long")
    parser.add_argument("--jobs", type=int, default=1, help="cases at the same time")
    parser.add_argument(
        "--results", default="sampler_simulated.jsonl", help="kept and gone on with"
    )
    return parser.parse_args()


def cases(options):
    """Every case as a dictionary: the default search of all, then the long one."""
    for search in ("default", "long"):
        for limit in (options.limits if search == "default" else options.long_limits).split(","):
            for manifest in chosen(options):
                for ranks in map(int, options.ranks.split(",")):
                    for layout in LAYOUTS:
                        yield {
                            "manifest": manifest,
                            "ranks": ranks,
                            "layout": layout,
                            "limit": limit,
                            "search": search,
                        }


def key_of(case):
    return tuple(case[name] for name in ("manifest", "ranks", "layout", "limit", "search"))


def run(options, case):
    """The case with what `entrain audit` says of it."""
    command = [options.entrain, "audit", *inputs(options.data, case["manifest"], "3b")]
    command += ["--ranks", case["ranks"], "--microbatches", MICROBATCHES]
    command += ["--microbatch", MICROBATCH, *LAYOUTS[case["layout"]], *LIMITS[case["limit"]]]
    long = case["search"] == "long"
    command += ["--steps", 1 if long else options.steps, "--no-pipeline", "--json"]
    command += ["--search-steps", options.long] if long else []
    report = json.loads(launch.run(*command).stdout)
    return case | {
        "samples": report["samples"],
        "bound": report["bound_over_perfect"],
        "policies": {policy["name"]: policy["over_perfect"] for policy in report["policies"]},
        "seconds": {policy["name"]: policy["seconds"] for policy in report["policies"]},
        "caps": report["caps"],
        "findings": report["findings"],
    }


def run_all(options):
    """Runs what `--results` lacks and returns all lines in order."""
    path = Path(options.results)
    lines = path.read_text().splitlines() if path.exists() else []
    done = {key_of(case): case for case in map(json.loads, lines)}
    wanted = list(cases(options))
    left = [case for case in wanted if key_of(case) not in done]
    with path.open("a") as file, concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for number, case in enumerate(pool.map(lambda case: run(options, case), left), 1):
            done[key_of(case)] = case
            file.write(json.dumps(case) + "\n")
            file.flush()
            best = min(v for name, v in case["policies"].items() if name != "entrain")
            print(
                f"{number}/{len(left)} {' '.join(map(str, key_of(case)))}: "
                f"entrain {case['policies']['entrain']:.4f}, best other {best:.4f} of perfect",
                file=sys.stderr,
            )
    return [done[key_of(case)] for case in wanted]


def share(over_perfect):
    """Percent of perfect balance reached."""
    return 100 / over_perfect


def mean_table(results, limit):
    """Mean share of perfect over manifests: a row a policy, a column for ranks and layout."""
    columns = defaultdict(lambda: defaultdict(list))
    for case in results:
        if (case["limit"], case["search"]) == (limit, "default"):
            for name, value in case["policies"].items():
                columns[case["layout"], case["ranks"]][name].append(share(value))
            columns[case["layout"], case["ranks"]]["*bound*"].append(share(case["bound"]))
    order = sorted(columns, key=lambda column: (list(LAYOUTS).index(column[0]), column[1]))
    header = ["%"] + [f"{layout} {ranks}" for layout, ranks in order]
    names = list(columns[order[0]]) if order else []
    rows = [[n] + [f"{statistics.mean(columns[c][n]):.1f}" for c in order] for n in names]
    return table(header, rows)


def manifest_table(results, limit, ranks):
    """Share of perfect of each manifest: random, grouped by length, the best other, ours, bound."""
    rows = []
    for case in results:
        if (case["limit"], case["search"], case["ranks"]) != (limit, "default", ranks):
            continue
        others = {n: v for n, v in case["policies"].items() if n != "entrain"}
        best = min(others, key=others.get)
        values = (others["random"], others["length-grouped"], others[best])
        cells = [f"{share(value):.1f}" for value in values]
        cells[2] += f" {best}"
        ours = [f"{share(case['policies']['entrain']):.1f}", f"{share(case['bound']):.1f}"]
        rows.append([case["manifest"], case["layout"], *cells, *ours])
    header = ["%", "layout", "random", "length-grouped", "best other", "entrain", "bound"]
    return table(header, rows)


def gaps(results):
    """{(limit, layout, ranks): [(percent over the long search, manifest)]} of the first step."""
    first = {key_of(case): case["seconds"]["entrain"][0] for case in results}
    result = defaultdict(list)
    for case in results:
        if case["search"] == "long":
            ours = first[key_of(case | {"search": "default"})]
            gap = 100 * (ours / first[key_of(case)] - 1)
            result[case["limit"], case["layout"], case["ranks"]].append((gap, case["manifest"]))
    return result


def gap_table(results):
    rows = []
    for (limit, layout, ranks), values in gaps(results).items():
        worst, manifest = max(values)
        mean = statistics.mean(gap for gap, _ in values)
        rows.append([limit, layout, str(ranks), f"{mean:.2f}", f"{worst:.2f}", manifest])
    rows.sort(key=lambda row: (row[0], list(LAYOUTS).index(row[1]), int(row[2])))
    return table(["limit", "layout", "ranks", "mean %", "worst %", "where"], rows)


def cap_table(results):
    """Where one sample is the bound: the cap with the least sum of step and tokens lost."""
    rows = []
    for case in results:
        if (case["limit"], case["search"], case["layout"]) != ("unlimited", "default", "fsdp"):
            continue
        if not any("one sample alone" in finding for finding in case["findings"]):
            continue
        best = min(case["caps"], key=lambda cap: cap["step"] + cap["tokens_lost"])
        rows.append(
            [
                case["manifest"],
                str(case["ranks"]),
                f"{case['bound']:.2f}",
                f"{best['tokens']:,}",
                f"{100 * best['samples']:.1f}",
                f"{100 * best['tokens_lost']:.1f}",
                f"{100 * (1 - best['step']):.0f}",
            ]
        )
    header = ["manifest", "ranks", "bound / perfect", "cap in tokens"]
    return table([*header, "samples cut %", "tokens lost %", "shorter step %"], rows)


def summary(results):
    """What was asked, counted."""
    default = [case for case in results if case["search"] == "default"]
    lines = []
    for limit in dict.fromkeys(case["limit"] for case in default):
        worse = []
        chosen = [case for case in default if case["limit"] == limit]
        for case in chosen:
            ours = sum(case["seconds"]["entrain"])
            best = min(sum(v) for name, v in case["seconds"].items() if name != "entrain")
            if ours > best * (1 + 1e-9):
                worse.append((100 * (ours / best - 1), " ".join(map(str, key_of(case)[:3]))))
        text = f"{limit}: worse than the best other way in {len(worse)} of {len(chosen)} cases"
        if worse:
            text += f", at most by {max(worse)[0]:.1f} % ({max(worse)[1]})"
        lines.append(text)
    for limit in dict.fromkeys(key[0] for key in gaps(results)):
        values = [v for key, found in gaps(results).items() if key[0] == limit for v in found]
        mean = statistics.mean(gap for gap, _ in values)
        over = sum(gap > 3 for gap, _ in values)
        lines.append(
            f"{limit}: {mean:.2f} % over the long search in the mean of {len(values)} cases "
            f"(asked: 1), {max(values)[0]:.2f} % at worst (asked: 3; over it: {over})"
        )
    return lines


def page(options, results):
    ranks = [int(text) for text in options.ranks.split(",")]
    shown = 128 if 128 in ranks else ranks[-1]
    few = sorted({c["manifest"] for c in results if c["samples"] < max(ranks) * 16})
    lines = [
        "# The sampler against other ways to distribute a step, simulated",
        "",
        (
            f"Command: `python benchmarks/sampler_simulated.py --data MANIFESTS --ranks {options.ranks} "
            f"--steps {options.steps} --long {options.long} --long-limits {options.long_limits}`"
        ),
        "",
        (
            f"{machine.describe()}; simulated, analytic A40 profile, Llama-3 3B with Qwen2.5-VL's "
            f"vision or audio encoder, all trained; {MICROBATCHES} microbatches of {MICROBATCH} samples "
            f"a rank, {options.steps} steps."
        ),
        "",
        f"Drawn with replacement, since they have too few samples for {max(ranks)} ranks: {', '.join(few)}.",
        "",
        *[f"- {line}." for line in summary(results)],
    ]
    for limit in options.limits.split(","):
        lines += ["", f"## Share of perfect balance, mean of manifests, {limit}", ""]
        lines += mean_table(results, limit)
    limit = options.limits.split(",")[0]
    lines += ["", f"## Share of perfect balance by manifest, {shown} ranks, {limit}", ""]
    lines += manifest_table(results, limit, shown)
    lines += ["", "## Step over what the long search finds", "", *gap_table(results)]
    lines += ["", "## Where one sample is the bound (fsdp)", "", *cap_table(results), ""]
    return "\n".join(lines)


def main():
    options = parse()
    if not options.data or not Path(options.data).is_dir():
        print(f"skipped: no manifests in '{options.data}'; give --data", file=sys.stderr)
        return
    machine.give(page(options, run_all(options)), options.output)


if __name__ == "__main__":
    main()
