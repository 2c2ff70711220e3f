"""What tables and plans of the study commands say of themselves: device and profile, numbers of slots,
words, at most a hundred columns; plans that `train` takes; ids of any bytes."""

import json

import cli_fixture
from cli_fixture import CliTest
from study_commands_test import StudyTest

CLUSTER = """
name = "lab"
nodes = {nodes}
devices_per_node = {devices}
device = "{device}"
memory_gib = {memory}
[intra_node]
latency_us = 5
gigabytes_per_second = 20
"""

ASSUMED = "device a40, bfloat16; profile analytic:a40, not measured (assumed: give --profile)"


class TableTest(CliTest):
    """An index and a model with two encoders' worth of sizes, without files behind them."""

    def setUp(self):
        super().setUp()
        (self.folder / "train.csv").write_text(
            "sample_id,n_images,image_sizes,prompt_chars,response_chars,"
            "prompt_tokens_estimate,response_tokens_estimate\n"
            + "".join(
                f"a-rather-long-name-of-a-data-set/with-its-part-{i:05d}-of-00064/s{i},{i % 3},"
                f"{';'.join([f'{64 + 16 * (i % 5)}x64'] * (i % 3))},"
                f"80,80,{20 + i * 7 % 40},{10 + i * 5 % 30}\n"
                for i in range(64)
            )
        )
        self.write_cluster()

    def write_cluster(self, nodes=2, devices=4, device="a40", memory=0):
        text = CLUSTER.format(nodes=nodes, devices=devices, device=device, memory=memory)
        (self.folder / "cluster.toml").write_text(text)

    def study(self, command, *more):
        return (command, "--index", "train.csv", "--model", "model.toml", *more)

    def batch(self, command, *more):
        return self.study(command, "--global-batch", 12, *more)

    def cluster_plan(self, *more):
        search = ("--cluster", "cluster.toml", "--search-evaluations", 2, "--batches", 2)
        return self.batch("plan", *search, "--simulations", 8, *more)

    def audit(self, *more):
        return ("audit", "train.csv", "-m", "model.toml", "--ranks", 2, "--microbatches", 2, *more)

    def commands(self):
        """Every command that prints a table, with all that makes its tables wide."""
        self.expect_success(*self.batch("plan", "--lanes", 2, "-o", "plan.json"))
        planned = ("--plan", "plan.json", "--evaluations", 20)
        everything = ("--policy", "all", "--schedule", "all", "--steps", 1)
        return {
            "cost": self.study("cost", "-o", "costs.csv"),
            "plan --lanes": self.batch("plan", "--lanes", 3),
            "plan --cluster": self.cluster_plan("--explain", "--regret-batches", 1),
            "plan --planner": self.batch("plan", "--planner", "megatron-even", "--lanes", 3),
            "b-min": self.batch("b-min", "--devices", 9, "--also", "3,5"),
            "assign": self.batch("assign", "--policy", "all", *planned),
            "simulate": self.batch("simulate", *everything, *planned),
            "simulate --memory": self.batch(
                "simulate", *everything, *planned, "--memory", 30000, "--one-sample", 2
            ),
            "explain": self.batch("explain", *planned, "--slot", 0),
            "audit": self.audit("--padded", "--memory", 100),
        }


class Tables(TableTest):
    def test_costs_and_schedule_are_the_plans(self):
        made = ("--profile", "analytic:h100", "--schedule", "entrain", "-o", "plan.json")
        self.expect_success(*self.batch("plan", "--lanes", 2, *made))
        for command in ("simulate", "explain", "assign"):
            shown = self.expect_success(*self.batch(command, "--plan", "plan.json"))
            self.assertIn("analytic:h100", shown.stdout)
        rows = self.expect_success(*self.batch("simulate", "--plan", "plan.json", "--json")).stdout
        self.assertIn('"schedule":"entrain"', rows.replace(" ", ""))
        self.assertNotIn('"schedule":"1f1b"', rows.replace(" ", ""))
        plan = self.folder / "plan.json"
        plan.write_text(plan.read_text().replace("analytic:h100", "own.json"))
        said = self.expect_success(*self.batch("simulate", "--plan", "plan.json")).stderr
        self.assertIn("was made with other costs", said)

    def test_name_device_and_profile_first_and_are_at_most_a_hundred_columns_wide(self):
        for name, arguments in self.commands().items():
            result = self.run_program(*arguments)
            self.assertIn(result.returncode, (0, 4), f"{name}\n{result.stderr}")
            lines = result.stdout.splitlines()
            self.assertTrue(lines[0].startswith(ASSUMED), f"{name}: {lines[0]}")
            for line in lines:
                self.assertLessEqual(len(line), 100, f"{name}: {line}")

    def test_are_no_wider_in_the_documents(self):
        for page in sorted((self.root / "docs").glob("*.md")):
            example = False
            for number, line in enumerate(page.read_text().splitlines(), 1):
                example ^= line.startswith("```")
                if example:
                    self.assertLessEqual(len(line), 100, f"{page.name}:{number}: {line}")

    def test_explain_their_words(self):
        commands = self.commands()
        for name, words in {
            "simulate": ["bound: a time that no", "gap: step time above it", "peak memory:", "CV:"],
            "assign": ["bound: a time that no", "gap: step time above it", "deferred:"],
            "plan --lanes": ["bound: a time that no", "peak:"],
            "cost": ["units: images, clips or sequences"],
            "b-min": ["split seen: devices of each module"],
        }.items():
            result = self.run_program(*commands[name])
            for word in words:
                self.assertIn(word, result.stdout, name)

    def test_plans_keep_device_and_profile(self):
        for arguments in (
            self.batch("plan", "--lanes", 2, "-o", "plan.json"),
            self.cluster_plan("-o", "plan.json"),
            self.batch("plan", "--lanes", 2, "--planner", "megatron-even", "-o", "plan.json"),
        ):
            self.expect_success(*arguments)
            costs = json.loads((self.folder / "plan.json").read_text())["costs"]
            links = costs.pop("links", None)
            self.assertEqual(links, "cluster.toml" if "--cluster" in arguments else None)
            self.assertEqual(
                costs,
                {
                    "profile": "analytic:a40",
                    "device": "a40",
                    "machine": "",
                    "dtype": "bfloat16",
                    "measured": False,
                },
            )

    def test_a_plan_for_links_is_not_studied_on_others_unsaid(self):
        self.expect_success(*self.cluster_plan("-o", "plan.json"))
        study = self.batch("assign", "--plan", "plan.json", "--evaluations", 5)
        warning = "made for the links of cluster.toml"
        self.assertIn(warning, self.expect_success(*study).stderr)
        same = self.expect_success(*study, "--cluster", "cluster.toml")
        self.assertNotIn(warning, same.stderr)
        self.assertIn("links of cluster.toml", " ".join(same.stdout.split()))


class Slots(StudyTest):
    def simulated(self, *more):
        arguments = self.planned("simulate", "--policy", "sequential,lpt-2d,entrain", *more)
        report = json.loads(self.expect_success(*arguments, "--json").stdout)
        return report, {row["policy"]: row for row in report["rows"]}

    def test_gives_every_policy_its_best_number_or_all_the_same(self):
        report, best = self.simulated()
        self.assertEqual(
            report["slots_tried"], [1, 2, 3]
        )  # no more than the 3 samples of a replica
        times = {}
        for slots in (1, 2, 3):
            fixed_report, fixed = self.simulated("--num-slots", slots)
            self.assertEqual(fixed_report["slots_tried"], [])
            for policy in ("sequential", "lpt-2d"):
                self.assertEqual(fixed[policy]["given_slots"], slots)
                self.assertLessEqual(fixed[policy]["num_slots"], slots)  # of few samples fewer
                times.setdefault(policy, {})[slots] = fixed[policy]["step_s"]
            self.assertEqual(fixed["entrain"]["given_slots"], 0)
        for policy, of_slots in times.items():
            self.assertIn(best[policy]["given_slots"], (1, 2, 3))
            self.assertEqual(best[policy]["step_s"], of_slots[best[policy]["given_slots"]])
        shown = self.expect_success(*self.planned("simulate")).stdout
        self.assertIn("slots: the fastest of 1, 2, 3 for every policy that does not", shown)
        self.assertIn("own", shown)
        shown = self.expect_success(*self.planned("simulate", "--num-slots", 2)).stdout
        self.assertIn("slots: the plan's for every policy", shown)

    def test_says_what_policy_and_what_schedule_gain(self):
        report, _ = self.simulated("--schedule", "gpipe,1f1b")
        self.assertIn("x as fast as sequential with 1f1b", report["gain"])
        shown = self.expect_success(*self.planned("simulate", "--schedule", "gpipe,1f1b")).stdout
        self.assertIn("gain: ", shown)

    def test_assign_compares_at_the_best_and_keeps_the_plan_for_one(self):
        alone = json.loads(
            self.expect_success(*self.planned("assign", "--policy", "lpt-2d", "--json")).stdout
        )
        self.assertEqual([replica["num_slots"] for replica in alone["replicas"]], [2, 2])
        all_of_them = json.loads(
            self.expect_success(
                *self.planned("assign", "--policy", "sequential,lpt-2d", "--json")
            ).stdout
        )
        times = [document["stats"]["makespan_s"] for document in all_of_them]
        self.assertLessEqual(times[1], alone["stats"]["makespan_s"])
        fixed = json.loads(
            self.expect_success(
                *self.planned("assign", "--policy", "all", "--num-slots", 2, "--json")
            ).stdout
        )
        for document in fixed:
            if document["policy"] not in ("entrain", "disttrain"):
                for replica in document["replicas"]:  # of few samples fewer
                    self.assertLessEqual(replica["num_slots"], 2)

    def test_explain_finds_the_step_of_a_sample(self):
        steps = {}
        for step in range(4):
            told = json.loads(
                self.expect_success(*self.planned("assign", "--step", step, "--json")).stdout
            )
            for replica in told["replicas"]:
                for slot in replica["modules"]["llm"]:
                    for entry in slot:
                        steps.setdefault(entry, step)
        sample, step = next((s, k) for s, k in steps.items() if k == 2)
        result = self.expect_success(*self.planned("explain", "--sample", sample))
        self.assertIn(f"step {step} is the first with the sample", result.stdout)
        told = json.loads(
            self.expect_success(*self.planned("explain", "--sample", sample, "--json")).stdout
        )
        self.assertEqual(told["step"], step)
        self.expect_failure(
            2,
            ["--sample", "not among the 6 samples of step 0"],
            *self.planned("explain", "--sample", sample, "--step", 0),
        )
        self.expect_failure(
            2, ["--sample: 's7x'", "did you mean 's7'"], *self.planned("explain", "--sample", "s7x")
        )

    def test_writes_ids_that_are_not_utf8(self):
        path = self.folder / "costs.csv"
        path.write_bytes(path.read_bytes().replace(b"\ns1", b"\n\xff\xfes1"))
        for arguments in (
            self.planned("assign", "--json"),
            self.planned("assign", "-o", "a.json"),
            self.planned("explain", "--json"),
            self.planned("simulate", "--steps", 1, "--trace", "trace.json"),
        ):
            result = cli_fixture.subprocess.run(
                [self.entrain, *map(str, arguments)],
                cwd=self.folder,
                capture_output=True,
                timeout=120,
                check=False,
            )
            self.assertEqual(result.returncode, 0, f"{arguments}\n{result.stderr}")
        self.assertIn("\ufffd", (self.folder / "a.json").read_text())
        json.loads((self.folder / "trace.json").read_text())


class Runnable(TableTest):
    """Plans without --for-study are plans that `train` takes."""

    def test_leaves_out_context_parallelism_and_says_so(self):
        words = "left out, since `entrain train` does not run it: context parallelism 2, 4, 8"
        self.assertIn(words, self.expect_success(*self.cluster_plan()).stdout)
        report = json.loads(self.expect_success(*self.cluster_plan("--json")).stdout)
        self.assertEqual(report["left_out"], "context parallelism 2, 4, 8")
        for candidate in report["candidates"]:
            self.assertNotIn("CP", candidate["plan"])
        only = self.cluster_plan("--context-parallel", 2)
        self.expect_failure(2, ["only at context parallelism 2", "--for-study"], *only)
        study = self.cluster_plan("--for-study", "--context-parallel", "1,2", "--json")
        self.assertEqual(json.loads(self.expect_success(*study).stdout)["left_out"], "")

    def test_train_takes_every_plan(self):
        clusters = [(1, 2), (1, 4), (2, 4), (4, 2)]
        self.make_data(count=24)
        self.write_run(global_batch=12)
        run = (self.folder / "run.toml").read_text()
        head, stages = run.split("[plan]")
        (self.folder / "run.toml").write_text(
            head + '[plan]\nfile = "plan.json"\n[validation]' + stages.split("[validation]")[1]
        )
        for nodes, devices in clusters:
            self.write_cluster(nodes, devices)
            self.expect_success(*self.cluster_plan("-o", "plan.json"))
            plan = json.loads((self.folder / "plan.json").read_text())
            for module in plan["modules"].values():
                self.assertEqual(module["context_parallel"], 1)
            if self.has_engine():
                result = self.expect_success("train", "run.toml", "--dry-run")
                self.assertIn("costs were not measured on this machine", result.stderr)
                self.assertIn("made by analytic:a40", result.stderr)
                self.assertEqual(result.stderr.count("costs were not measured on this machine"), 1)
        if self.has_engine():
            for module in plan["modules"].values():
                module["context_parallel"] = 2
            (self.folder / "plan.json").write_text(json.dumps(plan))
            self.expect_failure(
                2, ["context_parallel 2", "this engine runs 1"], "train", "run.toml", "--dry-run"
            )


class Keys(CliTest):
    def test_suggests_a_misspelled_key_everywhere(self):
        (self.folder / "model.toml").write_text(cli_fixture.MODEL.replace("hidden =", "hiden =", 1))
        common = ("plan", "--index", "train.csv", "--model", "model.toml", "--lanes", 2, "-b", 2)
        self.expect_failure(2, ["hidden: missing", "'hiden', did you mean 'hidden'"], *common)
        if not self.has_engine():
            return
        (self.folder / "model.toml").write_text(cli_fixture.MODEL)
        self.write_run()
        text = (self.folder / "run.toml").read_text()
        for written, meant in {
            "global_batch": "globl_batch",
            "[validation]": "[validaton]",
            "train =": "trian =",
            "steps =": "setps =",
        }.items():
            (self.folder / "run.toml").write_text(text.replace(written, meant, 1))
            self.expect_failure(2, ["did you mean"], "train", "run.toml", "--dry-run")
        (self.folder / "run.toml").write_text(text)
        self.expect_failure(
            2,
            ["data.globl_batch: unknown key", "did you mean 'global_batch'"],
            *("train", "run.toml", "--dry-run", "--set", "data.globl_batch=3"),
        )


if __name__ == "__main__":
    cli_fixture.main()
