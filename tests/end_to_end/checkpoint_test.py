"""Checkpoints through the command line: kills, signals, full disks, and the three commands."""

import json
import random
import resource
import signal
import subprocess
import time

import cli_fixture
from cli_fixture import CliTest

STEPS = 400
KILLS = 20
EARLY_KILLS = 3  # while the run writes its first checkpoint


def losses(run):
    """(step, loss) of every row, in the file's order."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [(row["step"], row["loss"]) for row in rows if "loss" in row]


def whole_lines(path):
    """Rows of a file whose last one may have been cut short by a kill."""
    text = path.read_text()
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


class Checkpoints(CliTest):
    def setUp(self):
        super().setUp()
        if not self.has_engine():
            self.skipTest("built without the engine")
        self.make_data()
        self.write_run(steps=STEPS)

    def arguments(self, *settings):
        values = [f"output={settings[0]}", *settings[1:]]
        return ["train", "run.toml", *(part for value in values for part in ("--set", value))]

    def start(self, *settings, **options):
        return subprocess.Popen(
            [self.entrain, *self.arguments(*settings)],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )

    def num_rows(self, run):
        path = self.folder / run / "metrics.jsonl"
        return path.read_text().count("\n") if path.exists() else 0

    def wait_until(self, process, holds):
        """Until the condition holds or the process has ended."""
        while process.poll() is None and not holds():
            time.sleep(0.0002)

    def test_kills_while_writing_leave_the_run_as_it_would_have_been(self):
        """SIGKILL at a random moment while a checkpoint is being written, twenty times and more."""
        self.expect_success(*self.arguments("whole"))
        whole = losses(self.folder / "whole")
        seed = 7
        print(f"seed {seed}")
        chance = random.Random(seed)
        settings = ("run", "checkpoint.every_steps=1")
        checkpoints = self.folder / "run" / "checkpoints"
        killed_while_writing = 0
        kills = 0
        while killed_while_writing < KILLS:
            process = self.start(*settings)
            # First what the kill before left goes, then some checkpoints come and go, then one is
            # seen while it is being written: the run's very first one for the first kills, later
            # ones once there is one to go on from (on a slow disk none might ever be complete).
            self.wait_until(process, lambda: not any(checkpoints.glob(".step-*")))
            early = kills < EARLY_KILLS
            if not early:
                self.wait_until(process, lambda: (checkpoints / "latest").exists())
            for _ in range(1 if early else chance.randrange(1, 6)):
                self.wait_until(process, lambda: any(checkpoints.glob(".step-*.partial")))
                time.sleep(chance.random() * 0.01)
            process.kill()
            output = "".join(process.communicate())
            self.assertEqual(process.returncode, -signal.SIGKILL, f"too few steps\n{output}")
            kills += 1
            self.assertLess(kills, 4 * KILLS, "checkpoints are hardly ever caught being written")
            killed_while_writing += any(checkpoints.glob(".step-*.partial"))
            rows = whole_lines(self.folder / "run" / "metrics.jsonl")
            self.assertEqual([(row["step"], row["loss"]) for row in rows], whole[: len(rows)])
            if (checkpoints / "latest").exists():
                self.expect_success("checkpoint", "verify", "run")
        result = self.expect_success(*self.arguments(*settings))
        self.assertRegex(result.stdout, r"resumed at step \d+ of 400")
        self.assertEqual(losses(self.folder / "run"), whole)
        weights = [
            (self.folder / run / "weights.safetensors").read_bytes() for run in ("run", "whole")
        ]
        self.assertTrue(weights[0] == weights[1], "the weights differ")
        self.assertEqual(list(checkpoints.glob(".step-*")), [])

    def test_a_signal_finishes_the_step_and_the_same_command_goes_on(self):
        self.expect_success(*self.arguments("whole"))
        for kind in (signal.SIGTERM, signal.SIGINT):
            wanted = self.num_rows("run") + 3
            process = self.start("run")
            while process.poll() is None and self.num_rows("run") < wanted:
                time.sleep(0.001)
            process.send_signal(kind)
            output, errors = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 75, output + errors)
            self.assertIn("finishing the step, then a checkpoint", errors)
            self.assertRegex(output, r"stopped after step \d+ of 400")
            self.assertIn("the same command continues from there", output)
        report = json.loads(self.expect_success("checkpoint", "show", "run", "--json").stdout)
        self.assertEqual(len(report["checkpoints"]), 2)
        self.expect_success(*self.arguments("run"))
        self.assertEqual(losses(self.folder / "run"), losses(self.folder / "whole"))

    def test_a_second_interrupt_ends_the_run_at_once(self):
        # A step that waits ten seconds: the first signal alone could not end it sooner.
        self.make_slow_profile()
        process = self.start("run", "execution.paced=true", "plan.profile=slow.json")
        while not (self.folder / "run" / "metrics.jsonl").exists():
            self.assertIsNone(process.poll(), "ended by itself")
            time.sleep(0.01)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        self.assertIsNone(process.poll(), "the first signal lets the step finish")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=5)
        self.assertEqual(process.returncode, 128 + signal.SIGINT)

    def make_slow_profile(self):
        self.expect_success(
            *["profile", "--quick", "--model", "model.toml", "-o", "profile.json"], timeout=300
        )
        profile = json.loads((self.folder / "profile.json").read_text())
        (self.folder / "slow.json").write_text(json.dumps(slower(profile)))

    def test_a_full_disk_stops_the_run_and_spares_the_checkpoint_before(self):
        self.expect_success(*self.arguments("run", "steps=5", "checkpoint.every_steps=5"))
        (self.folder / "run" / "weights.safetensors").unlink()
        largest = max(p.stat().st_size for p in self.folder.glob("run/checkpoints/step-*/*"))

        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (largest - 100, largest - 100))

        # With the signal ignored, as Python leaves it, a write beyond the limit is an error.
        process = self.start(
            *["run", "checkpoint.every_steps=10"], preexec_fn=limit, restore_signals=False
        )
        output, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 3, output + errors)
        self.assertIn("checkpoint of step 10", errors)
        self.assertIn("File too large", errors)
        self.assertIn("earlier checkpoints are unchanged", errors)
        self.assertLess(losses(self.folder / "run")[-1][0], 30, "trained on regardless")
        self.expect_success("checkpoint", "verify", "run")
        result = self.expect_success(*self.arguments("run", "steps=6"))
        self.assertIn("resumed at step 5 of 6", result.stdout)

    def test_show_verify_and_export(self):
        self.expect_success(*self.arguments("run", "steps=6", "checkpoint.every_steps=2"))
        listing = self.expect_success("checkpoint", "show", "run").stdout
        self.assertRegex(listing, r"step-00000004 +4 ")
        self.assertRegex(listing, r"step-00000006 +6 .*latest")
        newest = "run/checkpoints/step-00000006"
        one = self.expect_success("checkpoint", "show", newest).stdout
        self.assertIn("optimizer-lane-00001.safetensors", one)
        files = json.loads(self.expect_success("checkpoint", "show", newest, "--json").stdout)
        self.assertEqual(files["step"], 6)
        self.assertEqual(len(files["files"]), 4)
        self.expect_success("checkpoint", "verify", "run")
        self.expect_success("checkpoint", "export", "run", "-o", "model.safetensors")
        self.expect_success("eval", "run", "--weights", "model.safetensors")
        self.assertEqual(
            tensor_bytes(self.folder / "model.safetensors"),
            tensor_bytes(self.folder / "run" / "weights.safetensors"),
        )
        damaged = self.folder / newest / "weights-lane-00000.safetensors"
        content = bytearray(damaged.read_bytes())
        content[-1] ^= 1
        damaged.write_bytes(content)
        result = self.run_program("checkpoint", "verify", "run")
        self.assertEqual(result.returncode, 3, result.stdout)
        self.assertRegex(result.stdout, r"step-00000006/weights-lane-00000.safetensors: damaged")
        self.assertIn("step-00000004: whole", result.stdout)
        self.assertRegex(result.stdout, r"latest: names step-00000006, which is damaged")
        report = json.loads(self.run_program("checkpoint", "verify", "run", "--json").stdout)
        self.assertFalse(report["ok"])
        export = ["checkpoint", "export", newest, "-o", "again.safetensors"]
        self.expect_failure(3, ["weights-lane-00000.safetensors", "damaged"], *export)
        self.assertFalse((self.folder / "again.safetensors").exists())
        fallback = self.run_program(*self.arguments("run", "steps=6"))
        self.assertIn("warning: checkpoint", fallback.stderr)
        self.assertIn("weights-lane-00000.safetensors", fallback.stderr)
        self.assertIn("resumed at step 4 of 6", fallback.stdout)

    def test_paths_without_checkpoints_and_other_runs_are_refused(self):
        self.expect_failure(2, ["nowhere", "does not exist"], "checkpoint", "show", "nowhere")
        self.expect_failure(2, ["holds no checkpoint"], "checkpoint", "verify", ".")
        self.expect_success(*self.arguments("run", "steps=2", "checkpoint.every_steps=1"))
        dry = self.expect_success(*self.arguments("run", "steps=9"), "--dry-run").stdout
        self.assertIn("training would continue at step 2 from run/checkpoints/step-00000002", dry)
        self.expect_failure(2, ["seed 0 there, 9 here"], *self.arguments("run", "seed=9"))

    def test_help_ends_with_examples(self):
        for command in ("show", "verify", "export"):
            text = self.expect_success("checkpoint", command, "--help").stdout
            self.assertIn(f"entrain checkpoint {command} runs/demo", text)


def slower(value):
    """The profile with half a second for every launch of a layer."""
    if isinstance(value, dict):
        return {key: 5e8 if key == "per_launch_ns" else slower(v) for key, v in value.items()}
    return [slower(entry) for entry in value] if isinstance(value, list) else value


def tensor_bytes(path):
    """Name → bytes of a safetensors file."""
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    header.pop("__metadata__", None)
    data = content[8 + length :]
    return {name: data[slice(*entry["data_offsets"])] for name, entry in header.items()}


if __name__ == "__main__":
    cli_fixture.main()
