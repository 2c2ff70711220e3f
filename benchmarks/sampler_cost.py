"""What the sampler takes from a training step: 64 ranks × 4 microbatches × 16 samples.

    PYTHONPATH=build/core/python python benchmarks/sampler_cost.py --index MANIFEST

Steps of 200 ms of a thread that holds Python's lock all the time (the worst case: a training thread waits in
torch for most of it), with the sampler beside it and without, alternating. The sampler assigns the
next step in a thread of its own, which needs a core for a part of the step.
"""

import argparse
import statistics
import time

import machine

import entrain

SECONDS = 0.2


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--index", required=True)
    parser.add_argument("--model", default="configs/models/qwen2.5-vl-llama-3b.toml")
    parser.add_argument("--steps", type=int, default=30)
    return parser.parse_args()


def work(count):
    """Of a thread that never gives the lock away by itself."""
    total = 0
    for number in range(count):
        total += number
    return total


def calibrated():
    count = 100_000
    while True:
        begin = time.perf_counter()
        work(count)
        seconds = time.perf_counter() - begin
        if seconds > SECONDS:
            return round(count * SECONDS / seconds)
        count *= 2


def timed(call):
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def main():
    options = arguments()
    index = entrain.Index.read(options.index)
    sampler = entrain.BalancedBatchSampler(
        entrain.costs(index, options.model), global_batch=4096, microbatch=16, rank=0, world_size=64
    )
    count = calibrated()
    alone, beside, taking = [], [], []
    for number in range(options.steps):
        step = number % sampler.steps_per_epoch
        alone.append(timed(lambda: work(count)))
        taking.append(timed(lambda step=step: sampler.step(step)))  # begins the next one
        beside.append(timed(lambda: work(count)))
    assign = [timed(lambda s=s: sampler._balance_window(1, s)) for s in range(4)]
    print(machine.describe())
    print(f"{len(index)} samples of {options.index.rsplit('/', 1)[-1]}, {options.steps} steps")
    for name, values in (
        ("a step's work alone", alone),
        ("beside the sampler", beside),
        ("taking a step", taking[1:]),
        ("assigning a step, when nobody waits", assign),
    ):
        ordered = sorted(1e3 * value for value in values)
        print(
            f"{name}: median {statistics.median(ordered):.2f} ms "
            f"({ordered[0]:.2f} to {ordered[-1]:.2f})"
        )
    lost = [after - before for before, after in zip(alone, beside, strict=True)]
    share = (statistics.median(lost) + statistics.median(taking[1:])) / SECONDS
    print(f"lost of a step: {100 * share:.2f} % in the median")


if __name__ == "__main__":
    main()
