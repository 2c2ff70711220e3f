"""The engine against plain PyTorch: tokens per second of the same training on the same device.

One run measures all sides in turn, round by round: `entrain train` on one lane (one thread), and the
model of benchmarks/eager_model.py in eager Python on one thread, attention packed by segments and
padded. All take the same weights, global batches and microbatches, the same AdamW and clipping;
their losses must agree, or the script fails. Eager samples are decoded before its clock starts;
the engine decodes while it trains.

With `--device cuda` all run on one GPU, ended by a synchronisation; in bf16 the eager sides run under
autocast, and a third one calls flash attention once for all segments.

Where perf is installed each side runs once more under it: what the processor's time went to.

Example:
    python benchmarks/eager.py configs/vlm-small.toml --output page.md
    python benchmarks/eager.py configs/vlm-small.toml --device cuda --precision bf16
"""

import argparse
import csv
import json
import math
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

import launch
import machine
import torch
from eager_model import (
    Model,
    Sample,
    attend_at_once,
    attend_packed,
    attend_padded,
    read_safetensors,
)

BIASES = {"qkv_bias": True, "output_bias": True, "mlp_bias": True}
VIT = {**BIASES, "norm": "layer", "separate_qkv": True, "plain_mlp": True, "table_side": 24}
FAMILIES = {  # what a family's model has beside the file's
    "qwen2.5-vl": {
        "vision": {
            **BIASES,
            "rotary": "halves",
            "window_size": 112,
            "full_attention_layers": [1, 3],
        },
        "llm": {"qkv_bias": True, "mrope_sections": [8, 6, 6]},
    },
    "llava": {
        "vision": {
            **VIT,
            "activation": "quick_gelu",
            "projector": {"norm_tokens": False},
        },
        "llm": {},
    },
    "smolvlm": {
        "vision": {
            **VIT,
            "activation": "gelu_tanh",
            "projector": {"norm_tokens": False, "num_matrices": 1, "bias": False},
        },
        "llm": {},
    },
}
WARM_UP = 2  # steps of a run that do not count
# Of ten steps, relative: other sums in another order.
LOSS_TOLERANCE = {"fp32": 1e-4, "bf16": 5e-2}
PROFILED_STEPS = 4  # counted ones of a run under the profiler

PERF_HZ = 999

# Functions by what they do: the first class whose pattern "library;function" matches. Products within
# attention are products.
CLASSES = {
    "matrix products": r"gemm|mkl_blas|dnnl|cblas|jit",
    "attention beside its products": r"flash|attention|softmax",
    "Python": r"python|;_?Py",
    "the system: memory, page faults": r"\[kernel|memset|memcpy|memmove|malloc|free|mmap",
    "optimizer": r"adamw|Adamw|AdamW",
}
REST = "element-wise, norms, autograd and the rest"


def train_arguments(options, output, settings):
    """Of the engine's run on one lane."""
    values = {
        "output": output,
        "steps": options.steps + WARM_UP,
        "data.validation": "",
        "data.global_batch": options.global_batch,
        "plan.num_slots": options.num_slots,
        "model": options.model,
        "plan.policy": "sequential",
        "plan.schedule": "1f1b",
        "plan.profile": options.profile or "",
        "seed": options.document.get("seed", 0),
        "execution.trace_step": -1,
        "execution.device": options.device,
        "execution.precision": options.precision,
        "plan.single_lane": "true",
    }
    return ["train", options.config, "--overwrite", *launch.settings(values | settings)]


def train(options, folder, name, settings=None):
    """(run folder, its records) of one engine run."""
    output = folder / name
    launch.run(options.entrain, *train_arguments(options, output, settings or {}))
    return output, launch.rows(output)


def to_toml(tables):
    """A model file: plain keys, tables and tables in tables."""

    def lines(table, path):
        plain = [f"{key} = {json.dumps(v)}" for key, v in table.items() if not isinstance(v, dict)]
        head = [f"[{path}]"] if path else []
        inner = [
            line
            for key, value in table.items()
            if isinstance(value, dict)
            for line in lines(value, f"{path}.{key}".strip("."))
        ]
        return head + plain + inner

    return "\n".join(lines(tables, "")) + "\n"


def read_batches(options, folder, plan):
    """[step][slot] lists of decoded samples, as the engine's `sequential` policy has them."""
    index = Path(options.train)
    with index.open() as file:
        rows = {row["sample_id"]: row for row in csv.DictReader(file)}
    seed = options.document.get("seed", 0)
    batches = []
    for step in range(options.steps + WARM_UP):
        path = folder / "assignment.json"
        launch.run(
            *(options.entrain, "assign", "--index", options.train, "--model", options.model),
            *("--profile", options.profile or "analytic:cpu-2core", "--plan", plan),
            *("--policy", "sequential", "--step", step, "--seed", seed),
            *("--global-batch", options.global_batch, "-o", path),
        )
        (replica,) = json.loads(path.read_text())["replicas"]
        batches.append([
            [Sample(rows[item], index.parent, options.spec["vision"]) for item in slot]
            for slot in replica["modules"]["llm"] if slot
        ])  # fmt: skip
    return batches


def learning_rate(options, step):
    """Linear warm-up, then cosine, as the engine's."""
    optimizer = options.document["optimizer"]
    warm_up, steps = optimizer["warmup_steps"], options.steps + WARM_UP
    peak, final = optimizer["learning_rate"], optimizer.get("final_fraction", 0.1)
    if step < warm_up:
        return peak * (step + 1) / warm_up
    progress = min(1.0, (step - warm_up) / max(1, steps - warm_up))
    return peak * (final + (1 - final) * 0.5 * (1 + math.cos(math.pi * progress)))


def synchronise(options):
    if options.device == "cuda":
        torch.cuda.synchronize()


def train_eagerly(options, weights, batches, attend=attend_packed):
    """[(seconds, loss)] of every step."""
    model = Model(options.spec, weights, attend)
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    config = options.document["optimizer"]
    optimizer = torch.optim.AdamW(
        [
            {"params": matrices, "weight_decay": config.get("weight_decay", 0.01)},
            {"params": vectors, "weight_decay": 0.0},
        ],
        betas=(config.get("beta1", 0.9), config.get("beta2", 0.95)),
        fused=True,
    )
    results = []
    for step, slots in enumerate(batches):
        begun = time.perf_counter()
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(options, step)
        targets = sum(sample.num_targets for slot in slots for sample in slot)
        losses = []
        with torch.autocast(options.device, torch.bfloat16, options.precision == "bf16"):
            for slot in slots:
                loss = model.loss(slot) / targets
                loss.backward()
                losses.append(loss.detach())
        torch.nn.utils.clip_grad_norm_(model.parameters(), config.get("clip_norm", 1.0))
        optimizer.step()
        optimizer.zero_grad()
        total = sum(loss.item() for loss in losses)
        synchronise(options)
        results.append((time.perf_counter() - begun, total))
    return results


class Side:
    """One way to train: seconds of the counted steps of all rounds, and the first run's losses."""

    def __init__(self, name):
        self.name = name
        self.seconds = []
        self.losses = []

    def add(self, seconds, losses):
        self.seconds.append(seconds[WARM_UP:])
        self.losses = self.losses or losses

    def rates(self, tokens):
        """Tokens per second of every round: all counted tokens over all counted seconds."""
        return [sum(tokens[WARM_UP:]) / sum(seconds) for seconds in self.seconds]


def check_losses(sides, tolerance):
    """The first ten steps of all sides agree."""
    for side in sides[1:]:
        for step, (loss, first) in enumerate(zip(side.losses[:10], sides[0].losses, strict=False)):
            if abs(loss - first) > tolerance * abs(first):
                sys.exit(f"{side.name}, step {step}: loss {loss}, {sides[0].name} has {first}")


def class_of(function):
    for kind, pattern in CLASSES.items():
        if re.search(pattern, function):
            return kind
    return REST


def read_perf(path, steps):
    """{class: processor milliseconds a step}."""
    command = ["perf", "report", "-i", path, "--stdio", "-q", "-F", "sample,dso,sym", "-t", ";"]
    report = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    classes = dict.fromkeys([*CLASSES, REST], 0.0)
    for line in report.splitlines():
        count, _, function = line.partition(";")
        if count.strip().isdigit():
            classes[class_of(function)] += 1e3 * int(count) / PERF_HZ / steps
    return classes


def profile_sides(options, folder, weights, batches):
    """[{class: milliseconds}] of every side; empty without perf."""
    if shutil.which("perf") is None or options.device != "cpu":
        return []
    steps = PROFILED_STEPS + WARM_UP
    data = folder / "perf.data"
    record = ["perf", "record", "-q", "-e", "cpu-clock", "-F", str(PERF_HZ), "-o", str(data)]
    arguments = train_arguments(options, folder / "profiled", {"steps": steps})
    subprocess.run([*record, "--", options.entrain, *arguments], stdout=subprocess.PIPE, check=True)
    results = [read_perf(data, steps)]
    for attend in (attend_packed, attend_padded):
        perf = subprocess.Popen([*record, "-p", str(os.getpid())])
        time.sleep(0.5)  # it has begun by then
        train_eagerly(options, weights, batches[:steps], attend)
        perf.send_signal(signal.SIGINT)
        perf.wait()
        results.append(read_perf(data, steps))
    return results


def attention_pairs(batches):
    """Pairs of rows that attention looks at: what segments need, and what padding makes of them."""
    needed, padded = 0, 0
    for slots in batches:
        for slot in slots:
            images = [len(patches) for sample in slot for patches, _, _ in sample.images]
            for lengths in (images, [len(sample.ids) for sample in slot]):
                needed += sum(length**2 for length in lengths)
                padded += len(lengths) * max(lengths, default=0) ** 2
    return needed, padded


def losses(options, num_steps):
    """Losses of `num_steps` steps in eager Python, attention packed, from the engine's weights.

    `options` with entrain, global_batch, num_slots, and what read_config() adds.
    """
    options.steps = num_steps - WARM_UP
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        output = first_weights(options, folder)
        weights = read_safetensors(output / "weights.safetensors")
        batches = read_batches(options, folder, output / "plan.json")
    return [loss for _, loss in train_eagerly(options, weights, batches)]


def first_weights(options, folder):
    """A run folder whose weights are those that training begins with."""
    output, _ = train(options, folder, "still", {"steps": 1, "optimizer.learning_rate": 1e-30})
    return output


def measure(options):
    """(sides, tokens of every step, profiles of the sides, attention pairs needed and padded)."""
    sides = [Side("engine, one lane"), Side("eager, packed"), Side("eager, padded")]
    ways = [attend_packed, attend_padded]
    if options.device == "cuda" and options.precision == "bf16":
        sides.append(Side("eager, one kernel"))
        ways.append(attend_at_once)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        output = first_weights(options, folder)
        weights = read_safetensors(output / "weights.safetensors")
        batches = read_batches(options, folder, output / "plan.json")
        for index in range(options.rounds):
            _, records = train(options, folder, "engine")
            tokens = [record["llm_tokens"] + record["encoder_tokens"] for record in records]
            sides[0].add([r["step_s"] for r in records], [r["loss"] for r in records])
            for side, attend in zip(sides[1:], ways, strict=True):
                results = train_eagerly(options, weights, batches, attend)
                side.add([s for s, _ in results], [loss for _, loss in results])
            print(f"round {index + 1}/{options.rounds}", file=sys.stderr)
        check_losses(sides, LOSS_TOLERANCE[options.precision])
        profiles = profile_sides(options, folder, weights, batches)
    return sides, tokens, profiles, attention_pairs(batches)


def profile_lines(sides, profiles, pairs):
    """What perf showed, and what padding does to attention."""
    lines = []
    if profiles:
        lines = [
            (
                f"Processor time a step by perf, {PROFILED_STEPS + WARM_UP} steps of each side; the "
                "engine's start and its helper threads (decoding, assignment) included:"
            ),
            "",
            "| | " + " | ".join(side.name for side in sides) + " |",
            "|---|" + "---|" * len(sides),
        ]
        for kind in profiles[0]:
            cells = " | ".join(f"{classes[kind]:.0f} ms" for classes in profiles)
            lines.append(f"| {kind} | {cells} |")
        totals = " | ".join(f"**{sum(classes.values()):.0f} ms**" for classes in profiles)
        lines += [f"| in all | {totals} |", ""]
    return [
        *lines,
        (
            f"Attention by segments looks at {pairs[0]:,} pairs of rows in all steps, on padded "
            f"rectangles at {pairs[1]:,}, {pairs[1] / pairs[0]:.2f} times as many."
        ),
    ]


def page(options, sides, tokens, profiles, pairs, load):
    """The result page as Markdown."""
    rows = []
    for side in sides:
        rates = side.rates(tokens)
        ratios = [a / b for a, b in zip(sides[0].rates(tokens), rates, strict=True)]
        rows.append(
            f"| {side.name} | {statistics.median(rates):.0f} | {min(rates):.0f} … {max(rates):.0f} "
            f"| {statistics.median(ratios):.3f} | {min(ratios):.3f} … {max(ratios):.3f} |"
        )
    gap = max(
        abs(a - b) / abs(b)
        for side in sides[1:]
        for a, b in zip(side.losses[:10], sides[0].losses, strict=False)
    )
    return "\n".join(
        [
            "# The engine against plain PyTorch",
            "",
            (
                f"Command: `python benchmarks/eager.py {options.config} --rounds {options.rounds} "
                f"--steps {options.steps} --global-batch {options.global_batch} "
                f"--num-slots {options.num_slots}"
                f"{f' --family {options.family}' if options.family else ''}"
                f"{f' --device cuda --precision {options.precision}' if options.device == 'cuda' else ''}`"
            ),
            "",
            (
                f"{machine.describe()}{options.gpu}; torch {torch.__version__}, one thread a side, "
                f"{options.precision}, {load}."
            ),
            "",
            (
                "Tokens are the encoder's patches and the LLM's tokens of all counted steps over "
                "their seconds, optimizer and clipping included; median and range over rounds, "
                "sides in turn within each. *Packed*: eager Python, attention once a segment. "
                "*Padded*: eager Python, attention on a rectangle of all segments with a mask. "
                f"Losses of the first ten steps differ by at most {gap:.1e} of the loss."
            ),
            "",
            "| side | tokens/s | range | engine over it | range |",
            "|---|---|---|---|---|",
            *rows,
            "",
            *profile_lines(sides, profiles, pairs),
            "",
        ]
    )


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("config", help="run file of a model with one encoder, `vision`")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10, help="counted steps of each run")
    parser.add_argument("--global-batch", type=int, default=32)
    parser.add_argument("--num-slots", type=int, default=8)
    parser.add_argument("--entrain", default="build/release/entrain/cli/entrain")
    parser.add_argument("--family", choices=FAMILIES, help="the model with that family's parts")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--precision", choices=tuple(LOSS_TOLERANCE), default="fp32")
    parser.add_argument("--output", help="Markdown page to write; default: standard output")
    return read_config(parser.parse_args())


def read_config(options):
    """Adds to `options` what its run file says of model, data, profile and optimizer."""
    options.device = getattr(options, "device", "cpu")
    options.precision = getattr(options, "precision", "fp32")
    options.document = tomllib.loads(Path(options.config).read_text())
    options.model = options.document["model"]
    options.spec = tomllib.loads(Path(options.model).read_text())
    options.train = options.document["data"]["train"]
    options.profile = options.document["plan"]["profile"]
    if getattr(options, "family", None):
        for module, keys in FAMILIES[options.family].items():
            options.spec[module] |= keys
        options.profile = None  # the measured one is of another model
        options.model = str(Path("runs") / f"eager-{options.family}.toml")
        Path("runs").mkdir(exist_ok=True)
        Path(options.model).write_text(to_toml(options.spec))
    return options


def main():
    options = parse()
    torch.set_num_threads(1)
    torch.set_default_device(options.device)
    options.gpu = f", {torch.cuda.get_device_name()}" if options.device == "cuda" else ""
    load = machine.OtherLoad()
    sides, tokens, profiles, pairs = measure(options)
    machine.give(page(options, sides, tokens, profiles, pairs, load.text()), options.output)


if __name__ == "__main__":
    main()
