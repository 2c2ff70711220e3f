"""Random samples of the tiny models, as inputs of transformers and as a batch of entrain_forward."""

import torch
from PIL import Image
from tiny_models import VIT
from transformers.image_processing_utils import select_best_resolution


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


def arranges(model):
    """Whether all tiles of an image make one run of features, and newlines among them."""
    return model.config.model_type in ("llava_next", "llava_onevision")


def canvas_tiles(model, images):
    """Of a sample's images all tiles, [tiles, 3, side, side], by the original's processor."""
    single = model.config.model_type == "llava_onevision" and len(images) > 1
    pictures = [Image.fromarray(image) for image in images]
    found = model.processor([pictures], return_tensors="pt")["pixel_values"]
    counts = []
    for image in images:
        best = select_best_resolution(image.shape[:2], model.config.image_grid_pinpoints)
        side = model.config.vision_config.image_size
        counts.append(1 if single else 1 + best[0] // side * (best[1] // side))
    return [tiles[:count] for tiles, count in zip(found, counts, strict=True)]


def canvas_inputs(model, sizes, pixels):
    """Inputs of the original for a sample's images of these heights and widths."""
    most = max(len(tiles) for tiles in pixels)
    padded = [torch.cat([t, t.new_zeros(most - len(t), *t.shape[1:])]) for t in pixels]
    inputs = {"pixel_values": torch.stack(padded), "image_sizes": torch.tensor(sizes)}
    if model.config.model_type == "llava_onevision":
        inputs["batch_num_images"] = torch.tensor([len(sizes)])
    return inputs


def canvas_sample(model, generator, sizes):
    """Tiles and numbers of features of random images of these heights and widths."""
    images = [
        torch.randint(0, 256, (*size, 3), generator=generator).to(torch.uint8).numpy()
        for size in sizes
    ]
    pixels = canvas_tiles(model, images)
    with torch.no_grad():
        features = model.model.get_image_features(**canvas_inputs(model, sizes, pixels))
    return pixels, [len(rows) for rows in features.pooler_output]


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
        if arranges(model) and of_sample:
            sized, of_sample = of_sample, []
            pixels, counts = canvas_sample(model, generator, sized)
            for count in counts:
                begins.append(len(ids) + 1)
                ids += [302] + [image_token(model)] * count + text(4)
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
    covered = blocks * patch * merge
    return (
        image[:, :covered, :covered]
        .reshape(3, blocks, merge, patch, blocks, merge, patch)
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
    if arranges(model):
        return {**inputs, **canvas_inputs(model, grids, pixels)}
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
        if arranges(model):
            of_pixels = [tile for tiles in of_pixels for tile in tiles]
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
    if arranges(model):
        batch["image_sizes"] = torch.tensor(grids).flip(1).contiguous()
    if videos:
        batch["videos"] = torch.tensor(videos)
        batch["video_fps"] = torch.tensor(fps, dtype=torch.double)
    if pixels:
        batch["pixels"] = torch.cat(pixels).contiguous()
    return batch
