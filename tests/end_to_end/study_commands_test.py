"""plan, assign, simulate and explain on tiny inputs: results, exit codes, messages that help."""

import csv
import json
import shutil

import cli_fixture
from cli_fixture import CliTest

COSTS_HEADER = (
    "sample_id,vision_tokens,vision_forward_s,vision_backward_s,"
    "llm_tokens,llm_forward_s,llm_backward_s"
)


class StudyTest(CliTest):
    def setUp(self):
        super().setUp()
        rows = []
        for i in range(24):
            vision = 0 if i % 4 == 3 else 1 + i * 7 % 11
            llm = 2 + i * 5 % 13
            rows.append(f"s{i},{vision},{vision}e-3,{2 * vision}e-3,{llm},{llm}e-3,{2 * llm}e-3")
        self.rows = rows
        self.write_costs()
        (self.folder / "plan.json").write_text(
            '{"version": 1, "replicas": 2, "num_slots": 2, "modules": {'
            '"vision": {"tensor_parallel": 1, "context_parallel": 1, "stages": [[0, 4]]},'
            '"llm": {"tensor_parallel": 1, "context_parallel": 1, "stages": [[0, 2], [2, 4]]}}}'
        )

    def write_costs(self, header=COSTS_HEADER, rows=None):
        (self.folder / "costs.csv").write_text("\n".join([header, *(rows or self.rows)]) + "\n")

    def study(self, command, *more):
        return [command, "--costs", "costs.csv", "--global-batch", 6, *more]

    def planned(self, command, *more):
        return self.study(command, "--plan", "plan.json", "--evaluations", 30, *more)

    def json_of(self, *arguments):
        return json.loads(self.expect_success(*arguments, "--json").stdout)


class Plan(StudyTest):
    def test_searches_and_writes_a_plan_that_the_others_take(self):
        report = self.json_of(
            *self.study("plan", "--lanes", 2, "--policy", "lpt-2d", "-o", "found.json")
        )
        self.assertTrue(report["fits"])
        rows = self.json_of(*self.study("simulate", "--plan", "found.json", "--steps", 1))["rows"]
        self.assertGreater(rows[0]["step_s"], 0)

    def test_says_that_nothing_fits(self):
        (self.folder / "train.csv").write_text(
            "sample_id,n_images,image_sizes,prompt_chars,response_chars,"
            "prompt_tokens_estimate,response_tokens_estimate\n"
            + "".join(f"s{i},1,640x640,800,800,200,200\n" for i in range(16))
        )
        model = cli_fixture.MODEL.replace("hidden = 16", "hidden = 1024").replace(
            "max_pixels = 4096", "max_pixels = 409600"
        )
        (self.folder / "model.toml").write_text(model)
        self.expect_failure(
            4,
            ["no plan fits", "allowed"],
            *("plan", "--index", "train.csv", "--model", "model.toml", "--lanes", 2),
            *("--global-batch", 4, "--memory-mib", 1),
        )


def layer(module, kind, forward, backward):
    """A layer of a profile without launch constants; backward as much for inputs as for weights."""
    curve = {"per_pair_ns": forward, "per_token_ns": 100 * forward}
    half = {"per_pair_ns": backward / 2, "per_token_ns": 50 * backward}
    return {
        "module": module,
        "kind": kind,
        "forward": curve,
        "backward_input": half,
        "backward_weight": half,
        "activation_bytes_per_token": 8,
    }


PROFILE = {
    "version": 1,
    "device": "paper",
    "source": "measured",
    "layers": [
        layer("vision", "patch_embedding", 1, 2),
        layer("vision", "encoder_transformer", 9, 22),
        layer("vision", "projector", 3, 6),
        layer("llm", "token_embedding", 1, 1),
        layer("llm", "decoder", 20, 44),
        layer("llm", "output_head", 7, 12),
    ],
}


class Cost(StudyTest):
    def setUp(self):
        super().setUp()
        (self.folder / "model.toml").write_text(cli_fixture.MODEL)
        (self.folder / "profile.json").write_text(json.dumps(PROFILE))
        sizes = [";".join(["48x32", "64x48", "32x80"][: i % 4]) for i in range(24)]
        (self.folder / "train.csv").write_text(
            "sample_id,n_images,image_sizes,prompt_chars,response_chars,"
            "prompt_tokens_estimate,response_tokens_estimate\n"
            + "".join(
                f"s{i},{i % 4},{sizes[i]},{40 + i},{8 * i},{10 + i * 7 % 23},{3 + i * 5 % 17}\n"
                for i in range(24)
            )
        )
        (self.folder / "whole.json").write_text(
            '{"version": 1, "replicas": 2, "num_slots": 2, "modules": {'
            '"vision": {"stages": [[0, 3]]}, "llm": {"stages": [[0, 4]]}}}'
        )
        self.inputs = (
            *("--index", "train.csv", "--model", "model.toml"),
            *("--profile", "profile.json"),
        )

    def rows_of(self, name):
        with open(self.folder / name, encoding="utf-8") as file:
            return list(csv.DictReader(file))

    def test_writes_one_row_a_sample_and_one_a_segment(self):
        report = self.json_of("cost", *self.inputs, "-o", "out.csv", "--segments", "segments.csv")
        rows = self.rows_of("out.csv")
        self.assertEqual(list(rows[0]), COSTS_HEADER.split(","))
        self.assertEqual([row["sample_id"] for row in rows], [f"s{i}" for i in range(24)])
        segments = self.rows_of("segments.csv")
        self.assertEqual(len(segments), 36)
        total = sum(float(row["vision_forward_s"]) for row in rows)
        self.assertAlmostEqual(sum(float(row["forward_s"]) for row in segments), total)
        self.assertAlmostEqual(report["modules"]["vision"]["forward_s"], total)
        self.assertEqual(report["modules"]["vision"]["samples"], 18)
        # 48 x 32 pixels become 6 x 4 patches of 8; 576 pairs, and 1 + 9 + 3 a token and 100 ns.
        self.assertEqual(rows[1]["vision_tokens"], "24")
        self.assertEqual(rows[1]["vision_forward_s"], "0.000038688")
        shares = [module["share"] for module in report["modules"].values()]
        self.assertAlmostEqual(sum(shares), 1)

    def test_is_what_simulate_takes_for_model_and_profile(self):
        for frozen in ([], ["--freeze", "vision"]):
            self.expect_success(
                *("cost", *self.inputs, *frozen),
                *("-o", "out.csv", "--segments", "segments.csv", "--activation-bytes"),
            )
            study = (
                *("simulate", "--plan", "whole.json", "--global-batch", 6, "--steps", 3),
                *("--policy", "sequential,lpt-2d,entrain", "--schedule", "gpipe,1f1b"),
                *("--evaluations", 30),
            )
            rows = [
                self.json_of(*study, *inputs)["rows"]
                for inputs in (
                    ("--costs", "out.csv", "--segment-costs", "segments.csv"),
                    (*self.inputs, *frozen),
                )
            ]
            for table, model in zip(*rows, strict=True):
                self.assertEqual(table["policy"], model["policy"])
                self.assertEqual(table["step_s"], model["step_s"], table["policy"])

    def test_freezing_leaves_gradients_out(self):
        names = {}
        for frozen in ("", "vision", "vision,vision.projector"):
            arguments = ["--freeze", frozen] if frozen else []
            self.expect_success("cost", *self.inputs, *arguments, "-o", "out.csv")
            names[frozen] = sum(float(row["vision_backward_s"]) for row in self.rows_of("out.csv"))
        self.assertGreater(names[""], names["vision"])
        self.assertGreater(names["vision"], 0)
        self.assertEqual(names["vision,vision.projector"], 0)

    def test_leaves_no_file_behind_a_mistake(self):
        self.expect_failure(2, ["--index"], "cost", "--model", "model.toml", "-o", "out.csv")
        self.expect_failure(
            2,
            ["--freeze", "did you mean 'vision'"],
            *("cost", *self.inputs, "--freeze", "visoin", "-o", "out.csv"),
        )
        self.expect_failure(
            2, ["the same file"], "cost", *self.inputs, "-o", "a.csv", "--segments", "a.csv"
        )
        text = (self.folder / "train.csv").read_text()
        (self.folder / "train.csv").write_text(text.replace("48x32", "4800x1"))
        self.expect_failure(
            2,
            ["s1"],
            *("cost", *self.inputs, "-o", "out.csv", "--segments", "segments.csv"),
        )
        for name in ("out.csv", "segments.csv"):
            self.assertFalse((self.folder / name).exists())
        self.assertEqual(list(self.folder.glob("*.partial*")), [])


class Simulate(StudyTest):
    def test_prints_a_table_of_every_policy_and_schedule(self):
        names = json.loads(self.expect_success("env", "--json").stdout)
        result = self.expect_success(
            *self.planned("simulate", "--policy", "all", "--schedule", "all", "--steps", 1)
        )
        for policy in names["policies"]:
            self.assertIn(policy, result.stdout)
        for schedule in names["schedules"]:
            self.assertIn(schedule, result.stdout)
        self.assertIn("vs best", result.stdout)
        self.assertIn("one byte a token and layer", result.stdout)

    def test_writes_one_csv_line_per_policy_schedule_and_step(self):
        arguments = self.planned(
            *("simulate", "--policy", "sequential,lpt-2d", "--schedule", "gpipe,1f1b"),
            *("--steps", 3, "--csv", "cases.csv", "--num-slots", 2),
        )
        report = self.json_of(*arguments)
        with open(self.folder / "cases.csv", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual(len(rows), 12)
        times = sorted(float(row["step_s"]) for row in rows[:3])
        self.assertAlmostEqual(report["rows"][0]["step_s"], times[1], places=8)
        self.assertEqual(rows[0]["num_slots"], "2;2")

    def test_says_why_a_schedule_cannot_run_the_plan(self):
        several = self.planned("simulate", "--schedule", "1f1b,dip", "--steps", 1)
        result = self.expect_success(*several)
        self.assertEqual(result.stdout.count("cannot run this plan: it needs lanes that host"), 1)
        row = next(row for row in self.json_of(*several)["rows"] if row["schedule"] == "dip")
        self.assertNotIn("step_s", row)
        for schedules in ("dip", "interleaved", "interleaved,dip"):
            self.expect_failure(
                2,
                [f"'{schedules.split(',')[0]}' cannot run this plan: it needs", "entrain plan --"],
                *self.planned("simulate", "--schedule", schedules, "--steps", 1),
            )

    def test_shares_links(self):
        self.write_costs()
        times = {}
        for links in ("own", "lane"):
            report = self.json_of(*self.planned("simulate", "--links", links, "--steps", 1))
            times[links] = [row["step_s"] for row in report["rows"]]
        for own, lane in zip(times["own"], times["lane"], strict=True):
            self.assertLessEqual(own, lane)
        self.expect_failure(
            2, ["--links node needs --cluster"], *self.planned("simulate", "--links", "node")
        )

    def test_writes_and_reads_an_order_of_torch(self):
        arguments = ("--lanes", 3, "--num-slots", 2, "--policy", "sequential")
        written = self.json_of(
            *self.study("simulate", *arguments, "--schedule", "zb-h1", "--steps", 1),
            *("--torch-csv", "order.csv"),
        )
        self.assertTrue((self.folder / "order.csv").read_text().startswith("0F0,"))
        read = self.json_of(*self.study("explain", *arguments), "--torch-order", "order.csv")
        self.assertAlmostEqual(read["step_s"], written["rows"][0]["step_s"], places=9)
        (self.folder / "bad.csv").write_text("0F0\n")
        self.expect_failure(
            2,
            ["--torch-order bad.csv", "1 rows; the plan has 3 lanes"],
            *self.study("explain", *arguments),
            "--torch-order",
            "bad.csv",
        )

    def test_does_not_depend_on_threads(self):
        reports = []
        for threads in (1, 3):
            report = self.json_of(*self.planned("simulate", "--steps", 2, "--threads", threads))
            for row in report["rows"]:
                del row["assign_ms"]
            reports.append(report)
        self.assertEqual(*reports)

    def test_freezing_makes_the_step_faster(self):
        arguments = self.planned("simulate", "--policy", "lpt-2d", "--steps", 1)
        free = self.json_of(*arguments)["rows"][0]["step_s"]
        frozen = self.json_of(*arguments, "--freeze", "llm")["rows"][0]["step_s"]
        self.assertLess(frozen, free)
        self.expect_failure(
            2, ["--freeze", "did you mean 'vision'"], *arguments, "--freeze", "visin"
        )

    def test_searches_a_plan_where_none_is_given(self):
        report = self.json_of(
            *self.study("simulate", "--lanes", 2, "--policy", "lpt-2d", "--evaluations", 20)
        )
        self.assertEqual(len(report["rows"]), 1)
        self.expect_failure(2, ["--plan", "--lanes"], *self.study("simulate"))
        self.expect_failure(2, ["--models", "--cluster"], "study", "paper", "-o", "paper")

    def test_a_searched_plan_is_that_of_plan(self):
        lanes = ("--lanes", 2)
        sought = ("--policy", "lpt-2d", "--steps", 2, "--evaluations", 20)
        for layout in ([], ["--layout", "apart"], ["--layout", "shared"]):
            said = self.expect_success(*self.study("simulate", *lanes, *layout, *sought)).stderr
            splits = self.expect_success(
                *self.study("plan", *lanes, *layout, "--evaluations", 20, "-o", "found.json")
            ).stdout
            table = [line for line in said.splitlines() if line.startswith("vision")]
            self.assertEqual(table, [x for x in splits.splitlines() if x.startswith("vision")])
            self.assertEqual(any("|" in line for line in table), layout != ["--layout", "apart"])
            self.assertEqual(any("+" in line for line in table), layout != ["--layout", "shared"])
            self.assertEqual(
                self.json_of(*self.study("simulate", *lanes, *layout, *sought))["rows"][0][
                    "step_s"
                ],
                self.json_of(*self.study("simulate", "--plan", "found.json", *sought))["rows"][0][
                    "step_s"
                ],
            )
        both = self.planned("simulate", "--layout", "shared")
        self.expect_failure(2, ["--layout", "--plan"], *both)
        dip = ("--plan-schedule", "dip", "--layout", "apart")
        self.expect_failure(2, ["apart", "dip"], *self.study("simulate", *lanes, *dip))

    def test_equal_memory_is_met_by_lpt(self):
        report = self.json_of(
            *self.planned("simulate", "--policy", "sequential,lpt-2d", "--memory", "equal")
        )
        self.assertEqual(report["rows"][1]["over_bytes"], 0)

    def test_marks_baselines_over_a_limit_and_refuses_when_nothing_fits(self):
        arguments = self.planned("simulate", "--memory", 1, "--steps", 1)
        result = self.expect_success(*arguments, "--policy", "sequential,entrain")
        self.assertIn("over limit by", result.stdout)
        self.assertIn("entrain with 1f1b: no result on 1 of 1 step:", result.stdout)
        words = ["nothing fits", "lane ", "slot ", "allowed: 1 B"]
        self.expect_failure(4, words, *arguments, "--policy", "entrain")

    def test_means_are_shown_where_steps_differ(self):
        uneven = self.expect_success(*self.planned("simulate", "--steps", 5)).stdout
        self.assertIn("mean: of the steps", uneven)
        rows = self.json_of(*self.planned("simulate", "--steps", 5))["rows"]
        for row in rows:
            mean = sum(row["curves"]["predicted_step_s"]) / 5
            self.assertAlmostEqual(row["step_mean_s"], mean, places=9)
        one = self.expect_success(*self.planned("simulate", "--steps", 1)).stdout
        self.assertNotIn("mean: of the steps", one)
        held = self.expect_success(*self.planned("simulate", "--steps", 2, "--hold", 4))
        self.assertIn("2 of them are looked at: give --steps 4", held.stderr)
        searched = self.study("simulate", "--lanes", 2, "--evaluations", 5, "--hold", 5)
        self.assertIn("give --plan-batches 5", self.expect_success(*searched).stderr)
        plan = self.study("plan", "--lanes", 2, "--evaluations", 5, "--hold", 5)
        self.assertIn("give --batches 5", self.expect_success(*plan).stderr)

    def test_writes_a_trace(self):
        self.expect_success(*self.planned("simulate", "--steps", 1, "--trace", "trace.json"))
        trace = json.loads((self.folder / "trace.json").read_text())
        self.assertEqual(trace["otherData"]["label"], "entrain with 1f1b")

    def test_suggests_names(self):
        self.expect_failure(
            2, ["--policy", "did you mean 'lpt-2d'"], *self.planned("simulate", "--policy", "lpt2d")
        )
        self.expect_failure(
            2, ["--schedule", "1f1b"], *self.planned("simulate", "--schedule", "1f1")
        )
        self.expect_failure(2, ["--memory", "equal"], *self.planned("simulate", "--memory", "eqal"))
        self.expect_failure(2, ["'simulat' is unknown, did you mean 'simulate'?"], "simulat")
        self.expect_failure(2, ["a command is missing; one of index, profile, cost"])
        self.expect_failure(2, ["a command is missing; one of paper"], "study")
        helped = self.expect_success("help", "plan").stdout
        self.assertEqual(helped, self.expect_success("plan", "--help").stdout)
        self.expect_failure(
            2,
            ["'--polizy=entrain' is unknown, did you mean '--policy'?"],
            *self.planned("simulate", "--polizy=entrain"),
        )


class BadCosts(StudyTest):
    def test_missing_column(self):
        self.write_costs(COSTS_HEADER.replace("vision_backward_s", "vision_back"))
        self.expect_failure(
            2, ["costs.csv", "'vision_backward_s' is missing"], *self.planned("simulate")
        )

    def test_negative_number(self):
        self.write_costs(rows=["a,1,1e-3,2e-3,5,-4e-3,8e-3"])
        self.expect_failure(2, ["costs.csv:2", "llm_forward_s", "-4e-3"], *self.planned("simulate"))

    def test_missing_file_and_contradiction(self):
        self.expect_failure(
            2,
            ["absent.csv", "does not exist"],
            *("assign", "--costs", "absent.csv", "--global-batch", 2, "--plan", "plan.json"),
        )
        self.expect_failure(
            2, ["--costs replaces"], *self.planned("assign", "--index", "index.csv")
        )

    def test_segments_that_do_not_add_up(self):
        (self.folder / "segments.csv").write_text(
            "sample_id,module,segment,tokens,forward_s,backward_s\ns0,vision,0,9,1e-3,2e-3\n"
        )
        self.expect_failure(
            2,
            ["segments.csv", "'s0'", "add up"],
            *self.planned("simulate", "--segment-costs", "segments.csv"),
        )


class Assign(StudyTest):
    def test_writes_an_assignment_that_explain_reads(self):
        result = self.expect_success(*self.planned("assign", "--step", 1, "-o", "a.json"))
        self.assertIn("written to a.json", result.stdout)
        document = json.loads((self.folder / "a.json").read_text())
        placed = [
            entry
            for replica in document["replicas"]
            for slot in replica["modules"]["llm"]
            for entry in slot
        ]
        self.assertEqual(len(placed), 6)
        told = self.json_of(*self.planned("explain", "--step", 1, "--assignment", "a.json"))
        self.assertAlmostEqual(told["step_s"], document["stats"]["makespan_s"], places=9)
        self.expect_failure(
            2,
            ["a.json", "is not among"],
            *self.planned("explain", "--step", 2, "--assignment", "a.json"),
        )

    def test_assigns_the_same_on_any_number_of_threads(self):
        step = ("assign", "--costs", "costs.csv", "--global-batch", 24, "--plan", "plan.json")
        found = []
        for threads in (1, 3):
            name = f"{threads}.json"
            more = ("--replicas", 6, "--assign-threads", threads, "-o", name)
            self.expect_success(*step, *more)
            found.append(json.loads((self.folder / name).read_text())["replicas"])
        self.assertEqual(*found)

    def test_compares_all_policies(self):
        documents = self.json_of(*self.planned("assign", "--policy", "all"))
        names = json.loads(self.expect_success("env", "--json").stdout)["policies"]
        self.assertEqual([document["policy"] for document in documents], names)
        self.expect_failure(
            2, ["--output"], *self.planned("assign", "--policy", "all", "-o", "a.json")
        )

    def test_says_who_is_over_the_limit(self):
        limited = self.planned("assign", "--memory", 44)
        both = self.expect_success(*limited, "--policy", "lpt-2d,entrain")
        self.assertIn("over limit by", both.stdout)
        self.assertNotIn("exceeds", both.stderr)
        words = ["policy lpt-2d exceeds the memory limit: lane ", "allowed: 44 B"]
        for more in ([], ["--json"], ["-o", "a.json"]):
            alone = self.expect_success(*limited, "--policy", "lpt-2d", *more)
            for word in words:
                self.assertIn(word, alone.stderr)
        kept = self.expect_success(*limited)
        self.assertNotIn("over", kept.stdout.replace("over mean", "") + kept.stderr)
        self.assertIn("peak memory", kept.stdout)

    def test_counts_chunks_where_they_are_allowed(self):
        self.assertIn("  chunks  ", self.expect_success(*self.planned("assign", "--chunks")).stdout)
        self.assertNotIn("chunks", self.expect_success(*self.planned("assign")).stdout)
        simulated = self.expect_success(*self.planned("simulate", "--chunks", "--json"))
        cut = [row["policy"] for row in json.loads(simulated.stdout)["rows"] if row["chunks"] > 0]
        self.assertEqual(cut, ["entrain"])
        shown = self.expect_success(*self.planned("simulate", "--chunks")).stdout
        self.assertIn("chunks: token ranges", shown)
        self.assertNotIn("chunks", self.expect_success(*self.planned("simulate")).stdout)

    def test_takes_one_schedule(self):
        for command in ("assign", "explain"):
            words = ["--schedule", "zb-h1,zb-h2", "one name"]
            self.expect_failure(2, words, *self.planned(command, "--schedule", "zb-h1,zb-h2"))

    def test_says_that_nothing_fits(self):
        self.expect_failure(
            4, ["lane ", "slot ", "allowed: 1 B"], *self.planned("assign", "--memory", 1)
        )


class EngineHandover(CliTest):
    """Commands that need torch run in a program of their own beside the one that is called."""

    def test_hands_over_arguments_and_exit_code(self):
        if not self.has_engine():
            self.skipTest("built without the engine")
        self.assertIn("--set", self.expect_success("train", "--help").stdout)
        self.expect_failure(2, ["missing.toml"], "train", "missing.toml")
        everything = self.expect_success("--help").stdout
        for command in ("plan", "train", "profile", "checkpoint"):
            self.assertIn(command, everything)
        self.assertNotIn("needs the engine", everything)

    def test_needs_torch_for_nothing_else(self):
        alone = self.folder / "entrain"
        shutil.copy(self.entrain, alone)
        engine = self.has_engine()
        self.entrain = str(alone)
        self.assertIn("policies", self.expect_success("env", "--json").stdout)
        words = ["cannot start", "entrain-engine"] if engine else ["needs the engine"]
        self.expect_failure(3 if engine else 2, words, "train", "run.toml")


class Explain(StudyTest):
    def test_tells_about_the_step(self):
        result = self.expect_success(*self.planned("explain"))
        for words in ("gap", "The busiest lane", "critical path", "Slots of replica", "heaviest"):
            self.assertIn(words, result.stdout)

    def test_tells_about_one_sample_and_one_slot(self):
        told = self.json_of(*self.planned("explain"))
        sample = told["samples"][0]["sample"]
        result = self.expect_success(*self.planned("explain", "--sample", sample, "--slot", 0))
        self.assertIn(f"  {sample} (replica", result.stdout)
        self.expect_failure(
            2, ["--sample", "nobody"], *self.planned("explain", "--sample", "nobody")
        )
        self.expect_failure(2, ["slot 99"], *self.planned("explain", "--slot", 99))

    def test_tells_what_a_memory_limit_costs(self):
        free = self.json_of(*self.planned("explain", "--memory", "free"))
        self.assertIsNone(free["unlimited_step_s"])
        limited = self.json_of(*self.planned("explain", "--memory", 44))
        self.assertEqual(limited["over_bytes"], 0)
        self.assertEqual(limited["unlimited_step_s"], free["step_s"])
        self.assertGreater(limited["step_s"], free["step_s"])
        text = self.expect_success(*self.planned("explain", "--memory", 44)).stdout
        self.assertIn("Without memory limits 'entrain' takes", text)
        over = self.planned("explain", "--memory", 44, "--policy", "lpt-2d")
        self.assertGreater(self.json_of(*over)["over_bytes"], 0)
        self.assertIn("It exceeds a memory limit: lane", self.expect_success(*over).stdout)

    def test_parts_sum_to_the_step(self):
        told = self.json_of(*self.planned("explain"))
        path = sum(part["time_s"] for part in told["critical_path"])
        self.assertAlmostEqual(path, told["step_s"], places=9)
        for lane in told["lanes"]:
            parts = sum(
                value for key, value in lane.items() if key.endswith("_s") and key != "transfer_s"
            )
            self.assertAlmostEqual(parts, told["step_s"], places=9)


if __name__ == "__main__":
    cli_fixture.main()
