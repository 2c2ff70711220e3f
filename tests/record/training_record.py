"""The record of ten tiny training runs, bit for bit: losses, gradient norms, predicted times, weights.

`write` makes the record, `compare` runs again and prints what differs, run by run. Float results
depend on torch, compiler and the processor's instruction sets, so the record names them; where they
are others, `compare` says so and is skipped (exit status 77).

Example:
    python tests/record/training_record.py compare tests/golden/training_record.json \
        --entrain build/release/entrain/cli/entrain
"""

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "end_to_end"))
from cli_fixture import MODEL, sample, write_shard

SKIPPED = 77
STEPS = 4
INSTRUCTION_SETS = ("avx2", "fma", "avx512f", "avx512bw", "avx512_bf16", "amx_bf16", "asimd", "sve")

# Two key and value heads, so that two ranks can share a layer.
WIDE_MODEL = MODEL.replace("num_kv_heads = 1", "num_kv_heads = 2")

RUN = f"""
steps = {STEPS}
seed = 3
model = "model.toml"
[data]
train = "train.csv"
validation = "train.csv"
global_batch = 6
[plan]
num_slots = 3
evaluations = 50
[optimizer]
learning_rate = 5e-3
warmup_steps = 2
[validation]
samples = 4
[execution]
trace_step = -1
deadline_seconds = 60
"""

# What each run sets beside RUN. Together: layouts, ZeRO-1, tensor parallelism, lanes of several
# stages, chunks, recomputation, both precisions, frozen modules, several steps an update.
RUNS = {
    "one-lane": ["plan.single_lane=true"],
    "stages-1f1b": ["plan.stages.llm=2"],
    "split-backward": ["plan.stages.vision=2", "plan.stages.llm=2", "plan.schedule=zb-h1"],
    "replicas-found-order": ["plan.replicas=2", "plan.schedule=entrain"],
    "zero1": ["plan.replicas=2", "plan.stages.llm=2", "plan.shard_optimizer=true"],
    "tensor-parallel": ["plan.tensor_parallel.vision=2", "plan.tensor_parallel.llm=2"],
    "shared-lanes": ["plan.file=shared.json", "plan.schedule=interleaved"],
    "chunks-recompute": [
        *("plan.chunks=true", "data.global_batch=4", "plan.stages.llm=2"),
        "execution.recompute=full",
    ],
    "bf16": ["execution.precision=bf16", "plan.stages.llm=2", "plan.policy=orchmllm"],
    "frozen": ['freeze=["vision"]', "plan.policy=lpt-2d", "optimizer.update_every=2"],
}


def machine(entrain):
    """What float results depend on."""
    report = json.loads(subprocess.check_output([entrain, "env", "--json"], text=True))
    flags, vendor = set(), ""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("flags", "Features"):
            flags = set(value.split())
        if key.strip() in ("vendor_id", "CPU implementer"):
            vendor = value.strip()
    sets = " ".join(name for name in INSTRUCTION_SETS if name in flags)
    return f"{report['engine']}, compiler {report['compiler']}, {vendor} with {sets}"


class Runs:
    """Trains in a folder of its own."""

    def __init__(self, entrain, folder):
        self.entrain = entrain
        self.folder = folder
        samples = []
        for number in range(18):
            name, images, text = sample(number, (1, 0, 2, 1, 3)[number % 5])
            # One in six samples is heavier than a slot.
            text["question"] *= 30 if number % 6 == 0 else 1 + number % 3
            samples.append((name, images, text))
        write_shard(folder / "train-000000.tar", samples)
        (folder / "model.toml").write_text(WIDE_MODEL)
        (folder / "run.toml").write_text(RUN)
        self.call("index", "train-000000.tar", "-o", "train.csv", "--model", "model.toml")
        self.make_shared_plan()

    def call(self, *arguments):
        result = subprocess.run(
            [self.entrain, *arguments],
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        if result.returncode != 0:
            raise SystemExit(f"entrain {' '.join(arguments)}\n{result.stdout}{result.stderr}")

    def train(self, name, settings):
        changes = [f"output={name}", *settings]
        self.call("train", "run.toml", *(word for text in changes for word in ("--set", text)))

    def make_shared_plan(self):
        """A plan file whose two LLM lanes host two stages each."""
        stages = ["plan.stages.vision=2", "plan.stages.llm=4"]
        self.train("made", [*stages, "steps=1"])
        plan = json.loads((self.folder / "made" / "plan.json").read_text())
        each = [stage for lane in plan["lanes"] for stage in lane]
        plan["lanes"] = [each[0:2], [each[2], each[4]], [each[3], each[5]]]
        (self.folder / "shared.json").write_text(json.dumps(plan))

    def record(self, name):
        """What a run computed, its floats in hexadecimal."""
        self.train(name, RUNS[name])
        output = self.folder / name
        rows = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
        result = {
            field: [float(row[field]).hex() for row in rows if field in row]
            for field in ("loss", "grad_norm", "predicted_step_s", "validation_loss")
        }
        result["chunks"] = sum(row.get("chunks", 0) for row in rows)
        weights = (output / "weights.safetensors").read_bytes()
        result["weights"] = hashlib.sha256(weights).hexdigest()[:16]
        return result


def differences(before, after):
    """Lines that say what differs, run by run."""
    lines = []
    for name in sorted(before | after):
        old, new = before.get(name), after.get(name)
        if old is None or new is None:
            lines.append(f"{name}\n  is in {'this run' if old is None else 'the record'} alone")
            continue
        for field in sorted(old | new):
            if old.get(field) != new.get(field):
                lines.append(f"{name} {field}\n  old {old.get(field)}\n  new {new.get(field)}")
    return lines


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("mode", choices=["write", "compare"])
    parser.add_argument("file", type=Path, help="the record")
    parser.add_argument("--entrain", default="build/release/entrain/cli/entrain")
    options = parser.parse_args()
    options.entrain = str(Path(options.entrain).resolve())
    return options


def main():
    options = parse_arguments()
    here = machine(options.entrain)
    record = json.loads(options.file.read_text()) if options.mode == "compare" else {}
    if record and record["machine"] != here:
        print(f"training record: skipped; it is of {record['machine']}, this is {here}")
        return SKIPPED
    with tempfile.TemporaryDirectory() as folder:
        runs = Runs(options.entrain, Path(folder))
        results = {name: runs.record(name) for name in RUNS}
    if options.mode == "write":
        document = {"machine": here, "runs": results}
        options.file.write_text(json.dumps(document, indent=1) + "\n")
        print(f"training record: {len(results)} runs in {options.file}")
        return 0
    lines = differences(record["runs"], results)
    print("\n".join([*lines, f"{len(results)} runs, {len(lines)} fields differ"]))
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
