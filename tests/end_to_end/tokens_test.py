"""Texts by Hugging Face tokenizers and chat templates: indexed, trained, evaluated, and refused.

Needs the packages `tokenizers` and numpy, as the program's own Python has them.
"""

import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
import unittest
from pathlib import Path

import cli_fixture
from cli_fixture import CliTest, png, write_members, write_shard

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "oracle"))
try:
    import numpy
    import tiny_tokenizers
    from token_files import read_tokens
except ImportError as error:
    raise unittest.SkipTest(f"{error.name} is missing") from error

VOCABULARY = 400
HIDDEN, INTERMEDIATE, VISION, VISION_INTERMEDIATE = 32, 40, 16, 24


def qwen_config(image_token):
    return {
        "architectures": ["Qwen2_5_VLForConditionalGeneration"],
        "model_type": "qwen2_5_vl",
        "dtype": "float32",
        "image_token_id": image_token,
        "tie_word_embeddings": False,
        "text_config": {
            "model_type": "qwen2_5_vl_text",
            "hidden_size": HIDDEN,
            "intermediate_size": INTERMEDIATE,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "hidden_act": "silu",
            "max_position_embeddings": 512,
            "rms_norm_eps": 1e-6,
            "vocab_size": VOCABULARY,
            "tie_word_embeddings": False,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 1e6,
                "mrope_section": [2, 1, 1],
            },
        },
        "vision_config": {
            "depth": 1,
            "hidden_size": VISION,
            "intermediate_size": VISION_INTERMEDIATE,
            "num_heads": 2,
            "hidden_act": "silu",
            "in_channels": 3,
            "patch_size": 14,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "window_size": 56,
            "fullatt_block_indexes": [0],
            "out_hidden_size": HIDDEN,
        },
    }


def qwen_shapes():
    shapes = {
        "visual.patch_embed.proj.weight": (VISION, 3, 2, 14, 14),
        "visual.merger.ln_q.weight": (VISION,),
        "visual.merger.mlp.0.weight": (4 * VISION, 4 * VISION),
        "visual.merger.mlp.0.bias": (4 * VISION,),
        "visual.merger.mlp.2.weight": (HIDDEN, 4 * VISION),
        "visual.merger.mlp.2.bias": (HIDDEN,),
        "model.embed_tokens.weight": (VOCABULARY, HIDDEN),
        "model.norm.weight": (HIDDEN,),
        "lm_head.weight": (VOCABULARY, HIDDEN),
    }
    block = "visual.blocks.0."
    matrices = {
        "attn.qkv": (3 * VISION, VISION),
        "attn.proj": (VISION, VISION),
        "mlp.gate_proj": (VISION_INTERMEDIATE, VISION),
        "mlp.up_proj": (VISION_INTERMEDIATE, VISION),
        "mlp.down_proj": (VISION, VISION_INTERMEDIATE),
    }
    for name, shape in matrices.items():
        shapes[f"{block}{name}.weight"] = shape
        shapes[f"{block}{name}.bias"] = shape[:1]
    shapes |= {f"{block}norm{number}.weight": (VISION,) for number in (1, 2)}
    for number in range(2):
        layer = f"model.layers.{number}."
        for name, rows in (("q", HIDDEN), ("k", HIDDEN // 2), ("v", HIDDEN // 2)):
            shapes[f"{layer}self_attn.{name}_proj.weight"] = (rows, HIDDEN)
            shapes[f"{layer}self_attn.{name}_proj.bias"] = (rows,)
        shapes[f"{layer}self_attn.o_proj.weight"] = (HIDDEN, HIDDEN)
        shapes[f"{layer}mlp.gate_proj.weight"] = (INTERMEDIATE, HIDDEN)
        shapes[f"{layer}mlp.up_proj.weight"] = (INTERMEDIATE, HIDDEN)
        shapes[f"{layer}mlp.down_proj.weight"] = (HIDDEN, INTERMEDIATE)
        shapes[f"{layer}input_layernorm.weight"] = (HIDDEN,)
        shapes[f"{layer}post_attention_layernorm.weight"] = (HIDDEN,)
    return shapes


def write_weights(path):
    generator = numpy.random.default_rng(1)
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, shape in qwen_shapes().items():
        values = (0.1 * generator.standard_normal(shape)).astype("<f4").tobytes()
        offsets = [len(data), len(data) + len(values)]
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": offsets}
        data += values
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def turn(role, *parts):
    content = [{"type": "text", "text": p} if isinstance(p, str) else {"type": p[0]} for p in parts]
    return {"role": role, "content": content}


IMAGE = ("image",)
DOCUMENTS = [
    (0, {"question": "what colour?", "answer": "red"}),
    (1, {"question": "what colour is the ball?", "answer": 3}),
    (1, {"caption": "seven green shapes"}),
    (0, {"text": "which one is largest"}),
    (
        2,
        {
            "messages": [
                turn("system", "short answers"),
                turn("user", "left of", IMAGE, "and", IMAGE, "?"),
                turn("assistant", "the ball"),
                turn("user", "how many"),
                turn("assistant", "seven"),
            ]
        },
    ),
    (
        1,
        {
            "conversations": [
                {"from": "human", "value": "<image>\nwhich is blue?"},
                {"from": "gpt", "value": "the first"},
                {"from": "human", "value": "and green?"},
                {"from": "gpt", "value": "the last"},
            ]
        },
    ),
]


class TokenTest(CliTest):
    def setUp(self):
        super().setUp()
        self.model = self.folder / "model"
        self.tokenizer = tiny_tokenizers.qwen(self.model, VOCABULARY)
        self.image_token = self.tokenizer.token_to_id("<|image_pad|>")
        (self.model / "config.json").write_text(json.dumps(qwen_config(self.image_token)))

    def write(self, documents=DOCUMENTS, repeats=1):
        samples = [
            (f"s{i:03d}", [png(28 * (1 + k), 56) for k in range(images)], document)
            for i, (images, document) in enumerate(documents * repeats)
        ]
        write_shard(self.folder / "train-0.tar", samples)

    def index(self, *more, output="train.csv"):
        return self.expect_success(
            "index", "train-0.tar", "-o", output, "--model", "model", *more, timeout=60
        )

    def refuse(self, words, *more, code=2):
        arguments = ["index", "train-0.tar", "-o", "bad.csv", "--model", "model", *more]
        result = self.expect_failure(code, words, *arguments, timeout=60)
        self.assertFalse((self.folder / "bad.csv").exists())
        self.assertFalse((self.folder / "bad.tokens").exists())
        return result

    def edit(self, name, change):
        path = self.model / name
        document = json.loads(path.read_text())
        change(document)
        path.write_text(json.dumps(document))


class Index(TokenTest):
    def test_tokens_are_those_of_the_rendered_texts(self):
        self.write()
        result = self.index()
        self.assertIn("the model's own tokenizer", result.stderr)
        facts, samples = read_tokens(self.folder / "train.csv")
        video_token = self.tokenizer.token_to_id("<|video_pad|>")
        placeholders = {"image": self.image_token, "video": video_token}
        self.assertEqual(facts["placeholders"], placeholders)
        self.assertEqual(facts["stop"], [self.tokenizer.token_to_id("<|im_end|>")])
        rendered, losses = [], []
        for _, ids, targets, slots in samples:
            for position, _ in reversed(slots):
                ids = [*ids[:position], self.image_token, *ids[position:]]
            rendered.append(self.tokenizer.decode(ids, skip_special_tokens=False))
            plain = samples[len(losses)][1]
            losses.append(
                [self.tokenizer.decode(plain[a:b], skip_special_tokens=False) for a, b in targets]
            )
        system = "<|im_start|>system\nYou are helpful.<|im_end|>\n"
        image = "<|vision_start|><|image_pad|><|vision_end|>"
        self.assertEqual(
            rendered[1],
            f"{system}<|im_start|>user\n{image}what colour is the ball?<|im_end|>\n"
            "<|im_start|>assistant\n3<|im_end|>\n",
        )
        self.assertEqual(
            rendered[4],
            "<|im_start|>system\nshort answers<|im_end|>\n"
            f"<|im_start|>user\nleft of{image}and{image}?<|im_end|>\n"
            "<|im_start|>assistant\nthe ball<|im_end|>\n"
            "<|im_start|>user\nhow many<|im_end|>\n<|im_start|>assistant\nseven<|im_end|>\n",
        )
        self.assertEqual(rendered[3], "which one is largest")
        self.assertEqual(losses[1], ["3<|im_end|>"])
        self.assertEqual(losses[2], ["seven green shapes<|im_end|>"])
        self.assertEqual(losses[4], ["the ball<|im_end|>", "seven<|im_end|>"])
        self.assertEqual(losses[5], ["the first<|im_end|>", "the last<|im_end|>"])
        self.assertEqual(len(samples[3][2]), 1)  # all but the first token
        self.assertEqual(samples[3][2][0], (1, len(samples[3][1])))

    def test_the_number_of_workers_changes_nothing(self):
        self.write(repeats=30)
        self.index()
        for workers in (2, 3):
            self.index("--workers", workers, output=f"w{workers}.csv")
            for suffix in ("csv", "tokens"):
                self.assertEqual(
                    (self.folder / f"w{workers}.{suffix}").read_bytes(),
                    (self.folder / f"train.{suffix}").read_bytes(),
                )

    def test_bytes_can_be_chosen_and_are_the_rule_without_tokenizer(self):
        self.write(DOCUMENTS[:3])
        self.index("--tokenizer", "bytes")
        self.assertFalse((self.folder / "train.tokens").exists())
        (self.model / "tokenizer.json").rename(self.folder / "tokenizer.json")
        self.index(output="again.csv")
        self.assertEqual(
            (self.folder / "again.csv").read_bytes(), (self.folder / "train.csv").read_bytes()
        )

    def test_loss_on_all_leaves_media_out(self):
        self.write(DOCUMENTS[4:5])
        self.index("--loss", "all")
        _, [(_, ids, targets, slots)] = read_tokens(self.folder / "train.csv")
        self.assertEqual(sum(end - begin for begin, end in targets), len(ids) - 1)
        self.assertEqual(len(slots), 2)
        self.assertEqual(len(targets), 3)

    def test_an_index_grows_without_its_old_shards_being_read(self):
        self.write()
        self.index()
        old = self.folder / "train-0.tar"
        new = self.folder / "new-0.tar"
        samples = [(f"n{i}", [png(28, 28)], DOCUMENTS[0][1]) for i in range(3)]
        write_shard(new, samples)
        call = ["--model", "model", "--force"]
        self.expect_success("index", "train-0.tar", "new-0.tar", "-o", "both.csv", *call)
        old.rename(self.folder / "away")
        self.expect_success("index", "a=train.csv", "new-0.tar", "-o", "grown.csv", *call)
        both, grown = (read_tokens(self.folder / name) for name in ("both.csv", "grown.csv"))
        self.assertEqual(both[0], grown[0])
        self.assertEqual(len(grown[1]), len(DOCUMENTS) + 3)
        self.assertEqual([row[1:] for row in both[1]], [row[1:] for row in grown[1]])
        self.assertEqual(grown[1][0][0], "a/" + both[1][0][0])
        # Whatever ids depend on was otherwise: they are made anew, from the shards.
        grow = ["index", "train.csv", "-o", "x.csv", *call]
        self.expect_failure(2, ["train-0.tar"], *grow, "--loss", "all")
        config = self.model / "config.json"
        text = config.read_text()
        self.edit("config.json", lambda document: document["vision_config"].update(depth=2))
        self.expect_failure(2, ["train-0.tar"], *grow)
        config.write_text(text)
        self.expect_success(*grow)
        with (self.folder / "train.tokens").open("r+b") as file:
            file.seek(-1, os.SEEK_END)
            file.write(b"?")
        self.expect_failure(2, ["train.tokens", "damaged"], *grow)

    def test_a_killed_index_keeps_its_tokens(self):
        shards = []
        for number in range(8):
            self.write(repeats=60)
            shards.append(f"part{number}-0.tar")
            (self.folder / "train-0.tar").rename(self.folder / shards[-1])
        call = ["index", *shards, "--model", "model", "-o"]
        self.expect_success(*call, "whole.csv")
        command = [self.entrain, *call, "x.csv"]
        process = subprocess.Popen(
            command, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        kept = self.folder / "x.csv.partial"
        while process.poll() is None and len(list(kept.glob("*.measured"))) < 3:
            time.sleep(0.001)
        process.kill()
        self.assertEqual(process.wait(), -signal.SIGKILL, "it was too fast to be killed")
        said = self.expect_success(*call, "x.csv")
        self.assertRegex(said.stdout + said.stderr, r"[3-7] of 8 files were measured")
        for suffix in ("csv", "tokens"):
            whole = (self.folder / f"whole.{suffix}").read_bytes()
            self.assertEqual((self.folder / f"x.{suffix}").read_bytes(), whole)
        self.assertFalse(kept.exists())

    def test_of_a_list_of_answers_the_first_counts(self):
        answers = {"question": "which?", "answer": ["red", "a red one"]}
        self.write([(0, {**answers, "answer": "red"}), (0, answers)])
        self.index()
        _, [one, first] = read_tokens(self.folder / "train.csv")
        self.assertEqual(one[1:], first[1:])
        self.write([(0, {**answers, "answer": []})])
        self.refuse(["'answer' is a list", "this is empty"])

    def test_an_index_of_tokens_is_refused_without_a_tokenizer(self):
        self.write()
        self.index()
        words = ["train.csv", "made with a tokenizer"]
        options = ("--model", "model", "--tokenizer", "bytes")
        self.expect_failure(2, words, "index", "train.csv", "-o", "x.csv", *options)


class Train(TokenTest):
    def setUp(self):
        super().setUp()
        if not self.has_engine():
            self.skipTest("built without the engine")
        write_weights(self.model / "model.safetensors")
        self.write(repeats=4)
        self.index()
        self.write_run(steps=4)
        path = self.folder / "run.toml"
        path.write_text(path.read_text().replace('"model.toml"', '"model"'))

    def test_a_folder_trains_with_chunks_and_is_evaluated(self):
        self.expect_success("train", "run.toml", "--set", "plan.chunks=true")
        rows = (self.folder / "run" / "metrics.jsonl").read_text().splitlines()
        losses = [json.loads(row)["loss"] for row in rows if '"loss"' in row]
        self.assertEqual(len(losses), 4)
        result = self.expect_success("eval", "run", "--answers", "answers.jsonl", "--json")
        self.assertEqual(json.loads(result.stdout)["samples"], 24)
        answers = [
            json.loads(line) for line in (self.folder / "answers.jsonl").read_text().splitlines()
        ]
        expected = ["red", "3", "seven green shapes", None, "seven", "the last"]
        for answer, words in zip(answers, expected, strict=False):
            if words is not None:
                self.assertEqual(answer["expected"], words)

    def test_a_folder_is_evaluated_as_it_is(self):
        self.expect_success("train", "run.toml")
        judged = {}
        for name, more in {
            "run": (),
            "run/model": ("--index", "train.csv"),
            "model": ("--index", "train.csv"),
        }.items():
            result = self.expect_success("eval", name, *more, "--json")
            judged[name] = json.loads(result.stdout)
        self.assertEqual(judged["run"]["samples"], judged["model"]["samples"])
        self.assertEqual(judged["run/model"], judged["run"], "what the run has written")
        self.assertNotEqual(judged["model"]["loss"], judged["run"]["loss"])
        given = ("eval", "run", "--weights", "model", "--json")
        self.assertEqual(json.loads(self.expect_success(*given).stdout), judged["model"])
        self.expect_failure(2, ["--index", "Hugging Face folder"], "eval", "model")

    def test_a_checkpoint_is_exported_as_a_folder(self):
        self.expect_success("train", "run.toml", "--set", "checkpoint.every_steps=2")
        export = ["checkpoint", "export", "run/checkpoints/step-00000002", "--model-folder"]
        self.expect_success(*export, "halfway")
        self.expect_success("checkpoint", "export", "run", "--model-folder", "end")
        held = {path.name: path.read_bytes() for path in (self.folder / "end").iterdir()}
        run = {path.name: path.read_bytes() for path in (self.folder / "run/model").iterdir()}
        self.assertEqual(held, run, "what the run writes at its end")
        halfway = (self.folder / "halfway/model.safetensors").read_bytes()
        self.assertNotEqual(halfway, held["model.safetensors"])
        self.expect_success("eval", "halfway", "--index", "train.csv", "--samples", "1")
        self.expect_failure(
            2, ["'end' is there"], "checkpoint", "export", "run", *export[-1:], "end"
        )
        self.expect_failure(2, ["--model-folder"], "checkpoint", "export", "run")
        inside = ["'run/checkpoints/more/folder' is among the checkpoints in"]
        self.expect_failure(2, inside, *export, "run/checkpoints/more/folder")
        other = ["checkpoint", "export", "other/checkpoints", *export[-1:]]
        shutil.copytree(self.folder / "run", self.folder / "other")
        self.expect_failure(2, inside, *other, "run/checkpoints/more/folder")  # another run's
        self.assertFalse((self.folder / "run/checkpoints/more").exists())
        forced = [*export, "end", "--force"]
        self.expect_failure(2, ["'end' is there", "--force replaces files alone"], *forced)
        self.expect_failure(2, ["--output and --model-folder: only one"], *forced, "-o", "w")

    def test_the_folder_is_written_in_another_dtype(self):
        self.expect_success("train", "run.toml", "--set", "model_dtype=bfloat16")
        config = json.loads((self.folder / "run" / "model" / "config.json").read_text())
        self.assertEqual(config["dtype"], "bfloat16")
        header = (self.folder / "run" / "model" / "model.safetensors").read_bytes()[:4000]
        self.assertNotIn(b'"F32"', header)
        words = ["model_dtype", "'int8' given", "float32, bfloat16"]
        self.expect_failure(2, words, "train", "run.toml", "--set", "model_dtype=int8")

    def test_layouts_train_alike(self):
        self.expect_success("train", "run.toml")
        more = ("--set", "plan.stages.llm=2", "--set", "output=other")
        self.expect_success("train", "run.toml", *more)
        first, second = (
            [
                json.loads(row)
                for row in (self.folder / run / "metrics.jsonl").read_text().splitlines()
            ]
            for run in ("run", "other")
        )
        for one, other in zip(first, second, strict=True):
            if "loss" in one:
                self.assertAlmostEqual(one["loss"], other["loss"], places=4)

    def test_a_missing_damaged_or_foreign_cache_is_refused(self):
        path = self.folder / "train.tokens"
        content = path.read_bytes()

        def refused(*words):
            self.expect_failure(2, ["train.tokens", *words], "train", "run.toml")

        path.write_bytes(content[:-1])
        refused("damaged", "make the index again")
        path.write_bytes(content[:100] + bytes([content[100] ^ 1]) + content[101:])
        refused("damaged")
        self.index("--loss", "all", output="other.csv")
        path.write_bytes((self.folder / "other.tokens").read_bytes())
        refused("of another index")
        path.unlink()
        refused("no such file")
        path.write_bytes(content)
        self.expect_success("train", "run.toml")

    def test_validation_by_another_tokenizer_is_refused(self):
        write_shard(self.folder / "bytes-0.tar", [("a", [], DOCUMENTS[0][1])])
        options = ("--tokenizer", "bytes", "--model", "model")
        self.expect_success("index", "bytes-0.tar", "-o", "bytes.csv", *options)
        words = ["train.csv", "bytes.csv", "other tokenizers or templates"]
        self.expect_failure(2, words, "train", "run.toml", "--set", "data.validation=bytes.csv")


def qwen3_config(image_token):
    config = qwen_config(image_token)
    config["architectures"] = ["Qwen3VLForConditionalGeneration"]
    config["model_type"] = "qwen3_vl"
    config["text_config"]["model_type"] = "qwen3_vl_text"
    config["text_config"]["head_dim"] = 8
    config["text_config"]["rope_parameters"]["mrope_interleaved"] = True
    config["vision_config"] = {
        "depth": 1,
        "hidden_size": VISION,
        "intermediate_size": VISION_INTERMEDIATE,
        "num_heads": 2,
        "num_position_embeddings": 16,
        "deepstack_visual_indexes": [0],
        "out_hidden_size": HIDDEN,
    }
    return config


class Videos(TokenTest):
    """Four frames at two a second, before an image: two temporal patches, at 0.25 and 1.25 s."""

    def setUp(self):
        super().setUp()
        self.edit("config.json", lambda c: c["text_config"].update(max_position_embeddings=2048))
        question = turn("user", "first", ("video",), "then", IMAGE, "which?")
        text = json.dumps({"fps": 2, "messages": [question, turn("assistant", "red")]}).encode()
        members = []
        for i in range(12):
            frames = [(f"v{i:02}.0.{k:04}.png", png(28, 28 + 28 * (i % 2))) for k in range(4)]
            members += [*frames, (f"v{i:02}.0.png", png(56, 28)), (f"v{i:02}.json", text)]
        write_members(self.folder / "train-0.tar", members)

    def rendered(self):
        """The first sample's text with `#N` at slot N."""
        self.index("--force")
        _, ids, _, slots = read_tokens(self.folder / "train.csv")[1][0]
        pieces, at = [], 0
        for position, number in [*slots, (len(ids), None)]:
            pieces.append(self.tokenizer.decode(ids[at:position], skip_special_tokens=False))
            pieces.append("" if number is None else f"#{number}")
            at = position
        return "".join(pieces)

    def test_patches_of_one_grid_follow_each_other(self):
        self.assertIn(
            "user\nfirst<|vision_start|>#1#2<|vision_end|>then<|vision_start|>#0<|vision_end|>which?",
            self.rendered(),
        )

    def test_patches_of_their_own_grids_follow_their_times(self):
        (self.model / "config.json").write_text(json.dumps(qwen3_config(self.image_token)))
        self.assertIn(
            "first<0.2 seconds><|vision_start|>#1<|vision_end|><1.2 seconds><|vision_start|>#2"
            "<|vision_end|>then<|vision_start|>#0<|vision_end|>which?",
            self.rendered(),
        )

    def test_they_train_with_chunks(self):
        if not self.has_engine():
            self.skipTest("built without the engine")
        write_weights(self.model / "model.safetensors")
        self.index()
        self.write_run(steps=2)
        path = self.folder / "run.toml"
        path.write_text(path.read_text().replace('"model.toml"', '"model"'))
        self.expect_success("train", "run.toml", "--set", "plan.chunks=true", timeout=120)

    def test_a_tokenizer_without_their_token_is_refused(self):
        text = (self.model / "tokenizer.json").read_text()
        (self.model / "tokenizer.json").write_text(text.replace("<|video_pad|>", "<|other|>"))
        self.refuse(["train-0.tar", "<|video_pad|>", "no token of this tokenizer"])


class Refusals(TokenTest):
    def refuse_document(self, words, document, images=0):
        self.write([(images, document)])
        self.refuse(["train-0.tar", *words])

    def test_documents(self):
        user = turn("user", "what")
        self.refuse_document(
            ["'tool'", "system, user, assistant"], {"messages": [turn("tool", "x")]}
        )
        self.refuse_document(
            ["from", "'robot'"], {"conversations": [{"from": "robot", "value": "x"}]}
        )
        self.refuse_document(["'messages' is an array"], {"messages": []})
        self.refuse_document(
            ["'sound'", "text, image, video, audio"],
            {"messages": [{"role": "user", "content": [{"type": "sound"}]}]},
        )
        self.refuse_document(
            ["1 places for video", "has 0"], {"messages": [turn("user", ("video",)), user]}
        )
        self.refuse_document(
            ["messages[1]", "'tool_calls'"],
            {"messages": [user, {"role": "assistant", "content": "x", "tool_calls": [1]}]},
        )
        two = {"messages": [turn("user", IMAGE, IMAGE), turn("assistant", "x")]}
        self.refuse_document(["2 places for image", "has 1"], two, images=1)
        self.refuse_document(
            ["first turn is the assistant's"], {"messages": [turn("assistant", "x")]}
        )
        self.refuse_document(
            ["'<|image_pad|>'", "a text holds the placeholder"],
            {"question": "<|image_pad|>?", "answer": "x"},
        )
        self.refuse_document(["no text", "messages, conversations"], {"words": "x"})
        self.refuse_document(["U+FDD0"], {"question": "\ufdd0", "answer": "x"})
        self.write([(0, {"messages": [user]})])
        self.refuse(["response is empty", "train/s000"])

    def test_samples_can_be_left_out(self):
        self.write([*DOCUMENTS, (0, {"messages": [turn("tool", "x")]})])
        result = self.index("--damaged", "leave-out", "--json")
        summary = json.loads(result.stdout)
        self.assertEqual((summary["rows"], summary["left_out"]), (6, 1))
        self.assertIn("'tool'", summary["left_out_samples"][0]["reason"])

    def test_tokenizers(self):
        self.write()
        path = self.model / "tokenizer.json"
        content = path.read_text()
        path.write_text(content[:-100])
        self.refuse(["tokenizer.json"])
        path.write_text(content)
        word_piece = {"type": "WordPiece", "prefix": "##", "cleanup": True}
        self.edit("tokenizer.json", lambda t: t.update(decoder=word_piece))
        self.refuse(["tokenizer.json", "decoder WordPiece", "ByteLevel"])
        path.write_text(content)
        self.edit("config.json", lambda c: c.update(image_token_id=7))
        self.refuse(["<|image_pad|>", str(self.image_token), "config.json says 7"])
        self.edit("config.json", lambda c: c.update(image_token_id=self.image_token))
        self.edit("config.json", lambda c: c["text_config"].update(vocab_size=300))
        self.refuse(["vocab_size is 300", f"ids up to {self.tokenizer.get_vocab_size() - 1}"])
        (self.folder / "empty").mkdir()
        self.refuse(["--tokenizer", "empty", "tokenizer.json"], "--tokenizer", "empty")

    def test_a_tokenizer_without_placeholder(self):
        self.write()
        tiny_tokenizers.llama3(self.folder / "llama", 380)
        self.refuse(["<|image_pad|>", "no token of this tokenizer"], "--tokenizer", "llama")

    def test_templates(self):
        self.write()
        path = self.model / "chat_template.jinja"
        path.unlink()
        self.refuse(["no chat template", "--chat-template"])
        given = self.folder / "given.jinja"
        given.write_text(tiny_tokenizers.QWEN_TEMPLATE)
        self.index("--chat-template", "given.jinja")
        for template, words in (
            ("{{ raise_exception('never this') }}", ["never this"]),
            ("{% if %}", ["given.jinja"]),
            ("{{ messages[0].content.__class__.__mro__ }}", ["unsafe"]),
            (
                (
                    "{% for m in messages %}{{ m.role }}:"
                    "{% for p in m.content if p.type == 'text' %}{{ p.text }}{% endfor %};{% endfor %}"
                ),
                ["s001.json", "0 of '<|image_pad|>'"],
            ),
        ):
            given.write_text(template)
            self.refuse(words, "--chat-template", "given.jinja")
        # A template that writes an answer otherwise when turns follow it.
        given.write_text(
            "{% for m in messages %}{{ m.role }}{% if loop.last %}*{% endif %}:"
            "{% for p in m.content %}{{ p.text if p.type == 'text' else '<|image_pad|>' }}{% endfor %}"
            "{% endfor %}"
        )
        self.refuse(["writes turn 1 otherwise", "generation"], "--chat-template", "given.jinja")

    def test_options(self):
        self.write()
        self.refuse(["--too-long truncate"], "--too-long", "truncate")
        self.refuse(["need a tokenizer"], "--tokenizer", "bytes", "--loss", "all")
        words = ["--tokenizer needs --model"]
        self.expect_failure(2, words, "index", "train-0.tar", "-o", "x.csv", "--tokenizer", "model")

    def with_python(self, path):
        before = os.environ.get("ENTRAIN_PYTHON")
        os.environ["ENTRAIN_PYTHON"] = str(path)
        restore = (
            (lambda: os.environ.pop("ENTRAIN_PYTHON"))
            if before is None
            else (lambda: os.environ.update(ENTRAIN_PYTHON=before))
        )
        self.addCleanup(restore)

    def script(self, name, text):
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o755)
        return path

    def test_a_python_that_does_not_start_or_lacks_packages(self):
        self.write()
        self.with_python(self.folder / "none")
        self.refuse(["cannot start the Python", "none", "ENTRAIN_PYTHON"], code=3)
        self.with_python(self.script("bare", f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n'))
        self.refuse(["cannot import", "pip install tokenizers jinja2"])

    def test_a_worker_that_is_killed_names_the_sample(self):
        """It ends itself when it reads a certain text."""
        self.write([*DOCUMENTS[:1] * 20, (0, {"question": "KILL", "answer": "x"})])
        program = (
            "import os, signal, runpy, entrain.tokens as t\n"
            "read = t.read_sample\n"
            "def kill(text, media):\n"
            "    if 'KILL' in text: os.kill(os.getpid(), signal.SIGKILL)\n"
            "    return read(text, media)\n"
            "t.read_sample = kill\n"
            "t.main()\n"
        )
        (self.folder / "kill.py").write_text(program)
        killer = f'#!/bin/sh\nexec "{sys.executable}" {self.folder}/kill.py\n'
        self.with_python(self.script("killer", killer))
        for workers in (1, 2):
            words = ["s020.json", "ended by signal 9"]
            self.refuse(words, "--workers", workers, code=3)

    def test_a_failure_of_the_worker_names_the_sample(self):
        self.write(DOCUMENTS[:1])
        program = (
            "import entrain.tokens as t\n"
            "def fail(text, media): return 1 / 0\n"
            "t.read_sample = fail\n"
            "t.main()\n"
        )
        (self.folder / "fail.py").write_text(program)
        failing = f'#!/bin/sh\nexec "{sys.executable}" {self.folder}/fail.py\n'
        self.with_python(self.script("failing", failing))
        self.refuse(["s000.json", "ZeroDivisionError"], code=3)


if __name__ == "__main__":
    cli_fixture.main()
