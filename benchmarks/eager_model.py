"""The engine's model in plain PyTorch, as one would write it by hand; for benchmarks/eager.py.

Two ways to run a microbatch: `packed` keeps rows of all segments one after another and calls
attention once a segment; `padded` fills a rectangle per segment and masks, as most training code
does. Both give the engine's loss.
"""

import io
import itertools
import json
import math
import struct
import tarfile
from pathlib import Path

import numpy
import torch
from PIL import Image
from torch.nn import functional

BOS, EOS, USER, ASSISTANT, IMAGE_START, IMAGE_END, IMAGE = range(256, 263)
EPSILON = 1e-6
DTYPES = {"F32": numpy.float32}


def read_safetensors(path):
    """name → float32 tensor."""
    data = Path(path).read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    tensors = {}
    for name, entry in json.loads(data[8 : 8 + length]).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            values = numpy.frombuffer(
                data[8 + length + begin : 8 + length + end], DTYPES[entry["dtype"]]
            )
            values = torch.from_numpy(values.reshape(entry["shape"]).copy())
            tensors[name] = values.to(torch.get_default_device())
    return tensors


ACTIVATIONS = {
    "silu": functional.silu,
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
}


def smart_resize(width, height, vision):
    """Sides that are multiples of a merge block, within the model's bounds."""
    if vision.get("table_side"):
        return (vision["table_side"] * vision["patch_size"],) * 2
    factor = vision["patch_size"] * vision["merge_size"]
    w, h = max(factor, round(width / factor) * factor), max(factor, round(height / factor) * factor)
    if w * h > vision["max_pixels"]:
        scale = math.sqrt(width * height / vision["max_pixels"])
        w = max(factor, math.floor(width / scale / factor) * factor)
        h = max(factor, math.floor(height / scale / factor) * factor)
    elif w * h < vision["min_pixels"]:
        scale = math.sqrt(vision["min_pixels"] / (width * height))
        w = math.ceil(width * scale / factor) * factor
        h = math.ceil(height * scale / factor) * factor
    return w, h


def patches_of(image, vision):
    """(patches [T, 3·p²] in merge-block order, rows, columns)."""
    if image.mode in ("RGBA", "LA", "P"):
        rgba = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), rgba)
    width, height = smart_resize(image.width, image.height, vision)
    image = image.convert("RGB").resize((width, height), Image.BICUBIC)
    pixels = torch.from_numpy(numpy.asarray(image).copy()).permute(2, 0, 1).float()
    pixels = pixels.to(torch.get_default_device()) / 127.5 - 1.0
    patch, merge = vision["patch_size"], vision["merge_size"]
    block_rows, block_columns = height // (patch * merge), width // (patch * merge)
    blocks = pixels.view(3, block_rows, merge, patch, block_columns, merge, patch)
    flat = blocks.permute(1, 4, 2, 5, 0, 3, 6).reshape(-1, 3 * patch * patch)
    return flat, height // patch, width // patch


class Sample:
    """One sample, decoded: images' patches and grids, token ids, where features and targets are."""

    def __init__(self, row, folder, vision):
        members = read_members(folder / row["shard"], int(row["offset"]))
        texts = json.loads(members.pop("json"))
        prompt, response = text_of(texts)
        self.images = []
        for name in sorted(members):
            self.images.append(patches_of(Image.open(io.BytesIO(members[name])), vision))
        ids, self.positions = [BOS, USER], []
        merged = vision["merge_size"] ** 2
        for patches, _, _ in self.images:
            ids.append(IMAGE_START)
            count = len(patches) // merged
            self.positions += range(len(ids), len(ids) + count)
            ids += [IMAGE] * count + [IMAGE_END]
        kept = int(row["prompt_tokens"]) - 3 - 2 * len(self.images)
        prompt = prompt.encode()
        ids += list(prompt[len(prompt) - kept :]) + [ASSISTANT]
        self.target_begin = len(ids)
        ids += [*response.encode(), EOS]
        self.ids = torch.tensor(ids)
        self.num_targets = len(ids) - self.target_begin


def read_members(shard, offset):
    """suffix → bytes of the files of the sample that begins at `offset` of a tar file."""
    members, key = {}, None
    with Path(shard).open("rb") as file:
        file.seek(offset)
        with tarfile.open(fileobj=file, mode="r:") as tar:
            for member in tar:
                base, _, suffix = member.name.partition(".")
                if key not in (None, base):
                    break
                key = base
                members[suffix.lower()] = tar.extractfile(member).read()
    return members


def text_of(document):
    """(prompt, response) of a sample's JSON member."""
    for prompt, response in (("question", "answer"), ("prompt", "response")):
        if response in document:
            return document[prompt], document[response]
    return "", document["caption"]


def angles(positions, width, theta):
    """cos and sin [T, width / 2] of one axis."""
    frequencies = theta ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    table = positions.double()[:, None] * frequencies
    return table.cos().float(), table.sin().float()


def mrope_angles(samples, sections, merge, width, theta):
    """cos and sin [T, width / 2]: pairs by time, by row and by column."""
    axes = []
    for sample in samples:
        follow, done = 0, 0
        of_sample = torch.empty(3, len(sample.ids))
        starts = iter(sample.positions)
        for _, rows, columns in sample.images:
            begin = next(starts)
            rows, columns = rows // merge, columns // merge
            of_sample[:, done:begin] = torch.arange(begin - done) + follow
            follow, done = follow + begin - done, begin + rows * columns
            of_sample[0, begin:done] = follow
            of_sample[1, begin:done] = follow + torch.arange(rows).repeat_interleave(columns)
            of_sample[2, begin:done] = follow + torch.arange(columns).repeat(rows)
            follow += max(rows, columns)
            for _ in range(rows * columns - 1):
                next(starts)
        of_sample[:, done:] = torch.arange(len(sample.ids) - done) + follow
        axes.append(of_sample)
    tables = [angles(axis, width, theta) for axis in torch.cat(axes, 1)]
    return tuple(
        torch.cat([part.split(sections, -1)[axis] for axis, part in enumerate(parts)], -1)
        for parts in zip(*tables, strict=True)
    )


def rotate(x, tables):
    """x [T, H, D]; one (cos, sin) an axis, equal spans of D, halves of a span rotated together."""
    if not tables:
        return x
    spans = []
    for span, (cosine, sine) in zip(x.chunk(len(tables), -1), tables, strict=True):
        low, high = span.chunk(2, -1)
        cosine, sine = cosine[:, None], sine[:, None]
        spans += [low * cosine - high * sine, high * cosine + low * sine]
    return torch.cat(spans, -1)


def attend_packed(query, key, value, lengths, causal):
    """One kernel a segment. [T, H, D] → [T, H·D]."""
    pieces = []
    for q, k, v in zip(*(x.split(lengths) for x in (query, key, value)), strict=True):
        out = functional.scaled_dot_product_attention(
            q.transpose(0, 1)[None], k.transpose(0, 1)[None], v.transpose(0, 1)[None],
            is_causal=causal, enable_gqa=q.shape[1] != k.shape[1],
        )  # fmt: skip
        pieces.append(out[0].transpose(0, 1).flatten(1))
    return torch.cat(pieces)


def attend_at_once(query, key, value, lengths, causal):
    """One kernel for all segments: flash attention of packed rows, on a GPU in 16 bits."""
    ends = torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int32)
    query, key, value = (x.to(torch.bfloat16) for x in (query, key, value))
    longest = max(lengths)
    forward = torch.ops.aten._flash_attention_forward
    out = forward(query, key, value, ends, ends, longest, longest, 0.0, causal, False)[0]
    return out.flatten(1)


def attend_padded(query, key, value, lengths, causal):
    """One kernel on a rectangle, with a mask."""
    longest = max(lengths)
    batch = [
        torch.nn.utils.rnn.pad_sequence(x.split(lengths), batch_first=True).transpose(1, 2)
        for x in (query, key, value)
    ]
    valid = torch.arange(longest)[None] < torch.tensor(lengths)[:, None]
    mask = valid[:, None, None, :]
    if causal:
        mask = mask & torch.ones(longest, longest, dtype=torch.bool).tril()
    out = functional.scaled_dot_product_attention(
        *batch, attn_mask=mask, enable_gqa=query.shape[1] != key.shape[1]
    )
    return out.transpose(1, 2).flatten(2)[valid]


class Model:
    """Parameters by Hugging Face name; loss() of a microbatch."""

    def __init__(self, spec, weights, attend=attend_packed):
        self.vision, self.llm = spec["vision"], spec["llm"]
        self.weights = {name: tensor.clone().requires_grad_() for name, tensor in weights.items()}
        self.attend = attend

    def parameters(self):
        return list(self.weights.values())

    def linear(self, x, name):
        bias = self.weights.get(name + ".bias")
        return functional.linear(x, self.weights[name + ".weight"], bias)

    def norm(self, x, name):
        """LayerNorm if it has a bias; nothing without a weight."""
        weight, bias = self.weights.get(name + ".weight"), self.weights.get(name + ".bias")
        if weight is None:
            return x
        if bias is not None:
            return functional.layer_norm(x, (x.shape[-1],), weight, bias, EPSILON)
        return functional.rms_norm(x, (x.shape[-1],), weight, EPSILON)

    def mlp(self, x, prefix, act=functional.silu):
        up = self.linear(x, prefix + "up_proj")
        if prefix + "gate_proj.weight" in self.weights:
            return self.linear(act(self.linear(x, prefix + "gate_proj")) * up, prefix + "down_proj")
        return self.linear(act(up), prefix + "down_proj")

    def windowed(self, query, key, value, images):
        """Attention within square windows of every image."""
        side = self.vision["window_size"] // self.vision["patch_size"]
        merge = self.vision["merge_size"]
        order, lengths, begin = [], [], 0
        for patches, height, width in images:
            grid = torch.arange(begin, begin + len(patches))
            grid = grid.view(height // merge, width // merge, merge, merge)
            step = side // merge
            for row in range(0, height // merge, step):
                for column in range(0, width // merge, step):
                    window = grid[row : row + step, column : column + step].reshape(-1)
                    order.append(window)
                    lengths.append(len(window))
            begin += len(patches)
        order = torch.cat(order)
        attended = self.attend(query[order], key[order], value[order], lengths, causal=False)
        return torch.empty_like(attended).index_copy(0, order, attended)

    def encode(self, images):
        """Features [F, LLM hidden] of a microbatch's images."""
        spec = self.vision
        heads, head_dim = spec["num_heads"], spec["hidden"] // spec["num_heads"]
        lengths = [len(patches) for patches, _, _ in images]
        merge = spec["merge_size"]
        rows, columns = [], []
        for _, height, width in images:
            grid = torch.stack(torch.meshgrid(
                torch.arange(height), torch.arange(width), indexing="ij"
            ))  # fmt: skip
            grid = grid.view(2, height // merge, merge, width // merge, merge)
            grid = grid.permute(0, 1, 3, 2, 4).reshape(2, -1)
            rows.append(grid[0])
            columns.append(grid[1])
        rows, columns = torch.cat(rows), torch.cat(columns)
        tables = [angles(axis, head_dim // 2, 10000.0) for axis in (rows, columns)]
        if spec.get("rotary") == "halves":
            tables = [tuple(torch.cat(parts, -1) for parts in zip(*tables, strict=True))]
        x = self.linear(torch.cat([patches for patches, _, _ in images]), "visual.patch_embed.proj")
        if spec.get("table_side"):
            tables = []
            places = rows * spec["table_side"] + columns
            x = x + functional.embedding(places, self.weights["visual.positions.weight"])
        act = ACTIVATIONS[spec.get("activation", "silu")]
        for layer in range(spec["num_layers"]):
            prefix = f"visual.blocks.{layer}."
            normed = self.norm(x, prefix + "norm1")
            if spec.get("separate_qkv"):
                query, key, value = (
                    self.linear(normed, f"{prefix}attn.{part}_proj").view(-1, heads, head_dim)
                    for part in "qkv"
                )
            else:
                qkv = self.linear(normed, prefix + "attn.qkv")
                query, key, value = qkv.view(-1, 3, heads, head_dim).unbind(1)
            query, key = rotate(query, tables), rotate(key, tables)
            if spec.get("window_size") and layer not in spec["full_attention_layers"]:
                attended = self.windowed(query, key, value, images)
            else:
                attended = self.attend(query, key, value, lengths, causal=False)
            x = x + self.linear(attended, prefix + "attn.proj")
            x = x + self.mlp(self.norm(x, prefix + "norm2"), prefix + "mlp.", act)
        merged = self.norm(x, "visual.merger.ln_q").reshape(-1, merge * merge * spec["hidden"])
        if "visual.merger.mlp.0.weight" in self.weights:
            merged = functional.gelu(self.linear(merged, "visual.merger.mlp.0"))
        return self.linear(merged, "visual.merger.mlp.2")

    def loss(self, samples):
        """Sum of the cross-entropy over a microbatch's targets."""
        spec = self.llm
        heads, kv_heads = spec["num_heads"], spec["num_kv_heads"]
        head_dim = spec.get("head_dim") or spec["hidden"] // heads
        lengths = [len(sample.ids) for sample in samples]
        starts = [sum(lengths[:i]) for i in range(len(lengths))]
        ids = torch.cat([sample.ids for sample in samples])
        x = functional.embedding(ids, self.weights["model.embed_tokens.weight"])
        images = [image for sample in samples for image in sample.images]
        if images:
            places = [s + p for s, sample in zip(starts, samples, strict=True)
                      for p in sample.positions]  # fmt: skip
            x = x.index_copy(0, torch.tensor(places), self.encode(images).to(x.dtype))
        theta = spec.get("rope_theta", 10000.0)
        if "mrope_sections" in spec:
            merge = self.vision["merge_size"]
            tables = [mrope_angles(samples, spec["mrope_sections"], merge, head_dim, theta)]
        else:
            positions = torch.cat([torch.arange(length) for length in lengths])
            tables = [angles(positions, head_dim, theta)]
        for layer in range(spec["num_layers"]):
            prefix = f"model.layers.{layer}."
            normed = self.norm(x, prefix + "input_layernorm")
            query = self.linear(normed, prefix + "self_attn.q_proj").view(-1, heads, head_dim)
            key = self.linear(normed, prefix + "self_attn.k_proj").view(-1, kv_heads, head_dim)
            value = self.linear(normed, prefix + "self_attn.v_proj").view(-1, kv_heads, head_dim)
            attended = self.attend(
                rotate(query, tables), rotate(key, tables), value, lengths, causal=True
            )
            x = x + self.linear(attended, prefix + "self_attn.o_proj")
            x = x + self.mlp(self.norm(x, prefix + "post_attention_layernorm"), prefix + "mlp.")
        rows = torch.cat([
            torch.arange(start + sample.target_begin - 1, start + len(sample.ids) - 1)
            for start, sample in zip(starts, samples, strict=True)
        ])  # fmt: skip
        targets = torch.cat([sample.ids[sample.target_begin :] for sample in samples])
        logits = self.linear(self.norm(x[rows], "model.norm"), "lm_head")
        return functional.cross_entropy(logits, targets, reduction="sum")
