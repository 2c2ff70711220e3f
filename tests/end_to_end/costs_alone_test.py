"""Models that are known for costs alone, from a config.json: studies read them, training names why not."""

import csv
import json

import cli_fixture
from cli_fixture import CliTest

GEMMA = {
    "model_type": "gemma3",
    "mm_tokens_per_image": 4,
    "text_config": {
        "model_type": "gemma3_text",
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 6,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "vocab_size": 264,
        "sliding_window": 16,
    },
    "vision_config": {
        "model_type": "siglip_vision_model",
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "image_size": 56,
        "patch_size": 14,
    },
}
WHISPER = {"model_type": "whisper", "encoder_layers": 2, "decoder_layers": 2}
HEADER = (
    "sample_id,n_images,image_sizes,audio_seconds,prompt_chars,response_chars,"
    "prompt_tokens,response_tokens"
)


class CostsAlone(CliTest):
    def setUp(self):
        super().setUp()
        images = [f"g{i},1,{10 + i}x900,,80,80,{20 + i},{10 + i}" for i in range(32)]
        clips = [f"w{i},0,,{1 + i / 2},80,80,4,{10 + i}" for i in range(32)]
        for name, config, rows in (("gemma", GEMMA, images), ("whisper", WHISPER, clips)):
            (self.folder / f"{name}.json").write_text(json.dumps(config))
            (self.folder / f"{name}.csv").write_text("\n".join([HEADER, *rows]) + "\n")

    def rows_of(self, name):
        self.expect_success(
            "cost", "--index", f"{name}.csv", "--model", f"{name}.json", "-o", f"{name}_costs.csv"
        )
        with (self.folder / f"{name}_costs.csv").open(newline="") as file:
            return list(csv.DictReader(file))

    def test_have_costs_of_every_sample(self):
        gemma = self.rows_of("gemma")
        self.assertEqual({row["vision_tokens"] for row in gemma}, {"16"})
        self.assertEqual([int(row["llm_tokens"]) for row in gemma[:2]], [34, 36])
        whisper = self.rows_of("whisper")
        self.assertEqual({row["audio_tokens"] for row in whisper}, {"1500"})
        self.assertEqual([int(row["llm_tokens"]) for row in whisper[:2]], [14, 15])

    def test_are_planned_simulated_and_audited(self):
        for name in ("gemma", "whisper"):
            study = ("--index", f"{name}.csv", "--model", f"{name}.json", "--global-batch", 8)
            self.expect_success("plan", *study, "--lanes", 2, "-o", f"{name}_plan.json")
            self.expect_success("simulate", *study, "--plan", f"{name}_plan.json", "--steps", 1)
            self.expect_success(
                *("audit", f"{name}.csv", "--hf-config", f"{name}.json", "--ranks", 2),
                *("--microbatch", 2),
            )

    def test_are_not_trained(self):
        if not self.has_engine():
            self.skipTest("built without the engine")
        for name, part in (("gemma", "llm.sliding_window"), ("whisper", "llm.cross_attention")):
            (self.folder / "run.toml").write_text(
                f'output = "run"\nsteps = 1\nmodel = "{name}.json"\n'
                f'[data]\ntrain = "{name}.csv"\nglobal_batch = 4\n'
            )
            words = [f"{name}.json", "costs alone", part]
            self.expect_failure(2, words, "train", "run.toml")
            self.expect_failure(2, words, "profile", "--model", f"{name}.json", "-o", "p.json")


if __name__ == "__main__":
    cli_fixture.main()
