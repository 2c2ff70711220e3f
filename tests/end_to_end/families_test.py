"""Generated size manifests: the same for a seed, as described, and readable by `entrain simulate`."""

import json
import statistics
import sys
from pathlib import Path

from cli_fixture import CliTest, main

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
import families


def ranks(values):
    order = sorted(range(len(values)), key=values.__getitem__)
    places = [0] * len(values)
    for place, index in enumerate(order):
        places[index] = place
    return places


class Families(CliTest):
    def test_equal_seeds_give_equal_files(self):
        other = self.folder / "other"
        other.mkdir()
        for name in families.FAMILIES:
            first, _ = families.write_family(name, 1, self.folder, 64)
            again, _ = families.write_family(name, 1, other, 64)
            second, _ = families.write_family(name, 2, self.folder, 64)
            self.assertEqual(first.read_bytes(), again.read_bytes(), name)
            sizes = [path.read_text().replace("-s2-", "-s1-") for path in (first, second)]
            self.assertNotEqual(*sizes, name)

    def test_every_family_can_be_simulated(self):
        for name, family in families.FAMILIES.items():
            path, _ = families.write_family(name, 1, self.folder, 64)
            rows = families.simulate(self.entrain, path, family, 16, "sequential", "1f1b")
            self.assertEqual([row["refused"] for row in rows], [0], name)

    def test_samples_are_as_described(self):
        for name, family in families.FAMILIES.items():
            _, samples = families.write_family(name, 1, self.folder)
            text_only = [s for s in samples if not s["images"] and not s["clips"]]
            with_media = [s for s in samples if s["images"]]
            heavy = [s for s in samples if families.llm_tokens(s) > 2 * families.LIMIT]
            counts = {len(s["images"]) for s in with_media if s not in heavy}
            self.assertEqual((min(counts), max(counts)), family.segments, name)
            if family.oversized:
                tokens = [families.llm_tokens(s) for s in samples]
                slot = families.SAMPLES_PER_SLOT * statistics.median(tokens)
                for begin in range(0, len(samples), families.BLOCK):
                    largest = max(tokens[begin : begin + families.BLOCK])
                    self.assertGreater(largest, family.oversized * slot, name)
            else:
                self.assertEqual(len(text_only), round(family.text_only * len(samples)), name)

    def test_correlations_have_their_sign_and_strength(self):
        expected = {"both-1.5-opposed": -0.9, "pixels-3": 0.0, "both-2-together": 0.5}
        for name, correlation in expected.items():
            _, samples = families.write_family(name, 1, self.folder)
            pixels = ranks([sum(w * h for w, h in s["images"]) for s in samples])
            text = ranks([s["text"] for s in samples])
            self.assertAlmostEqual(statistics.correlation(pixels, text), correlation, delta=0.08)

    def test_half_of_the_bytes_leave_something_to_search(self):
        """The first construction takes most of the default budget there: search follows it."""
        root = Path(__file__).resolve().parents[2]
        model = root / f"configs/models/{families.FAMILIES['pixels-3'].model}.toml"
        path, _ = families.write_family("pixels-3", 1, self.folder)
        plan = self.folder / "plan.json"
        inputs = ["--index", path, "--model", model, "--profile", "analytic:a40"]
        inputs += ["--global-batch", 512, "--freeze", "vision"]
        self.expect_success("plan", *inputs, "--lanes", 8, "--replicas", 4, "-o", plan)

        def row(policy, *options):
            options = [*options, "--policy", policy, "--schedule", "1f1b", "--steps", 1]
            result = self.expect_success("simulate", *inputs, "--plan", plan, "--json", *options)
            return json.loads(result.stdout)["rows"][0]

        limit = ["--memory", row("lpt-2d", "--memory", "free")["peak_bytes"] // 2]
        short, default = (row("entrain", *limit, "--evaluations", n) for n in (300, 1800))
        self.assertLess(default["step_s"], 0.99 * short["step_s"])


if __name__ == "__main__":
    main()
