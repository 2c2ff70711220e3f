"""The fault table: what is done to a run, what should come of it, what does, and how long it takes.

Every fault meets the same small run (2 replicas of an encoder lane and two LLM lanes, ranks as
threads, a checkpoint every 5 steps). Times: from the last step's row before the fault to the end of
the process; and from the start of the same command without the fault to its first new row. The run
that went on is compared with one that met no fault: the same losses, step by step.

Example:
    python benchmarks/faults.py --entrain build/release/entrain/cli/entrain --output page.md
"""

import argparse
import json
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import machine

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "end_to_end"))

import cli_fixture

STEPS = 30
FAULT_STEP = 12
DEADLINE_S = 2

RUN = f"""
output = "run"
steps = {STEPS}
model = "model.toml"
[data]
train = "train.csv"
global_batch = 8
[plan]
replicas = 2
num_slots = 3
evaluations = 20
[plan.stages]
vision = 1
llm = 2
[checkpoint]
every_steps = 5
[execution]
deadline_seconds = {DEADLINE_S}
trace_step = -1
"""


class Case:
    """One fault: settings that bring it about, or an act on the running process."""

    def __init__(self, fault, expected, settings=(), act=None, code=0, verdict=None, skips=None):
        self.fault = fault
        self.expected = expected
        self.settings = list(settings)
        self.act = act
        self.code = code
        self.verdict = verdict
        self.skips = skips  # the run goes on with so many steps left out


def drill(kind):
    return [f"execution.fault_drill=[1, 1, {FAULT_STEP}]", f'execution.fault_kind="{kind}"']


def truncate(process, folder):
    """Cuts the shard in its middle while the run goes on."""
    shard = folder / "train-000000.tar"
    with shard.open("r+b") as file:
        file.truncate(shard.stat().st_size // 2)


def block_checkpoints(process, folder):
    """No folder can be made any more where checkpoints lie: a file takes their place."""
    (folder / "run" / "checkpoints").rename(folder / "run" / "kept")
    (folder / "run" / "checkpoints").write_text("in the way")


CASES = [
    Case("a rank throws", "stops, names it", drill("throw"), code=1, verdict="failed"),
    Case("a rank hangs", "stops at the deadline, names it", drill("hang"), code=3, verdict="stuck"),
    Case("a rank dies", "stops at the deadline, names it", drill("die"), code=3, verdict="died"),
    Case(
        "a message of a wrong size",
        "stops, names the sender",
        drill("wrong-size"),
        code=1,
        verdict="mismatch",
    ),
    Case("NaN in an output", "stops before the update", drill("nan"), code=3, verdict="failed"),
    Case(
        "NaN, `on_nan = skip-step`",
        "goes on without that update",
        [*drill("nan"), "faults.on_nan=skip-step"],
        skips=1,
    ),
    Case("a shard cut short in mid-run", "stops, names sample and file", act=truncate, code=2),
    Case("SIGKILL", "nothing lost but steps", act=lambda p, _: p.kill(), code=-9),
    Case(
        "SIGTERM",
        "finishes the step, checkpoint, exit 0",
        act=lambda p, _: p.send_signal(signal.SIGTERM),
    ),
    Case(
        "SIGSEGV",
        "dies, with dumps",
        act=lambda p, _: p.send_signal(signal.SIGSEGV),
        code=-11,
    ),
    Case("no room for a checkpoint", "stops, keeps the one before", ["full"], code=3),
    Case("checkpoint folder unusable", "stops, names the path", act=block_checkpoints, code=3),
]


def rows(folder):
    path = folder / "run" / "metrics.jsonl"
    if not path.exists():
        return []
    text = path.read_text()
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def prepare(entrain, folder):
    (folder / "model.toml").write_text(cli_fixture.MODEL)
    (folder / "run.toml").write_text(RUN)
    samples = [cli_fixture.sample(i, (1, 0, 2, 1)[i % 4]) for i in range(24)]
    cli_fixture.write_shard(folder / "train-000000.tar", samples)
    subprocess.run(
        [entrain, "index", "train-000000.tar", "-o", "train.csv", "--model", "model.toml"],
        cwd=folder,
        check=True,
        capture_output=True,
    )


def start(entrain, folder, settings, full=False):
    command = [entrain, "train", "run.toml"]
    for setting in settings:
        command += ["--set", setting]

    process = subprocess.Popen(
        command,
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=(folder / "stderr").open("w"),
        restore_signals=False,  # SIGXFSZ stays ignored: a write beyond the limit is an error
    )
    if full:
        # Checkpoints are larger than this, all other files of the run smaller.
        files = folder.glob("run/checkpoints/step-*/*")
        largest = max(path.stat().st_size for path in files) - 100
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (largest, largest))
    return process


def wait_for_rows(process, folder, count):
    """The moment at which so many rows are there, or the process has ended."""
    while process.poll() is None and len(rows(folder)) < count:
        time.sleep(0.002)
    return time.monotonic()


def steps(folder):
    return [row["step"] for row in rows(folder)]


def losses(folder):
    return {row["step"]: row["loss"] for row in rows(folder) if "loss" in row}


def study(entrain, case, whole):
    """One row of the table, and whether it is as expected."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(entrain, folder)
        shard = (folder / "train-000000.tar").read_bytes()
        full = case.settings == ["full"]
        # With room for the first checkpoint only, the second one fails.
        if full:
            process = start(entrain, folder, ["steps=5"])
            process.wait()
        process = start(entrain, folder, [] if full else case.settings, full)
        before = wait_for_rows(process, folder, 6 if full else FAULT_STEP)
        if case.act:
            case.act(process, folder)
            before = time.monotonic()
        code = process.wait()
        stop_s = time.monotonic() - before
        seen = [f"exit {code}"]
        good = code == case.code
        message = (folder / "stderr").read_text()
        if case.verdict:
            doctor = subprocess.run(
                [entrain, "doctor", "run", "--json"],
                cwd=folder,
                capture_output=True,
                text=True,
                check=False,
            )
            diagnosis = json.loads(doctor.stdout)
            seen.append(f"doctor: {diagnosis['verdict']}, rank {diagnosis['culprits']}")
            good = good and diagnosis["verdict"] == case.verdict
            if case.fault != "NaN in an output":  # every rank sees it
                good = good and diagnosis["culprits"] == [4]
        if case.skips is not None:
            skipped = [row for row in rows(folder) if "skipped" in row]
            seen.append(f"{len(skipped)} step skipped, all {STEPS} done")
            good = good and len(skipped) == case.skips and rows(folder)[-1]["step"] == STEPS - 1
            return [case.fault, case.expected, "; ".join(seen), "-", "-"], good, message
        # The same command without the fault.
        (folder / "train-000000.tar").write_bytes(shard)
        kept = folder / "run" / "kept"
        if kept.exists():
            (folder / "run" / "checkpoints").unlink()
            kept.rename(folder / "run" / "checkpoints")
        reached = max(steps(folder), default=-1)
        begun = time.monotonic()
        process = start(entrain, folder, [])
        while process.poll() is None and max(steps(folder), default=-1) <= reached:
            time.sleep(0.002)
        again_s = time.monotonic() - begun
        code = process.wait()
        same = losses(folder) == whole
        seen.append("goes on with the same losses" if same else "OTHER LOSSES")
        good = good and code == 0 and same
        return (
            [case.fault, case.expected, "; ".join(seen), f"{stop_s:.2f} s", f"{again_s:.2f} s"],
            good,
            message,
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--entrain", default="build/release/entrain/cli/entrain")
    parser.add_argument("--output", help="write the page here")
    options = parser.parse_args()
    entrain = str(Path(options.entrain).resolve())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(entrain, folder)
        start(entrain, folder, []).wait()
        whole = losses(folder)
    table = []
    all_good = len(whole) == STEPS
    for case in CASES:
        row, good, message = study(entrain, case, whole)
        table.append(row)
        all_good = all_good and good
        print(f"{'ok ' if good else 'BAD'} {' | '.join(row)}", file=sys.stderr)
        if not good:
            print(message, file=sys.stderr)
    lines = [
        "# Faults: expected, seen, and how long",
        "",
        f"Command: `python benchmarks/faults.py`; deadline {DEADLINE_S} s.",
        "",
        f"{machine.describe()}; 6 ranks as threads, {STEPS} steps, a checkpoint every 5.",
        "",
        "| fault | expected | seen | time to stop | training again after |",
        "|---|---|---|---|---|",
        *(f"| {' | '.join(row)} |" for row in table),
        "",
        (
            '"Time to stop" is from the last row before the fault to the end of the process, '
            '"training again" from the start of the same command to its first new step, those '
            'between the last checkpoint and the fault repeated. "The same losses" are those of '
            "a run without faults, bit by bit."
        ),
    ]
    machine.give("\n".join(lines) + "\n", options.output)
    return 0 if all_good else 1


if __name__ == "__main__":
    sys.exit(main())
