"""A fuzz of the command line: every option of every command with every kind of bad value.

Options are read from `--help`, so that a new one is covered by itself. In a sandbox of small files:
nothing changes but a file that an output option may write, nothing ends by a signal or as a bug,
nothing takes longer than 10 s or more than 2 GB, and what fails names the option.

ENTRAIN_OPTION_CASES: how many invocations the long test draws (default all; `make check`: 500).
"""

import collections
import concurrent.futures
import contextlib
import hashlib
import json
import os
import random
import re
import shutil
import stat
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import cli_fixture
from cli_fixture import CliTest

SECONDS = 10
BYTES = 2 << 30
# Of a machine that others use too: what took longer is run again, alone, and its own processor
# time counts then.
PATIENCE = 60

STUDY = ["--index", "train.csv", "--model", "model.toml", "--profile", "analytic:cpu-2core"]
BATCH = [*STUDY, "--global-batch", "6"]
PLANNED = [*BATCH, "--plan", "plan.json", "--evaluations", "5"]
# A quick and right invocation of every command; `{new}` is a file that is not there.
BASES = {
    "index": ["train-000000.tar", "--output", "{new}"],
    "cost": [*STUDY, "--output", "{new}"],
    "plan": [*BATCH, "--lanes", "2", "--batches", "1", "--evaluations", "5"],
    "b-min": [*BATCH, "--devices", "2"],
    "assign": PLANNED,
    "simulate": [*PLANNED, "--steps", "1", "--policy", "lpt-2d"],
    "explain": PLANNED,
    "report": ["cases.json", "--output", "{new}"],
    "study paper": ["--quick", "--list"],
    "audit": [
        *["train.csv", *STUDY[2:], "--ranks", "2", "--microbatches", "1", "--microbatch", "1"],
        *["--steps", "1"],
        *["--search-steps", "10", "--no-pipeline"],
    ],
    "export": [
        *["train.csv", *STUDY[2:], "--ranks", "1", "--microbatches", "1", "--microbatch", "1"],
        *["--search-steps", "10", "--order", "{new}"],
    ],
    "top": ["run", "--once"],
    "doctor": ["run"],
    "env": [],
    "profile": [
        *["--quick", "--model", "model.toml", "--seconds", "0.1", "--max-tokens", "16"],
        *["--repeats", "3"],
    ],
    "train": ["run.toml", "--dry-run"],
    "feed": ["run.toml", "--listen", "127.0.0.1:0", "--dry-run"],
    "eval": ["run", "--samples", "1"],
    "checkpoint show": ["run"],
    "checkpoint verify": ["run"],
    "checkpoint export": ["run", "--output", "{new}"],
}
# What an option needs instead of a part of the base: what goes, what comes.
INSTEAD = {
    "--plan": (["--lanes"], []),
    "--lanes": (["--plan", "--evaluations"], ["--plan-batches", "1"]),
    "--plan-batches": (["--plan"], ["--lanes", "2"]),
    "--plan-schedule": (["--plan"], ["--lanes", "2", "--plan-batches", "1"]),
    "--batch": (["--global-batch"], []),
    "--costs": (["--index", "--model", "--profile"], []),
    "--hf-config": (["--model"], []),
    "--index": (["train.csv"], []),
    "--model-folder": (["--output"], []),
    "--new-key": (["run.toml", "--listen", "--dry-run"], []),
    "--segment-costs": (["--index", "--model", "--profile"], ["--costs", "costs.csv"]),
    "--check": (["--quick"], ["--index", "train.csv", "--slots", "2", "--samples-per-slot", "2"]),
    "--slots": (["--quick"], ["--check", "profile.json", "--index", "train.csv"]),
    "--samples-per-slot": (
        ["--quick"],
        ["--check", "profile.json", "--index", "train.csv", "--slots", "1"],
    ),
}
ON_A_CLUSTER = (["--lanes", "--profile"], ["--cluster", "cluster.toml", "--simulations", "1"])
OF_A_CLUSTER = [
    *["--cluster", "--simulations", "--search-evaluations", "--runners-up", "--reserve-gib"],
    *["--recompute", "--regret-batches", "--check-batches", "--microbatch"],
]
OF_THE_ENGINE = ["profile", "train", "feed", "eval", "checkpoint"]
OUTPUTS = [
    "--output",
    "--order",
    "--report",
    "--npy",
    "--xtuner",
    "--csv",
    "--new-key",
    "--trace",
    "--torch-csv",
    "--answers",
    "--plot",
    "--points",
    "--segments",
]
# Of an option whose value is a folder.
PACKS = [b"boundaries.npy", b"samples.npy", b"paths.json", b"sampler_order.npy"]

VALUES = {
    "missing": [None],
    "empty": [""],
    "directory": ["folder", "."],
    "device": ["null", "zero", "full"],
    "FIFO": ["pipe"],
    "symlink": ["link", "dangling", "loop", "to_folder"],
    "read-only": ["read_only.txt", "read_only.csv"],
    "another file": ["precious.txt", "b.tar"],
    "huge": ["99999999999999999999", "9" * 309, "1e300", "2000000000"],
    "negative": ["-1", "-0.5", "-9223372036854775808"],
    "NaN": ["nan", "inf", "-inf"],
    "unicode": ["ünï→💥", b"\xff\xfe\x80"],
}
RUN = """
output = "run"
steps = 2
model = "model.toml"
[data]
train = "train.csv"
validation = "train.csv"
global_batch = 4
[plan]
replicas = 1
num_slots = 2
evaluations = 5
[validation]
samples = 2
[checkpoint]
every_steps = 1
"""
CLUSTER = """
name = "two"
nodes = 1
devices_per_node = 2
device = "a40"
memory_gib = 44.4
[intra_node]
latency_us = 10
gigabytes_per_second = 25
[inter_node]
latency_us = 15
gigabytes_per_second = 25
"""

Option = collections.namedtuple("Option", "names value")
Case = collections.namedtuple("Case", "command option category value arguments")
Ended = collections.namedtuple("Ended", "code seconds processor bytes text")


def command_help(entrain, command):
    return subprocess.run(
        [entrain, *command.split(), "--help"], capture_output=True, text=True, check=True
    ).stdout


def commands_of(entrain):
    """Names below `entrain`, "checkpoint show" among them."""
    found = []

    def visit(prefix):
        text = command_help(entrain, prefix)
        section = re.search(r"^Subcommands:\n((?:  .*\n?)+)", text, re.MULTILINE)
        names = re.findall(r"^  ([a-z][a-z-]*)", section[1], re.MULTILINE) if section else []
        for name in names:
            visit(f"{prefix} {name}".strip())
        if not names:
            found.append(prefix)

    visit("")
    return found


def options_of(entrain, command):
    """Options and positional arguments of a command, from its help."""
    options = []
    part = ""
    for line in command_help(entrain, command).splitlines():
        if line and not line.startswith(" "):
            part = line
            continue
        if part == "Positionals:" and (match := re.match(r"  (\w+) ", line)):
            options.append(Option([match[1]], True))
        match = re.match(r"  (-[\w,-]+)(?: (\S+))?", line)
        if part.startswith("Options:") and match:
            names = sorted(match[1].split(","), key=len, reverse=True)
            value = bool(re.match(r"(TEXT|INT|UINT|FLOAT)", match[2] or ""))
            options.append(Option(names, value))
    return options


def without(arguments, names):
    """`arguments` less these options and their values."""
    kept = []
    skip = False
    for argument in arguments:
        if skip:
            skip = False
        elif argument in names:
            skip = argument.startswith("--") and argument not in ("--quick", "--dry-run")
        else:
            kept.append(argument)
    return kept


def cases_of(command, option, category, value):
    """The invocations that give `option` this value."""
    base = list(BASES[command])
    name = option.names[0]
    if not name.startswith("-"):
        base = base[1:]
        return [Case(command, name, category, value, base + ([] if value is None else [value]))]
    if not option.value:
        if value is None:
            return [Case(command, name, category, value, [*base, name])]
        text = value if isinstance(value, bytes) else value.encode()
        return [Case(command, name, category, value, [*base, name.encode() + b"=" + text])]
    goes, comes = INSTEAD.get(name, ([], []))
    if command == "plan" and name in OF_A_CLUSTER:
        goes, comes = ON_A_CLUSTER
    base = without(base + [c for c in comes if comes], [*goes, *option.names])
    if name in comes:
        base = without(base, [name])
    return [
        Case(command, name, category, value, [*base, name, *([] if value is None else [value])])
    ]


def settings_of(document, prefix=""):
    """Paths of the numbers in a run's configuration."""
    for key, value in document.items():
        path = f"{prefix}{key}"
        if isinstance(value, dict):
            yield from settings_of(value, path + ".")
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            yield path


def digest(folder):
    """What is where: kind, permissions, what links lead to, content."""
    found = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        entry = [stat.S_IFMT(status.st_mode), stat.S_IMODE(status.st_mode), status.st_rdev]
        if path.is_symlink():
            entry.append(os.readlink(path))
        elif stat.S_ISREG(status.st_mode):
            entry.append(hashlib.sha256(path.read_bytes()).hexdigest())
        found[os.fsencode(path.relative_to(folder))] = entry
    return found


class Sandbox:
    """A copy of the files for one thread, and what is read from its pipe."""

    def __init__(self, source, folder, devices):
        self.source, self.folder, self.devices = source, folder, devices
        self.pipe = None
        self.make()

    def make(self):
        self.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self.source, self.folder, symlinks=True)
        os.mkfifo(self.folder / "pipe")
        if self.devices:
            for name, minor in (("null", 3), ("zero", 5), ("full", 7)):
                os.mknod(self.folder / name, 0o666 | stat.S_IFCHR, os.makedev(1, minor))
        self.pipe = os.open(self.folder / "pipe", os.O_RDWR | os.O_NONBLOCK)
        self.before = digest(self.folder)

    def drain(self):
        with contextlib.suppress(BlockingIOError):
            while os.read(self.pipe, 1 << 16):
                pass

    def close(self):
        if self.pipe is not None:
            os.close(self.pipe)
            self.pipe = None

    def changes(self):
        after = digest(self.folder)
        return {
            name: (self.before.get(name), after.get(name))
            for name in {*self.before, *after}
            if self.before.get(name) != after.get(name)
        }


class CommandLine(CliTest):
    """The fuzz, whole or as a sample."""

    def make_source(self):
        """The files that all invocations may read, in a folder that is copied."""
        source = self.folder
        (source / "model.toml").write_text(cli_fixture.MODEL)
        (source / "cluster.toml").write_text(CLUSTER)
        (source / "run.toml").write_text(RUN)
        (source / "configs").symlink_to(self.root / "configs")
        self.make_data()
        self.expect_success("cost", *STUDY, "-o", "costs.csv", "--segments", "segments.csv")
        self.expect_success("plan", *BASES["plan"], "-o", "plan.json")
        self.expect_success("assign", *PLANNED, "-o", "assignment.json")
        cases = self.expect_success("simulate", *BASES["simulate"], "--json")
        (source / "cases.json").write_text(cases.stdout)
        (source / "run").mkdir()
        if self.has_engine():
            self.expect_success("train", "run.toml")
            self.expect_success("profile", *BASES["profile"], "-o", "profile.json")
        (source / "folder").mkdir()
        (source / "folder" / "kept.txt").write_text("kept")
        (source / "precious.txt").write_text("what must not be lost\n")
        (source / "read_only.txt").write_text("what must not be lost\n")
        shutil.copy(source / "train-000000.tar", source / "b.tar")
        shutil.copy(source / "train.csv", source / "read_only.csv")
        for name in ("read_only.txt", "read_only.csv"):
            (source / name).chmod(0o444)
        (source / "link").symlink_to("precious.txt")
        (source / "dangling").symlink_to("made_by_a_link")
        (source / "loop").symlink_to("loop")
        (source / "to_folder").symlink_to("folder")
        return source

    def all_cases(self):
        cases = []
        for command in commands_of(self.entrain):
            if self.of_engine(command) and not self.engine:
                continue
            self.assertIn(command, BASES, f"say how to call `{command}` in BASES")
            for option in options_of(self.entrain, command):
                if option.names[0] in ("--help", "--version"):
                    continue
                for category, values in VALUES.items():
                    if category == "device" and not self.devices:
                        continue
                    for value in values:
                        cases += cases_of(command, option, category, value)
        if self.engine:
            config = json.loads((self.folder / "run" / "config.json").read_text())
            for path in settings_of(config):
                for category in ("huge", "negative", "NaN"):
                    value = VALUES[category][len(cases) % len(VALUES[category])]
                    arguments = [*BASES["train"], "--set", f"{path}={value}"]
                    cases.append(Case("train", path, category, value, arguments))
        return cases

    def run_case(self, case, sandbox, patience):
        """Ends with the process' code, seconds, processor seconds, memory and output."""
        words = [w if isinstance(w, bytes) else str(w).encode() for w in case.arguments]
        words = [w.replace(b"{new}", b"new_output") for w in words]
        folder = sandbox.folder
        log = folder.parent / f"{folder.name}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [self.entrain, *case.command.split(), *words],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
            start = time.monotonic()
            while True:
                done, status, usage = os.wait4(process.pid, os.WNOHANG)
                seconds = time.monotonic() - start
                if done:
                    break
                if seconds > patience:
                    process.kill()
                    _, status, usage = os.wait4(process.pid, 0)
                    break
                sandbox.drain()
                time.sleep(0.005)
            process.returncode = os.waitstatus_to_exitcode(status)
        processor = usage.ru_utime + usage.ru_stime
        text = log.read_bytes().decode(errors="replace")
        return Ended(process.returncode, seconds, processor, usage.ru_maxrss << 10, text)

    def objections(self, case, ended, changes):
        """What is wrong with how an invocation ended."""
        wrong = []
        if ended.code < 0:
            wrong.append(f"ended by signal {-ended.code}")
        elif ended.code not in (0, 2, 3, 4):
            wrong.append(f"exit code {ended.code}")
        if ended.seconds > SECONDS and (ended.processor > SECONDS or ended.seconds > PATIENCE):
            wrong.append(f"took {ended.seconds:.1f} s, {ended.processor:.1f} s of a processor")
        if ended.bytes > BYTES:
            wrong.append(f"took {ended.bytes >> 20} MiB")
        name = case.option if case.option.startswith("-") else case.option.split(".")[-1]
        names = {name, "--index"} if name == "INDEX" else {name}  # which it is the short form of
        value = case.value.decode(errors="replace") if isinstance(case.value, bytes) else case.value
        if (
            ended.code > 0
            and not any(known in ended.text for known in names)
            and (case.option.startswith("-") or not value or value not in ended.text)
        ):
            wrong.append(f"the message does not name {name}")
        for path, (before, after) in changes.items():
            if not self.may_change(case, path, before, after):
                wrong.append(f"changed {os.fsdecode(path)}: {before} → {after}")
        return wrong

    def base_text(self, command, sandbox):
        """What a command says without a bad option."""
        with self.alone:
            if command not in self.base_texts:
                case = Case(command, "--none", "", None, BASES[command])
                self.base_texts[command] = self.run_case(case, sandbox, PATIENCE).text
                sandbox.make()
        return self.base_texts[command]

    @staticmethod
    def may_change(case, path, before, after):
        """Whether an invocation that names `path` as an output may have made this of it."""
        folder = case.option == "--xtuner" and after[0] == stat.S_IFDIR
        if before is not None or (after[0] != stat.S_IFREG and not folder):
            return False  # nothing in the sandbox may be replaced by anything that is called here
        if path == b"new_output":
            return "{new}" in case.arguments or case.value == "new_output"
        value = case.value if isinstance(case.value, bytes) else (case.value or "").encode()
        if case.option == "--xtuner":
            inside = {b".": PACKS, b"to_folder": [b"folder/" + name for name in PACKS]}
            return path == value or path in inside.get(value, [value + b"/" + n for n in PACKS])
        if case.option not in OUTPUTS:
            return False
        return path == (b"made_by_a_link" if value == b"dangling" else value)

    def judge(self, case, sandbox):
        ended = self.run_case(case, sandbox, SECONDS)
        sandbox.drain()
        if ended.seconds > SECONDS:  # perhaps of what else the machine does
            with self.alone:
                ended = self.run_case(case, sandbox, PATIENCE)
        changes = sandbox.changes()
        wrong = self.objections(case, ended, changes)
        if changes:
            sandbox.make()
        if wrong and ended.code > 1 and ended.text == self.base_text(case.command, sandbox):
            wrong = []  # it says the same without the option: no dumps in the run, say
        return ended, wrong

    def fuzz(self, choose):
        self.devices = os.geteuid() == 0
        self.engine = self.has_engine()
        self.alone = threading.Lock()
        self.base_texts = {}
        source = self.make_source()
        cases = choose(self.all_cases())
        workers = 2 * (os.cpu_count() or 1)
        with contextlib.ExitStack() as stack:
            folder = Path(stack.enter_context(self.another_folder()))
            ready = collections.deque(
                Sandbox(source, folder / f"sandbox{i}", self.devices) for i in range(workers)
            )
            for sandbox in ready:
                stack.callback(sandbox.close)

            def run(case):
                sandbox = ready.pop()
                try:
                    return case, *self.judge(case, sandbox)
                finally:
                    ready.append(sandbox)

            with concurrent.futures.ThreadPoolExecutor(workers) as pool:
                results = list(pool.map(run, cases))
        self.report(results)
        return results

    @staticmethod
    @contextlib.contextmanager
    def another_folder():
        with tempfile.TemporaryDirectory(prefix="entrain-fuzz-") as folder:
            yield folder

    def report(self, results):
        """Counts per category and exit code, and everything that is wrong."""
        counts = collections.defaultdict(collections.Counter)
        failures = []
        for case, ended, wrong in results:
            counts[case.category][ended.code] += 1
            if wrong:
                shown = " ".join(
                    w.decode(errors="backslashreplace") if isinstance(w, bytes) else w
                    for w in case.arguments
                )
                failures.append(
                    f"entrain {case.command} {shown[:300]}\n    {'; '.join(wrong)}\n"
                    f"    exit code {ended.code}: {ended.text.strip()[:400]}"
                )
        codes = sorted({code for counter in counts.values() for code in counter})
        print(f"\n{'category':14}" + "".join(f"  exit {code:3}" for code in codes) + "     all")
        for category, counter in counts.items():
            numbers = "".join(f"{counter[code]:10}" for code in codes)
            print(f"{category:14}{numbers}{sum(counter.values()):8}")
        print(f"{len(results)} invocations", flush=True)
        if not self.devices:
            print("no device nodes: they need root")
        if failures:
            self.fail(f"{len(failures)} wrong\n" + "\n".join(failures[:200]))

    def test_a_sample_of_options_and_values(self):
        def choose(cases):
            # Loading torch and waiting for a pipe take seconds.
            slow = [c for c in cases if self.of_engine(c.command)]
            rest = [c for c in cases if not self.of_engine(c.command)]
            quick = [c for c in rest if c.category != "FIFO"]
            pipes = [c for c in rest if c.category == "FIFO"]
            rng = random.Random(19)
            return [
                *rng.sample(quick, min(400, len(quick))),
                *rng.sample(slow, min(12, len(slow))),
                *rng.sample(pipes, min(4, len(pipes))),
            ]

        self.fuzz(choose)

    @staticmethod
    def of_engine(command):
        return command.split()[0] in OF_THE_ENGINE

    def test_every_option_with_every_value(self):
        wanted = int(os.environ.get("ENTRAIN_OPTION_CASES", "0"))

        def choose(cases):
            self.assertGreaterEqual(len(cases), 2000 if self.has_engine() else 1000)
            return random.Random(23).sample(cases, wanted) if 0 < wanted < len(cases) else cases

        self.fuzz(choose)


if __name__ == "__main__":
    cli_fixture.main()
