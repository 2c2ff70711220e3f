"""Images, their tiles and frames of videos against transformers' processors.

Sizes, squares, number, order and pixels of the tiles of 200 random images, by the processors of Qwen2-VL,
CLIP, SigLIP, SmolVLM, InternVL, LLaVA-NeXT and LLaVA-OneVision (their Pillow backend); frames, sizes and pixels of random videos, by the video processors' functions of
Qwen2.5-VL and Qwen3-VL. Entrain indexes a shard with the images and reads its segments as training does.
Pixels are compared where they are normalised; allowed is 1/255.

transformers' video processors need torchvision to resize, so that pixels of frames are compared with
those of the image processor, which reads the frames one by one in the size of the video.

Example:
    .venv-parity/bin/python tests/parity/pixels.py --forward build/release/tests/entrain_forward
"""

import argparse
import importlib
import io
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy
import torch
import transformers
from PIL import Image
from safetensors.torch import load_file
from samples import canvas_tiles, merge_size, tiles_of
from tiny_models import (
    FAMILIES,
    VIT,
    idefics3_tiles,
    internvl,
    internvl_tiles,
    llava_next,
    llava_onevision,
    qwen2_5_vl,
    qwen3_vl,
    smolvlm,
)
from transformers.image_processing_backends import PilBackend
from transformers.image_utils import SizeDict
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import (
    Qwen2VLImageProcessorPil,
)
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

ALLOWED = 1 / 255
NUM_IMAGES = 200
NUM_VIDEOS = 40


def random_image(generator, width, height):
    """Smooth colours under noise."""
    coarse = generator.integers(0, 256, (3 + height // 40, 3 + width // 40, 3), dtype=numpy.uint8)
    image = numpy.asarray(Image.fromarray(coarse).resize((width, height), Image.BICUBIC))
    noise = generator.integers(-40, 41, image.shape)
    return numpy.clip(image + noise, 0, 255).astype(numpy.uint8)


def random_size(generator, most):
    return [int(most ** generator.random()) + 1 for _ in range(2)]


def write_shard(path, samples):
    """Samples: {extension: array or JSON object}, named by their number."""
    with tarfile.open(path, "w") as shard:
        for number, members in enumerate(samples):
            for extension, content in members.items():
                data = io.BytesIO()
                if isinstance(content, numpy.ndarray):
                    Image.fromarray(content).save(data, "png", compress_level=1)
                else:
                    data.write(json.dumps(content).encode())
                entry = tarfile.TarInfo(f"{number:06}.{extension}")
                entry.size = data.tell()
                data.seek(0)
                shard.addfile(entry, data)


def read_by_entrain(forward, saved, samples, folder):
    """Of every sample its segments: [segments, patches, values]."""
    shard, output = folder / "data-0.tar", folder / "pixels.safetensors"
    write_shard(shard, samples)
    subprocess.run([forward, saved, shard, output], check=True)
    found = load_file(output)
    patches = found["pixels"].split(found["grids"].prod(1).tolist())
    segments = iter(zip(found["grids"].tolist(), patches, strict=True))
    return [[next(segments) for _ in range(count)] for count in found["segments"].tolist()]


def pixels_of(patches, rows, columns, patch, frames=1, merge=2):
    """[frames, 3, height, width] of patches in blocks of merge x merge."""
    return (
        patches.reshape(rows // merge, columns // merge, merge, merge, 3, frames, patch, patch)
        .permute(5, 4, 0, 2, 6, 1, 3, 7)
        .reshape(frames, 3, rows * patch, columns * patch)
    )


def check_tiles(model, processor, forward, folder):
    """Samples with other tiles than the processor's, and the largest deviation of a pixel.

    Images of one tile are squares, whole or of their middle.
    """
    generator = numpy.random.default_rng(1)
    saved = folder / type(processor).__name__
    model.save_pretrained(saved)
    processor.save_pretrained(saved)
    images = [random_image(generator, *random_size(generator, 700)) for _ in range(NUM_IMAGES)]
    samples = [{"png": image, "json": {"text": "t"}} for image in images]
    wrong, worst, most = 0, 0.0, 0
    found = read_by_entrain(forward, saved, samples, folder)
    for image, tiles in zip(images, found, strict=True):
        expected = tiles_of(processor, Image.fromarray(image))
        wrong += len(tiles) != len(expected)
        most = max(most, len(tiles))
        for ((rows, columns), patches), tile in zip(tiles, expected, strict=False):
            ours = pixels_of(patches, rows, columns, VIT["patch_size"], merge=merge_size(model))[0]
            worst = max(worst, (ours - tile).abs().max().item())
    return wrong, worst, most


def check_limits(model, forward, folder):
    """The same for images of sizes within limits: patches as Qwen2-VL's processor returns them."""
    generator = numpy.random.default_rng(4)
    processor = Qwen2VLImageProcessorPil(
        size={"shortest_edge": 16 * 28**2, "longest_edge": 90 * 28**2}
    )
    saved = folder / "limits"
    model.save_pretrained(saved)
    processor.save_pretrained(saved)
    images = []
    while len(images) < NUM_IMAGES:
        width, height = random_size(generator, 700)
        if max(width, height) < 100 * min(width, height):
            images.append(random_image(generator, width, height))
    samples = [{"png": image, "json": {"text": "t"}} for image in images]
    wrong, worst = 0, 0.0
    found = read_by_entrain(forward, saved, samples, folder)
    for image, [(grid, patches)] in zip(images, found, strict=True):
        expected = processor([Image.fromarray(image)], return_tensors="pt")
        if expected["image_grid_thw"].tolist() != [[1, *grid]]:
            wrong += 1
            continue
        worst = max(worst, (patches - expected["pixel_values"]).abs().max().item())
    return wrong, worst, 1


def check_canvases(model, forward, folder):
    """The same where the tiles of an image are one segment, in samples of one, two and three images."""
    generator = numpy.random.default_rng(3)
    saved = folder / type(model.processor).__name__
    model.save_pretrained(saved)
    model.processor.save_pretrained(saved)
    images = [random_image(generator, *random_size(generator, 300)) for _ in range(NUM_IMAGES)]
    groups, rest = [], list(images)
    while rest:
        count = 1 + len(groups) % 4 // 2 + len(groups) % 8 // 7
        groups.append([rest.pop() for _ in range(min(count, len(rest)))])
    samples = [
        {**{f"{i}.png": image for i, image in enumerate(group)}, "json": {"text": "t"}}
        for group in groups
    ]
    wrong, worst, most = 0, 0.0, 0
    patch = VIT["patch_size"]
    for group, segments in zip(
        groups, read_by_entrain(forward, saved, samples, folder), strict=True
    ):
        expected = canvas_tiles(model, group)
        wrong += len(segments) != len(expected)
        for ((rows, columns), patches), tiles in zip(segments, expected, strict=False):
            side = columns * patch
            most = max(most, len(tiles))
            if rows != len(tiles) * columns:
                wrong += 1
                continue
            ours = pixels_of(patches, rows, columns, patch, merge=1)[0]
            below = torch.cat(list(tiles[:, :, :side, :side]), 1)
            worst = max(worst, (ours - below).abs().max().item())
    return wrong, worst, most


def video_module(name):
    """A model's video processor, whose module needs torchvision for what is not called here."""
    parts = ["torchvision", "transforms", "v2", "functional"]
    stand_ins = [".".join(parts[: count + 1]) for count in range(len(parts))]
    missing = [module for module in stand_ins if module not in sys.modules]
    sys.modules.update({module: ModuleType(module) for module in missing})
    try:
        return importlib.import_module(f"transformers.models.{name}.video_processing_{name}")
    finally:
        for module in missing:
            del sys.modules[module]


def original_frames(name, frames, fps):
    """Indices of the frames that the video processor samples, and its function for sizes."""
    module = video_module(name)
    made = next(value for key, value in vars(module).items() if key.endswith("VLVideoProcessor"))
    settings = SimpleNamespace(
        fps=2, num_frames=None, min_frames=4, max_frames=768, temporal_patch_size=2
    )
    metadata = SimpleNamespace(total_num_frames=frames, fps=fps)
    return [int(index) for index in made.sample_frames(settings, metadata)], module.smart_resize


def processed(processor, frame, size):
    """A frame as the image processor reads one of this height and width."""
    sides = SizeDict(height=size[0], width=size[1])
    image = PilBackend.resize(processor, frame.transpose(2, 0, 1), sides, processor.resample)
    image = processor.rescale(image, 1 / 255)
    image = processor.normalize(image, processor.image_mean, processor.image_std)
    return torch.from_numpy(numpy.asarray(image)).float()


def check_videos(name, model, factor, forward, folder):
    """Videos with other frames or sizes than the processor's, and the largest deviation of a pixel."""
    generator = numpy.random.default_rng(2)
    saved = folder / name
    model.save_pretrained(saved)
    patch, least, most = factor // 2, 4 * factor**2, 60 * factor**2
    limits = {"shortest_edge": least, "longest_edge": most}
    keys = {"patch_size": patch, "image_mean": [0.4, 0.5, 0.6], "image_std": [0.3, 0.2, 0.25]}
    for file in ("preprocessor_config.json", "video_preprocessor_config.json"):
        (saved / file).write_text(json.dumps({"size": limits, **keys}))
    samples, videos = [], []
    for _ in range(NUM_VIDEOS):
        width, height = (20 + side for side in random_size(generator, 200))
        frames, fps = 2 + int(generator.integers(40)), float(generator.integers(1, 60)) / 2
        video = [random_image(generator, width, height) for _ in range(frames)]
        members = {f"0.{number:04}.png": frame for number, frame in enumerate(video)}
        samples.append({**members, "json": {"text": "t", "fps": fps}})
        videos.append((video, fps))
    wrong, worst = 0, 0.0
    found = read_by_entrain(forward, saved, samples, folder)
    for (video, fps), segments in zip(videos, found, strict=True):
        indices, smart_resize = original_frames(name, len(video), fps)
        height, width = video[0].shape[:2]
        if name == "qwen2_vl":
            indices = indices[: len(indices) // 2 * 2]
            size = smart_resize(height, width, factor, least, most)
        else:
            size = smart_resize(len(indices), height, width, 2, factor, least, most)
        indices += indices[-1:] * (len(indices) % 2)
        rows, columns = (side // patch for side in size)
        if len(segments) != len(indices) // 2 or segments[0][0] != [rows, columns]:
            wrong += 1
            continue
        image_processor = Qwen2VLImageProcessorPil(**keys)
        for (_, patches), first in zip(segments, range(0, len(indices), 2), strict=True):
            ours = pixels_of(patches, rows, columns, patch, frames=2)
            for frame in range(2):
                expected = processed(image_processor, video[indices[first + frame]], size)
                worst = max(worst, (ours[frame] - expected).abs().max().item())
    return wrong, worst


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--forward", required=True, type=Path, help="program entrain_forward")
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    failed = False
    print(
        "\n| tiles | images | most of an image | other tiles | pixels off by |\n|---|---|---|---|---|"
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wrong, worst, most = check_limits(qwen2_5_vl(), options.forward, folder)
        failed |= wrong > 0 or worst > ALLOWED
        print(f"| Qwen2.5-VL | {NUM_IMAGES} | {most} | {wrong} | {worst:.1e} |", flush=True)
        for family, model, processor in [
            (
                "LLaVA, CLIP",
                FAMILIES["LLaVA, CLIP and Llama"](),
                CLIPImageProcessorPil(
                    size={"shortest_edge": 28}, crop_size={"height": 28, "width": 28}
                ),
            ),
            (
                "LLaVA, SigLIP",
                FAMILIES["LLaVA, SigLIP and Qwen2"](),
                SiglipImageProcessorPil(size={"height": 28, "width": 28}),
            ),
            ("SmolVLM", smolvlm(), idefics3_tiles(28, 112)),
            ("InternVL", internvl(), internvl_tiles(28, 12)),
        ]:
            wrong, worst, most = check_tiles(model, processor, options.forward, folder)
            failed |= wrong > 0 or worst > ALLOWED
            print(f"| {family} | {NUM_IMAGES} | {most} | {wrong} | {worst:.1e} |", flush=True)
        for family, model in [
            ("LLaVA-NeXT", llava_next()),
            ("LLaVA-OneVision", llava_onevision()),
        ]:
            wrong, worst, most = check_canvases(model, options.forward, folder)
            failed |= wrong > 0 or worst > ALLOWED
            print(f"| {family} | {NUM_IMAGES} | {most} | {wrong} | {worst:.1e} |", flush=True)
        print("\n| frames | videos | other frames or sizes | pixels off by |\n|---|---|---|---|")
        for family, name, model in [
            ("Qwen2.5-VL", "qwen2_vl", qwen2_5_vl()),
            ("Qwen3-VL", "qwen3_vl", qwen3_vl()),
        ]:
            wrong, worst = check_videos(name, model, 28, options.forward, folder)
            failed |= wrong > 0 or worst > ALLOWED
            print(f"| {family} | {NUM_VIDEOS} | {wrong} | {worst:.1e} |", flush=True)
    if failed:
        raise SystemExit("tiles, frames or sizes differ, or a pixel is off by more than 1/255")


if __name__ == "__main__":
    sys.exit(main())
