"""Tries to break "one static plan is enough for large batches" (docs/static-plan.md).

Draws batches of synthetic samples (tame, mixed, heavy-tailed, on a rounding jump, sorted by size, one
source after another, drifting), counts how many ask for another split of 16 devices than the mean
work does, and what keeping the plan costs. Beside it stand b_min and the proven size of
`entrain b-min` for 20,000 samples of each case. Checks its own rounding against the program's.

Example:
    python benchmarks/static_plan.py --output benchmarks/results/static_plan_202611.md
"""

import argparse
import json
import math
import platform
import sys
import tempfile
from pathlib import Path

import launch
import machine
import numpy
from machine import table

DEVICES = 16
SIZES = (1, 4, 16, 64, 256, 1024, 4096)


def lognormal_ratio(rng, count, spread):
    """Encoder per LLM work, with mean 10/6."""
    return rng.lognormal(math.log(10 / 6) - spread**2 / 2, spread, count)


def pareto(rng, count, tail):
    """Sizes of at least 1 whose tail falls as x^-tail."""
    return (1 - rng.random(count)) ** (-1 / tail)


def tame(rng, count):
    llm = rng.lognormal(0, 0.5, count)
    return llm * lognormal_ratio(rng, count, 0.3), llm


def wild_sizes(rng, count):
    llm = pareto(rng, count, 1.2)
    return llm * lognormal_ratio(rng, count, 0.03), llm


def with_text(rng, count):
    """Two in five samples have no encoder work."""
    llm = rng.lognormal(0, 0.5, count)
    image = rng.random(count) < 0.6
    return llm * lognormal_ratio(rng, count, 0.3) * image / 0.6, llm


def tail(exponent):
    """Encoder work with a heavy tail, whatever the text; its mean, where it has one, is 10/6."""

    def draw(rng, count):
        mean = exponent / (exponent - 1) if exponent > 1 else 1
        return pareto(rng, count, exponent) / mean * 10 / 6, numpy.ones(count)

    return draw


def on_jump(rng, count):
    """10.5 of 16 devices in the mean."""
    high = rng.random(count) < 0.5
    return numpy.where(high, 12.0, 9.0), numpy.where(high, 4.0, 7.0)


def near_jump(rng, count):
    """10.45 of 16 devices in the mean."""
    high = rng.random(count) < 0.5
    return numpy.where(high, 11.95, 8.95), numpy.where(high, 4.05, 7.05)


def sized_ratio(rng, count):
    """The longer the text, the less of the work is the encoder's."""
    llm = rng.lognormal(0, 0.5, count)
    encoder = llm**0.5 * lognormal_ratio(rng, count, 0.3)
    return encoder / math.exp(0.125 / 4) * math.exp(0.125), llm


def sorted_by_size(rng, count):
    encoder, llm = sized_ratio(rng, count)
    order = numpy.argsort(llm)
    return encoder[order], llm[order]


def source_after_source(rng, count):
    """Runs of 5,000 samples of one of four sources."""
    encoder, llm = tame(rng, count)
    factor = numpy.array([0.6, 0.9, 1.1, 1.4])[(numpy.arange(count) // 5_000) % 4]
    return encoder * factor, llm


def drifting(rng, count):
    """Encoder work grows by 60 % over the run."""
    encoder, llm = tame(rng, count)
    return encoder * numpy.linspace(1, 1.6, count), llm


CASES = {
    "tame": (tame, "ratio spread 0.3, size spread 0.5 (lognormal)", False),
    "wild sizes, tame ratio": (wild_sizes, "sizes fall as x^-1.2, ratio spread 0.03", False),
    "two in five are text": (with_text, "no encoder work in 40 % of samples", False),
    "tail 2.5": (tail(2.5), "encoder work falls as x^-2.5: finite variance", False),
    "tail 1.5": (tail(1.5), "x^-1.5: infinite variance", False),
    "tail 0.9": (tail(0.9), "x^-0.9: infinite mean", False),
    "near a jump": (near_jump, "10.45 devices in the mean", False),
    "on a jump": (on_jump, "10.5 devices in the mean", False),
    "ratio falls with size, shuffled": (sized_ratio, "independent draws", False),
    "ratio falls with size, sorted": (sorted_by_size, "the same, batches in order", True),
    "source after source": (source_after_source, "four sources in runs of 5,000, in order", True),
    "drifting": (drifting, "encoder work + 60 % over 200,000 samples, in order", True),
}


def split_of(encoder, llm):
    """Devices of the encoder: largest remainder of two shares, ties to it, at least one each."""
    exact = DEVICES * encoder / (encoder + llm)
    return numpy.clip(numpy.floor(exact + 0.5), 1, DEVICES - 1)


def batch_sums(case, size, batches, seed):
    """Sums of encoder and LLM work of every batch."""
    draw, _, ordered = case
    rng = numpy.random.default_rng([seed, size])
    if ordered:
        encoder, llm = draw(numpy.random.default_rng(seed), 200_000)
        count = min(batches, 200_000 // size)
        starts = (numpy.arange(count) * (200_000 // size) // count) * size
        rows = starts[:, None] + numpy.arange(size)
        return encoder[rows].sum(axis=1), llm[rows].sum(axis=1)
    sums = [numpy.array(draw(rng, size)).sum(axis=1) for _ in range(batches)]
    return tuple(numpy.array(sums).T)


def mean_split(case, seed):
    """The split that many samples together ask for, and their encoder's share in devices."""
    encoder, llm = case[0](numpy.random.default_rng(seed), 200_000)
    share = DEVICES * encoder.sum() / (encoder.sum() + llm.sum())
    return float(split_of(encoder.sum(), llm.sum())), share


def losses(encoder, llm, plan):
    """Time of the plan over that of the best whole split for each batch, less 1."""
    share = encoder / (encoder + llm)
    splits = numpy.arange(1, DEVICES)
    times = numpy.maximum(share[:, None] / splits, (1 - share[:, None]) / (DEVICES - splits))
    return times[:, int(plan) - 1] / times.min(axis=1) - 1


def program(options, case, name):
    """What `entrain b-min` says of 20,000 samples; its rounding has to be that of this script."""
    encoder, llm = case[0](numpy.random.default_rng(options.seed + 1), 20_000)
    unit = 1e-3
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "costs.csv"
        with path.open("w") as file:
            file.write(
                "sample_id,vision_tokens,vision_forward_s,vision_backward_s,"
                "llm_tokens,llm_forward_s,llm_backward_s\n"
            )
            for i, (e, w) in enumerate(zip(encoder * unit, llm * unit, strict=True)):
                tokens = 1 if e > 0 else 0
                file.write(f"s{i},{tokens},{e:.9f},0,1,{w:.9f},0\n")
        command = [options.entrain, "b-min", "--costs", path, "--devices", DEVICES]
        command += ["--global-batch", 512, "--seed", options.seed, "--json"]
        result = launch.run(*command, allowed=(0, 4))
    report = json.loads(result.stdout)
    ours = float(split_of(encoder.sum(), llm.sum()))
    if report["split"][0] != ours:
        sys.exit(f"{name}: the program splits {report['split']}, this script {ours}")
    return report


def study(options):
    """Per case: figures by size, losses at 256 samples, the program's report."""
    results = {}
    for name, case in CASES.items():
        plan, share = mean_split(case, options.seed)
        other = {}
        loss = {}
        for size in SIZES:
            encoder, llm = batch_sums(case, size, options.batches, options.seed)
            other[size] = float((split_of(encoder, llm) != plan).mean())
            lost = losses(encoder, llm, plan)
            loss[size] = (float(lost.mean()), float(numpy.percentile(lost, 95)))
        results[name] = (plan, share, other, loss, program(options, case, name))
        print(name, file=sys.stderr)
    return results


def number(value):
    return f"{value:,}" if value else "none"


def split_rows(results):
    for name, (plan, share, other, _, report) in results.items():
        cells = [name, f"{share:.2f}", f"{int(plan)}:{DEVICES - int(plan)}"]
        cells += [f"{100 * other[size]:.1f}" for size in SIZES]
        ordered = CASES[name][2]
        mark = " (if shuffled)" if ordered else ""
        yield cells + [number(report["b_min"]) + mark, number(report["proven"]) + mark]


def loss_rows(results):
    for name, (_, _, _, loss, _) in results.items():
        yield [name] + [f"{100 * loss[s][0]:.1f} ({100 * loss[s][1]:.1f})" for s in SIZES]


def page(options, results, plot):
    lines = [
        "# Batches that need another split than the static plan",
        "",
        (
            f"Command: `python benchmarks/static_plan.py --batches {options.batches} --seed "
            f"{options.seed} --output {options.output}`"
        ),
        "",
        (
            f"Commit {machine.commit()}; 2-core {platform.system()} {platform.machine()}; synthetic samples; "
            f"numpy {numpy.__version__}, Python {platform.python_version()}."
        ),
        "",
        (
            f"Share in % of {options.batches} batches that ask for another split of {DEVICES} "
            "devices than the mean work of the case does, by batch size; the first columns are "
            "that work's share for the encoder in devices, and its split. Cases in order take "
            "consecutive samples of 200,000 as batches, so that large sizes have fewer batches; "
            "all others draw afresh from the distribution. The last columns are from `entrain "
            "b-min` for 20,000 samples, drawn at random: b_min, and the size from which on the "
            "bound of docs/static-plan.md proves at most 5 %."
        ),
        "",
        *table(
            ["case", "share", "split", *[f"n = {size}" for size in SIZES], "b_min", "proven"],
            list(split_rows(results)),
        ),
        "",
        f"![share of batches that ask for another split]({plot})",
        "",
        "What the cases are:",
        "",
        *[f"- {name}: {text}" for name, (_, text, _) in CASES.items()],
        "",
        "## Time lost by keeping the plan",
        "",
        (
            "Time of the plan over that of the best whole split for each batch, less 1, in %: mean "
            "(95th percentile). Time is max over modules of work / devices: perfect balance within "
            "each module, no fill and drain."
        ),
        "",
        *table(["case", *[f"n = {size}" for size in SIZES]], list(loss_rows(results))),
        "",
    ]
    return "\n".join(lines)


COLOURS = ("#1b6ca8", "#d1495b", "#66a182", "#8d5fd3", "#edae49", "#2e4057")


def svg(results):
    """Share of other splits over batch size, both axes logarithmic; shares below 0.1 % at 0.1 %."""
    width, height, left, top = 860, 430, 70, 20
    plot_w, plot_h = 480, 350
    x_of = lambda size: left + plot_w * math.log(size) / math.log(SIZES[-1])
    y_of = lambda share: top - plot_h * math.log10(max(share, 1e-3)) / 3
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            'font-family="sans-serif" font-size="12">'
        ),
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for share in (1, 0.1, 0.01, 0.001):
        y = y_of(share)
        parts.append(
            f'<line x1="{left}" y1="{y:.1f}" x2="{left + plot_w}" y2="{y:.1f}" stroke="#ddd"/>'
            f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{100 * share:g} %</text>'
        )
    for size in SIZES:
        x = x_of(size)
        parts.append(
            f'<text x="{x:.1f}" y="{top + plot_h + 18}" text-anchor="middle">{size}</text>'
        )
    middle = left + plot_w / 2
    parts.append(
        f'<text x="{middle}" y="{top + plot_h + 42}" text-anchor="middle">samples in a batch</text>'
    )
    for index, (name, (_, _, other, _, _)) in enumerate(results.items()):
        colour = COLOURS[index % len(COLOURS)]
        dash = ' stroke-dasharray="6 4"' if index >= len(COLOURS) else ""
        points = " ".join(f"{x_of(size):.1f},{y_of(other[size]):.1f}" for size in SIZES)
        y = top + 14 + 22 * index
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>'
            f'<line x1="{left + plot_w + 20}" y1="{y}" x2="{left + plot_w + 50}" y2="{y}" '
            f'stroke="{colour}" stroke-width="2"{dash}/>'
            f'<text x="{left + plot_w + 58}" y="{y + 4}">{name}</text>'
        )
    return "\n".join(parts + ["</svg>"]) + "\n"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--entrain", default="build/core/entrain/cli/entrain")
    parser.add_argument("--batches", type=int, default=1000, help="batches of each size")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", required=True, help="Markdown page; a plot goes beside it")
    options = parser.parse_args()
    results = study(options)
    output = Path(options.output)
    plot = output.with_suffix(".svg")
    plot.write_text(svg(results))
    output.write_text(page(options, results, plot.name))


if __name__ == "__main__":
    main()
