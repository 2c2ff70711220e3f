"""`audit` on tiny inputs: its table, JSON and page, and messages that help."""

import html.parser

import cli_fixture
from cli_fixture import CliTest
from study_commands_test import StudyTest


class Elements(html.parser.HTMLParser):
    """Opens and closes every element; keeps their names."""

    EMPTY = ("meta", "br", "rect", "path", "polyline")

    def __init__(self):
        super().__init__()
        self.open = []
        self.names = set()

    def handle_starttag(self, tag, attrs):
        self.names.add(tag)
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in self.EMPTY:
            assert self.open.pop() == tag, tag


class Audit(StudyTest):
    def audit(self, *more, microbatch=2):
        layout = ("--ranks", 2, "--microbatches", 1, "--microbatch", microbatch)
        return ("audit", "--costs", "costs.csv", *layout, *more)

    def test_says_what_each_order_costs(self):
        report = self.json_of(*self.audit())
        policies = {policy["name"]: policy for policy in report["policies"]}
        self.assertEqual(report["steps"], 6)  # 24 samples, 4 a step
        for policy in policies.values():
            self.assertGreaterEqual(policy["over_perfect"], report["bound_over_perfect"] - 1e-9)
        self.assertLess(policies["entrain"]["over_perfect"], policies["random"]["over_perfect"])
        text = self.expect_success(*self.audit()).stdout
        self.assertIn("FSDP, 2 ranks × 1 microbatches: 6 steps of 4 samples, of 24", text)
        self.assertIn("random", text)
        self.assertIn("cap in tokens", text)

    def test_depends_on_the_layout_and_padding_but_not_on_chance(self):
        seen = set()
        for more in ((), ("--layout", "ddp"), ("--padded",), ("--seed", 1)):
            first = self.json_of(*self.audit(*more))
            self.assertEqual(first, self.json_of(*self.audit(*more)))
            seen.add(first["policies"][0]["over_perfect"])
        self.assertEqual(len(seen), 4)

    def test_writes_a_page_that_stands_alone(self):
        self.expect_success(*self.audit("-o", "audit.html"))
        text = (self.folder / "audit.html").read_text()
        elements = Elements()
        elements.feed(text)
        self.assertEqual(elements.open, [])
        self.assertFalse(elements.names & {"script", "link", "img", "iframe"})
        self.assertLess(len(text), 1_000_000)
        (self.folder / "notes.txt").write_text("mine")
        self.expect_failure(2, ["--output", "notes.txt"], *self.audit("-o", "notes.txt"))
        self.assertEqual((self.folder / "notes.txt").read_text(), "mine")

    def test_keeps_limits_or_says_who_breaks_them(self):
        report = self.json_of(*self.audit("--max-tokens", 30))
        self.assertLessEqual(report["policies"][-1]["most_tokens"], 30)
        report = self.json_of(*self.audit("--max-tokens", 12))
        self.assertEqual(report["num_over_memory"], 4)
        self.assertIn("4 samples exceed the limit", " ".join(report["findings"]))
        self.expect_failure(4, ["step 0", "no place"], *self.audit("--max-tokens", 15))

    def test_names_what_is_wrong(self):
        self.expect_failure(
            2, ["step 0", "module 0"], *self.audit("--everywhere", "vision", microbatch=1)
        )
        self.expect_failure(2, ["did you mean 'vision'"], *self.audit("--everywhere", "vsion"))
        self.expect_failure(2, ["--microbatch", "1 to"], *self.audit(microbatch=0))
        self.expect_failure(2, ["absent.csv"], "audit", "absent.csv", "-m", "model.toml")
        self.expect_failure(
            2, ["INDEX", "--index"], "audit", "a.csv", "--index", "b.csv", "-m", "model.toml"
        )


class Config(CliTest):
    def test_of_a_model_is_read_alone(self):
        (self.folder / "train.csv").write_text(
            "sample_id,n_images,image_sizes,prompt_chars,response_chars,"
            "prompt_tokens_estimate,response_tokens_estimate\n"
            + "".join(f"s{i},0,,80,80,{20 + i},{10 + i}\n" for i in range(32))
        )
        (self.folder / "deep.json").write_text("[" * 1_000_000)
        self.expect_failure(
            2, ["deep.json"], "audit", "train.csv", "--hf-config", "deep.json", "--ranks", 2
        )
        (self.folder / "other.json").write_text('{"architectures": ["Qwen9"]}')
        self.expect_failure(
            2, ["other.json", "architectures"], "audit", "train.csv", "--hf-config", "other.json"
        )


if __name__ == "__main__":
    cli_fixture.main()
