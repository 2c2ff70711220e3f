"""What hardly can be meant, or cannot fit: refused or warned of by name, alike in all commands."""

import json
import os
import struct
from pathlib import Path

import cli_fixture
from cli_fixture import CliTest

STUDY = ["--index", "train.csv", "--model", "model.toml", "--global-batch", "8"]


class Checks(CliTest):
    def setUp(self):
        super().setUp()
        if not self.has_engine():
            self.skipTest("built without the engine")
        self.make_data()
        self.write_run()

    def change_model(self, old, new):
        """In the LLM's table of the model file."""
        encoder, llm = (self.folder / "model.toml").read_text().split("[llm]")
        self.assertIn(old, llm)
        (self.folder / "model.toml").write_text(encoder + "[llm]" + llm.replace(old, new))

    def studies(self, *options):
        """Every command that takes a plan or makes one, each with `options`."""
        for command in ("assign", "simulate", "explain", "plan"):
            yield [command, *STUDY, "--lanes", "2", *options]


class Memory(Checks):
    def test_a_model_that_no_machine_holds_is_refused_before_anything_is_allocated(self):
        self.change_model("hidden = 16", "hidden = 300000")
        result = self.expect_failure(
            4,
            ["nothing fits", "available", "gradients", 'memory_check = "warn"', 'freeze = ["llm"]'],
            *["train", "run.toml"],
        )
        self.assertNotIn("frame #", result.stderr)
        self.assertLessEqual(max(map(len, result.stderr.splitlines()[3:])), 100)
        self.assertFalse((self.folder / "run").exists())
        page = self.expect_success("train", "run.toml", "--dry-run").stdout
        self.assertIn("would be refused here (exit code 4)", page)
        self.assertIn("costs: analytic:cpu-2core, not measured (assumed: plan.profile", page)
        memory = json.loads(self.expect_success("train", "run.toml", "--dry-run", "--json").stdout)
        place = memory["memory"]["places"][0]
        self.assertFalse(memory["memory"]["fits"])
        self.assertGreater(place["needed_bytes"], place["available_bytes"])

    def test_an_allocation_that_fails_all_the_same_has_no_backtrace(self):
        if Path("/proc/sys/vm/overcommit_memory").read_text().strip() == "1":
            self.skipTest("this system promises any memory")
        self.change_model("hidden = 16", "hidden = 300000")
        arguments = ["train", "run.toml", "--set", "execution.memory_check=warn"]
        result = self.expect_failure(
            3, ["it continues because", "can't allocate memory"], *arguments
        )
        for word in ("frame #", "Exception raised from", "This is a bug"):
            self.assertNotIn(word, result.stderr)

    def test_shapes_whose_products_no_integer_holds_are_refused(self):
        for old, new, words in (
            ("hidden = 16", "hidden = 2147483648", ["llm.hidden"]),
            ("num_layers = 2", "num_layers = 1000000000", ["llm.num_layers", "10000"]),
            ("intermediate = 32", "intermediate = 2000000", ["llm.intermediate"]),
        ):
            with self.subTest(new):
                before = (self.folder / "model.toml").read_text()
                self.change_model(old, new)
                self.expect_failure(2, ["model.toml", *words], "train", "run.toml")
                self.expect_failure(2, ["model.toml", *words], "assign", *STUDY, "--lanes", "2")
                (self.folder / "model.toml").write_text(before)

    def test_dry_run_prints_tables_and_keeps_the_documents_for_json(self):
        self.write_run(vision=1, llm=2, replicas=2)
        page = self.expect_success("train", "run.toml", "--dry-run").stdout
        for word in ("peak activations", "llm 1", "checkpoint", "samples of the LLM", "train/s00"):
            self.assertIn(word, page)
        tables = [line for line in page.splitlines() if "training samples" not in line]
        self.assertLessEqual(max(map(len, tables)), 100)
        self.assertNotIn("{", page)
        documents = json.loads(
            self.expect_success("train", "run.toml", "--dry-run", "--json").stdout
        )
        self.assertEqual(list(documents), ["config", "plan", "assignment", "memory"])
        self.assertEqual(len(documents["memory"]["lanes"]), 3)
        self.assertFalse((self.folder / "run").exists())


class Freeze(Checks):
    def answers(self, words):
        """What the study commands and a run say to the same words: exit code and message."""
        run = f"freeze = {json.dumps(words)}\n" + (self.folder / "run.toml").read_text()
        (self.folder / "freeze.toml").write_text(run)
        for arguments in (
            ["cost", *STUDY[:4], "--freeze", ",".join(words), "-o", "costs.csv"],
            ["train", "freeze.toml", "--dry-run"],
        ):
            result = self.run_program(*arguments)
            message = result.stderr.partition("freeze: ")[2] if result.returncode else ""
            yield result.returncode, message

    def test_an_option_and_a_run_file_take_the_same_words(self):
        for words in (
            ["vision"],
            ["vision.projector", "llm"],
            ["projector"],
            ["blocks.0.*", "*norm*"],
        ):
            for code, message in self.answers(words):
                self.assertEqual((code, message), (0, ""), words)
        for word in ("visoin", "llm.projector", "vision.body", "every"):
            option, run = self.answers(["llm", word])
            self.assertEqual(option, run)
            self.assertEqual(option[0], 2)
            self.assertIn(f"'{word}' is no module and fits no parameter", option[1])
            self.assertTrue("did you mean" in option[1] or "allowed: llm, " in option[1], option)


class Warnings(Checks):
    def test_weights_that_are_no_numbers_are_refused_by_name(self):
        self.expect_success("train", "run.toml")
        weights = self.folder / "run" / "weights.safetensors"
        data = bytearray(weights.read_bytes())
        length = struct.unpack("<Q", data[:8])[0]
        header = json.loads(data[8 : 8 + length])
        begin = 8 + length + header["model.norm.weight"]["data_offsets"][0]
        data[begin : begin + 4] = struct.pack("<f", float("nan"))
        weights.write_bytes(data)
        self.expect_failure(2, ["weights.safetensors", "'model.norm.weight'"], "eval", "run")

    def test_costs_that_are_no_numbers_are_refused_by_name_in_all_commands(self):
        self.expect_success("profile", "--quick", "--model", "model.toml", "-o", "good.json")
        good = (self.folder / "good.json").read_text()
        train = ["train", "run.toml", "--dry-run", "--set", "plan.profile=p.json"]
        key = "layers[1].forward.per_token_ns"
        for value, words in (
            (None, [key, "null given"]),
            (-1, [key, "-1 given"]),
            ("1e999", ["p.json"]),
        ):
            document = json.loads(good)
            document["layers"][1]["forward"]["per_token_ns"] = value
            text = json.dumps(document).replace('"1e999"', "1e999")
            (self.folder / "p.json").write_text(text)
            for arguments in (train, *self.studies("--profile", "p.json")):
                with self.subTest(value=value, command=arguments[0]):
                    self.expect_failure(2, words, *arguments)
        document = json.loads(good)
        del document["model_digest"]
        (self.folder / "p.json").write_text(json.dumps(document))
        for arguments in (train, *self.studies("--profile", "p.json")):
            with self.subTest(command=arguments[0]):
                result = self.run_program(*arguments)
                self.assertIn("warning: profile 'p.json' has no model_digest", result.stderr)

    def test_slots_have_a_range_and_more_than_samples_are_warned_of(self):
        for arguments in self.studies("--num-slots", "1000000000"):
            self.expect_failure(2, ["--num-slots", "65,536"], *arguments)
        for arguments in self.studies("--num-slots", "9"):
            result = self.expect_success(*arguments)
            self.assertIn("warning: num_slots = 9 for a global batch of 8", result.stderr)
        for arguments in self.studies("--num-slots", "8"):
            self.assertNotIn("num_slots", self.expect_success(*arguments).stderr)
        self.expect_failure(
            2,
            ["num_slots", "65,536"],
            *["train", "run.toml", "--set", "plan.num_slots=1000000000"],
        )
        plan = ["plan", *STUDY, "--lanes", "2", "-o", "plan.json"]
        self.expect_success(*plan)
        text = (self.folder / "plan.json").read_text()
        (self.folder / "plan.json").write_text(
            text.replace('"num_slots": 8', '"num_slots": 1000000000')
        )
        words = ["plan.json", "num_slots", "65,536"]
        self.expect_failure(2, words, "assign", *STUDY, "--plan", "plan.json")
        self.expect_failure(2, words, "train", "run.toml", "--set", "plan.file=plan.json")

    def test_a_plan_file_takes_the_place_of_keys_and_says_so(self):
        self.expect_success("plan", *STUDY, "--lanes", "2", "-o", "plan.json")
        file = ["train", "run.toml", "--set", "plan.file=plan.json", "--dry-run"]
        for setting in ("plan.replicas=2", "plan.stages.llm=1", "plan.num_slots=8"):
            words = [f"--set {setting}", "has no effect", "plan.json", "take plan.file away"]
            self.expect_failure(2, words, *file, "--set", setting)
        run = self.folder / "run.toml"
        run.write_text(run.read_text().replace("[plan]", "[plan]\nmax_deferral = -1"))
        said = self.expect_success(*file).stderr
        self.assertIn("decides what the run file says of", said)
        self.assertIn("plan.max_deferral", said)
        self.assertNotIn("has no effect", self.expect_success(*file[:2], "--dry-run").stderr)

    def test_a_run_says_what_hardly_can_be_meant(self):
        settings = ["plan.num_slots=20", "optimizer.warmup_steps=200"]
        arguments = [word for setting in settings for word in ("--set", setting)]
        result = self.expect_success("train", "run.toml", *arguments)
        self.assertIn("num_slots = 20 for a global batch of 8", result.stderr)
        self.assertIn(
            "optimizer.warmup_steps = 200 is more than the run's 2 updates", result.stderr
        )
        self.assertIn("reaches 1e-05 of 0.001", result.stderr)
        self.assertIn("tps: tokens of the LLM per second", result.stdout)
        self.assertIn("in the mean of the last", result.stdout)

    def test_many_ranks_on_few_cores_are_counted(self):
        cores = len(os.sched_getaffinity(0))
        if cores > 8:
            self.skipTest(f"{cores} cores are enough for the ranks of this test")
        self.write_run(steps=1, global_batch=12, vision=1, llm=2, replicas=12)
        result = self.expect_success("train", "run.toml")
        self.assertIn(f"36 ranks compute on this host's {cores} core", result.stderr)


if __name__ == "__main__":
    cli_fixture.main()
