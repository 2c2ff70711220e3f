"""The Python package: indexes of everything, models, results, errors; examples of docs and docstrings."""

import contextlib
import csv
import doctest
import importlib
import importlib.util
import inspect
import io
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import typing
import unittest
from pathlib import Path
from unittest import mock

from entrain.measured import fit, read_log

import entrain
from entrain import Index, Model

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "configs/models/qwen2.5-vl-llama-1b.toml"
ROWS = [
    {"id": f"s{i}", "images": [(224 + 56 * (i % 7), 336)] * (i % 3), "response_tokens": 20 + i}
    for i in range(64)
]
QWEN = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 512,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e6,
    "max_position_embeddings": 4096,
    "hidden_act": "silu",
    "tie_word_embeddings": True,
}


def needs(*modules):
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    return unittest.skipIf(missing, f"{', '.join(missing)} not installed")


def one_rank():
    """What torchrun sets for one process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    return mock.patch.dict(
        os.environ, RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=port
    )


class Failures(unittest.TestCase):
    def expect(self, words, call, kind=ValueError):
        with self.assertRaises(kind) as caught:
            call()
        for word in words:
            self.assertIn(word, str(caught.exception))


class Indexes(Failures):
    def setUp(self):
        self.plain = Index.from_rows(ROWS, progress=False)

    def test_of_dictionaries_hold_sizes_and_tokens(self):
        row = self.plain.rows[5]
        self.assertEqual(row["image_sizes"], "504x336;504x336")
        self.assertEqual((row["n_images"], row["response_tokens_estimate"]), ("2", "25"))
        with self.plain.path.open(newline="") as file:
            self.assertEqual([line["sample_id"] for line in csv.DictReader(file)], self.plain.ids)
        again = Index.of(str(self.plain.path))
        self.assertEqual(again.rows, self.plain.rows)

    def test_count_tokens_by_the_tokenizer_or_by_characters(self):
        rows = [{"prompt": "one two", "response": "three four five"}]
        counted = Index.from_rows(rows, tokenizer=lambda text: {"input_ids": text.split()})
        row = counted.rows[0]
        self.assertEqual(
            (row["prompt_tokens_estimate"], row["response_tokens_estimate"]), ("2", "3")
        )
        self.assertEqual(Index.from_rows(rows).rows[0]["prompt_tokens_estimate"], "2")  # 7 / 4

    def test_count_chats_by_their_template(self):
        class Tokenizer:
            chat_template = "words and a sign before each"

            def __call__(self, text):
                return text.split()

            def apply_chat_template(self, messages, tokenize):
                return {"input_ids": [w for m in messages for w in ["#", *m["content"].split()]]}

        chat = [
            {"role": "user", "content": "one two"},
            {"role": "assistant", "content": "three four five"},
        ]
        rows = [{"messages": chat, "images": [(30, 50)]}]
        row = Index.from_rows(rows, tokenizer=Tokenizer()).rows[0]
        self.assertEqual(
            (row["prompt_tokens_estimate"], row["response_tokens_estimate"]), ("4", "3")
        )
        estimated = Index.from_rows(rows).rows[0]  # 7 and 15 characters
        self.assertEqual(estimated["prompt_tokens_estimate"], "2")
        self.assertEqual(estimated["response_tokens_estimate"], "4")
        without = Tokenizer()
        without.chat_template = None
        self.expect(["'0'", "no chat template"], lambda: Index.from_rows(rows, tokenizer=without))

    @needs("PIL")
    def test_read_sizes_of_encoded_images(self):
        from PIL import Image

        image = Image.new("RGB", (30, 50))
        encoded = io.BytesIO()
        image.save(encoded, "png")
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "a.png"
            path.write_bytes(encoded.getvalue())
            forms = [image, encoded.getvalue(), {"bytes": encoded.getvalue()}, "30x50", (30, 50)]
            forms += [{"path": str(path), "bytes": None}, [image, image]]
            rows = Index.from_rows([{"images": form} for form in forms]).rows
        self.assertEqual([row["image_sizes"] for row in rows], ["30x50"] * 6 + ["30x50;30x50"])
        for form, words in (
            (b"no image", ["'0'", "identify"]),
            ({"path": "/absent.png"}, ["absent.png"]),
            ({"bytes": None}, ["neither bytes nor path"]),
        ):
            self.expect(words, lambda form=form: Index.from_rows([{"images": [form]}]))

    @needs("pandas", "pyarrow")
    def test_of_tables_are_those_of_dictionaries(self):
        import pandas
        import pyarrow

        rows = [{"id": row["id"], "response_tokens": row["response_tokens"]} for row in ROWS]
        plain = Index.from_rows(rows).rows
        self.assertEqual(Index.of(pandas.DataFrame(rows)).rows, plain)
        self.assertEqual(Index.of(pyarrow.Table.from_pylist(rows)).rows, plain)

    @needs("datasets", "PIL")
    def test_of_a_dataset_decode_images_or_not(self):
        import datasets
        from PIL import Image

        rows = {"image": [Image.new("RGB", (40, 30))] * 3, "text": ["a", "b", "c"]}
        features = datasets.Features({"image": datasets.Image(), "text": datasets.Value("string")})
        data = datasets.Dataset.from_dict(rows, features=features)
        for form in (data, data.cast_column("image", datasets.Image(decode=False))):
            index = Index.of(form, images="image", response="text")
            self.assertEqual([row["image_sizes"] for row in index.rows], ["40x30"] * 3)

    def test_refuse_what_cannot_be_read(self):
        self.expect(
            ["'a' is there twice"], lambda: Index.from_rows([{"id": "a", "images": []}] * 2)
        )
        self.expect(["none of the columns", "text"], lambda: Index.from_rows([{"text": "x"}]))
        self.expect(["no sample"], lambda: Index.from_rows([]))
        self.expect(["absent.csv"], lambda: Index.of("absent.csv"))


class Models(Failures):
    def test_are_read_from_dictionaries_files_and_folders(self):
        documents = [Model.from_hf(QWEN).document]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "config.json"
            path.write_text(json.dumps(QWEN))
            documents += [Model.from_hf(path).document, Model.from_hf(folder).document]
        for document in documents:
            self.assertEqual(document["llm"]["hidden"], 64)
            self.assertEqual(document["llm"]["num_layers"], 2)
        self.assertEqual(Model.from_toml(MODEL).modules, ["vision", "llm"])

    def test_name_what_they_do_not_know(self):
        self.expect(
            ["Qwen2ForCausalLMM"],
            lambda: Model.from_hf(QWEN | {"architectures": ["Qwen2ForCausalLMM"]}),
        )
        self.expect(["my_new_gate"], lambda: Model.from_hf(QWEN | {"my_new_gate": 3}))
        self.expect(["absent"], lambda: Model.from_hf("/absent"))
        self.expect(["type int"], lambda: Model.of(3), TypeError)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "config.json"
            path.write_text("[" * 1_000_000)
            self.expect(["config.json"], lambda: Model.from_hf(path))

    def test_without_architectures_are_read_by_their_type(self):
        class Config(dict):
            def to_json_string(self):
                return json.dumps(self)

        class Owner:
            config = Config(QWEN | {"architectures": None, "problem_type": None})

        expected = Model.from_hf(QWEN).document
        for form in (Owner(), Owner.config, dict(Owner.config)):
            self.assertEqual(Model.of(form).document, expected)
            self.assertEqual(Model.from_hf(getattr(form, "config", form)).document, expected)

    @needs("transformers")
    def test_are_read_from_configs_of_transformers(self):
        from transformers import AutoConfig

        vision = {"depth": 2, "hidden_size": 32, "intermediate_size": 64, "num_heads": 2,
                  "out_hidden_size": 64, "fullatt_block_indexes": [1]}  # fmt: skip
        text = {k: v for k, v in QWEN.items() if k not in ("architectures", "model_type")}
        rope = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [2, 3, 3]}
        text["rope_parameters"] = rope
        config = AutoConfig.for_model("qwen2_5_vl", text_config=text, vision_config=vision)
        document = config.to_dict() | {"architectures": ["Qwen2_5_VLForConditionalGeneration"]}
        for form in (config, config.to_dict(), document):
            self.assertEqual(Model.of(form).modules, ["vision", "llm"])
        self.assertEqual(Model.of(config).document, Model.of(document).document)


class Results(Failures):
    def setUp(self):
        self.index = Index.from_rows(ROWS, progress=False)

    def test_of_costs_are_those_of_the_program(self):
        costs = entrain.costs(self.index, MODEL)
        self.assertEqual(costs.modules, ["vision", "llm"])
        self.assertEqual(costs.ids, self.index.ids)
        self.assertEqual(costs.seconds["vision"][0], 0)
        self.assertGreater(costs.seconds["vision"][1], 0)
        self.assertEqual(costs.tokens[0], 20)
        self.assertEqual(costs.target_tokens[5], 25)
        slower = entrain.costs(self.index, MODEL, profile="analytic:cpu-2core")
        self.assertGreater(slower.seconds["llm"][0], 10 * costs.seconds["llm"][0])
        frozen = entrain.costs(self.index, MODEL, freeze=["vision"])
        self.assertLess(frozen.seconds["vision"][1], costs.seconds["vision"][1])

    def test_of_plans_serve_simulations_and_assignments(self):
        plan = entrain.plan(self.index, MODEL, lanes=4, global_batch=16)
        self.assertTrue(plan.fits)
        apart = entrain.plan(self.index, MODEL, lanes=4, layout="apart", global_batch=16)
        self.assertEqual(sum(apart.rows()[0]["lanes"]), 4)
        self.assertLessEqual(plan.rows()[0]["step_s"], apart.rows()[0]["step_s"])
        found = entrain.simulate(
            self.index, MODEL, plan=plan, global_batch=16, steps=1,
            policy=["entrain", "disttrain"], schedule="1f1b",
        )  # fmt: skip
        self.assertEqual([row["policy"] for row in found.rows()], ["entrain", "disttrain"])
        for row in found.rows():
            self.assertGreaterEqual(row["step_s"], row["lower_bound_s"])
        clustered = entrain.plan(
            self.index, MODEL, cluster=ROOT / "configs/clusters/a40-16.toml", global_batch=16
        )
        self.assertIn("llm", clustered.rows()[0]["plan"])
        self.assertEqual(
            [row["step_s"] for row in clustered.rows()],
            [row["step_s"] for row in clustered.document["candidates"]],
        )
        with tempfile.TemporaryDirectory() as folder:
            plan_file = Path(folder) / "plan.json"
            plan_file.write_text(json.dumps(plan.plan))
            assigned = entrain.assign(self.index, MODEL, plan=plan_file, global_batch=16)
        samples = [s for row in assigned.rows() if row["module"] == "llm" for s in row["samples"]]
        self.assertEqual(len(set(samples)), 16)
        self.expect(
            ["plan is a int"], lambda: entrain.simulate(self.index, MODEL, plan=3), TypeError
        )
        judged = entrain.simulate(
            self.index, MODEL, plan=plan, global_batch=16, policy="lpt-2d", assignment=assigned
        )
        steps = {row["policy"]: row["step_s"] for row in judged.rows()}
        self.assertAlmostEqual(steps["given"], assigned.document["stats"]["makespan_s"], places=6)
        self.expect(
            ["assignment is a list", "Assignment or"],
            lambda: entrain.simulate(self.index, MODEL, plan=plan, assignment=[]),
            TypeError,
        )
        for policy in ("all", "entrain,lpt-2d", ["entrain", "lpt-2d"]):
            self.expect(
                ["one policy", "simulate()"],
                lambda policy=policy: entrain.assign(self.index, MODEL, plan=plan, policy=policy),
            )

    def test_of_audits_print_convert_and_draw_themselves(self):
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder) / "audit.html"
            found = entrain.audit(self.index, MODEL, ranks=2, microbatch=2, output=page)
            self.assertIn("</html>", page.read_text())
            found.save(Path(folder) / "audit.json")
            saved = json.loads((Path(folder) / "audit.json").read_text())
        self.assertEqual(saved, json.loads(found.to_json()))
        self.assertEqual(found.to_dict()["ranks"], 2)
        self.assertIn("over_perfect", str(found))
        self.assertIn(found.findings[0], str(found))

    @needs("pandas")
    def test_become_tables(self):
        found = entrain.audit(self.index, MODEL, ranks=2, microbatch=2)
        self.assertEqual(list(found.to_pandas()["policy"]), [r["policy"] for r in found.rows()])

    @needs("matplotlib")
    def test_draw_themselves(self):
        import matplotlib

        matplotlib.use("svg")
        plan = entrain.plan(self.index, MODEL, lanes=2, global_batch=16)
        for result in (
            plan,
            entrain.assign(self.index, MODEL, plan=plan, global_batch=16),
            entrain.simulate(self.index, MODEL, plan=plan, global_batch=16, steps=1),
            entrain.audit(self.index, MODEL, ranks=2, microbatch=2),
        ):
            drawn = io.StringIO()
            result.plot().savefig(drawn, format="svg")
            self.assertIn("</svg>", drawn.getvalue())
        labels = [label.get_text() for label in plan.plot().axes[0].get_yticklabels()]
        self.assertIn("vision 1 + llm 1", labels)
        cluster = ROOT / "configs/clusters/a40-16.toml"
        plan = entrain.plan(self.index, MODEL, cluster=cluster, global_batch=16)
        self.assertEqual(len(plan.plot().axes[0].patches), len(plan.rows()))

    def test_fail_with_the_right_error(self):
        for call, words in (
            (lambda: entrain.audit(self.index, MODEL, rank=8), ["'rank'", "mean 'ranks'?"]),
            (
                lambda: entrain.audit(self.index, MODEL, fancy_zzzzz="a"),
                ["'fancy_zzzzz'", "--help"],
            ),
        ):
            self.expect(["audit() got an unexpected", *words], call, TypeError)
            with self.assertRaises(TypeError) as caught:
                call()
            self.assertNotIn("INDEX", str(caught.exception))
        self.expect(["layout"], lambda: entrain.audit(self.index, MODEL, layout="tp"))
        self.expect(
            ["find no place"],
            lambda: entrain.audit(self.index, MODEL, ranks=2, microbatch=8, max_tokens=900),
            RuntimeError,
        )

    def test_leave_other_threads_running(self):
        done = threading.Event()
        thread = threading.Thread(
            target=lambda: (
                entrain.audit(self.index, MODEL, ranks=4, microbatch=4, search_steps=300_000),
                done.set(),
            )
        )
        thread.start()
        turns = 0
        while not done.is_set():
            time.sleep(0.001)
            turns += 1
        thread.join()
        self.assertGreater(turns, 20)


class Measured(Failures):
    def entries(self, scale, count=40):
        index = Index.from_rows(
            [{"id": f"{w}x{w}", "images": [(w, w)], "response_tokens": 1} for w in (224, 448, 896)]
            + [{"id": str(n), "response_tokens": n} for n in range(100, 500, 100)],
            progress=False,
        )
        costs = entrain.costs(index, MODEL)
        place = {name: i for i, name in enumerate(costs.ids)}
        for i in range(count):
            width, tokens = (224, 448, 896)[i % 3], [100 * (1 + i % 4)] * (1 + i % 2)
            seconds = 0.004 + scale["vision"] * costs.seconds["vision"][place[f"{width}x{width}"]]
            seconds += scale["llm"] * sum(costs.seconds["llm"][place[str(n)]] for n in tokens)
            yield {"tokens": tokens, "images": [[width, width]], "padded_tokens": sum(tokens),
                   "seconds": seconds}  # fmt: skip

    def test_costs_are_found_again_from_times(self):
        scales = fit(list(self.entries({"vision": 3.0, "llm": 0.5})), MODEL, "analytic:a40")
        self.assertAlmostEqual(scales.scale["vision"], 3.0, places=2)
        self.assertAlmostEqual(scales.scale["llm"], 0.5, places=2)
        self.assertAlmostEqual(scales.constant, 0.004, places=4)
        self.assertLess(scales.error, 0.01)
        self.assertGreater(scales.analytic_error, 0.1)

    def test_logs_replace_logs_alone(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "log.jsonl"
            for _ in range(2):
                log = entrain.StepLog(path)
                log.add({"input_ids": [[1, 2, 3], [4, 5]]}, 0.5)
            self.assertEqual(read_log(path), log.entries)
            self.assertEqual(log.entries[0]["tokens"], [3, 2])
            self.assertEqual(log.entries[0]["padded_tokens"], 6)
            path.write_text("precious")
            self.expect(["log.jsonl", "something else"], lambda: entrain.StepLog(path))
            self.assertEqual(path.read_text(), "precious")
            for seconds in (-1.0, 0.0, float("nan"), float("inf")):
                self.expect([f"{seconds} s"], lambda s=seconds: log.add({"input_ids": [[1]]}, s))
            self.expect(["input_ids", "pixel_values"], lambda: log.add({"pixel_values": 3}, 1.0))
            self.assertEqual(len(log.entries), 1)
        self.expect(["gone.jsonl"], lambda: fit("gone.jsonl", MODEL, "analytic:a40"))
        self.expect(["measured times", "/"], lambda: fit("/", MODEL, "analytic:a40"), RuntimeError)

    def test_costs_serve_an_audit(self):
        index = Index.from_rows(ROWS, progress=False)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "log.jsonl"
            lines = [json.dumps(entry) for entry in self.entries({"vision": 3.0, "llm": 0.5})]
            path.write_text("\n".join([*lines, lines[0][:20]]))  # cut by a kill
            self.assertEqual(len(read_log(path)), 40)
            page = Path(folder) / "audit.html"
            found = entrain.audit(
                index, MODEL, ranks=2, microbatch=2, microbatches=3, measured=path, output=page
            )
            text = page.read_text()
            self.assertIn(f"analytic:a40 for {index.path} and {MODEL}, scaled to", text)
            self.assertIn(str(found.scales), text)
            self.assertNotIn("measured.csv", text)
            self.assertAlmostEqual(found.document["microbatch_s"], 0.004, places=4)
            analytic = entrain.audit(index, MODEL, ranks=2, microbatch=2)
            self.assertIn("Measured on 40 microbatches: vision 3.00 ×", found.findings[-1])
            self.assertNotEqual(found.rows()[0]["step_s"], analytic.rows()[0]["step_s"])
            path.write_text("\n".join([lines[0], "[" * 100_000, lines[1]]))
            self.expect(["log.jsonl:2"], lambda: read_log(path))
            path.write_text(lines[0])
            self.expect(
                ["1 microbatches", "at least 8"], lambda: entrain.audit(index, MODEL, measured=path)
            )


class Program(unittest.TestCase):
    def run_module(self, *arguments, **environment):
        return subprocess.run(
            [sys.executable, "-m", "entrain", *arguments],
            check=False,
            capture_output=True,
            text=True,
            env=os.environ | environment,
        )

    def test_is_the_same_from_python(self):
        self.assertIn("policies:", self.run_module("env").stdout)
        wrong = self.run_module("audit", "--modle", "x")
        self.assertEqual(wrong.returncode, 2)
        self.assertIn("did you mean '--model'", wrong.stderr)
        other = self.run_module("env", RANK="1", WORLD_SIZE="2")
        self.assertEqual((other.returncode, other.stdout), (0, ""))

    def test_hands_over_to_the_engine_or_says_that_there_is_none(self):
        built = any(Path(entrain.__file__).parent.glob("_engine*.so"))
        for command in ("train", "profile", "eval", "checkpoint"):
            told = self.run_module(command, "--help")
            if built and importlib.util.find_spec("torch"):
                self.assertIn(f"Usage: entrain {command}", told.stdout)
            elif not built:
                self.assertEqual((told.returncode, told.stdout), (2, ""))
                self.assertIn("has no engine", told.stderr)


class Examples(unittest.TestCase):
    def test_of_docstrings_are_right(self):
        os.chdir(ROOT)
        for name in ("", ".data", ".rows", ".sampler", ".study", ".measured", ".trainers", "._run"):
            if name == ".trainers" and importlib.util.find_spec("torch") is None:
                continue
            module = importlib.import_module("entrain" + name)
            self.assertEqual(doctest.testmod(module).failed, 0, module.__name__)

    def test_of_pages_run(self):
        os.chdir(ROOT)
        for page in ("python.md", "sampler.md"):
            text = (ROOT / "docs" / page).read_text()
            examples = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
            self.assertTrue(examples, page)
            names = {}
            for example in examples:  # one after the other, as they are read
                needed = {"torch": "torch", "Pillow": "PIL"}
                if any(
                    word in example and importlib.util.find_spec(module) is None
                    for word, module in needed.items()
                ):
                    continue
                with contextlib.redirect_stdout(io.StringIO()), one_rank():
                    exec(compile(example, page, "exec"), names)  # noqa: S102
            if "dist" in names:
                names["dist"].destroy_process_group()
                self.assertEqual((names["epoch"], names["step"]), (1, 3))  # the loop's last

    def test_of_an_assignment_is_simulated(self):
        page = (ROOT / "docs/assignment.md").read_text()
        document = re.search(r"```json\n(.*?)```", page, re.DOTALL)[1]
        rows = [{"id": f"s{i}", "images": [(336, 336)], "response_tokens": 20} for i in range(16)]
        index = Index.from_rows(rows, progress=False)
        study = {"lanes": 2, "global_batch": 4}
        drawn = entrain.assign(index, MODEL, **study).rows()
        ids = [sample for row in drawn if row["module"] == "llm" for sample in row["samples"]]
        for letter, name in zip("abcd", ids, strict=True):
            document = document.replace(f'"{letter}"', f'"{name}"')
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "a.json"
            path.write_text(document)
            found = entrain.simulate(index, MODEL, **study, policy="lpt-2d", assignment=path)
        given = {row["policy"]: row for row in found.rows()}["given"]
        self.assertEqual((given["num_slots"], given["deferred"]), (2, 1))

    @needs("mypy")
    def test_types_are_right(self):
        done = subprocess.run(
            [sys.executable, "-m", "mypy", "--ignore-missing-imports", "-p", "entrain"],
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_index_of_takes_the_keywords_of_from_rows(self):
        keywords = inspect.signature(Index.from_rows).parameters.values()
        names = {word.name for word in keywords if word.kind is word.KEYWORD_ONLY}
        hints = typing.get_type_hints(Index.of)
        self.assertEqual(set(typing.get_args(hints["columns"])[0].__annotations__), names)
        self.assertIsNot(hints["data"], typing.Any)

    def test_help_is_a_tour(self):
        for name in entrain.__all__:
            self.assertTrue(getattr(entrain, name).__doc__, name)
        self.assertEqual(set(dir(entrain)), {*entrain.__all__, "__version__"})
        with self.assertRaises(AttributeError):
            entrain.absent  # noqa: B018


if __name__ == "__main__":
    unittest.main()
