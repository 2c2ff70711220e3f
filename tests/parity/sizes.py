"""Tokens and patches that `entrain cost` counts against those of transformers' processors.

For each family a folder with a published config.json and preprocessor_config.json (the LLM made small, which
decides no size), and a manifest of 2,000 random image sizes or clip lengths: sides of 1 to 4,000 pixels,
extreme aspect ratios included, clips of one sample to 30 s. Compared are the features in the LLM and the
tokens of the encoder. What the original refuses has to be refused. Parameters and FLOPs of models that are
known for costs alone are counted by torch; entrain/core/families/costs_alone_test.cc and
entrain/core/study/costs_alone_flops_test.cc have the same numbers.

Example:
    .venv-parity/bin/python tests/parity/sizes.py --entrain build/release/entrain/cli/entrain
"""

import argparse
import csv
import json
import math
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import transformers
from processors import SAMPLING_RATE, TEXT, families, vit
from torch.utils.flop_counter import FlopCounterMode

SAMPLES = 2000
LONGEST_SIDE = 4000
TEXT_TOKENS = 10  # of a prompt, and of a response


def image_sizes():
    """Any sides, sides of all magnitudes, narrow strips, and sides near multiples of patches and tiles."""
    chooser = random.Random(17)

    def any_side():
        return chooser.randint(1, LONGEST_SIDE)

    def near_multiple():
        step = chooser.choice((14, 16, 28, 32, 336, 364, 384, 448, 512))
        most = LONGEST_SIDE // step - 1
        return max(1, step * chooser.randint(1, most) + chooser.randint(-1, 1))

    def any_magnitude():
        return round(math.exp(chooser.uniform(0, math.log(LONGEST_SIDE))))

    sizes = []
    for number in range(SAMPLES):
        kind = number % 4
        if kind == 2:
            strip = [chooser.randint(1, 20), any_side()]
            chooser.shuffle(strip)
            sizes.append(tuple(strip))
        else:
            side = (any_side, any_magnitude, None, near_multiple)[kind]
            sizes.append((side(), side()))
    return sizes


def clip_lengths():
    """In samples; half of them within two samples of a whole mel frame."""
    chooser = random.Random(19)
    most = 30 * SAMPLING_RATE
    lengths = []
    for number in range(SAMPLES):
        length = chooser.randint(1, most)
        if number % 2:
            length = 160 * (length // 160) + chooser.randint(-2, 2)
        lengths.append(min(max(length, 1), most))
    return lengths


def write_manifest(path, media):
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        columns = "sample_id n_images image_sizes audio_seconds prompt_chars response_chars"
        writer.writerow([*columns.split(), "prompt_tokens", "response_tokens"])
        for number, medium in enumerate(media):
            image = isinstance(medium, tuple)
            size = "{}x{}".format(*medium) if image else ""
            seconds = "" if image else repr(medium / SAMPLING_RATE)
            writer.writerow([number, int(image), size, seconds, 40, 40, TEXT_TOKENS, TEXT_TOKENS])


def entrain_counts(entrain, model, folder, media):
    """[(features, tokens of the encoder)], or the message of a refusal."""
    write_manifest(folder / "index.csv", media)
    command = [entrain, "cost", "--index", folder / "index.csv", "--model", model]
    command += ["-o", folder / "costs.csv", "--force"]
    result = subprocess.run(
        [str(part) for part in command], check=False, capture_output=True, text=True
    )
    if result.returncode == 2:
        return result.stderr
    if result.returncode != 0:
        raise SystemExit(result.stderr)
    with (folder / "costs.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    encoder = "vision_tokens" if "vision_tokens" in rows[0] else "audio_tokens"
    return [(int(row["llm_tokens"]) - 2 * TEXT_TOKENS, int(row[encoder])) for row in rows]


def compare(family, entrain, folder):
    """(numbers of sizes, of those that the original refuses, of differences)."""
    model = folder / "model"
    model.mkdir(parents=True)
    (model / "config.json").write_text(json.dumps(family.config))
    (model / "preprocessor_config.json").write_text(json.dumps(family.processor))
    clips = "audio" in family.name.lower() or family.name == "Whisper"
    accepted, expected, refused = [], [], []
    for medium in clip_lengths() if clips else image_sizes():
        try:
            expected.append(family.count(medium) if clips else family.count(*medium))
            accepted.append(medium)
        except ValueError:
            refused.append(medium)
    found = entrain_counts(entrain, model, folder, accepted)
    if isinstance(found, str):
        raise SystemExit(f"{family.name}: {found}")
    differences = 0
    for medium, theirs, ours in zip(accepted, expected, found, strict=True):
        if theirs != ours:
            differences += 1
            if differences <= 3:
                print(f"{family.name}: {medium}: {theirs}, entrain {ours}", file=sys.stderr)
    for medium in refused:
        if not isinstance(entrain_counts(entrain, model, folder, [medium]), str):
            differences += 1
            print(f"{family.name}: {medium} is refused by the original alone", file=sys.stderr)
    return len(accepted) + len(refused), len(refused), differences


def parameters():
    """Of published shapes, by the original classes."""
    gemma = {"hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34}
    small = {
        "hidden_size": 1152,
        "intermediate_size": 6912,
        "num_attention_heads": 4,
        "num_hidden_layers": 26,
        "num_key_value_heads": 1,
        "vocab_size": 262144,
    }
    vision = vit("siglip_vision_model", 896, 14) | {"vision_use_head": False}
    vision |= {"hidden_size": 1152, "intermediate_size": 4304}
    vision |= {"num_attention_heads": 16, "num_hidden_layers": 27}
    wide = {"d_model": 1280, "num_mel_bins": 128, "vocab_size": 51866}
    for part in ("encoder", "decoder"):
        wide |= {f"{part}_layers": 32, f"{part}_attention_heads": 20, f"{part}_ffn_dim": 5120}
    multimodal = transformers.Gemma3Config(text_config=gemma, vision_config=vision)
    yield "Gemma 3 4B", transformers.Gemma3ForConditionalGeneration, multimodal, 4_300_079_472
    text = transformers.Gemma3TextConfig(**small)
    yield "Gemma 3 1B", transformers.Gemma3ForCausalLM, text, 999_885_952
    speech = transformers.WhisperForConditionalGeneration
    yield "Whisper tiny", speech, transformers.WhisperConfig(), 37_760_640
    yield "Whisper large v3", speech, transformers.WhisperConfig(**wide), 1_543_490_560


def compare_parameters():
    """Number of differences."""
    differences = 0
    print("\n| model | parameters | in the description |\n|---|---|---|")
    for name, cls, config, ours in parameters():
        with torch.device("meta"):
            theirs = sum(weight.numel() for weight in cls(config).parameters())
        differences += theirs != ours
        print(f"| {name} | {theirs:,} | {ours:,} |", flush=True)
    return differences


def forwards():
    """Models, inputs, and FLOPs of a forward: of encoder and LLM, with the half of causal attention that masks leave
    out, since torch counts it."""
    audio = {
        "input_features": torch.zeros(1, 80, 3000),
        "decoder_input_ids": torch.zeros(1, 104, dtype=torch.long),
    }
    speech = transformers.WhisperForConditionalGeneration
    config = transformers.WhisperConfig()
    yield "Whisper tiny", speech(config), audio, 23_113_728_000 + 13_824_000_000 + 10_423_990_272
    text = TEXT | {"intermediate_size": 160, "num_hidden_layers": 6, "head_dim": 32}
    vision = vit("siglip_vision_model", 224, 14) | {"hidden_size": 48, "intermediate_size": 100}
    config = transformers.Gemma3Config(
        text_config=text | {"sliding_window": 64},
        vision_config=vision | {"num_attention_heads": 4, "vision_use_head": False},
        mm_tokens_per_image=64,
        image_token_index=500,
    )
    ids = torch.cat([torch.full((64,), 500), torch.arange(104)])[None]
    images = {"input_ids": ids, "pixel_values": torch.zeros(1, 3, 224, 224)}
    images["token_type_ids"] = (ids == 500).long()
    dense = 6 * 4 * 128 * 168 * 168
    original = transformers.Gemma3ForConditionalGeneration(config)
    yield "Gemma 3, small", original, images, 34_111_488 + 25_165_824 + 122_486_784 + dense


def compare_flops():
    """Number of differences."""
    differences = 0
    print("\n| model | FLOPs of a forward | in the description |\n|---|---|---|")
    for name, model, inputs, ours in forwards():
        model.set_attn_implementation("eager")
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            model(**inputs)
        theirs = counter.get_total_flops()
        differences += theirs != ours
        print(f"| {name} | {theirs:,} | {ours:,} |", flush=True)
    return differences


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--entrain", required=True, type=Path, help="program entrain")
    parser.add_argument("--only", default="", help="families whose name contains this")
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    failed = 0
    print("| family | original's numbers from | sizes | refused by both | differences |")
    print("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for family in families():
            if options.only in family.name:
                path = Path(folder) / family.name.replace(" ", "_")
                sizes, refused, differences = compare(family, options.entrain.resolve(), path)
                failed += differences
                print(f"| {family.name} | {family.how} | {sizes:,} | {refused} | {differences} |")
    if not options.only:
        failed += compare_parameters() + compare_flops()
    if failed:
        raise SystemExit("tokens, patches, parameters or FLOPs differ")


if __name__ == "__main__":
    sys.exit(main())
