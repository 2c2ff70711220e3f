"""Faults through the command line: drills and their diagnosis, signals, samples that go bad."""

import json
import signal
import subprocess
import time

import cli_fixture
from cli_fixture import CliTest, sample, write_shard


class Faults(CliTest):
    def setUp(self):
        super().setUp()
        if not self.has_engine():
            self.skipTest("built without the engine")
        self.make_data()
        self.write_run(steps=3, vision=1, llm=2, replicas=2)

    def doctor(self, code=0):
        result = self.run_program("doctor", "run", "--json")
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        return json.loads(result.stdout)

    def test_doctor_names_the_culprit_of_every_drill(self):
        for kind, code, verdict, culprit in (
            ("throw", 1, "failed", 4),
            ("hang", 3, "stuck", 4),
            ("die", 3, "died", 4),
            ("wrong-size", 1, "mismatch", 4),
            ("nan", 3, None, None),
        ):
            with self.subTest(kind):
                self.expect_failure(
                    code,
                    [],
                    *["train", "run.toml", "--set", "execution.fault_drill=[1, 1, 1]"],
                    *["--set", f'execution.fault_kind="{kind}"'],
                    *["--set", "execution.deadline_seconds=3"],
                )
                if verdict is None:  # a rule of the run, not of one rank: every rank is as good
                    continue
                diagnosis = self.doctor()
                self.assertEqual(diagnosis["verdict"], verdict, diagnosis["summary"])
                self.assertEqual(diagnosis["culprits"], [culprit], diagnosis["summary"])
                self.assertEqual(len(diagnosis["ranks"]), 6)
                text = self.expect_success("doctor", "run").stdout
                self.assertTrue(text.startswith(f"{verdict}: "), text)
                self.assertIn("from run/dumps", text)
                self.assertIn("replica 0 lane 0", text)

    def test_unknown_kinds_and_rules_are_refused(self):
        for setting in (
            "execution.fault_kind=explode",
            "faults.on_nan=ignore",
            "faults.on_bad_sample=skip",
            "faults.max_skips_in_a_row=-1",
        ):
            key = setting.split("=")[0]
            self.expect_failure(2, [key], "train", "run.toml", "--set", setting)

    def test_doctor_says_what_is_missing_or_damaged(self):
        self.expect_failure(2, ["absent", "holds no dumps"], "doctor", "absent")
        (self.folder / "run" / "dumps").mkdir(parents=True)
        (self.folder / "run" / "dumps" / "rank-0.json").write_text('{"version": 1}')
        self.expect_failure(2, ["rank-0.json", "rank: missing"], "doctor", "run")
        self.assertIn("entrain doctor runs/demo", self.expect_success("doctor", "--help").stdout)

    def start(self):
        """A run that takes long, once its first step is done."""
        self.write_run(steps=100_000, vision=1, llm=2, replicas=2)
        process = subprocess.Popen(
            [self.entrain, "train", "run.toml"],
            cwd=self.folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        metrics = self.folder / "run" / "metrics.jsonl"
        while process.poll() is None and not (metrics.exists() and metrics.read_text()):
            time.sleep(0.01)
        return process

    def wait_for_dumps(self, process):
        dumps = self.folder / "run" / "dumps"
        while process.poll() is None and len(list(dumps.glob("rank-?.json"))) < 6:
            time.sleep(0.01)

    def test_a_deadly_signal_leaves_dumps(self):
        process = self.start()
        process.send_signal(signal.SIGABRT)
        self.assertEqual(process.wait(60), -signal.SIGABRT, process.stderr.read())
        process.stderr.close()
        diagnosis = self.doctor(code=4)
        self.assertEqual(diagnosis["verdict"], "none")
        self.assertIn("signal 6", diagnosis["ranks"][0]["failure"])
        self.assertIn("step ", diagnosis["ranks"][0]["doing"])

    def test_a_running_run_dumps_on_request_and_goes_on(self):
        process = self.start()
        process.send_signal(signal.SIGUSR1)
        self.wait_for_dumps(process)
        self.assertIsNone(process.poll())
        self.assertIn("no rank", self.doctor(code=4)["summary"])
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(60), 75, process.stderr.read())
        process.stderr.close()
        self.assertEqual(list((self.folder / "run" / "dumps").iterdir()), [])

    def test_samples_that_go_bad_are_skipped_counted_and_named(self):
        """A shard that is cut short after it was indexed."""
        shard = self.folder / "train-000000.tar"
        whole = shard.read_bytes()
        samples = [sample(i, (1, 0, 2, 1)[i % 4]) for i in range(12)]
        write_shard(self.folder / "short.tar", samples[:11])
        shard.write_bytes((self.folder / "short.tar").read_bytes())
        arguments = ["train", "run.toml", "--set", "faults.on_bad_sample=skip-step", "--json"]
        result = self.expect_success(*arguments)
        rows = [
            json.loads(line)
            for line in (self.folder / "run" / "metrics.jsonl").read_text().splitlines()
        ]
        skipped = [row for row in rows if "skipped" in row]
        self.assertGreaterEqual(len(skipped), 1)
        self.assertEqual(json.loads(result.stdout.splitlines()[-1])["skipped"], len(skipped))
        for row in skipped:
            self.assertIn("train-000000.tar", row["detail"])
            self.assertIn(f"step {row['step']} skipped", result.stderr)
        shard.write_bytes(whole)


if __name__ == "__main__":
    cli_fixture.main()
