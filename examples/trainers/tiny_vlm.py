"""A small Qwen2.5-VL of random weights and samples of uneven sizes, for the examples beside it.

Replace tiny_model() by `from_pretrained(…)`, TinyData by your data set, and collate() by your collator.
"""

import random

import torch
import transformers

import entrain

IMAGE, START, END = 300, 302, 303  # token ids
PATCH, MERGE = 14, 2


def tiny_model(width=32, layers=2):
    """Random weights, the same in every process."""
    torch.manual_seed(0)
    config = transformers.Qwen2_5_VLConfig(
        text_config={
            "hidden_size": 2 * width,
            "intermediate_size": 3 * width,
            "num_hidden_layers": layers,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "vocab_size": 320,
            "max_position_embeddings": 4096,
            "rms_norm_eps": 1e-6,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "rope_parameters": {
                "rope_type": "default",
                "mrope_section": [w * width // 32 for w in (2, 3, 3)],
                "rope_theta": 1e6,
            },
        },
        vision_config={
            "depth": layers,
            "hidden_size": width,
            "intermediate_size": 3 * width // 2,
            "num_heads": 2,
            "patch_size": PATCH,
            "window_size": 56,
            "fullatt_block_indexes": [layers - 1],
            "out_hidden_size": 2 * width,
        },
        image_token_id=IMAGE,
        video_token_id=301,
        vision_start_token_id=START,
        vision_end_token_id=END,
    )
    return transformers.Qwen2_5_VLForConditionalGeneration(config)


class TinyData(torch.utils.data.Dataset):
    """Sample i: images of sizes of its own (every sixth has none), a text of a length of its own.

    index: a CSV file of sizes (entrain.Index) whose images, enlarged by `scale` and then within `largest` ×
    `largest` squares of 28 pixels, and texts are taken instead; pixels and tokens are random all the same.
    """

    def __init__(self, count, largest=12, index=None, scale=1.0):
        if index is None:
            self.make_up(count, largest)
        else:
            self.read(entrain.Index.read(index).rows[:count], largest, scale)

    def make_up(self, count, largest):
        draw = random.Random(0)
        skewed = [1 + int(largest * draw.random() ** 3) for _ in range(count)]
        self.grids = [
            [] if i % 6 == 5 else [(2 * size, 2 * draw.randint(1, 4))]
            for i, size in enumerate(skewed)
        ]
        self.lengths = [draw.randint(3, 60) for _ in range(count)]

    def read(self, rows, largest, scale):
        self.grids, self.lengths = [], []
        for row in rows:
            sizes = [map(int, size.split("x")) for size in row["image_sizes"].split(";") if size]
            self.grids.append(
                [self.grid(width * scale, height * scale, largest) for width, height in sizes]
            )
            parts = (row["prompt_tokens_estimate"], row["response_tokens_estimate"])
            self.lengths.append(max(3, sum(int(float(part or 0)) for part in parts)))

    @staticmethod
    def grid(width, height, largest):
        """Patches down and across: even numbers, within the limit."""
        square = PATCH * MERGE
        scale = min(1.0, largest * square / (width * height) ** 0.5)
        return tuple(2 * max(1, round(scale * side / square)) for side in (height, width))

    def __len__(self):
        return len(self.lengths)

    def tokens(self, i):
        return self.lengths[i] + sum(2 + h * w // MERGE**2 for h, w in self.grids[i])

    def rows(self):
        """What entrain.Index.from_rows() takes: sizes alone."""
        return [
            {
                "images": [(across * PATCH, down * PATCH) for down, across in grids],
                "prompt_tokens": 2 * len(grids),
                "response_tokens": length,
            }
            for grids, length in zip(self.grids, self.lengths, strict=True)
        ]

    def __getitem__(self, i):
        draw = torch.Generator().manual_seed(i)
        text = torch.randint(3, 290, (self.lengths[i],), generator=draw)
        sample = {"input_ids": text, "labels": text, "index": i}
        grids = self.grids[i]
        if not grids:
            return sample
        patches = [down * across for down, across in grids]
        before = []
        for count in patches:
            before += [START, *[IMAGE] * (count // MERGE**2), END]
        before = torch.tensor(before)
        sample["input_ids"] = torch.cat([before, text])
        sample["labels"] = torch.cat([torch.full_like(before, -100), text])
        sample["pixel_values"] = torch.randn(sum(patches), 3 * 2 * PATCH**2, generator=draw)
        sample["image_grid_thw"] = torch.tensor([[1, *grid] for grid in grids])
        return sample


def collate(samples):
    """Pads sequences to the longest; concatenates patches."""

    def padded(name, value):
        rows = [sample[name] for sample in samples]
        return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=value)

    ids = padded("input_ids", 0)
    batch = {
        "input_ids": ids,
        "labels": padded("labels", -100),
        "attention_mask": (ids != 0).long(),
        "mm_token_type_ids": (ids == IMAGE).int(),
    }
    with_image = [sample for sample in samples if "pixel_values" in sample]
    for name in ("pixel_values", "image_grid_thw"):
        if with_image:
            batch[name] = torch.cat([sample[name] for sample in with_image])
    return batch
