"""Ranks that are processes: runs that are bitwise those of threads, and mistakes."""

import json
import shutil
import signal
import sys
import time
from unittest import mock

import process_fixture
from process_fixture import ProcessTest, history, rows


class Runs(ProcessTest):
    def setUp(self):
        super().setUp()
        self.make_data()

    def both(self, processes, *settings):
        """Trains on threads and on processes; losses, gradient norms and weights are the same."""
        anew = "checkpoint.resume=never"  # the folders may hold an earlier pair
        self.train_threads("output=threads", anew, *settings)
        self.expect_trained(processes, "output=processes", anew, *settings)
        threads, processes = (self.folder / name for name in ("threads", "processes"))
        self.assertGreater(len(history(threads)), 4)
        self.assertEqual(history(processes), history(threads), settings)
        self.assertTrue(self.weights("processes") == self.weights("threads"), "weights differ")

    def test_layouts_and_schedules_are_bitwise_those_of_threads(self):
        for vision, llm, replicas, schedule in (
            (1, 3, 1, "1f1b"),
            (2, 2, 1, "entrain"),
            (1, 1, 2, "zb-h1"),
            (1, 2, 1, "gpipe"),
        ):
            self.write_run(steps=4, vision=vision, llm=llm, replicas=replicas)
            self.both(
                (vision + llm) * replicas,
                f"plan.schedule={schedule}",
                "validation.every=2",
                "execution.log_samples=true",
            )
        run = self.folder / "processes"
        for name in ("trace_predicted.json", "trace_measured.json", "config.json", "plan.json"):
            self.assertTrue((run / name).exists(), name)
        logs = sorted(path.name for path in (run / "logs").iterdir())
        self.assertEqual(logs, [f"rank-{rank}.log" for rank in range(3)])
        self.assertIn("finished", (run / "logs" / "rank-2.log").read_text())
        names = {path.name for path in run.rglob("*")}
        self.assertEqual([name for name in names if "partial" in name], [])

    def test_measured_times_and_memory_cover_all_ranks(self):
        steps = 12
        self.write_run(steps=steps, llm=2)
        memory = "execution.measure_memory=true"
        self.train_threads("output=threads", memory)
        self.expect_trained(3, memory)
        peaks = [
            [lane["peak_bytes"] for row in rows(self.folder / run)[:steps] for lane in row["lanes"]]
            for run in ("run", "threads")
        ]
        self.assertEqual(*peaks)
        for row in rows(self.folder / "run")[:steps]:
            self.assertEqual([lane["lane"] for lane in row["lanes"]], [0, 1, 2])
            for lane in row["lanes"]:
                self.assertGreater(lane["busy_s"], 0)
                self.assertLessEqual(lane["busy_s"], row["step_s"])
        trace = json.loads((self.folder / "run" / "trace_measured.json").read_text())
        lanes = {event["tid"] for event in trace["traceEvents"] if event.get("ph") == "X"}
        self.assertGreaterEqual(len(lanes), 3)

    def test_interleaved_stages_are_bitwise_those_of_threads(self):
        self.write_run(steps=4, vision=2, llm=4)
        self.expect_success("train", "run.toml", "--set", "steps=1", "--set", "output=made")
        plan = json.loads((self.folder / "made" / "plan.json").read_text())
        stages = [stage for lane in plan["lanes"] for stage in lane]
        plan["lanes"] = [stages[0:2], [stages[2], stages[4]], [stages[3], stages[5]]]
        (self.folder / "plan.json").write_text(json.dumps(plan))
        self.both(3, "plan.file=plan.json", "plan.schedule=interleaved")

    def test_lanes_of_several_ranks_are_bitwise_those_of_threads(self):
        self.write_run(steps=4, llm=1)
        model = self.folder / "model.toml"
        model.write_text(model.read_text().replace("num_kv_heads = 1", "num_kv_heads = 2"))
        degree = "plan.tensor_parallel.llm=2"
        self.both(3, degree, "validation.every=2", "checkpoint.every_steps=2")
        self.expect_success("checkpoint", "verify", "processes")
        self.both(4, degree, "plan.tensor_parallel.vision=2", "plan.schedule=zb-h1")
        code, output = self.train(2, degree)
        self.assertNotEqual(code, 0, output)
        self.assertIn("2 lanes of 1, 2 ranks: 3 processes are needed, 2 were started", output)

    def test_resumes_what_threads_began_and_the_other_way_round(self):
        self.write_run(steps=8, llm=2)
        every = "checkpoint.every_steps=2"
        self.train_threads("output=first", "checkpoint.every_steps=5", "steps=5")
        self.expect_trained(3, "output=second", "checkpoint.every_steps=5", "steps=5")
        output = self.expect_trained(3, "output=first", every)
        self.assertIn("resumed at step 5 of 8", output)
        output = self.train_threads("output=second", every).stdout
        self.assertIn("resumed at step 5 of 8", output)
        for run in ("first", "second"):
            self.expect_success("checkpoint", "verify", run)
            losses = [row for row in history(self.folder / run) if "loss" in row]
            self.assertEqual([row["step"] for row in losses], list(range(8)))
        self.assertEqual(history(self.folder / "first"), history(self.folder / "second"))
        self.assertTrue(self.weights("first") == self.weights("second"), "weights differ")

    def test_a_kept_last_batch_is_trained_and_resumed_as_on_threads(self):
        """12 samples in batches of 8 and 4: two steps an epoch, and a stop inside of one."""
        self.write_run(llm=2)
        kept = ("data.last_batch=keep", "execution.log_samples=true", "checkpoint.every_steps=3")
        self.both(3, "epochs=3", *kept)
        sizes = [len(row["batch"]) for row in rows(self.folder / "processes") if "batch" in row]
        self.assertEqual(sizes, [8, 4] * 3)
        self.train_threads("output=first", "steps=3", *kept)
        self.expect_trained(3, "output=second", "steps=3", *kept)
        self.expect_trained(3, "output=first", "steps=6", *kept)
        self.train_threads("output=second", "steps=6", *kept)
        self.assertEqual(history(self.folder / "first"), history(self.folder / "second"))
        self.assertTrue(self.weights("first") == self.weights("second"), "weights differ")

    def test_a_signal_finishes_the_step_and_the_same_command_goes_on(self):
        self.write_run(steps=300, llm=2)
        self.train_threads("output=whole")
        values = ["--set", "output=run"]
        process = self.start(self.torchrun(3, "-m", "entrain", "train", "run.toml", *values))
        self.addCleanup(process.stdout.close)
        while process.poll() is None and len(rows(self.folder / "run")) < 5:
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=120)
        self.assertIn("finishing the step, then a checkpoint", output)
        self.assertNotEqual(process.returncode, 0, output)
        self.assertRegex(output, r"stopped after step \d+ of 300")
        for rank in range(3):
            log = (self.folder / "run" / "logs" / f"rank-{rank}.log").read_text()
            self.assertTrue(log.rstrip().endswith("finished"), f"rank {rank}\n{log}\n{output}")
        self.assertLess(len(rows(self.folder / "run")), 300)
        self.expect_success("checkpoint", "verify", "run")
        self.expect_trained(3, "output=run")
        self.assertEqual(history(self.folder / "run"), history(self.folder / "whole"))
        self.assertTrue(self.weights("run") == self.weights("whole"), "weights differ")

    def test_mistakes_are_told_once_and_by_rank_0(self):
        self.write_run(steps=2, llm=2)
        for processes, settings, words in (
            (2, (), ["1 replica x 3 lanes", "3 processes are needed, 2 were started"]),
            (3, ("steps=0",), ["steps"]),
            (3, ("data.train=gone.csv",), ["gone.csv", "does not exist"]),
        ):
            code, output = self.train(processes, *settings)
            self.assertNotEqual(code, 0, output)
            for word in words:
                self.assertIn(word, output)
            self.assertEqual(output.count("entrain: "), 1, output)
            self.assertIn("exitcode  : 2", output)
        self.assertFalse((self.folder / "run" / "metrics.jsonl").exists())

    def test_ranks_with_different_inputs_do_not_begin(self):
        """Rank 1 reads another file of the same name: it stands in another folder."""
        self.write_run(steps=2, llm=2)
        other = self.folder / "other"
        other.mkdir()
        for path in list(self.folder.iterdir()):
            if path.is_file():
                (other / path.name).write_bytes(path.read_bytes())
        text = (other / "run.toml").read_text()
        (other / "run.toml").write_text(text.replace("num_slots = 3", "num_slots = 4"))
        script = "import os, runpy; os.environ['RANK'] == '1' and os.chdir('other'); "
        script += "runpy.run_module('entrain', run_name='__main__')"
        (self.folder / "elsewhere.py").write_text(script)
        code, output = self.run_command(self.torchrun(3, "elsewhere.py", "train", "run.toml"))
        self.assertNotEqual(code, 0, output)
        self.assertIn("ranks would not run the same run", output)
        self.assertRegex(
            output,
            r"configuration: rank 1 has another than rank 0 \(digests [0-9a-f]{8}, [0-9a-f]{8}\)",
        )
        self.assertRegex(output, "plan: rank 1 has")

    def test_a_failing_rank_stops_all_and_is_named(self):
        self.write_run(steps=6, llm=2)
        start = time.monotonic()
        code, output = self.train(3, "execution.fault_drill=[0, 1, 3]")
        self.assertNotEqual(code, 0, output)
        self.assertIn("fault drill", output)
        self.assertIn("rank 1 (replica 0 lane 1), step 3", output)
        self.assertLess(time.monotonic() - start, 60)
        for rank in (0, 2):
            log = (self.folder / "run" / "logs" / f"rank-{rank}.log").read_text()
            self.assertIn("stopped because another rank failed: rank 1", log)
        self.assertEqual([row["step"] for row in rows(self.folder / "run")], [0, 1, 2])

    def test_needs_no_torchrun_for_threads(self):
        code, output = self.run_command([sys.executable, "-m", "entrain", "--help"])
        self.assertEqual(code, 0, output)
        self.assertIn("train", output)
        self.write_run(steps=2)
        code, output = self.run_command([sys.executable, "-m", "entrain", "train", "run.toml"])
        self.assertEqual(code, 0, output)
        self.assertEqual(len(history(self.folder / "run")), 3)

    def test_a_package_without_its_module_says_how_to_build_it(self):
        """As `make demo` leaves it."""
        package = self.folder / "bare" / "entrain"
        shutil.copytree(
            self.package / "entrain", package, ignore=shutil.ignore_patterns("_engine*", "*.pyc")
        )
        command = [sys.executable, "-m", "entrain", "train", "run.toml"]
        with mock.patch.object(type(self), "package", package.parent):
            code, output = self.run_command(command)
        self.assertEqual(code, 2, output)
        self.assertIn("`make build` builds it", output)
        self.assertNotIn("Traceback", output)

    def test_refuses_another_minor_version_of_torch(self):
        script = "import torch, runpy; torch.__version__ = '9.9.0'; "
        script += "runpy.run_module('entrain', run_name='__main__')"
        code, output = self.run_command([sys.executable, "-c", script, "train", "run.toml"])
        self.assertEqual(code, 2, output)
        self.assertIn("torch 9.9.0 is installed", output)
        self.assertNotIn("Traceback", output)
        same = "import torch, entrain; v = entrain._build.TORCH_VERSION.split('+')[0].split('.'); "
        same += "entrain.check_torch(f'{v[0]}.{v[1]}.99+other')"
        code, output = self.run_command([sys.executable, "-c", same])
        self.assertEqual(code, 0, output)


if __name__ == "__main__":
    process_fixture.main()
