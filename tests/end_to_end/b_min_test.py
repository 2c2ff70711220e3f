"""b-min on tiny cost tables: the table, the verdict and its exit code, messages that help."""

import json

import cli_fixture
from cli_fixture import CliTest

HEADER = (
    "sample_id,vision_tokens,vision_forward_s,vision_backward_s,"
    "llm_tokens,llm_forward_s,llm_backward_s"
)


class BMin(CliTest):
    def write_costs(self, kinds):
        """kinds: (vision ms, LLM ms, number of samples)."""
        rows = []
        for vision, llm, count in kinds:
            for _ in range(count):
                rows.append(f"s{len(rows)},1,{vision}e-3,0,1,{llm}e-3,0")
        (self.folder / "costs.csv").write_text("\n".join([HEADER, *rows]) + "\n")

    def arguments(self, batch, *more):
        return ["b-min", "--costs", "costs.csv", "--global-batch", batch, *more]

    def test_prints_the_splits_and_a_yes(self):
        self.write_costs([(12, 4, 210), (4, 12, 190)])
        result = self.expect_success(*self.arguments(256, "--devices", 4))
        for part in ("vision:llm", "2:2", "3:1", "b_min", "59 validation", "yes"):
            self.assertIn(part, result.stdout)

    def test_says_no_below_b_min(self):
        self.write_costs([(12, 4, 210), (4, 12, 190)])
        result = self.run_program(*self.arguments(1, "--devices", 4))
        self.assertEqual(result.returncode, 4, result.stdout + result.stderr)
        self.assertIn("no, below b_min", result.stdout)

    def test_says_no_with_a_reason_on_a_rounding_boundary(self):
        self.write_costs([(18, 14, 60), (16, 16, 60)])
        result = self.run_program(*self.arguments(64))
        self.assertEqual(result.returncode, 4, result.stdout + result.stderr)
        for part in ("b_min: none", "120", "60 batches of 64", "9:7 (", "0.0000 devices"):
            self.assertIn(part, result.stdout)

    def test_writes_json(self):
        self.write_costs([(10, 6, 50)])
        report = json.loads(self.expect_success(*self.arguments(8, "--json")).stdout)
        self.assertEqual(report["b_min"], 1)
        self.assertEqual(report["proven"], 1)
        self.assertEqual(report["split"], [10, 6])
        self.assertEqual(report["draws"], 59)
        self.assertTrue(report["stable"])
        self.assertEqual([size["batch"] for size in report["sizes"]], [1, 8])
        self.assertEqual(report["sizes"][0]["splits"], [{"devices": [10, 6], "count": 60}])
        ratio = report["work_ratios"]["vision"]
        self.assertAlmostEqual(ratio["data"], 10 / 6, places=6)
        self.assertAlmostEqual(ratio["low"], 9.5 / 6.5, places=6)
        self.assertAlmostEqual(ratio["high"], 10.5 / 5.5, places=6)

    def test_refuses_what_cannot_be(self):
        self.write_costs([(10, 6, 50)])
        self.expect_failure(2, ["1 device for", "2 modules"], *self.arguments(8, "--devices", 1))
        self.expect_failure(
            2, ["--alpha: 1.5 is out of range", "0.999999"], *self.arguments(8, "--alpha", 1.5)
        )
        self.expect_failure(2, ["global-batch"], "b-min", "--costs", "costs.csv")


if __name__ == "__main__":
    cli_fixture.main()
