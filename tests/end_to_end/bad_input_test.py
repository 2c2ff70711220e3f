"""Bad input through the command line: exit code, a message that helps, nothing half-written."""

import json
import time

import cli_fixture
from cli_fixture import CliTest, corrupt_png, png, sample, write_shard

MANIFEST = (
    "sample_id,n_images,image_sizes,audio_seconds,video_seconds,video_frames,video_size,"
    "prompt_chars,response_chars,text_chars,prompt_tokens_estimate,response_tokens_estimate,"
    "text_tokens_estimate"
)


class BadIndexInput(CliTest):
    def test_missing_file(self):
        self.expect_failure(
            2, ["nothing.tar", "does not exist"], "index", "nothing.tar", "-o", "i.csv"
        )
        self.assertFalse((self.folder / "i.csv").exists())

    def test_truncated_tar(self):
        write_shard(self.folder / "train-0.tar", [sample(i) for i in range(4)])
        whole = (self.folder / "train-0.tar").read_bytes()
        (self.folder / "train-0.tar").write_bytes(whole[: 512 * 3 + 100])
        self.expect_failure(2, ["train-0.tar", "truncated"], "index", "train-0.tar", "-o", "i.csv")
        self.assertFalse((self.folder / "i.csv").exists())

    def test_corrupt_png_with_verify(self):
        name, _, text = sample(0)
        write_shard(self.folder / "train-0.tar", [(name, [corrupt_png(32, 32)], text)])
        self.expect_failure(
            2, ["train-0.tar", name], "index", "train-0.tar", "-o", "i.csv", "--verify"
        )
        self.assertFalse((self.folder / "i.csv").exists())

    def test_corrupt_png_header(self):
        name, _, text = sample(0)
        write_shard(self.folder / "train-0.tar", [(name, [b"\x89PNG not really"], text)])
        self.expect_failure(2, ["train-0.tar", name], "index", "train-0.tar", "-o", "i.csv")

    def test_duplicate_id(self):
        write_shard(self.folder / "train-0.tar", [sample(0), sample(1), sample(0)])
        self.expect_failure(2, ["s000"], "index", "train-0.tar", "-o", "i.csv")

    def test_empty_response_is_refused_or_left_out_and_counted(self):
        write_shard(self.folder / "train-0.tar", [sample(0), sample(1, answer="")])
        self.expect_failure(2, ["s001", "response"], "index", "train-0.tar", "-o", "i.csv")
        result = self.expect_success(
            "index", "train-0.tar", "-o", "i.csv", "--empty-response", "leave-out", "--json"
        )
        self.assertIn('"left_out":1', result.stdout)

    def test_sample_longer_than_the_limit(self):
        long_sample = ("long", [png(16, 16)], {"question": "x" * 600, "answer": "y"})
        write_shard(self.folder / "train-0.tar", [sample(0), long_sample])
        arguments = ["index", "train-0.tar", "-o", "i.csv", "--model", "model.toml"]
        self.expect_failure(2, ["long", "512"], *arguments)
        self.assertFalse((self.folder / "i.csv").exists())
        left_out = self.expect_success(*arguments, "--too-long", "leave-out", "--json")
        self.assertIn('"left_out":1', left_out.stdout)
        cut = self.expect_success(*arguments, "--too-long", "truncate", "--json")
        self.assertIn('"truncated":1', cut.stdout)

    def test_unwritable_output(self):
        write_shard(self.folder / "train-0.tar", [sample(0)])
        (self.folder / "file").write_text("in the way")
        self.expect_failure(
            2, ["--output: 'file/i.csv'"], "index", "train-0.tar", "-o", "file/i.csv"
        )
        self.assertEqual((self.folder / "file").read_text(), "in the way")


class BadManifest(CliTest):
    def study(self, code, words, header, row):
        (self.folder / "m.csv").write_text(f"{header}\n{row}\n")
        self.expect_failure(code, words, "index", "m.csv", "-o", "out.csv")
        self.assertFalse((self.folder / "out.csv").exists())

    def test_missing_column(self):
        self.study(
            2,
            ["m.csv", "response_chars"],
            MANIFEST.replace("response_chars,", ""),
            "a,1,64x64,,,,,3,8,2,3,5",
        )

    def test_negative_number(self):
        self.study(2, ["m.csv", "prompt_chars", "-3"], MANIFEST, "a,1,64x64,,,,,-3,5,2,1,1,2")

    def test_non_number(self):
        self.study(2, ["m.csv", "prompt_chars", "three"], MANIFEST, "a,1,64x64,,,,,three,5,8,1,1,2")

    def test_wrong_number_of_image_sizes(self):
        self.study(2, ["m.csv", "image_sizes"], MANIFEST, "a,2,64x64,,,,,3,5,8,1,1,2")


class BadRun(CliTest):
    def setUp(self):
        super().setUp()
        if not self.has_engine():
            self.skipTest("built without the engine")
        self.make_data()
        self.write_run()

    def test_good_run_trains_and_evaluates(self):
        self.expect_success("train", "run.toml")
        self.assertTrue((self.folder / "run" / "weights.safetensors").exists())
        self.expect_success("eval", "run")

    def test_missing_config(self):
        self.expect_failure(2, ["absent.toml", "does not exist"], "train", "absent.toml")

    def test_analytic_profile(self):
        wrong = ["--set", "plan.profile=analytic:h100"]
        self.expect_failure(
            2, ["plan.profile", "analytic:h100", "`entrain profile`"], "train", "run.toml", *wrong
        )

    def test_unknown_key(self):
        text = (self.folder / "run.toml").read_text().replace("num_slots", "num_slot")
        (self.folder / "run.toml").write_text(text)
        self.expect_failure(2, ["plan.num_slot", "num_slots"], "train", "run.toml")
        self.assertFalse((self.folder / "run").exists())

    def test_unknown_model_key(self):
        text = (self.folder / "model.toml").read_text().replace("num_kv_heads", "kv_heads")
        (self.folder / "model.toml").write_text(text)
        self.expect_failure(2, ["model.toml", "num_kv_heads"], "train", "run.toml")

    def test_plan_that_does_not_fit_the_model(self):
        (self.folder / "plan.json").write_text(
            '{"version": 1, "replicas": 1, "num_slots": 2, "modules": {'
            '"vision": {"tensor_parallel": 1, "context_parallel": 1, "stages": [[0, 3]]},'
            '"llm": {"tensor_parallel": 1, "context_parallel": 1, "stages": [[0, 9]]}},'
            '"lanes": [[["vision", 0]], [["llm", 0]]], "policy": "entrain", "schedule": "1f1b"}'
        )
        self.expect_failure(
            2, ["plan.json", "llm"], "train", "run.toml", "--set", "plan.file=plan.json"
        )

    def test_more_stages_than_layers(self):
        self.expect_failure(
            2, ["vision", "7"], "train", "run.toml", "--set", "plan.stages.vision=7"
        )

    def test_fewer_samples_than_a_batch(self):
        self.expect_failure(2, ["12", "100"], "train", "run.toml", "--set", "data.global_batch=100")

    def test_estimated_lengths_are_refused(self):
        (self.folder / "m.csv").write_text(f"{MANIFEST}\na,1,64x64,,,,,3,5,8,1,1,2\n")
        self.expect_failure(2, ["m.csv", "exact"], "train", "run.toml", "--set", "data.train=m.csv")

    def test_sample_longer_than_the_model_takes(self):
        text = (
            (self.folder / "model.toml").read_text().replace("max_tokens = 512", "max_tokens = 20")
        )
        (self.folder / "model.toml").write_text(text)
        self.expect_failure(2, ["max_tokens", "20"], "train", "run.toml")

    def test_unwritable_output(self):
        (self.folder / "file").write_text("in the way")
        self.expect_failure(3, ["file/run"], "train", "run.toml", "--set", "output=file/run")

    def test_rank_that_fails_mid_step_stops_all_ranks(self):
        """Pixels damaged after indexing: the rank that decodes them fails while others wait."""
        samples = [sample(i) for i in range(12)]
        samples[5] = (samples[5][0], [corrupt_png(32, 32)], samples[5][2])
        write_shard(self.folder / "train-000000.tar", samples)
        self.expect_success("index", "train-000000.tar", "-o", "train.csv")
        self.write_run(vision=2, llm=2, replicas=2, global_batch=12)
        started = time.monotonic()
        result = self.expect_failure(2, ["rank", "forward vision", "s005"], "train", "run.toml")
        self.assertLess(time.monotonic() - started, 15, result.stderr)
        self.assertFalse((self.folder / "run" / "weights.safetensors").exists())

    def test_bug_in_one_rank_stops_all_ranks(self):
        """The fault drill: one rank of eight throws in mid-step while the others wait for it."""
        self.write_run(steps=3, vision=2, llm=2, replicas=2, global_batch=12)
        started = time.monotonic()
        result = self.expect_failure(
            1,
            ["fault drill", "last operations: ", "The fault drill caused this failure"],
            *["train", "run.toml", "--set", "execution.fault_drill=[1, 2, 2]"],
        )
        self.assertLess(time.monotonic() - started, 10, result.stderr)
        self.assertRegex(
            result.stderr,
            r"(?m)^entrain: rank 6 \(replica 1 lane 2\), step 2, (forward|backward|send|receive) "
            r"\w+ \d slot \d+ group \d+( channel \d+)?, samples train/s\d{3}",
        )
        self.assertNotIn("another rank", result.stderr)
        self.assertNotIn("This is a bug", result.stderr)
        run = self.folder / "run"
        names = sorted(path.name for path in run.iterdir())
        self.assertEqual(
            names,
            [
                "checkpoints",
                "config.json",
                "dumps",
                "memory.json",
                "metrics.jsonl",
                "model.json",
                "plan.json",
            ],
        )
        for name in ("config.json", "model.json", "plan.json"):
            json.loads((run / name).read_text())
        lines = (run / "metrics.jsonl").read_text().splitlines()
        # The other replica may be stopped at the end of step 1, never before it ends step 0.
        self.assertIn([json.loads(line)["step"] for line in lines], ([0], [0, 1]))

    def test_drill_of_a_rank_that_does_not_exist(self):
        for drill, words in (
            ("[1, 0, 0]", ["replica 1", "1 replica,"]),
            ("[0, 2, 0]", ["lane 2", "2 lanes"]),
            ("[0, 0, 2]", ["step 2", "2 steps"]),
            ("[0, 0]", ["[replica, lane, step]"]),
        ):
            arguments = ["train", "run.toml", "--set", f"execution.fault_drill={drill}"]
            self.expect_failure(2, ["execution.fault_drill", *words], *arguments)
        self.assertFalse((self.folder / "run").exists())

    def test_shard_truncated_after_indexing(self):
        shard = self.folder / "train-000000.tar"
        shard.write_bytes(shard.read_bytes()[:2048])
        result = self.run_program("train", "run.toml")
        self.assertIn(result.returncode, (2, 3), result.stderr)
        self.assertIn("train-000000.tar", result.stderr)

    def test_dry_run_trains_nothing(self):
        result = self.expect_success("train", "run.toml", "--dry-run")
        self.assertIn("predicted step time", result.stdout)
        self.assertFalse((self.folder / "run" / "weights.safetensors").exists())


if __name__ == "__main__":
    cli_fixture.main()
