"""The fault table: what is done to a run, what should come of it, what does, and how long it takes.

Every fault meets the same small run (2 replicas of an encoder lane and two LLM lanes, ranks as
threads; for ranks that are processes under torchrun one LLM lane; a checkpoint every 5 steps). Times:
from the last step's row before the fault, or the act itself, to the end of the run; and from the
start of the same command without the fault to its first new row. Where torchrun restarts the ranks,
both count from the act: to the end of the last of the ranks that there were, and to the first new
row. The run that went on is compared with one on threads that met no fault: the same losses, step by
step.

Example:
    python benchmarks/faults.py --entrain build/release/entrain/cli/entrain --output page.md
"""

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import launch
import machine

TESTS = Path(__file__).resolve().parent.parent / "tests"
sys.path[:0] = [str(TESTS / "end_to_end"), str(TESTS / "distributed")]

import cli_fixture
from process_faults_test import ranks_of

STEPS = 30
FAULT_STEP = 12
DEADLINE_S = 2  # of threads
PROCESSES = 4
DEADLINE_PROCESSES_S = 5
RESTARTS = 3

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

    def __init__(
        self,
        fault,
        expected,
        settings=(),
        act=None,
        code=0,
        verdict=None,
        skips=None,
        processes=0,
        restarts=0,
    ):
        self.fault = fault
        self.expected = expected
        self.settings = list(settings)
        self.act = act
        self.code = code
        self.verdict = verdict
        self.skips = skips  # the run goes on with so many steps left out
        self.processes = processes  # 0: ranks are threads
        self.restarts = restarts
        if processes:
            self.settings += PROCESS_SETTINGS

    def without_fault(self):
        return PROCESS_SETTINGS if self.processes else []

    def culprit(self):
        """Rank of replica 1, lane 1."""
        return 3 if self.processes else 4

    def row(self, seen, stop, again):
        kind = f"{self.processes} processes" if self.processes else "6 threads"
        if self.restarts:
            kind += f", `--max-restarts {self.restarts}`"
        return [kind, self.fault, self.expected, "; ".join(seen), stop, again]


PROCESS_SETTINGS = ["plan.stages.llm=1", f"execution.deadline_seconds={DEADLINE_PROCESSES_S}"]


def drill(kind):
    return [f"execution.fault_drill=[1, 1, {FAULT_STEP}]", f'execution.fault_kind="{kind}"']


def truncate(process, folder):
    """Cuts the shard in its middle while the run goes on."""
    shard = folder / "train-000000.tar"
    with shard.open("r+b") as file:
        file.truncate(shard.stat().st_size // 2)


def kill_rank(process, folder):
    os.kill(ranks_of(process.pid)[3], signal.SIGKILL)


def stop_rank(process, folder):
    """The rank stands still, and hears no signal but one."""
    os.kill(ranks_of(process.pid)[3], signal.SIGSTOP)


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
        "finishes the step, checkpoint, exit 75",
        act=lambda p, _: p.send_signal(signal.SIGTERM),
        code=75,
    ),
    Case(
        "SIGSEGV",
        "dies, with dumps",
        act=lambda p, _: p.send_signal(signal.SIGSEGV),
        code=-11,
    ),
    Case("no room for a checkpoint", "stops, keeps the one before", ["full"], code=3),
    Case("checkpoint folder unusable", "stops, names the path", act=block_checkpoints, code=3),
    *[
        Case(fault, expected, drill(kind), code=1, verdict=verdict, processes=PROCESSES)
        for fault, expected, kind, verdict in (
            ("a rank throws", "stops, names it", "throw", "failed"),
            ("a rank hangs", "stops at the deadline, names it", "hang", "stuck"),
            ("a rank dies", "stops, names it", "die", "died"),
            ("a message of a wrong size", "stops, names the sender", "wrong-size", "mismatch"),
        )
    ],
    Case(
        "SIGKILL of a rank",
        "goes on by itself",
        act=kill_rank,
        processes=PROCESSES,
        restarts=RESTARTS,
    ),
    Case(
        "SIGSTOP of a rank",
        "goes on by itself",
        act=stop_rank,
        processes=PROCESSES,
        restarts=RESTARTS,
    ),
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


def start(options, folder, settings, full=False, processes=0, restarts=0):
    command = [*launch.command(options.entrain, processes, restarts), "train", "run.toml"]
    for setting in settings:
        command += ["--set", setting]

    process = subprocess.Popen(
        command,
        cwd=folder,
        env=launch.environment(options.package),
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


def diagnosis(options, case, folder):
    """(what `entrain doctor` says, whether it is as expected)."""
    doctor = subprocess.run(
        [options.entrain, "doctor", "run", "--json"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    found = json.loads(doctor.stdout)
    good = found["verdict"] == case.verdict
    if case.fault != "NaN in an output":  # every rank sees it
        good = good and found["culprits"] == [case.culprit()]
    return f"doctor: {found['verdict']}, rank {found['culprits']}", good


def compare(folder, whole):
    """(what the losses came to, whether they are those of the run without a fault)."""
    same = losses(folder) == whole
    return "goes on with the same losses" if same else "OTHER LOSSES", same


def train_again(options, case, folder, whole):
    """The same command without the fault: (losses, whether they are right, seconds)."""
    kept = folder / "run" / "kept"
    if kept.exists():
        (folder / "run" / "checkpoints").unlink()
        kept.rename(folder / "run" / "checkpoints")
    reached = max(steps(folder), default=-1)
    begun = time.monotonic()
    process = start(options, folder, case.without_fault(), processes=case.processes)
    while process.poll() is None and max(steps(folder), default=-1) <= reached:
        time.sleep(0.002)
    again_s = time.monotonic() - begun
    code = process.wait()
    text, same = compare(folder, whole)
    return text, same and code == 0, again_s


def study_restart(options, case, whole, folder):
    """torchrun starts the ranks anew: one row of the table, whether it is as expected, and why not."""
    process = start(
        options, folder, case.settings, processes=case.processes, restarts=case.restarts
    )
    wait_for_rows(process, folder, FAULT_STEP)
    old = set(ranks_of(process.pid).values())
    case.act(process, folder)
    acted = time.monotonic()
    reached = max(steps(folder))
    while process.poll() is None and old & set(ranks_of(process.pid).values()):
        time.sleep(0.002)
    stop_s = time.monotonic() - acted
    while process.poll() is None and not reached < max(steps(folder), default=-1):
        time.sleep(0.002)
    again_s = time.monotonic() - acted
    code = process.wait()
    text, same = compare(folder, whole)
    row = case.row([f"exit {code}", text], f"{stop_s:.2f} s", f"{again_s:.2f} s")
    return row, same and code == 0 and reached < STEPS - 1, (folder / "stderr").read_text()


def study(options, case, whole, folder):
    """One row of the table, whether it is as expected, and what the run said."""
    shard = (folder / "train-000000.tar").read_bytes()
    full = case.settings == ["full"]
    # With room for the first checkpoint only, the second one fails.
    if full:
        process = start(options, folder, ["steps=5"])
        process.wait()
    process = start(options, folder, [] if full else case.settings, full, processes=case.processes)
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
        text, right = diagnosis(options, case, folder)
        seen.append(text)
        good = good and right
    if case.skips is not None:
        skipped = [row for row in rows(folder) if "skipped" in row]
        seen.append(f"{len(skipped)} step skipped, all {STEPS} done")
        good = good and len(skipped) == case.skips and rows(folder)[-1]["step"] == STEPS - 1
        return case.row(seen, "-", "-"), good, message
    (folder / "train-000000.tar").write_bytes(shard)
    text, same, again_s = train_again(options, case, folder, whole)
    return (
        case.row([*seen, text], f"{stop_s:.2f} s", f"{again_s:.2f} s"),
        good and same,
        message,
    )


def whole_run(options, settings):
    """Losses of a run on threads that meets no fault."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(options.entrain, folder)
        start(options, folder, settings).wait()
        return losses(folder)


def page(table, load):
    lines = [
        "# Faults: expected, seen, and how long",
        "",
        (
            f"Command: `python benchmarks/faults.py`; deadline {DEADLINE_S} s, of processes "
            f"{DEADLINE_PROCESSES_S} s."
        ),
        "",
        f"{machine.describe()}; {STEPS} steps, a checkpoint every 5; {load}.",
        "",
        "| ranks | fault | expected | seen | time to stop | training again after |",
        "|---|---|---|---|---|---|",
        *(f"| {' | '.join(row)} |" for row in table),
        "",
        (
            '"Time to stop" is from the last row before the fault to the end of the run, "training '
            'again" from the start of the same command to its first new step, those between the '
            "last checkpoint and the fault repeated. With `--max-restarts` both count from the "
            "signal, to the end of the last rank that there was and to the first new step, the start of "
            'new processes included. "The same losses" are those of a run on threads without faults, '
            "bit by bit."
        ),
    ]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--entrain", default="build/release/entrain/cli/entrain")
    parser.add_argument("--package", default="build/release/python", help="the Python package's")
    parser.add_argument("--fault", action="append", help="only cases whose name holds this text")
    parser.add_argument("--output", help="write the page here")
    options = parser.parse_args()
    options.entrain = str(Path(options.entrain).resolve())
    options.package = str(Path(options.package).resolve())
    load = machine.OtherLoad()
    whole = {False: whole_run(options, []), True: whole_run(options, PROCESS_SETTINGS)}
    table = []
    all_good = all(len(run) == STEPS for run in whole.values())
    for case in CASES:
        if options.fault and not any(text in case.fault for text in options.fault):
            continue
        with tempfile.TemporaryDirectory() as name:
            prepare(options.entrain, Path(name))
            way = study_restart if case.restarts else study
            row, good, message = way(options, case, whole[case.processes > 0], Path(name))
        table.append(row)
        all_good = all_good and good
        print(f"{'ok ' if good else 'BAD'} {' | '.join(row)}", file=sys.stderr)
        if not good:
            print(message, file=sys.stderr)
    machine.give(page(table, load.text()), options.output)
    return 0 if all_good else 1


if __name__ == "__main__":
    sys.exit(main())
