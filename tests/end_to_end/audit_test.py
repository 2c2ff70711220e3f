"""`audit`, `export` and assignments of anyone on tiny inputs: results, files, messages that help."""

import ast
import html.parser
import json
import struct

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
        self.assertIn("FSDP, 2 ranks × 1 microbatch: 6 steps of 4 samples, of 24", text)
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
        self.assertIn("costs: costs.csv", text)
        self.assertRegex(text, r"entrain \d+\.\d+\.\d+, \d{4}-\d\d-\d\d")
        noted = ("--costs-note", "of <our> log", "--constant-ms", 2.5, "-o", "audit.html")
        done = self.expect_success(*self.audit(*noted))
        self.assertTrue(done.stdout.startswith("of <our> log\n"), done.stdout[:80])
        self.assertTrue(done.stdout.endswith("\npage written to audit.html\n"))
        text = (self.folder / "audit.html").read_text()
        self.assertIn("of &lt;our&gt; log", text)
        self.assertIn("2.5 ms a microbatch besides its samples", text)
        (self.folder / "notes.txt").write_text("mine")
        self.expect_failure(2, ["--output", "notes.txt"], *self.audit("-o", "notes.txt"))
        self.assertEqual((self.folder / "notes.txt").read_text(), "mine")

    def test_keeps_limits_or_says_who_breaks_them(self):
        report = self.json_of(*self.audit("--max-tokens", 30))
        self.assertLessEqual(report["policies"][-1]["most_tokens"], 30)
        report = self.json_of(*self.audit("--max-tokens", 12))
        self.assertEqual(report["num_over_memory"], 4)
        self.assertIn("4 of 24 samples exceed the limit", report["findings"][0])
        self.expect_failure(4, ["step 0", "no place"], *self.audit("--max-tokens", 15))

    def test_names_what_is_wrong(self):
        self.expect_failure(
            2,
            ["step 0", "have work in vision"],
            *self.audit("--everywhere", "vision", microbatch=1),
        )
        self.expect_failure(2, ["did you mean 'vision'"], *self.audit("--everywhere", "vsion"))
        self.expect_failure(2, ["--microbatch", "1 to"], *self.audit(microbatch=0))
        self.expect_failure(2, ["absent.csv"], "audit", "absent.csv", "-m", "model.toml")
        self.expect_failure(
            2, ["INDEX", "--index"], "audit", "a.csv", "--index", "b.csv", "-m", "model.toml"
        )

    def test_names_an_unknown_option_alone(self):
        done = self.expect_failure(
            2, ["'--rank' is unknown, did you mean '--ranks'?"], "audit", "-i", "a.csv", "--rank", 8
        )
        self.assertNotIn("INDEX", done.stderr)
        self.assertNotIn("'8'", done.stderr)
        done = self.expect_failure(2, ["'--fancy' is unknown; allowed: "], *self.audit("--fancy"))

    def test_shows_its_defaults(self):
        text = self.expect_success("audit", "--help").stdout
        for name, value in (
            ("layout", "fsdp"), ("ranks", 8), ("microbatches", 4), ("microbatch", 4), ("seed", 0)
        ):  # fmt: skip
            self.assertRegex(text, rf"--{name} \S.*={value}\s")


class Export(StudyTest):
    def export(self, *more):
        layout = ("--ranks", 2, "--microbatches", 2, "--microbatch", 2)
        return ("export", "--costs", "costs.csv", *layout, *more)

    def test_writes_orders_that_agree(self):
        report = self.json_of(
            *self.export("--order", "o.jsonl", "--npy", "o.npy", "--xtuner", "packs"),
            *("--path", "train.jsonl"),
        )
        self.assertEqual((report["steps"], report["samples"], report["left_out"]), (3, 24, 0))
        lines = [json.loads(line) for line in (self.folder / "o.jsonl").read_text().splitlines()]
        self.assertEqual(len(lines), 12)
        samples = [name for line in lines for name in line["samples"]]
        self.assertEqual(sorted(samples), sorted(f"s{i}" for i in range(24)))
        self.assertEqual([line["rank"] for line in lines], [0, 1] * 6)
        rows = self.array("o.npy")
        self.assertEqual([f"s{row}" for *_, row in rows], samples)
        boundaries, order = (
            self.array("packs/boundaries.npy"),
            self.array("packs/sampler_order.npy"),
        )
        packs = self.array("packs/samples.npy")
        self.assertEqual(order, list(range(12)))
        # As XTuner's sampler deals them: every second pack to a rank.
        for rank in (0, 1):
            own = [line["samples"] for line in lines if line["rank"] == rank]
            read = [
                [f"s{row[1]}" for row in packs[boundaries[pack] : boundaries[pack + 1]]]
                for pack in order[rank::2]
            ]
            self.assertEqual(read, own)
        tokens = {row.split(",")[0]: int(row.split(",")[4]) for row in self.rows}
        self.assertEqual([row[5] for row in packs], [tokens[name] for name in samples])
        self.assertEqual((self.folder / "packs/paths.json").read_text(), '["train.jsonl"]\n')

    def array(self, name):
        """numpy's format, read by hand."""
        data = (self.folder / name).read_bytes()
        self.assertEqual(data[:8], b"\x93NUMPY\x01\x00")
        (length,) = struct.unpack("<H", data[8:10])
        header = ast.literal_eval(data[10 : 10 + length].decode())
        self.assertEqual((header["descr"], header["fortran_order"]), ("<i8", False))
        values = [value for (value,) in struct.iter_unpack("<q", data[10 + length :])]
        rows, *columns = header["shape"]
        self.assertEqual(len(values), rows * (columns[0] if columns else 1))
        if not columns:
            return values
        return [values[i : i + columns[0]] for i in range(0, len(values), columns[0])]

    def test_is_the_same_again_and_other_in_other_epochs(self):
        texts = []
        for epoch in (0, 0, 1):
            self.expect_success(*self.export("--order", "o.jsonl", "--epoch", epoch))
            texts.append((self.folder / "o.jsonl").read_text())
        self.assertEqual(texts[0], texts[1])
        self.assertNotEqual(texts[0], texts[2])

    def test_names_what_is_wrong(self):
        self.expect_failure(2, ["--order, --npy or --xtuner"], *self.export())
        self.expect_failure(
            4,
            ["4 of 24 samples exceed", "alone: s"],
            *self.export("--order", "o.jsonl", "--max-tokens", 12),
        )
        self.assertFalse((self.folder / "o.jsonl").exists())
        (self.folder / "packs").mkdir()
        (self.folder / "packs/paths.json").write_text("{}")
        self.expect_failure(2, ["--xtuner", "paths.json"], *self.export("--xtuner", "packs"))


class Judged(StudyTest):
    def test_is_an_assignment_beside_the_policies(self):
        self.expect_success(
            *self.planned("assign", "--policy", "lpt-2d", "--step", 2, "-o", "a.json")
        )
        found = self.json_of(
            *self.planned("simulate", "--policy", "lpt-2d", "--num-slots", 2),
            *("--assignment", "a.json", "--schedule", "1f1b,gpipe"),
        )
        rows = {(row["policy"], row["schedule"]): row for row in found["rows"]}
        self.assertEqual(found["steps"], 1)
        for schedule in ("1f1b", "gpipe"):
            given, own = rows["given", schedule], rows["lpt-2d", schedule]
            self.assertEqual(given["step_s"], own["step_s"])
            self.assertEqual(given["lower_bound_s"], own["lower_bound_s"])
        document = json.loads((self.folder / "a.json").read_text())
        slots = document["replicas"][0]["modules"]["llm"]
        slots[0], slots[1] = slots[0] + slots[1], []  # anyone's, with everything in one slot
        vision = document["replicas"][0]["modules"]["vision"]
        vision[0], vision[1] = vision[0] + vision[1], []
        (self.folder / "b.json").write_text(json.dumps(document))
        worse = self.json_of(
            *self.planned("simulate", "--policy", "lpt-2d", "--assignment", "b.json")
        )
        self.assertGreater(worse["rows"][0]["step_s"], rows["given", "1f1b"]["step_s"])
        for key in ("policy", "seed", "stats"):
            del document[key]
        del document["replicas"][0]["deferred"]
        (self.folder / "b.json").write_text(json.dumps(document))
        bare = self.json_of(
            *self.planned("simulate", "--policy", "lpt-2d", "--assignment", "b.json")
        )
        self.assertEqual(bare["rows"][0]["step_s"], worse["rows"][0]["step_s"])
        slots[0].pop()
        (self.folder / "b.json").write_text(json.dumps(document))
        self.expect_failure(2, ["b.json"], *self.planned("simulate", "--assignment", "b.json"))
        self.expect_failure(2, ["absent"], *self.planned("simulate", "--assignment", "absent.json"))


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
