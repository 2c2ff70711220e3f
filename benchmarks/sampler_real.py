"""Step times of real training on two processes: random order, grouped by length, balanced.

    OMP_NUM_THREADS=1 python benchmarks/sampler_real.py --data DIR [--rounds 3]

A Qwen2.5-VL of transformers with random weights trains on the sizes of vlm_small.csv (pixels and tokens
are random; images enlarged three times, so that computing takes longer than all else), by
examples/trainers/loops.py with DDP and FSDP2. All samplers get the same global batches; the balanced one gets
costs that a run on one rank measured before.
Rounds are interleaved; the sum of a run's step times, without its first step, is compared within a round.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import machine

import entrain

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = ROOT / "examples" / "trainers"
sys.path.insert(0, str(SCRIPTS))
SAMPLERS = ("own", "grouped", "balanced")
NAMES = {"own": "random order", "grouped": "grouped by length", "balanced": "Entrain"}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True, help="folder of manifests")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--samples", type=int, default=192)
    parser.add_argument("--scale", type=float, default=3)
    parser.add_argument("--largest", type=int, default=48)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--microbatch", type=int, default=4)
    parser.add_argument("--accumulation", type=int, default=4)
    return parser.parse_args()


def common(options):
    names = ("samples", "scale", "largest", "width", "layers", "microbatch", "accumulation")
    index = Path(options.data) / "vlm_small.csv"
    given = [("--" + name, str(getattr(options, name))) for name in names]
    return ["--index", str(index), "--shuffle", *(word for pair in given for word in pair)]


def run(wrap, sampler, options, *more, ranks=2):
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    done = subprocess.run(
        [sys.executable, *launch, str(SCRIPTS / "loops.py"), *common(options)]
        + ["--wrap", wrap, "--sampler", sampler, *more],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or not lines:
        raise SystemExit(done.stderr[-3000:])
    return json.loads(lines[-1])


def predicted(wrap, options, log):
    """sampler -> mean predicted seconds of a step, by the costs that the sampler is given."""
    import torch
    from loops import Dealt
    from tiny_vlm import TinyData, tiny_model

    index = str(Path(options.data) / "vlm_small.csv")
    data = TinyData(options.samples, options.largest, index, options.scale)
    model = tiny_model(options.width, options.layers)
    costs = entrain.costs(entrain.Index.from_rows(data.rows()), model, profile="analytic:cpu-2core")
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(0)).tolist()
    sampler = entrain.BalancedBatchSampler(
        costs,
        layout="fsdp" if wrap == "fsdp2" else "ddp",
        global_batch=2 * options.microbatch * options.accumulation,
        microbatch=options.microbatch,
        rank=0,
        world_size=2,
        padded=True,
        every_rank_has=["vision"],
        order=lambda epoch: order,
    )
    steps = range(sampler.steps_per_epoch)
    result = {"balanced": [sampler.step(step).seconds for step in steps]}
    for name, key in (("own", None), ("grouped", data.tokens)):
        ranks = [list(Dealt(order, rank, 2, options, key)) for rank in (0, 1)]
        parts = list(zip(*ranks, strict=True))
        count = options.accumulation
        result[name] = [
            sampler.measure([list(p) for p in parts[s * count : (s + 1) * count]]).seconds
            for s in steps
        ]
    return {name: statistics.fmean(seconds[1:]) for name, seconds in result.items()}


def report(wrap, rounds, expected):
    if agreement(rounds) > 1e-5:
        raise SystemExit(f"{wrap}: losses of the same steps differ by {agreement(rounds):.1e}")
    print(f"\n{wrap}, seconds a step; losses of all samplers agree within {agreement(rounds):.1e}")
    print("| samples to ranks by | step, median of rounds (range) | over Entrain | predicted |")
    print("|---|---|---|---|")
    for name in SAMPLERS:
        steps = [statistics.fmean(r[name]["seconds"][1:]) for r in rounds]
        ratios = [sum(r[name]["seconds"][1:]) / sum(r["balanced"]["seconds"][1:]) for r in rounds]
        print(
            f"| {NAMES[name]} | {statistics.median(steps):.3f} ({min(steps):.3f}–{max(steps):.3f}) "
            f"| {statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f}) "
            f"| {expected[name] / expected['balanced']:.2f} |"
        )


def agreement(rounds):
    """The largest relative difference of a step's loss between samplers."""
    return max(
        abs(mine - theirs) / theirs
        for r in rounds
        for name in SAMPLERS
        for mine, theirs in zip(r[name]["losses"], r["own"]["losses"], strict=True)
    )


def main():
    options = arguments()
    print(machine.describe())
    with tempfile.TemporaryDirectory() as folder:
        log = f"{folder}/log.jsonl"
        run("ddp", "own", options, "--write-log", log, ranks=1)
        for wrap in ("ddp", "fsdp2"):
            rounds = []
            for number in range(options.rounds):
                ordered = SAMPLERS[number % 3 :] + SAMPLERS[: number % 3]
                rounds.append(
                    {name: run(wrap, name, options, "--measured", log) for name in ordered}
                )
                print(f"{wrap}: round {number + 1} of {options.rounds}", file=sys.stderr)
            report(wrap, rounds, predicted(wrap, options, log))


if __name__ == "__main__":
    main()
