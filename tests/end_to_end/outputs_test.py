"""What named outputs may replace, and what numbers are refused: command by command."""

import os
import signal
import stat
import subprocess
import time

import cli_fixture
from cli_fixture import CliTest, sample, write_shard

STUDY = ["--index", "train.csv", "--model", "model.toml", "--profile", "analytic:cpu-2core"]
BATCH = [*STUDY, "--global-batch", 6]


class OutputsTest(CliTest):
    def setUp(self):
        super().setUp()
        self.make_data()
        self.expect_success("plan", *BATCH, "--lanes", 2, "--batches", 1, "-o", "plan.json")
        self.planned = [*BATCH, "--plan", "plan.json", "--evaluations", 5]
        # Every output of the commands that need no engine.
        self.writers = {
            "index.csv": ["index", "train-000000.tar", "-o"],
            "costs.csv": ["cost", *STUDY, "-o"],
            "segments.csv": ["cost", *STUDY, "-o", "/dev/null", "--segments"],
            "found.json": ["plan", *BATCH, "--lanes", 2, "--batches", 1, "-o"],
            "assignment.json": ["assign", *self.planned, "-o"],
            "cases.csv": ["simulate", *self.planned, "--steps", 1, "--csv"],
            "trace.json": ["simulate", *self.planned, "--steps", 1, "--trace"],
        }

    def content(self, name):
        return (self.folder / name).read_bytes()


class Replacing(OutputsTest):
    def test_a_forgotten_output_name_destroys_no_shard(self):
        write_shard(self.folder / "b.tar", [sample(50)])
        before = self.content("b.tar")
        (self.folder / "b.tar").chmod(0o444)
        call = ["index", "-o", "b.tar", "train-000000.tar"]
        self.expect_failure(2, ["--output: 'b.tar' holds a tar archive", "--force"], *call)
        self.assertEqual(self.content("b.tar"), before)
        # Nor does --force where it is read.
        self.expect_failure(2, ["--output", "is an input"], *call, "b.tar", "--force")
        self.expect_failure(2, ["--output", "is an input"], *call, ".", "--force")
        self.assertEqual(self.content("b.tar"), before)

    def test_every_command_replaces_its_own_output_and_no_other(self):
        (self.folder / "notes.txt").write_text("mine")
        for name, call in self.writers.items():
            with self.subTest(name):
                self.expect_success(*call, name)
                self.expect_success(*call, name)  # its own
                option = {"-o": "--output"}.get(call[-1], call[-1])
                self.expect_failure(2, [f"{option}: 'notes.txt'"], *call, "notes.txt")
                for other in self.writers:
                    if other != name and (self.folder / other).exists():
                        self.expect_failure(2, [f"{option}: '{other}' holds"], *call, other)
                for path in ("train.csv", "plan.json", "model.toml"):
                    if path in call:
                        self.expect_failure(2, ["is an input"], *call, path, "--force")
                self.assertEqual(self.content("notes.txt"), b"mine")

    def test_force_replaces_another_kind_and_a_read_only_file(self):
        (self.folder / "notes.txt").write_text("mine")
        (self.folder / "notes.txt").chmod(0o444)
        self.expect_success("index", "train-000000.tar", "-o", "notes.txt", "--force")
        self.assertEqual(self.content("notes.txt"), self.content("train.csv"))

    def test_refusals_come_before_the_work(self):
        (self.folder / "notes.txt").write_text("mine")
        start = time.monotonic()
        self.expect_failure(
            2,
            ["--csv: 'notes.txt'"],
            *["simulate", *self.planned, "--steps", 100_000, "--csv", "notes.txt"],
        )
        self.assertLess(time.monotonic() - start, 10)

    def test_links_are_followed_and_streams_stay_what_they_are(self):
        (self.folder / "link").symlink_to("made")
        os.mkfifo(self.folder / "pipe")
        reader = os.open(self.folder / "pipe", os.O_RDWR | os.O_NONBLOCK)
        devices = os.geteuid() == 0
        if devices:
            os.mknod(self.folder / "null", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        for name, call in self.writers.items():
            with self.subTest(name):
                self.expect_success(*call, "link")
                self.assertTrue((self.folder / "link").is_symlink())
                (self.folder / "made").unlink()
                self.expect_success(*call, "pipe")
                self.assertTrue((self.folder / "pipe").is_fifo())
                self.assertTrue(os.read(reader, 1 << 16))
                if devices:
                    self.expect_success(*call, "null")
                    self.assertTrue((self.folder / "null").is_char_device())
        os.close(reader)
        if not devices:
            self.skipTest("device nodes need root")

    def test_standard_output_may_be_named(self):
        call = ["plan", *BATCH, "--lanes", 2, "--batches", 1, "--json", "-o", "/dev/stdout"]
        self.assertIn('"certificate"', self.expect_success(*call).stdout)

    def test_no_command_writes_past_the_rule(self):
        for path in (self.root / "entrain" / "cli").glob("*.cc"):
            for word in ("write_file(", "ofstream", "write_index(", "fopen("):
                self.assertNotIn(word, path.read_text(), path.name)

    def test_a_signal_leaves_no_partial_file(self):
        os.mkfifo(self.folder / "pipe")
        # The costs go to a file; the segments wait for a reader of the pipe that never comes.
        for number in (signal.SIGINT, signal.SIGTERM):
            arguments = ["cost", *STUDY, "-o", "costs.csv", "--segments", "pipe"]
            process = subprocess.Popen([self.entrain, *arguments], cwd=self.folder)
            deadline = time.monotonic() + 20
            while not list(self.folder.glob("costs.csv.partial-*")):
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.01)
            process.send_signal(number)
            self.assertEqual(process.wait(timeout=10), -number)
            self.assertEqual(list(self.folder.glob("costs.csv*")), [])


class Engine(OutputsTest):
    def setUp(self):
        super().setUp()
        if not self.has_engine():
            self.skipTest("built without the engine")
        self.write_run()
        self.expect_success("train", "run.toml", "--set", "checkpoint.every_steps=1")

    def test_export_damages_no_checkpoint(self):
        step = max((self.folder / "run" / "checkpoints").glob("step-*"))
        call = ["checkpoint", "export", "run", "--force", "-o"]
        for path in [*step.iterdir(), step / "new", step.parent / "latest", step.parent / "new"]:
            self.expect_failure(2, ["--output", "among the checkpoints"], *call, path)
        self.expect_failure(2, ["--output", "reads"], *call, "run/metrics.jsonl")
        self.expect_success("checkpoint", "verify", "run")
        self.expect_success("checkpoint", "export", "run", "-o", "w.safetensors")
        self.expect_success("checkpoint", "export", "run", "-o", "w.safetensors")
        # Weights of others look alike; they are not taken for ours.
        other = "run/weights.safetensors"
        self.expect_failure(2, ["--output"], "checkpoint", "export", "run", "-o", other)

    def test_answers_and_profiles_replace_their_own_alone(self):
        (self.folder / "notes.txt").write_text("mine")
        answers = ["eval", "run", "--samples", 2, "--answers"]
        self.expect_success(*answers, "a.jsonl")
        self.expect_success(*answers, "a.jsonl")
        self.expect_failure(2, ["--answers: 'notes.txt'"], *answers, "notes.txt")
        self.expect_failure(2, ["--answers", "input"], *answers, "train-000000.tar", "--force")
        profile = ["profile", "--quick", "--model", "model.toml", "--max-tokens", 16]
        profile += ["--seconds", 0.1, "--repeats", 3]
        self.expect_success(*profile, "-o", "p.json", "--points", "points.json")
        self.expect_success(*profile, "-o", "p.json", "--points", "points.json")
        self.expect_failure(2, ["--points: 'p.json'"], *profile, "--points", "p.json")
        self.expect_failure(2, ["--output: 'notes.txt'"], *profile, "-o", "notes.txt")


class Numbers(OutputsTest):
    def expect_range(self, option, value, allowed, *call):
        result = self.expect_failure(2, [option, "allowed: " + allowed], *call, option, value)
        self.assertLess(len(result.stderr), 200)

    def test_have_a_range_that_can_be_read(self):
        simulate = ["simulate", *self.planned]
        self.expect_range("--steps", "1000000000", "1 to 100,000", *simulate)
        self.expect_range("--steps", "nan", "1 to 100,000", *simulate)
        self.expect_range("--steps", "9" * 309, "1 to 100,000", *simulate)
        self.expect_range("--evaluations", "2000000000", "0 to 1,000,000", "plan", *BATCH)
        self.expect_range("--devices", "1000000000", "1 to 100,000", "b-min", *BATCH)
        self.expect_range("--alpha", "nan", "1e-06 to 0.999999", "b-min", *BATCH)
        self.expect_range("--reserve-gib", "inf", "0 to 1,000,000", "plan", *BATCH)

    def test_a_seed_is_never_negative(self):
        for command in ("simulate", "assign", "plan", "b-min", "explain"):
            with self.subTest(command):
                self.expect_range("--seed", "-1", "0 to 9,223,372,036,854,775,807", command, *BATCH)

    def test_of_run_files_have_one_too(self):
        if not self.has_engine():
            self.skipTest("built without the engine")
        self.write_run()
        for setting, allowed in (
            ("data.read_ahead_mib=9000000000000", "1 to 1,000,000"),
            ("execution.deadline_seconds=1e300", "above 0, up to 604,800"),
            ("optimizer.learning_rate=nan", "finite"),
            ("plan.evaluations=2000000000", "0 to 1,000,000"),
            ("plan.assign_threads=0", "1 to 1,024"),
            ("seed=-1", "0 to"),
        ):
            key = setting.split("=")[0]
            self.expect_failure(2, [key, allowed], "train", "run.toml", "--set", setting)
        self.expect_range("--seconds", "nan", "above 0", "profile", "--model", "model.toml")

    def test_an_empty_value_is_named(self):
        self.expect_failure(
            2, ["--cluster: an empty value"], "simulate", *self.planned, "--cluster", ""
        )


if __name__ == "__main__":
    cli_fixture.main()
