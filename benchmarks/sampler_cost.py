"""What the sampler takes from a training step: 64 ranks × 4 microbatches × 16 samples.

    PYTHONPATH=build/core/python python benchmarks/sampler_cost.py --index MANIFEST

Steps of 200 ms with the sampler beside them and without, alternating; the sampler assigns the next step in a
thread of its own. Once the steps are products of matrices, in which as in torch's operations Python's
lock is free, about 1 ms each; once they are Python alone, which never gives the lock away by itself.
"""

import argparse
import statistics
import time

import machine
import numpy

import entrain

SECONDS = 0.2
LEFT = numpy.ones((256, 256), dtype=numpy.float32)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--index", required=True)
    parser.add_argument("--model", default="configs/models/qwen2.5-vl-llama-3b.toml")
    parser.add_argument("--steps", type=int, default=30)
    return parser.parse_args()


def python_alone(count):
    total = 0
    for number in range(count):
        total += number
    return total


def matrices(count):
    for _ in range(count):
        LEFT @ LEFT


def calibrated(work):
    count = 10
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


def measure(name, work, sampler, steps):
    count = calibrated(work)
    alone, beside, taking = [], [], []
    for number in range(steps):
        step = number % sampler.steps_per_epoch
        alone.append(timed(lambda: work(count)))
        taking.append(timed(lambda step=step: sampler.step(step)))  # begins the next one
        beside.append(timed(lambda: work(count)))
    lost = [after - before for before, after in zip(alone, beside, strict=True)]
    share = (statistics.median(lost) + statistics.median(taking[1:])) / statistics.median(alone)
    print(f"{name}: {text(alone)} alone, {text(beside)} beside the sampler")
    print(f"  taking a step: {text(taking[1:])}; lost of a step: {100 * share:.2f} % in the median")


def text(values):
    ordered = sorted(1e3 * value for value in values)
    return f"{statistics.median(ordered):.2f} ms ({ordered[0]:.2f} to {ordered[-1]:.2f})"


def main():
    options = arguments()
    index = entrain.Index.read(options.index)
    sampler = entrain.BalancedBatchSampler(
        entrain.costs(index, options.model), global_batch=4096, microbatch=16, rank=0, world_size=64
    )
    print(machine.describe())
    print(f"{len(index)} samples of {options.index.rsplit('/', 1)[-1]}, {options.steps} steps")
    measure("matrices", matrices, sampler, options.steps)
    measure("Python alone", python_alone, sampler, options.steps)
    assign = [timed(lambda s=s: sampler._balance_window(1, s)) for s in range(4)]
    print(f"assigning a step, when nobody waits: {text(assign)}")


if __name__ == "__main__":
    main()
