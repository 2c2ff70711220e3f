"""Files of video against transformers: which frames are read, in which size, and their pixels.

Clips of seven codecs (tests/end_to_end/videos.py) are read by Entrain as training reads them, and by
transformers in two ways, both with the video processor's `sample_frames` and sizes:

- its reader `read_video_pyav`, for files whose header says how many frames they have;
- the frames that PyAV decodes from the file's beginning, whose number is that of decoding.

The processor needs torchvision to resize: the image processor resizes its frames here (Pillow's
bicubic), and pixels are compared where they are normalised. And the rule of Qwen2-VL alone, for many
lengths, against `i * frames // read`, which is Entrain's (entrain/core/spec/video.cc).

Example:
    .venv-parity/bin/python tests/parity/video_files.py --forward build/release/tests/entrain_forward
"""

import argparse
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace

import numpy
import torch
import transformers
from pixels import ALLOWED, pixels_of, processed, video_module
from safetensors.torch import load_file
from tiny_models import qwen2_5_vl, qwen3_vl
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import (
    Qwen2VLImageProcessorPil,
)
from transformers.video_utils import read_video_pyav

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "end_to_end"))
import videos

PATCH = 14
FACTOR = 2 * PATCH
LEAST, MOST = 4 * FACTOR**2, 60 * FACTOR**2
LOOK = {"patch_size": PATCH, "image_mean": [0.4, 0.5, 0.6], "image_std": [0.3, 0.2, 0.25]}
# Frames per second and the most frames that are read.
SETTINGS = [(2, 768), (8, 768), (25, 768), (25, 12)]


def write_clips(path, clips):
    with tarfile.open(path, "w") as shard:
        for clip in clips:
            for name, content in [(clip.extension, clip.content), ("json", b'{"text": "t"}')]:
                entry = tarfile.TarInfo(f"{clip.name}.{name}")
                entry.size = len(content)
                shard.addfile(entry, BytesIO(content))


def read_by_entrain(forward, saved, clips, folder):
    """Of every clip its temporal patches: ((rows, columns), [patches, values])."""
    shard, output = folder / "clips-0.tar", folder / "clips.safetensors"
    write_clips(shard, clips)
    environment = os.environ | {"ENTRAIN_PYTHON": sys.executable}
    subprocess.run([forward, saved, shard, output], check=True, env=environment)
    found = load_file(output)
    patches = found["pixels"].split(found["grids"].prod(1).tolist())
    segments = iter(zip(found["grids"].tolist(), patches, strict=True))
    return [[next(segments) for _ in range(count)] for count in found["segments"].tolist()]


class Original:
    """The video processor of a model, its rules of frames and sizes."""

    def __init__(self, name, fps, max_frames):
        module = video_module(name)
        self.name = name
        self.kind = next(
            value for key, value in vars(module).items() if key.endswith("VLVideoProcessor")
        )
        self.settings = SimpleNamespace(
            fps=fps, num_frames=None, min_frames=4, max_frames=max_frames, temporal_patch_size=2
        )
        self.smart_resize = module.smart_resize

    def indices(self, metadata):
        return [int(index) for index in self.kind.sample_frames(self.settings, metadata)]

    def frames_of_its_reader(self, path):
        """None where the header does not say how many frames there are."""
        with videos.av.open(str(path)) as container:
            stated = container.streams.video[0].frames
        if stated < 2:
            return None
        chosen, metadata = read_video_pyav(
            str(path), lambda metadata, **_: numpy.array(self.indices(metadata))
        )
        return list(chosen) if metadata.total_num_frames == stated else None

    def frames_of_decoding(self, clip):
        decoded = clip.frames()
        metadata = SimpleNamespace(total_num_frames=len(decoded), fps=clip.fps())
        # sample_frames() of Qwen2-VL may end in the number of frames: see rule_in_itself().
        return [decoded[index] for index in self.indices(metadata) if index < len(decoded)]

    def size(self, frames):
        height, width = frames[0].shape[:2]
        if self.name == "qwen2_vl":
            return self.smart_resize(height, width, FACTOR, LEAST, MOST)
        return self.smart_resize(len(frames), height, width, 2, FACTOR, LEAST, MOST)


def deviation(frames, size, segments):
    """Largest difference of a pixel; None where the number of frames or the size differs."""
    frames = frames + frames[-1:] * (len(frames) % 2)
    rows, columns = (side // PATCH for side in size)
    if len(segments) != len(frames) // 2 or any(grid != [rows, columns] for grid, _ in segments):
        return None
    processor = Qwen2VLImageProcessorPil(**LOOK)
    worst = 0.0
    for number, (_, patches) in enumerate(segments):
        ours = pixels_of(patches, rows, columns, PATCH, frames=2)
        for half in range(2):
            expected = processed(processor, frames[2 * number + half], size)
            worst = max(worst, (ours[half] - expected).abs().max().item())
    return worst


def compare(name, model, setting, clips, forward, folder):
    """Per way of reading: [clips compared, clips that differ, largest deviation of the others], names."""
    saved = folder / f"{name}-{setting[0]}-{setting[1]}"
    model.save_pretrained(saved)
    limits = {"size": {"shortest_edge": LEAST, "longest_edge": MOST}}
    sampling = {"fps": setting[0], "max_frames": setting[1], "min_frames": 4}
    (saved / "preprocessor_config.json").write_text(json.dumps({**limits, **LOOK}))
    (saved / "video_preprocessor_config.json").write_text(
        json.dumps({**limits, **LOOK, **sampling})
    )
    original = Original(name, *setting)
    found = read_by_entrain(forward, saved, clips, folder)
    result = {"reader": [0, [], 0.0], "decoding": [0, [], 0.0]}
    for clip, segments in zip(clips, found, strict=True):
        path = folder / f"{clip.name}.{clip.extension}"
        path.write_bytes(clip.content)
        for way, frames in [
            ("reader", original.frames_of_its_reader(path)),
            ("decoding", original.frames_of_decoding(clip)),
        ]:
            if frames is None:
                continue
            row = result[way]
            row[0] += 1
            worst = deviation(frames, original.size(frames), segments)
            if worst is None or worst > ALLOWED:
                row[1].append(clip.name)
            else:
                row[2] = max(row[2], worst)
    return result


def rule_in_itself():
    """How often Qwen2-VL's indices are others than `i * frames // read`, of all even numbers read."""
    counts = Counter()
    for frames in [*range(2, 1200), *range(1200, 60_000, 997)]:
        for read in range(2, min(768, frames) // 2 * 2 + 1, 2):
            found = torch.arange(0, frames, frames / read).int().tolist()
            expected = [i * frames // read for i in range(read)]
            counts["compared"] += 1
            if len(found) > read:
                counts["one more, of no frame"] += found[read:] == [frames]
                counts["other numbers"] += found[read:] != [frames]
            if found[:read] != expected:
                worst = max(abs(a - b) for a, b in zip(found, expected, strict=False))
                counts[f"off by {worst}"] += 1
    return counts


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--forward", required=True, type=Path, help="program entrain_forward")
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    # In a shard a GIF is an image.
    clips = [clip for clip in videos.every_kind() if clip.extension != "gif"]
    failed = []
    print("\n| frames | a second, most | read by | clips | other frames or sizes | pixels off by |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        for family, module, model in [
            ("Qwen2-VL, Qwen2.5-VL", "qwen2_vl", qwen2_5_vl()),
            ("Qwen3-VL", "qwen3_vl", qwen3_vl()),
        ]:
            for setting in SETTINGS:
                found = compare(module, model, setting, clips, options.forward, Path(name))
                for way, (number, others, worst) in found.items():
                    failed += others if way == "decoding" else []
                    sampled = f"{setting[0]}, {setting[1]}"
                    listed = ", ".join(others) if others else "0"
                    print(f"| {family} | {sampled} | {way} | {number} | {listed} | {worst:.1e} |")
    counts = rule_in_itself()
    print(f"\nQwen2-VL's rule against i * frames // read: {dict(counts)}")
    if failed or counts["other numbers"]:
        raise SystemExit("frames or sizes differ, or a pixel is off by more than 1/255")


if __name__ == "__main__":
    sys.exit(main())
