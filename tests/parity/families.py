"""Every family of Hugging Face models against transformers: logits, loss, all gradients, greedy tokens.

For each family a small random model of the original class is saved by `save_pretrained`. Samples (text
alone, one image, video or clip, several) run one by one through transformers, and packed into one batch through
Entrain, whole and cut into stages. Largest deviations, relative to the largest absolute value of the
tensor (of gradients at least a thousandth of the largest of all), have to stay within 1e-5 in float32;
gradients are compared with those of the original in float64.
Mel frames of random clips have to be those of Whisper's processor in float64 within 1e-6.

Example:
    .venv-parity/bin/python tests/parity/families.py --forward build/release/tests/entrain_forward
"""

import argparse
import copy
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch.utils.flop_counter import FlopCounterMode
from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import (
    GotOcr2ImageProcessorPil,
)
from transformers.models.smolvlm.image_processing_pil_smolvlm import (
    SmolVLMImageProcessorPil,
)

ALLOWED = 1e-5
FLOPS_ALLOWED = 1e-12  # rounding
MEL_ALLOWED = 1e-6
SPLITS = (1, 2)


def tiny_text(**more):
    return dict(
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=320,
        max_position_embeddings=4096,
        rms_norm_eps=1e-6,
        bos_token_id=1,
        eos_token_id=2,
        **more,
    )


QWEN2_ROPE = {"rope_type": "default", "mrope_section": [2, 3, 3], "rope_theta": 1e6}


def qwen2_vl():
    config = transformers.Qwen2VLConfig(
        text_config=tiny_text(rope_parameters=dict(QWEN2_ROPE)),
        vision_config=dict(  # noqa: C408
            depth=3, embed_dim=32, mlp_ratio=3, num_heads=2, hidden_size=64
        ),
        image_token_id=300,
        video_token_id=301,
        vision_start_token_id=302,
        vision_end_token_id=303,
    )
    return transformers.Qwen2VLForConditionalGeneration(config)


def qwen2_5_vl(tied=False):
    config = transformers.Qwen2_5_VLConfig(
        text_config=tiny_text(rope_parameters=dict(QWEN2_ROPE)),
        vision_config=dict(  # noqa: C408
            depth=3,
            hidden_size=32,
            intermediate_size=48,
            num_heads=2,
            patch_size=14,
            window_size=56,
            fullatt_block_indexes=[1],
            out_hidden_size=64,
        ),
        image_token_id=300,
        video_token_id=301,
        vision_start_token_id=302,
        vision_end_token_id=303,
        tie_word_embeddings=tied,
    )
    return transformers.Qwen2_5_VLForConditionalGeneration(config)


def qwen3_vl():
    rope = {"rope_type": "default", "mrope_section": [4, 2, 2], "rope_theta": 5e6}
    config = transformers.Qwen3VLConfig(
        text_config=tiny_text(head_dim=16, rope_parameters={**rope, "mrope_interleaved": True}),
        vision_config=dict(  # noqa: C408
            depth=4,
            hidden_size=32,
            intermediate_size=48,
            num_heads=2,
            patch_size=14,
            num_position_embeddings=36,
            deepstack_visual_indexes=[0, 2],
            out_hidden_size=64,
        ),
        image_token_id=300,
        video_token_id=301,
        vision_start_token_id=302,
        vision_end_token_id=303,
    )
    return transformers.Qwen3VLForConditionalGeneration(config)


VIT = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 7,
}


def llava(vision, text, **more):
    config = transformers.LlavaConfig(
        vision_config=vision, text_config=text, image_token_index=300, **more
    )
    return transformers.LlavaForConditionalGeneration(config)


def smolvlm():
    config = transformers.SmolVLMConfig(
        vision_config=dict(VIT), text_config=llama_config(), image_token_id=300, scale_factor=2
    )
    return transformers.SmolVLMForConditionalGeneration(config)


def internvl():
    config = transformers.InternVLConfig(
        vision_config={**VIT, "image_size": [28, 28], "patch_size": [7, 7]},
        text_config=transformers.Qwen2Config(**tiny_text()),
        image_token_id=300,
        tie_word_embeddings=False,
    )
    return transformers.InternVLForConditionalGeneration(config)


def tiled(model, processor):
    """The model with a processor that cuts images into several tiles."""
    model.processor = processor
    return model


def idefics3_tiles(side, most):
    return SmolVLMImageProcessorPil(
        size={"longest_edge": most}, max_image_size={"longest_edge": side}
    )


def internvl_tiles(side, most):
    return GotOcr2ImageProcessorPil(
        size={"height": side, "width": side}, crop_to_patches=True, max_patches=most
    )


def qwen2_audio(positions=100):
    config = transformers.Qwen2AudioConfig(
        audio_config={
            "d_model": 32,
            "encoder_layers": 3,
            "encoder_attention_heads": 2,
            "encoder_ffn_dim": 48,
            "max_source_positions": positions,
        },
        text_config={"model_type": "qwen2", **tiny_text()},
        audio_token_index=300,
    )
    return transformers.Qwen2AudioForConditionalGeneration(config)


def llama_config():
    return transformers.LlamaConfig(**tiny_text())


LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 5e5,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
FAMILIES = {
    "Qwen2-VL": qwen2_vl,
    "Qwen2.5-VL": qwen2_5_vl,
    "Qwen2.5-VL, tied": lambda: qwen2_5_vl(tied=True),
    "Qwen3-VL": qwen3_vl,
    "LLaVA, CLIP and Llama": lambda: llava(transformers.CLIPVisionConfig(**VIT), llama_config()),
    "LLaVA, SigLIP and Qwen2": lambda: llava(
        transformers.SiglipVisionConfig(**VIT, vision_use_head=False),
        transformers.Qwen2Config(**tiny_text()),
        vision_feature_layer=-1,
        vision_feature_select_strategy="full",
    ),
    "LLaVA, CLIP and Mistral": lambda: llava(
        transformers.CLIPVisionConfig(**VIT),
        transformers.MistralConfig(**tiny_text(sliding_window=None)),
    ),
    "SmolVLM": smolvlm,
    "SmolVLM, tiles": lambda: tiled(smolvlm(), idefics3_tiles(28, 84)),
    "InternVL": internvl,
    "InternVL, tiles": lambda: tiled(internvl(), internvl_tiles(28, 6)),
    "Qwen2-Audio": qwen2_audio,
    "Llama 3, scaled": lambda: transformers.LlamaForCausalLM(
        transformers.LlamaConfig(**tiny_text(rope_parameters=LLAMA3))
    ),
    "Llama, biases": lambda: transformers.LlamaForCausalLM(
        transformers.LlamaConfig(**tiny_text(attention_bias=True, mlp_bias=True))
    ),
    "Qwen2": lambda: transformers.Qwen2ForCausalLM(
        transformers.Qwen2Config(**tiny_text(tie_word_embeddings=True))
    ),
    "Qwen3": lambda: transformers.Qwen3ForCausalLM(
        transformers.Qwen3Config(**tiny_text(head_dim=24))
    ),
    "Mistral": lambda: transformers.MistralForCausalLM(
        transformers.MistralConfig(**tiny_text(sliding_window=None))
    ),
}


def make_random(model, seed):
    """Values of training: gains off one, biases off zero."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.dim() > 1 and "cls_token" not in name:
                fan_in = parameter[0].numel()
                parameter.copy_(noise * (1.0 if "embed_tokens" in name else fan_in**-0.5))
            else:
                gain = any(part in name for part in ("norm", "ln_q", "lambda"))
                parameter.copy_(noise * 0.1 + (1.0 if gain else 0.0))


def hears(model):
    return hasattr(model.config, "audio_config")


def image_token(model):
    config = model.config
    if hears(model):
        return config.audio_token_index
    return getattr(config, "image_token_id", None) or config.image_token_index


def mel_window(model):
    """Mel bands and frames of a padded window."""
    audio = model.config.audio_config
    return audio.num_mel_bins, 2 * audio.max_source_positions


def num_features(model, size):
    """Tokens of the LLM for an image of rows and columns, or a clip of mel frames."""
    if not hears(model):
        return size[0] * size[1] // merge_size(model) ** 2
    lengths = model.model.audio_tower._get_feat_extract_output_lengths(torch.tensor(size))
    return lengths[1].item()


def merge_size(model):
    """Patches a side that become one token."""
    config = model.config
    if hasattr(config, "downsample_ratio"):
        return round(1 / config.downsample_ratio)
    return getattr(config, "scale_factor", getattr(config.vision_config, "spatial_merge_size", 1))


def fixed_side(model):
    """Patches a side of every image, or None where images have sizes of their own."""
    vision = model.config.vision_config
    side = getattr(vision, "image_size", None)
    if side is None:
        return None
    whole = side[0] if isinstance(side, list | tuple) else side
    patch = vision.patch_size
    return whole // (patch[0] if isinstance(patch, list | tuple) else patch)


def make_samples(model, seed):
    """Token ids and images (clips) of samples: text alone, one, several between texts."""
    generator = torch.Generator().manual_seed(seed)
    vision = getattr(model.config, "vision_config", None)
    grids = [[], [(6, 8)], [(4, 4), (10, 6), (2, 12)], []] if vision is not None else [[]] * 4
    if hears(model):  # mel frames: odd and even numbers, a full window, one that makes one feature
        grids = [[], [37], [200, 62, 5], [], [199, 98]]
    side = fixed_side(model) if vision is not None else None
    if hasattr(model, "processor"):  # pixels
        grids = [[], [(90, 50)], [(30, 70), (20, 20), (11, 64)], []]
    samples = []
    for number, of_sample in enumerate(grids):
        ids, begins, pixels = [], [], []
        sized, videos = [], []

        def text(length):
            return torch.randint(3, 290, (length,), generator=generator).tolist()

        ids += text(5 + 7 * number)
        for wanted in of_sample:
            size = (side, side) if side else wanted
            if hears(model):
                shape = mel_window(model)
            elif side:  # an image; else patches, as the original takes them
                shape = (3, VIT["image_size"], VIT["image_size"])
            else:
                shape = (size[0] * size[1], 3 * 2 * vision.patch_size**2)
            if hasattr(model, "processor"):
                image = torch.randint(0, 256, (*wanted, 3), generator=generator)
                tiles = list(tiles_of(model.processor, image.to(torch.uint8).numpy()))
            else:
                tiles = [torch.randn(shape, generator=generator)]
            ids.append(302)
            for tile in tiles:
                begins.append(len(ids))
                ids += [image_token(model)] * num_features(model, size)
                sized.append(size)
                pixels.append(tile)
            ids.append(303)
            ids += text(4)
        for size, patches, fps in VIDEOS[number] if sees_videos(model) else []:
            begins += add_video(model, ids, size, patches, text)
            sized += [size] * patches
            videos.append((patches, fps))
            shape = (patches, size[0] * size[1], 3 * 2 * vision.patch_size**2)
            pixels += list(torch.randn(shape, generator=generator))
        ids += text(9)
        target_begin = len(ids) - 6
        samples.append((ids, sized, begins, pixels, videos, target_begin))
    return samples


# Of every sample rows and columns of patches, number of temporal patches, frames per second.
VIDEOS = [[], [((4, 6), 3, 2.0)], [((8, 4), 2, 0.7), ((2, 2), 1, 2.0)], []]


def tiles_of(processor, image):
    """[tiles, 3, height, width] of an image, by the original's processor."""
    return processor([image], return_tensors="pt")["pixel_values"].flatten(0, -4)


def sees_videos(model):
    """Qwen2-VL has videos too, which Entrain does not read."""
    return model.config.model_type in ("qwen2_5_vl", "qwen3_vl")


def add_video(model, ids, size, patches, text):
    """Appends a video's tokens. Returns where those of each temporal patch begin.

    Qwen3-VL's patches stand apart, each after the text of its time.
    """
    apart = not hasattr(model.config.vision_config, "tokens_per_second")
    count = num_features(model, size)
    begins = []
    for patch in range(patches):
        if apart:
            ids += text(3)
        if apart or patch == 0:
            ids.append(model.config.vision_start_token_id)
        begins.append(len(ids))
        ids += [model.config.video_token_id] * count
        if apart or patch == patches - 1:
            ids.append(model.config.vision_end_token_id)
    return begins


def patches_of(model, image):
    """An image cut into patches, block by block; what is cut already stays."""
    if image.dim() == 2:
        return image
    patch, merge = VIT["patch_size"], merge_size(model)
    blocks = image.shape[1] // (patch * merge)
    return (
        image.reshape(3, blocks, merge, patch, blocks, merge, patch)
        .permute(1, 4, 2, 5, 0, 3, 6)
        .reshape(-1, 3 * patch * patch)
    )


def token_types(model, ids):
    """1 where an image's features are, 2 where a video's are."""
    return (ids == image_token(model)).int() + 2 * (ids == model.config.video_token_id).int()


def video_grids(grids, videos):
    """Grids of the videos, whose temporal patches are the last of `grids`, and seconds per patch."""
    first = len(grids) - sum(patches for patches, _ in videos)
    thw = []
    for patches, _ in videos:
        thw.append([patches, *grids[first]])
        first += patches
    return torch.tensor(thw), torch.tensor([2 / fps for _, fps in videos])


def inputs_of(model, ids, grids, pixels, videos):
    inputs = {"input_ids": torch.tensor([ids])}
    if not grids:
        return inputs
    if hears(model):
        inputs["input_features"] = torch.stack(pixels)
        frames = torch.arange(mel_window(model)[1]).unsqueeze(0)
        inputs["feature_attention_mask"] = (frames < torch.tensor(grids).unsqueeze(1)).long()
        return inputs
    if pixels[0].dim() == 3:
        images = torch.stack(pixels)
        several = type(model).__name__.startswith("SmolVLM")
        inputs["pixel_values"] = images.unsqueeze(0) if several else images
    else:
        images = len(grids) - sum(patches for patches, _ in videos)
        inputs["pixel_values"] = torch.cat(pixels[:images])
        inputs["image_grid_thw"] = torch.tensor([[1, *grid] for grid in grids[:images]])
        inputs["mm_token_type_ids"] = token_types(model, inputs["input_ids"])
        if videos:
            inputs["pixel_values_videos"] = torch.cat(pixels[images:])
            inputs["video_grid_thw"], seconds = video_grids(grids, videos)
            if hasattr(model.config.vision_config, "tokens_per_second"):
                inputs["second_per_grid_ts"] = seconds
    return inputs


def run_original(model, samples):
    """Logits of all samples, mean loss over all targets, gradients by name."""
    targets = sum(len(ids) - begin for ids, *_, begin in samples)
    logits, loss = [], 0.0
    for ids, grids, _, pixels, videos, begin in samples:
        scores = model(**inputs_of(model, ids, grids, pixels, videos)).logits[0]
        of_sample = torch.nn.functional.cross_entropy(
            scores[begin - 1 : -1].double(), torch.tensor(ids[begin:]), reduction="sum"
        )
        (of_sample / targets).backward()
        loss += of_sample.item() / targets
        logits.append(scores.detach())
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return torch.cat(logits), loss, gradients


def exact_gradients(model, samples):
    """Gradients of the original in float64: some are zero, and in float32 only its own rounding."""
    twin = copy.deepcopy(model).double()
    twin.zero_grad()
    doubles = [
        (ids, grids, begins, [image.double() for image in pixels], *rest)
        for ids, grids, begins, pixels, *rest in samples
    ]
    return {name: gradient.float() for name, gradient in run_original(twin, doubles)[2].items()}


def counted_flops(model, samples):
    """FLOPs of matrices and of attention that torch counts in the original's forwards.

    Without the head, which is paid for targets alone, and without layers whose result is not used: those
    behind LLaVA's feature layer, which have no gradients. After run_original().
    """
    model.set_attn_implementation("eager")
    idle = [
        name
        for name, module in model.named_modules()
        if name.rpartition(".")[2].isdigit() and all(p.grad is None for p in module.parameters())
    ]
    left_out = ("lm_head", "rotary_emb", *(f".{name}" for name in idle))
    sums = [0, 0]
    for ids, grids, _, pixels, videos, _ in samples:
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            model(**inputs_of(model, ids, grids, pixels, videos))
        for module, of_ops in counter.get_flop_counts().items():
            sign = -1 if module.endswith(left_out) else module == "Global"
            for operation, flops in of_ops.items():
                sums["bmm" in str(operation)] += sign * flops
    model.set_attn_implementation("sdpa")
    return torch.tensor(sums, dtype=torch.double)


def generate(model, samples, count):
    """The tokens that follow each sample with the greatest score, one by one."""
    rows = []
    for ids, grids, _, pixels, videos, _ in samples:
        grown = list(ids)
        for _ in range(count):
            with torch.no_grad():
                inputs = inputs_of(model, grown, grids, pixels, videos)
                grown.append(model(**inputs).logits[0, -1].argmax())
        rows.append(torch.tensor(grown[len(ids) :]))
    return torch.stack(rows)


def random_layouts(model, count, seed):
    """Samples of text between images and videos of any size, of which only positions matter."""
    generator = torch.Generator().manual_seed(seed)

    def below(end):
        return int(torch.randint(0, end, (1,), generator=generator))

    samples = []
    for _ in range(count):
        ids, grids, begins, videos = [5] * below(9), [], [], []
        of_videos, begins_of_videos = [], []
        for _ in range(below(6)):
            rows, columns = 2 * (1 + below(9)), 2 * (1 + below(9))
            if below(2) and sees_videos(model):
                patches, fps = 1 + below(12), (1 + below(100)) / (1 + below(30))
                begins_of_videos += add_video(
                    model, ids, (rows, columns), patches, lambda most: [6] * (1 + below(most))
                )
                of_videos += [(rows, columns)] * patches
                videos.append((patches, fps))
            else:
                ids.append(model.config.vision_start_token_id)
                begins.append(len(ids))
                ids += [model.config.image_token_id] * (rows * columns // 4)
                ids.append(model.config.vision_end_token_id)
                grids.append((rows, columns))
            ids += [7] * below(12)
        samples.append((ids + [9], grids + of_videos, begins + begins_of_videos, [], videos, 0))
    return samples


def wrong_positions(model, forward, saved, folder):
    """Of 500 random layouts, those whose M-RoPE positions are not the original's."""
    samples = random_layouts(model, 500, 3)
    batch = batch_of(model, samples)
    names = ("ids", "lengths", "grids", "image_sample", "image_begin", "videos", "video_fps")
    save_file({name: batch[name] for name in names if name in batch}, folder / "batch.safetensors")
    output = folder / "output.safetensors"
    subprocess.run([forward, saved, folder / "batch.safetensors", output], check=True)
    found = load_file(output)["positions"].split([len(ids) for ids, *_ in samples])
    wrong = 0
    for (ids, grids, _, _, videos, _), positions in zip(samples, found, strict=True):
        tokens = torch.tensor([ids])
        images = grids[: len(grids) - sum(patches for patches, _ in videos)]
        thw, seconds = video_grids(grids, videos) if videos else (None, None)
        expected, _ = model.model.get_rope_index(
            tokens,
            mm_token_type_ids=token_types(model, tokens),
            image_grid_thw=torch.tensor([[1, *grid] for grid in images]) if images else None,
            video_grid_thw=thw,
            second_per_grid_ts=seconds,
        )
        wrong += not torch.equal(expected[:, 0].T.long(), positions)
    return wrong


def batch_of(model, samples):
    ids, rows, targets, sample_of, begins, grids, pixels = [], [], [], [], [], [], []
    videos, fps = [], []
    for number, (tokens, of_sample, of_begins, of_pixels, of_videos, begin) in enumerate(samples):
        videos += [(number, patches) for patches, _ in of_videos]
        fps += [rate for _, rate in of_videos]
        rows += [len(ids) + p - 1 for p in range(begin, len(tokens))]
        targets += tokens[begin:]
        ids += tokens
        sample_of += [number] * len(of_sample)
        begins += of_begins
        grids += of_sample
        pixels += [image.T if hears(model) else patches_of(model, image) for image in of_pixels]
    batch = {
        "ids": torch.tensor(ids),
        "lengths": torch.tensor([len(tokens) for tokens, *_ in samples]),
        "rows": torch.tensor(rows),
        "targets": torch.tensor(targets),
    }
    if grids:
        batch["clip_frames" if hears(model) else "grids"] = torch.tensor(grids)
        batch["image_sample"] = torch.tensor(sample_of)
        batch["image_begin"] = torch.tensor(begins)
    if videos:
        batch["videos"] = torch.tensor(videos)
        batch["video_fps"] = torch.tensor(fps, dtype=torch.double)
    if pixels:
        batch["pixels"] = torch.cat(pixels).contiguous()
    return batch


def deviation(found, expected, least=1e-12):
    """Relative to the largest absolute value, or to `least` where that is greater."""
    return ((found - expected).abs().max() / expected.abs().max().clamp_min(least)).item()


def names_in_files(folder, model):
    """The files' name of every parameter of the model, by equal values."""
    stored = load_file(folder / "model.safetensors")
    by_value = {}
    for name, value in stored.items():
        by_value.setdefault((tuple(value.shape), value.flatten()[:4].tolist().__str__()), name)
    return {
        name: by_value[(tuple(p.shape), p.detach().flatten()[:4].tolist().__str__())]
        for name, p in model.named_parameters()
    }


def same_files(folder, copy):
    names = sorted(path.name for path in folder.iterdir())
    return names == sorted(path.name for path in copy.iterdir()) and all(
        (folder / name).read_bytes() == (copy / name).read_bytes() for name in names
    )


def check(name, make, forward, folder):
    """Largest deviations of logits, loss and gradients over all splits."""
    torch.manual_seed(0)
    model = make().eval()
    make_random(model, 1)
    saved = folder / name.replace(" ", "-").replace(",", "")
    model.save_pretrained(saved)
    if hasattr(model, "processor"):
        model.processor.save_pretrained(saved)
    samples = make_samples(model, 2)
    logits, loss, gradients = run_original(model, samples)
    exact = exact_gradients(model, samples)
    gradients = {original: exact[original] for original in gradients}
    save_file(batch_of(model, samples), folder / "batch.safetensors")
    in_files = names_in_files(saved, model)
    worst = {"logits": 0.0, "loss": 0.0, "gradient": 0.0}
    # Some gradients are zero but for rounding: that of a key's bias where nothing rotates.
    least = 1e-3 * max(gradient.abs().max().item() for gradient in gradients.values())
    for split in SPLITS:
        output = folder / "output.safetensors"
        subprocess.run(
            [forward, saved, folder / "batch.safetensors", output, str(split)], check=True
        )
        found = load_file(output)
        worst["logits"] = max(worst["logits"], deviation(found["logits"], logits))
        worst["loss"] = max(worst["loss"], abs(found["loss"].item() / loss - 1))
        copied = same_files(saved, folder / "output.safetensors.folder")
        worst["folder"] = "equal" if copied and worst.get("folder") != "differs" else "differs"
        continuation = found["generated"]
        same = torch.equal(continuation, generate(model, samples, continuation.shape[1]))
        worst["tokens"] = "equal" if same and worst.get("tokens") != "differ" else "differ"
        for original, gradient in gradients.items():
            key = f"gradient {in_files[original]}"
            if key not in found:
                raise SystemExit(f"{name}: no gradient of {in_files[original]}")
            off = deviation(found[key], gradient, least)
            if off > worst["gradient"]:
                worst["gradient"], worst["of"] = off, in_files[original]
    worst["flops"] = (found["flops"] / counted_flops(model, samples) - 1).abs().max().item()
    worst["positions"] = "-"
    if hasattr(model.config, "vision_config") and hasattr(model.model, "get_rope_index"):
        wrong = wrong_positions(model, forward, saved, folder)
        worst["positions"] = f"{wrong} of 500 differ" if wrong else "500 equal"
    return worst


def random_clips(count, seed):
    """Clips of 90 samples to 30 s: noise that swells, tones, silence between."""
    generator = numpy.random.default_rng(seed)
    clips = [numpy.zeros(16000, dtype=numpy.float32)]
    while len(clips) < count:
        length = int(90 * (480000 / 90) ** generator.random()) if len(clips) > 1 else 480000
        time = numpy.arange(length) / 16000
        clip = generator.normal(size=length) * numpy.sin(generator.uniform(0.1, 9) * time) ** 2
        for _ in range(generator.integers(4)):
            clip += numpy.sin(2 * numpy.pi * generator.uniform(50, 7900) * time)
        clip *= time % 1.0 < generator.uniform(0.5, 1.5)
        clips.append((clip * 10 ** generator.uniform(-4, -0.6)).astype(numpy.float32))
    return clips


def check_processor(forward, folder):
    """Largest deviations of mel frames from WhisperFeatureExtractor's float64 and float32 code.

    Also whether numbers of frames and features are equal. Its float32 code, the default, is as far
    from its float64 code as we are.
    """
    saved = folder / "processor"
    model = qwen2_audio(positions=1500)
    model.save_pretrained(saved)
    extractor = transformers.WhisperFeatureExtractor(feature_size=128)
    extractor.save_pretrained(saved)
    clips = random_clips(20, 4)
    lengths = torch.tensor([len(clip) for clip in clips])
    samples = torch.from_numpy(numpy.concatenate(clips))
    save_file({"clips": samples, "clip_lengths": lengths}, folder / "batch.safetensors")
    output = folder / "output.safetensors"
    subprocess.run([forward, saved, folder / "batch.safetensors", output], check=True)
    found = load_file(output)
    expected = extractor(clips, sampling_rate=16000, return_attention_mask=True)
    frames = expected["attention_mask"].sum(1).tolist()
    exact, narrow = 0.0, 0.0
    mels = found["mel"].split(found["mel_frames"].tolist())
    for clip, window, mel in zip(clips, expected["input_features"], mels, strict=True):
        padded = numpy.pad(clip, (0, 480000 - len(clip)))
        double = extractor._np_extract_fbank_features([padded], "cpu")[0]
        ours = mel.T.double().numpy()
        exact = max(exact, abs(ours - double[:, : len(mel)]).max())
        narrow = max(narrow, abs(ours - window[:, : len(mel)]).max())
    same = found["features"].tolist() == [num_features(model, count) for count in frames]
    same &= all(f <= n for f, n in zip(frames, found["mel_frames"].tolist(), strict=True))
    return exact, narrow, same


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--forward", required=True, type=Path, help="program entrain_forward")
    parser.add_argument("--only", default="", help="families whose name contains this")
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)  # these models are too small for more
    failed = False
    columns = ["family", "logits", "loss", "gradients", "largest of", "greedy tokens"]
    columns += ["M-RoPE positions", "FLOPs", "written again"]
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    with tempfile.TemporaryDirectory() as folder:
        for name, make in FAMILIES.items():
            if options.only not in name:
                continue
            worst = check(name, make, options.forward, Path(folder))
            failed |= max(worst["logits"], worst["loss"], worst["gradient"]) > ALLOWED
            failed |= worst["tokens"] != "equal" or "differ" in worst["positions"]
            failed |= worst["flops"] > FLOPS_ALLOWED or worst["folder"] != "equal"
            print(
                f"| {name} | {worst['logits']:.1e} | {worst['loss']:.1e} | "
                f"{worst['gradient']:.1e} | `{worst['of']}` | {worst['tokens']} | "
                f"{worst['positions']} | {worst['flops']:.1e} | {worst['folder']} |",
                flush=True,
            )
        if options.only in "Qwen2-Audio":
            exact, narrow, same = check_processor(options.forward, Path(folder))
            failed |= exact > MEL_ALLOWED or not same
            print(
                f"\nMel frames of 20 clips: {exact:.1e} from WhisperFeatureExtractor's float64 code, "
                f"{narrow:.1e} from its float32 code; features {'equal' if same else 'differ'}"
            )
    if failed:
        raise SystemExit(
            f"a deviation is above {ALLOWED}, or tokens, positions, mel or files differ"
        )


if __name__ == "__main__":
    sys.exit(main())
