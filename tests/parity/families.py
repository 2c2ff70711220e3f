"""Every family of Hugging Face models against transformers: logits, loss, all gradients, greedy tokens.

For each family a small random model of the original class is saved by `save_pretrained`. Samples (text
alone, one image, video or clip, several) run one by one through transformers, and packed into one batch through
Entrain, whole and cut into stages. Largest deviations, relative to the largest absolute value of the
tensor, have to stay within 1e-5 in float32; gradients are compared with those of the original in float64.
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
from samples import (
    add_video,
    batch_of,
    inputs_of,
    make_samples,
    num_features,
    sees_videos,
    token_types,
    video_grids,
)
from tiny_models import FAMILIES, make_random, qwen2_audio
from torch.utils.flop_counter import FlopCounterMode

ALLOWED = 1e-5
FLOPS_ALLOWED = 1e-12  # rounding
MEL_ALLOWED = 1e-6
SPLITS = (1, 2)


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


def gradient_scales(gradients):
    """What each tensor's deviation is divided by: its largest absolute value.

    Some are zero, that of a key's bias where nothing rotates, and their float32 sums only rounding:
    these are measured by the gradient of their matrix, which is summed of the same terms.
    """
    scales = {name: gradient.abs().max().item() for name, gradient in gradients.items()}
    least = 1e-9 * max(scales.values())
    return {
        name: scales[name.removesuffix("bias") + "weight"] if scale < least else scale
        for name, scale in scales.items()
    }


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


def deviation(found, expected):
    """Relative to the largest absolute value."""
    return ((found - expected).abs().max() / expected.abs().max().clamp_min(1e-12)).item()


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
    scales = gradient_scales(gradients)
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
            off = (found[key] - gradient).abs().max().item() / scales[original]
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
