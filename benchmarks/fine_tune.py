"""A fine-tune from a Hugging Face folder, by Entrain under a pipeline and by transformers: loss curves.

A model of the family is made with random weights by transformers and saved. Entrain trains the folder
on real images on three lanes and notes each step's samples. transformers then trains the same folder on
the same batches, sample by sample, with pixels by Pillow and AdamW of the same settings; and once more
with each batch in the reverse order, which differs in the order of summation alone. The rule: the first
ten steps within 1e-5 of the reference, later ones within twice the largest distance so far between
the two references (at least 1e-5). Exit code 1 where the curve breaks it.

Runs with the Python of .venv-parity (`tools/setup.sh --parity`).

Example:
    .venv-parity/bin/python benchmarks/fine_tune.py --data data/vlm-small/train-000000.tar \\
      --family qwen2.5-vl --output page.md --plot curve.svg
"""

import argparse
import io
import json
import math
import subprocess
import sys
import tarfile
from pathlib import Path

import launch
import machine
import numpy as np
import torch
import transformers
from PIL import Image

BOS, EOS, USER, ASSISTANT, IMAGE_START, IMAGE_END, FEATURE = 256, 257, 258, 259, 260, 261, 262
CLIP_MEAN, CLIP_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
SETTINGS = {"learning_rate": 3e-4, "warmup_steps": 10, "weight_decay": 0.01, "clip_norm": 1.0}
BETAS, FINAL_FRACTION, EPSILON = (0.9, 0.95), 0.1, 1e-8
PATCH = 14


def text_config():
    return {
        "hidden_size": 512,
        "intermediate_size": 1376,
        "num_hidden_layers": 6,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "vocab_size": 320,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-6,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
    }


def vit_config(side):
    return {
        "hidden_size": 320,
        "intermediate_size": 896,
        "num_hidden_layers": 5,
        "num_attention_heads": 5,
        "image_size": side,
        "patch_size": PATCH,
    }


def qwen2_5_vl():
    rope = {"rope_type": "default", "mrope_section": [8, 12, 12], "rope_theta": 1e6}
    vision = {
        "depth": 5,
        "hidden_size": 320,
        "intermediate_size": 640,
        "num_heads": 5,
        "patch_size": PATCH,
        "window_size": 112,
        "fullatt_block_indexes": [2],
        "out_hidden_size": 512,
    }
    config = transformers.Qwen2_5_VLConfig(
        text_config=text_config() | {"rope_parameters": rope},
        vision_config=vision,
        image_token_id=FEATURE,
        video_token_id=310,
        vision_start_token_id=IMAGE_START,
        vision_end_token_id=IMAGE_END,
    )
    return transformers.Qwen2_5_VLForConditionalGeneration(config)


def llava():
    config = transformers.LlavaConfig(
        vision_config=transformers.CLIPVisionConfig(**vit_config(112)),
        text_config=transformers.LlamaConfig(**text_config()),
        image_token_index=FEATURE,
    )
    return transformers.LlavaForConditionalGeneration(config)


def smolvlm():
    config = transformers.SmolVLMConfig(
        vision_config=vit_config(112),
        text_config=transformers.LlamaConfig(**text_config()),
        image_token_id=FEATURE,
        scale_factor=2,
    )
    return transformers.SmolVLMForConditionalGeneration(config)


FAMILIES = {"qwen2.5-vl": qwen2_5_vl, "llava": llava, "smolvlm": smolvlm}


def smart_resize(height, width, factor=2 * PATCH, least=56 * 56, most=28 * 28 * 16384):
    """Qwen2-VL's size of an image (transformers has the same function in its image processor)."""
    rows, columns = round(height / factor), round(width / factor)
    if rows * columns * factor**2 > most:
        scale = math.sqrt(height * width / most)
        rows = max(1, math.floor(height / scale / factor))
        columns = max(1, math.floor(width / scale / factor))
    elif rows * columns * factor**2 < least:
        scale = math.sqrt(least / (height * width))
        rows = math.ceil(height * scale / factor)
        columns = math.ceil(width * scale / factor)
    return rows * factor, columns * factor


def over_white(image):
    """RGB of an image; alpha blended over white in whole numbers."""
    if image.mode in ("RGB", "L"):
        return image.convert("RGB")
    pixels = np.asarray(image.convert("RGBA")).astype(np.uint32)
    colour, alpha = pixels[..., :3], pixels[..., 3:]
    return Image.fromarray(((colour * alpha + 255 * (255 - alpha) + 127) // 255).astype(np.uint8))


def normalised(image, mean, deviation):
    pixels = torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1).float() / 255
    return (pixels - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(deviation).view(3, 1, 1)


def square(image, side, crop):
    """An image of side × side pixels: resized, or by its shorter side and cut to the centre."""
    if not crop:
        return image.resize((side, side), Image.BICUBIC)
    width, height = image.size
    shorter = min(width, height)
    whole = image.resize((side * width // shorter, side * height // shorter), Image.BICUBIC)
    left, top = (whole.width - side) // 2, (whole.height - side) // 2
    return whole.crop((left, top, left + side, top + side))


def image_inputs(family, images):
    """The original's inputs for a sample's images, and the number of features of each."""
    if family == "qwen2.5-vl":
        patches, grids = [], []
        for image in images:
            height, width = smart_resize(image.height, image.width)
            pixels = normalised(image.resize((width, height), Image.BICUBIC), CLIP_MEAN, CLIP_STD)
            rows, columns = height // PATCH, width // PATCH
            grids.append([1, rows, columns])
            patches.append(
                pixels.reshape(3, 1, rows // 2, 2, PATCH, columns // 2, 2, PATCH)
                .expand(3, 2, -1, -1, -1, -1, -1, -1)
                .permute(2, 5, 3, 6, 0, 1, 4, 7)
                .reshape(rows * columns, -1)
            )
        inputs = {"pixel_values": torch.cat(patches), "image_grid_thw": torch.tensor(grids)}
        return inputs, [rows * columns // 4 for _, rows, columns in grids]
    crop = family == "llava"
    mean, deviation = (CLIP_MEAN, CLIP_STD) if crop else ((0.5,) * 3, (0.5,) * 3)
    pixels = torch.stack([normalised(square(i, 112, crop), mean, deviation) for i in images])
    features = (112 // PATCH) ** 2 // (1 if crop else 4)
    return {"pixel_values": pixels if crop else pixels.unsqueeze(0)}, [features] * len(images)


def read_samples(family, shards):
    """By id: the original's inputs and the first target's position."""
    members = {}
    for shard in shards:
        split = Path(shard).name.removesuffix(".tar").rpartition("-")[0]
        with tarfile.open(shard) as archive:
            for member in archive:
                name, _, kind = member.name.partition(".")
                content = archive.extractfile(member).read()
                members.setdefault(f"{split}/{name}", {})[kind] = content
    samples = {}
    for name, parts in members.items():
        document = json.loads(parts.pop("json"))
        prompt = str(document.get("question", ""))
        answer = str(document["answer"] if "question" in document else document["caption"])
        images = [over_white(Image.open(io.BytesIO(parts[kind]))) for kind in sorted(parts)]
        inputs, features = image_inputs(family, images) if images else ({}, [])
        ids = [BOS, USER]
        for count in features:
            ids += [IMAGE_START] + [FEATURE] * count + [IMAGE_END]
        ids += [*prompt.encode(), ASSISTANT]
        begin = len(ids)
        ids += [*answer.encode(), EOS]
        inputs["input_ids"] = torch.tensor([ids])
        if family == "qwen2.5-vl":
            inputs["mm_token_type_ids"] = (inputs["input_ids"] == FEATURE).int()
        samples[name] = (inputs, begin)
    return samples


def rate_at(update, updates):
    peak, warmup = SETTINGS["learning_rate"], SETTINGS["warmup_steps"]
    if update < warmup:
        return peak * (update + 1) / warmup
    progress = min(1.0, (update - warmup) / max(1, updates - warmup))
    cosine = 0.5 * (1 + math.cos(math.pi * progress))
    return peak * (FINAL_FRACTION + (1 - FINAL_FRACTION) * cosine)


def train_original(folder, model_class, samples, batches, backwards):
    """Losses of transformers' model on the batches."""
    model = model_class.from_pretrained(folder, dtype=torch.float32).train()
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() <= 1]
    for name, parameter in model.named_parameters():
        if "class_embedding" in name:  # a table of one row
            matrices.append(parameter)
            vectors = [p for p in vectors if p is not parameter]
    optimizer = torch.optim.AdamW(
        [
            {"params": matrices, "weight_decay": SETTINGS["weight_decay"]},
            {"params": vectors, "weight_decay": 0.0},
        ],
        betas=BETAS,
        eps=EPSILON,
    )
    losses = []
    for step, names in enumerate(batches):
        optimizer.zero_grad()
        targets = sum(samples[name][0]["input_ids"].shape[1] - samples[name][1] for name in names)
        total = 0.0
        for name in reversed(names) if backwards else names:
            inputs, begin = samples[name]
            scores = model(**inputs).logits[0]
            loss = torch.nn.functional.cross_entropy(
                scores[begin - 1 : -1], inputs["input_ids"][0, begin:], reduction="sum"
            )
            (loss / targets).backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(model.parameters(), SETTINGS["clip_norm"])
        for group in optimizer.param_groups:
            group["lr"] = rate_at(step, len(batches))
        optimizer.step()
        losses.append(total / targets)
        print(f"\rstep {step + 1}/{len(batches)}  loss {losses[-1]:.4f}", end="", file=sys.stderr)
    print(file=sys.stderr)
    return losses


def train_ours(options, folder, work):
    """Losses and batches of Entrain's run; the folder that it wrote."""
    index = work / "train.csv"
    program = str(options.entrain)
    subprocess.run(
        [program, "index", *map(str, options.data), "-o", index, "-m", folder, "--force"]
        + ["--too-long", "leave-out"],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    settings = "".join(f"{name} = {value}\n" for name, value in SETTINGS.items())
    (work / "run.toml").write_text(
        f'output = "{work}/run"\nsteps = {options.steps}\nmodel = "{folder}"\n'
        f'[data]\ntrain = "{index}"\nglobal_batch = {options.global_batch}\n'
        "[plan]\nnum_slots = 4\nstages = { vision = 1, llm = 2 }\n"
        f"[optimizer]\n{settings}[execution]\nlog_samples = true\ntrace_step = -1\n"
    )
    subprocess.run(
        [program, "train", work / "run.toml", "--set", "checkpoint.resume=never"],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    rows = [row for row in launch.rows(work / "run") if "loss" in row]
    return [row["loss"] for row in rows], [row["batch"] for row in rows], work / "run" / "model"


def equal_answers(options, model, samples, work, count=8, most=24):
    """Of the first samples, whose greedy answers `entrain eval` and transformers give alike.

    Both from the trained weights, transformers from the folder that Entrain wrote.
    """
    answers = work / "answers.jsonl"
    command = [str(options.entrain), "eval", work / "run", "--index", work / "train.csv"]
    command += ["--samples", str(count), "--answers", answers, "--force"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    equal = 0
    for row in map(json.loads, answers.open()):
        inputs, begin = samples[row["id"]]
        inputs = {key: value for key, value in inputs.items() if key != "mm_token_type_ids"}
        ids, text = inputs["input_ids"][:, :begin], b""
        for _ in range(most):
            inputs["input_ids"] = ids
            if options.family == "qwen2.5-vl":
                inputs["mm_token_type_ids"] = (ids == FEATURE).int()
            with torch.no_grad():
                token = int(model(**inputs).logits[0, -1].argmax())
            if token == EOS:
                break
            text += bytes([token]) if token < BOS else b""
            ids = torch.cat((ids, torch.tensor([[token]])), dim=1)
        given = row["given"].encode()
        equal += given == text if token == EOS else given.startswith(text)
    return f"{equal} of {count}"


def verdict(ours, first, second):
    """Largest distances: of the first ten steps, of all, and over what is allowed."""
    gap, worst = 1e-5, 0.0
    for step, (a, b, c) in enumerate(zip(ours, first, second, strict=True)):
        gap = max(gap, abs(b - c))
        worst = max(worst, abs(a - b) / (1e-5 if step < 10 else 2 * gap))
    early = max(abs(a - b) for a, b in zip(ours[:10], first[:10], strict=True))
    late = max(abs(a - b) for a, b in zip(ours, first, strict=True))
    apart = max(abs(b - c) for b, c in zip(first, second, strict=True))
    return early, late, apart, worst


def plot(path, family, ours, first):
    """Both curves in one picture."""
    width, height, most = 720, 300, max(*ours, *first)

    def points(losses):
        xs = (40 + i * (width - 60) / max(1, len(losses) - 1) for i in range(len(losses)))
        return " ".join(
            f"{x:.1f},{20 + (1 - loss / most) * (height - 50):.1f}"
            for x, loss in zip(xs, losses, strict=True)
        )

    Path(path).write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="#fff"/>'
        f'<text x="40" y="14">{family}: loss by step, 0 to {most:.2f}; blue Entrain on three lanes, '
        "red dashes transformers</text>"
        f'<polyline points="{points(ours)}" fill="none" stroke="#1b6ca8" stroke-width="3"/>'
        f'<polyline points="{points(first)}" fill="none" stroke="#d1495b" stroke-width="1.5" '
        f'stroke-dasharray="4 4"/><line x1="40" y1="{height - 30}" x2="{width - 20}" '
        f'y2="{height - 30}" stroke="#888"/></svg>\n'
    )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", nargs="+", type=Path, help="tar shards")
    parser.add_argument("--family", choices=FAMILIES, default="qwen2.5-vl")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--global-batch", type=int, default=8)
    parser.add_argument("--folder", type=Path, default=Path("runs/fine-tune"))
    parser.add_argument(
        "--entrain", type=Path, default=Path("build/release/entrain/cli/entrain"), help="program"
    )
    parser.add_argument("--save-only", action="store_true", help="write the model's folder and end")
    parser.add_argument("--max-pixels", type=int, help="of its images, with --save-only")
    parser.add_argument("--output", help="Markdown page; default: standard output")
    parser.add_argument("--plot", help="SVG of both curves")
    options = parser.parse_args()
    if not (options.data or options.save_only):
        parser.error("--data is needed")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.manual_seed(0)
    work = (options.folder / options.family).resolve()
    folder = work / "model"
    model = FAMILIES[options.family]()
    model.save_pretrained(folder)
    if options.save_only:
        if options.max_pixels:
            limit = json.dumps({"max_pixels": options.max_pixels})
            (folder / "preprocessor_config.json").write_text(limit)
        return 0
    ours, batches, tuned = train_ours(options, folder, work)
    samples = read_samples(options.family, options.data)
    references = [
        train_original(folder, type(model), samples, batches, backwards)
        for backwards in (False, True)
    ]
    early, late, apart, worst = verdict(ours, *references)
    loaded, loading = type(model).from_pretrained(
        tuned, dtype=torch.float32, output_loading_info=True
    )
    whole = not any(loading[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    answers = equal_answers(options, loaded.eval(), samples, work)
    if options.plot:
        plot(options.plot, options.family, ours, references[0])
    parameters = sum(p.numel() for p in model.parameters()) / 1e6
    machine.give(
        f"| {options.family} | {parameters:.1f} M | {options.steps} | {ours[0]:.4f} | "
        f"{sum(ours[-10:]) / 10:.4f} | {early:.1e} | {late:.1e} | {apart:.1e} | {worst:.2f} | "
        f"{'yes' if whole else 'NO'} | {answers} |\n",
        options.output,
    )
    return 0 if worst <= 1 and whole else 1


if __name__ == "__main__":
    sys.exit(main())
