"""Batches that someone gives (--batch, --no-repeat of simulate, assign and explain), and chunks
of samples whose costs someone gives."""

import itertools

import cli_fixture
from study_commands_test import StudyTest

IDS = ("s7", "s0", "s23", "s4")


class GivenBatches(StudyTest):
    def given(self, command, *more):
        study = ("--costs", "costs.csv", "--plan", "plan.json", "--evaluations", 30)
        return [command, *study, *more]

    def write_ids(self, text="# four\n\ns7\ns0\ns23\ns4\n"):
        (self.folder / "ids.txt").write_text(text)

    def samples_of(self, *arguments):
        document = self.json_of(*self.given("assign", *arguments))
        return [
            entry
            for replica in document["replicas"]
            for slot in replica["modules"]["llm"]
            for entry in slot
        ]

    def test_a_list_of_ids_is_the_only_batch(self):
        self.write_ids()
        batch = ("--batch", "ids.txt")
        self.assertEqual(sorted(self.samples_of(*batch)), sorted(IDS))
        report = self.json_of(*self.given("simulate", *batch))
        self.assertEqual(report["steps"], 1)
        self.assertIn("the batch of ids.txt", report["note"])
        told = self.json_of(*self.given("explain", *batch, "--sample", "s23"))
        self.assertGreater(told["step_s"], 0)
        one = ["only one"]
        self.expect_failure(2, one, *self.given("assign", *batch, "--step", 1))
        self.expect_failure(
            2, ["--steps", "1 batch"], *self.given("simulate", *batch, "--steps", 2)
        )
        self.expect_failure(
            2, ["'s1' is in no given batch"], *self.given("explain", *batch, "--sample", "s1")
        )

    def test_an_assignment_is_read_with_its_batch(self):
        self.write_ids()
        batch = ("--batch", "ids.txt")
        self.expect_success(*self.given("assign", *batch, "-o", "a.json"))
        rows = self.json_of(*self.given("simulate", *batch, "--assignment", "a.json"))["rows"]
        self.assertIn("given", [row["policy"] for row in rows])
        self.expect_failure(
            2,
            ["assignment", "in no slot"],
            *self.given("explain", "--no-repeat", "--assignment", "a.json"),
        )

    def test_nothing_repeats_in_the_order_of_the_file(self):
        every = [f"s{i}" for i in range(24)]
        self.assertEqual(sorted(self.samples_of("--no-repeat")), sorted(every))
        ten = ("--no-repeat", "--global-batch", 10)
        self.assertEqual(sorted(self.samples_of(*ten, "--step", 1)), sorted(every[10:20]))
        result = self.expect_success(*self.given("simulate", *ten, "--csv", "cases.csv"))
        self.assertIn("the last 4 of 24 samples are left out", result.stderr)
        self.assertIn("2 steps;", result.stdout)
        self.expect_failure(
            2, ["--steps: 3", "2 batches"], *self.given("simulate", *ten, "--steps", 3)
        )
        self.expect_failure(2, ["steps 0 to 1"], *self.given("assign", *ten, "--step", 2))
        self.expect_failure(
            2, ["24 samples"], *self.given("simulate", "--no-repeat", "--global-batch", 25)
        )

    def test_mistakes_are_named(self):
        for text, words in (
            ("s1\nsample1\ns23x\n", ["ids.txt, line 2", "'sample1'", "24 samples"]),
            ("s1\n# x\ns1\n", ["ids.txt, line 3", "'s1'", "line 1"]),
            ("s1\ns23x\n", ["'s23x'", "did you mean 's23'"]),
            ("# none\n", ["ids.txt", "no sample ids"]),
        ):
            self.write_ids(text)
            self.expect_failure(2, words, *self.given("simulate", "--batch", "ids.txt"))
        self.expect_failure(2, ["absent.txt"], *self.given("simulate", "--batch", "absent.txt"))
        self.write_ids()
        for more in (("--global-batch", 4), ("--no-repeat",)):
            self.expect_failure(2, ["--batch"], *self.given("assign", "--batch", "ids.txt", *more))
        for command in ("simulate", "assign", "explain"):
            self.expect_failure(2, ["--global-batch", "--batch"], *self.given(command))


class HeldBatches(StudyTest):
    def test_come_in_the_same_windows_and_are_the_same_for_every_command(self):
        heavy = [i % 6 == 1 for i in range(24)]
        rows = [f"s{i},0,0,0,10,{0.06 if heavy[i] else 1e-3},0.0" for i in range(24)]
        self.write_costs(rows=rows)

        def steps_of(*more):
            documents = [
                self.json_of(*self.planned("assign", "--step", step, *more)) for step in range(4)
            ]
            return [
                sorted(
                    entry
                    for replica in document["replicas"]
                    for slot in replica["modules"]["llm"]
                    for entry in slot
                )
                for document in documents
            ]

        drawn, held = steps_of(), steps_of("--hold", 4)
        self.assertEqual(steps_of("--hold", 0), drawn)
        self.assertNotEqual(held, drawn)
        self.assertEqual([len(step) for step in held], [6] * 4)
        self.assertEqual(sorted(itertools.chain(*held)), sorted(itertools.chain(*drawn)))
        report = self.json_of(*self.planned("simulate", "--hold", 4, "--steps", 4))
        self.assertIn("oversized samples held within windows of 4 steps", report["note"])
        for step, samples in enumerate(held):
            self.expect_success(
                *self.planned("explain", "--hold", 4, "--step", step, "--sample", samples[0])
            )
        self.expect_success(*self.study("plan", "--lanes", 2, "--hold", 4, "-o", "held.json"))
        self.expect_failure(2, ["--hold", "256"], *self.planned("simulate", "--hold", 257))
        self.expect_failure(
            2, ["--hold", "--no-repeat"], *self.planned("simulate", "--hold", 4, "--no-repeat")
        )


class ChunksUnderCosts(StudyTest):
    def test_later_chunks_cost_more_where_costs_grow_faster_than_lengths(self):
        rows = []
        for i in range(1, 9):
            tokens = 100 * i if i < 8 else 4000
            cost = 1e-6 * tokens + 2e-9 * tokens * tokens
            rows.append(f"s{i},0,0,0,{tokens},{cost},{2 * cost}")
        self.write_costs(rows=rows)
        (self.folder / "plan.json").write_text(
            '{"version": 1, "replicas": 1, "num_slots": 4, "modules": {'
            '"vision": {"tensor_parallel": 1, "context_parallel": 1, "stages": [[0, 4]]},'
            '"llm": {"tensor_parallel": 1, "context_parallel": 1, "stages": [[0, 2], [2, 4]]}}}'
        )
        study = ("--costs", "costs.csv", "--plan", "plan.json", "--no-repeat", "--chunks")
        document = self.json_of("assign", *study, "--policy", "entrain")
        chunks = [
            entry["tokens"]
            for slot in document["replicas"][0]["modules"]["llm"]
            for entry in slot
            if isinstance(entry, dict) and entry["sample"] == "s8"
        ]
        self.assertGreater(len(chunks), 1, document)
        chunks.sort()
        first, last = (end - begin for begin, end in (chunks[0], chunks[-1]))
        self.assertGreater(first, last, "equal work is fewer tokens later")


if __name__ == "__main__":
    cli_fixture.main()
