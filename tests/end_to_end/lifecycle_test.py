"""A run's life in its folder: run again, stopped, killed, twice at once; nothing is lost."""

import hashlib
import json
import os
import signal
import subprocess
import time

import cli_fixture
from cli_fixture import CliTest

STOPPED = 75
IMPATIENT = "execution.deadline_seconds=4"  # half of it is waited for a lock


class Lifecycle(CliTest):
    def setUp(self):
        super().setUp()
        if not self.has_engine():
            self.skipTest("built without the engine")
        self.make_data()
        self.write_run(steps=6)

    def arguments(self, *settings):
        return ["train", "run.toml", *(part for value in settings for part in ("--set", value))]

    def start(self, *arguments):
        process = subprocess.Popen(
            [self.entrain, *arguments],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(self.end, process)
        return process

    def end(self, process):
        if process.poll() is None:
            process.kill()
        process.communicate()

    def rows(self, run="run"):
        path = self.folder / run / "metrics.jsonl"
        text = path.read_text() if path.exists() else ""
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]

    def losses(self, run="run"):
        return [(row["step"], row["loss"]) for row in self.rows(run) if "loss" in row]

    def wait_for_rows(self, process, count):
        while process.poll() is None and len(self.rows()) < count:
            time.sleep(0.005)
        self.assertIsNone(process.poll(), "ended by itself")

    def digests(self, run="run"):
        """Every file below the run's folder with its content and time of change."""
        return {
            str(path): (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
            for path in (self.folder / run).rglob("*")
            if path.is_file()
        }

    def test_a_finished_run_is_left_as_it_is_and_more_steps_go_on(self):
        self.expect_success(*self.arguments("output=whole", "steps=9"))
        self.expect_success(*self.arguments("steps=6"))
        before = self.digests()
        again = self.expect_success(*self.arguments("steps=6"))
        self.assertIn("nothing left to train: all 6 steps done", again.stdout)
        self.assertEqual(self.digests(), before)
        more = self.expect_success(*self.arguments("steps=9"))
        self.assertIn("resumed at step 6 of 9", more.stdout)
        self.assertEqual([step for step, _ in self.losses()], list(range(9)))
        # The learning rate falls towards the last step, so that the first six differ a little.
        self.assertEqual(len(self.losses("whole")), 9)

    def test_another_run_is_refused_and_the_ways_out_work(self):
        self.expect_success(*self.arguments())
        before = self.digests()
        for setting, word in (
            ("seed=9", "seed 0 there, 9 here"),
            ("optimizer.learning_rate=0.5", "optimizer.learning_rate 0.001 there, 0.5 here"),
            ('execution.precision="bf16"', "execution.precision"),
            ("data.global_batch=6", "data.global_batch 8 there, 6 here"),
        ):
            words = [word, "--resume", "--overwrite", "another output"]
            self.expect_failure(2, words, *self.arguments("steps=9", setting))
        freeze = self.arguments("steps=9", 'freeze=["vision"]')
        refused = self.expect_failure(2, ["model ", "freeze", "--overwrite"], *freeze)
        self.assertNotIn("--resume", refused.stderr)
        self.expect_failure(2, ["steps = 3"], *self.arguments("steps=3"))
        self.assertEqual(self.digests(), before)
        rate = self.arguments("steps=9", "optimizer.learning_rate=0.5")
        resumed = self.expect_success(*rate, "--resume")
        self.assertIn("resumed at step 6 of 9", resumed.stdout)
        self.assertIn("accepted: optimizer.learning_rate 0.001 there, 0.5 here", resumed.stdout)
        old = self.losses()
        fresh = self.expect_success(*self.arguments("seed=9"), "--overwrite")
        self.assertIn("an earlier run is now in 'run/earlier-1'", fresh.stdout)
        self.assertEqual(self.losses("run/earlier-1"), old)
        self.assertTrue((self.folder / "run/earlier-1/weights.safetensors").exists())
        self.assertTrue((self.folder / "run/earlier-1/checkpoints/latest").exists())
        self.assertEqual([step for step, _ in self.losses()], list(range(6)))
        self.assertNotEqual(self.losses(), old[:6])
        self.expect_success(*self.arguments("seed=10"), "--overwrite")
        self.assertTrue((self.folder / "run/earlier-2/metrics.jsonl").exists())
        self.assertEqual(self.losses("run/earlier-1"), old)
        both = [*self.arguments(), "--resume", "--overwrite"]
        self.expect_failure(2, ["--overwrite"], *both)

    def test_folders_without_a_checkpoint_are_judged_by_what_would_be_lost(self):
        run = self.folder / "run"
        self.expect_success(*self.arguments())
        for path in sorted((run / "checkpoints").rglob("*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()
        before = self.digests()
        words = ["weights of a run", "no checkpoint to continue from", "--overwrite"]
        self.expect_failure(2, words, *self.arguments())
        self.assertEqual(self.digests(), before)
        # As one that was killed before its first checkpoint leaves it.
        (run / "weights.safetensors").unlink()
        whole = self.losses()
        self.expect_failure(2, ["seed 0 there, 9 here"], *self.arguments("seed=9"))
        again = self.expect_success(*self.arguments())
        self.assertIn("before its first checkpoint; it starts again", again.stderr)
        self.assertEqual(self.losses(), whole)

    def test_no_run_begins_among_the_checkpoints_of_one(self):
        self.expect_success(*self.arguments())
        before = self.digests()
        for key in ("output", "checkpoint.folder"):
            inside = "run/checkpoints/step-00000006/run"
            words = [f"{key}: '{inside}' is among the checkpoints in", "a place elsewhere"]
            settings = [f"{key}={inside}"] if key == "output" else ["output=b", f"{key}={inside}"]
            for more in ([], ["--dry-run"], ["--overwrite"]):
                self.expect_failure(2, words, *self.arguments(*settings), *more)
        self.assertEqual(self.digests(), before)

    def test_an_input_of_the_run_is_not_set_aside(self):
        self.expect_success(*self.arguments())
        again = self.arguments("plan.file=run/plan.json", "seed=9")
        before = self.digests()
        for more in ([], ["--dry-run"]):
            words = ["'run/plan.json'", "plan.file", "would move it away", "copy it"]
            self.expect_failure(2, words, *again, "--overwrite", *more)
        self.assertEqual(self.digests(), before)
        (self.folder / "run/plan.json").rename(self.folder / "plan.json")
        self.expect_success(*again[:-4], "--set", "plan.file=plan.json", *again[-2:], "--overwrite")

    def test_files_that_no_run_wrote_are_not_written_over(self):
        run = self.folder / "run"
        run.mkdir()
        (run / "config.json").write_text('{"model_type": "llama"}')
        refused = self.expect_failure(2, ["config.json", "another output"], *self.arguments())
        self.assertNotIn("--overwrite", refused.stderr)
        self.assertEqual((run / "config.json").read_text(), '{"model_type": "llama"}')
        self.assertEqual([path.name for path in run.iterdir()], ["config.json"])
        (run / "config.json").rename(run / "notes.txt")
        self.expect_success(*self.arguments())
        self.assertTrue((run / "notes.txt").exists())
        self.expect_failure(2, ["output", "a folder of its own"], *self.arguments("output="))

    def test_a_second_run_in_the_same_folder_is_refused_and_the_first_keeps_its_rows(self):
        first = self.start(*self.arguments("steps=100000"))
        self.wait_for_rows(first, 3)
        lock = json.loads((self.folder / "run/run.lock").read_text())
        self.assertEqual(lock["process"], first.pid)
        words = ["'run' is in use by process", str(first.pid), os.uname().nodename, "since 20"]
        second = self.arguments("steps=100000", IMPATIENT)
        self.expect_failure(2, words, *second)
        self.expect_failure(2, words, *second, "--overwrite")
        dry = self.expect_success(*second, "--dry-run")
        self.assertIn(f"warning: {words[0]} {first.pid} on host", dry.stderr)
        reached = len(self.rows())
        self.wait_for_rows(first, reached + 3)
        first.terminate()
        output, errors = first.communicate(timeout=60)
        self.assertEqual(first.returncode, STOPPED, output + errors)
        steps = [step for step, _ in self.losses()]
        self.assertEqual(steps, list(range(len(steps))))
        self.assertFalse((self.folder / "run/run.lock").exists())

    def test_one_folder_for_checkpoints_has_one_run(self):
        first = self.start(*self.arguments("steps=100000", "checkpoint.folder=common"))
        self.wait_for_rows(first, 3)
        second = self.arguments("output=other", "checkpoint.folder=common", IMPATIENT)
        self.expect_failure(2, ["'common' is in use by process"], *second)
        dry = self.expect_success(*second, "--dry-run")
        self.assertIn("warning: 'common' is in use by process", dry.stderr)
        self.assertNotIn("'other'", dry.stderr)

    def test_the_lock_of_a_killed_run_is_none(self):
        settings = ("steps=100000", "checkpoint.every_minutes=0.02")
        process = self.start(*self.arguments(*settings))
        while not (self.folder / "run/checkpoints/latest").exists():
            self.assertIsNone(process.poll(), "ended by itself")
            time.sleep(0.01)
        process.kill()
        process.communicate()
        self.assertTrue((self.folder / "run/run.lock").exists())
        begun = time.monotonic()
        process = self.start(*self.arguments(*settings))
        rows = len(self.rows())
        self.wait_for_rows(process, rows + 3)
        self.assertLess(time.monotonic() - begun, 15)

    def test_a_signal_before_training_ends_it_at_once(self):
        holder = self.start(*self.arguments("steps=100000"))
        self.wait_for_rows(holder, 1)
        for kind in (signal.SIGTERM, signal.SIGINT):
            process = self.start(*self.arguments("steps=100000"))  # waits for the holder's end
            time.sleep(3)
            self.assertIsNone(process.poll(), "ended by itself")
            begun = time.monotonic()
            process.send_signal(kind)
            _, errors = process.communicate(timeout=10)
            self.assertLess(time.monotonic() - begun, 2)
            self.assertEqual(process.returncode, 128 + kind, errors)
            self.assertIn("stopped before training began; nothing was trained", errors)
        self.assertIsNone(holder.poll())

    def test_a_stopped_run_exits_with_75_and_the_same_command_goes_on(self):
        self.expect_success(*self.arguments("output=whole", "steps=400"))
        for _ in range(2):
            process = self.start(*self.arguments("steps=400"))
            self.wait_for_rows(process, len(self.rows()) + 3)
            process.send_signal(signal.SIGTERM)
            output, errors = process.communicate(timeout=60)
            self.assertEqual(process.returncode, STOPPED, output + errors)
        self.expect_success(*self.arguments("steps=400"))
        self.assertEqual(self.losses(), self.losses("whole"))
        self.assertIn("75 a run stopped by a signal", self.expect_success("--help").stdout)

    def test_a_long_step_is_not_waited_for_longer_than_stop_seconds(self):
        settings = ["steps=9", "checkpoint.every_steps=1", "execution.stop_seconds=2"]
        self.expect_success(*self.arguments("output=whole", *settings))
        drill = ["execution.fault_drill=[0, 0, 4]", 'execution.fault_kind="hang"']
        process = self.start(*self.arguments(*settings, *drill))
        self.wait_for_rows(process, 4)
        time.sleep(1)
        begun = time.monotonic()
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=30)
        took = time.monotonic() - begun
        self.assertEqual(process.returncode, STOPPED, errors)
        self.assertTrue(1.8 < took < 5, took)
        self.assertIn("took longer than 2 s (execution.stop_seconds)", errors)
        self.assertIn("step-00000004", errors)
        self.expect_success(*self.arguments(*settings))
        self.assertEqual(self.losses(), self.losses("whole"))
        # Without a checkpoint there is nothing to continue from; a second signal ends it at once.
        for seconds, second in (("1", False), ("600", True)):
            run = f"bare-{seconds}"
            bare = [f"output={run}", "steps=9", f"execution.stop_seconds={seconds}", *drill]
            process = self.start(*self.arguments(*bare))
            while process.poll() is None and len(self.rows(run)) < 4:
                time.sleep(0.005)
            time.sleep(0.5)
            process.send_signal(signal.SIGTERM)
            if second:
                time.sleep(0.3)
                process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=10)
            self.assertEqual(process.returncode, 128 + signal.SIGTERM, errors)

    def test_a_signal_during_validation_ends_it_between_two_batches(self):
        """A validation of many batches, at every step."""
        settings = [
            "steps=2000",
            "validation.every=1",
            "validation.samples=12",
            "data.global_batch=1",
        ]
        process = self.start(*self.arguments(*settings))
        self.wait_for_rows(process, 4)
        process.send_signal(signal.SIGTERM)
        output, errors = process.communicate(timeout=30)
        self.assertEqual(process.returncode, STOPPED, output + errors)
        steps = [row["step"] for row in self.rows() if "loss" in row]
        self.assertEqual(steps, list(range(len(steps))))

    def test_checkpoints_come_by_the_clock_and_at_the_end(self):
        settings = ["steps=3000", "checkpoint.every_minutes=0.01", "checkpoint.keep=100"]
        self.expect_success(*self.arguments(*settings), timeout=300)
        folder = self.folder / "run/checkpoints"
        steps = sorted(int(path.name[5:]) for path in folder.glob("step-*"))
        self.assertGreater(len(steps), 2, steps)
        self.assertEqual(steps[-1], 3000)
        self.expect_success(*self.arguments("output=off", "checkpoint.every_minutes=0"))
        self.assertEqual(
            [path.name for path in (self.folder / "off/checkpoints").glob("step-*")],
            ["step-00000006"],
        )


if __name__ == "__main__":
    cli_fixture.main()
