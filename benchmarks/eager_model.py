"""The engine's model in plain PyTorch, as one would write it by hand; for benchmarks/eager.py.

Two ways to run a microbatch: `packed` keeps rows of all segments one after another and calls
attention once a segment; `padded` fills a rectangle per segment and masks, as most training code
does. Both give the engine's loss.
"""

import io
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
            tensors[name] = torch.from_numpy(values.reshape(entry["shape"]).copy())
    return tensors


def smart_resize(width, height, vision):
    """Sides that are multiples of a merge block, within the model's bounds."""
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
    pixels = torch.from_numpy(numpy.asarray(image.convert("RGB")).copy()).permute(2, 0, 1).float()
    width, height = smart_resize(image.width, image.height, vision)
    if (width, height) != image.size:
        pixels = functional.interpolate(
            pixels[None], (height, width), mode="bicubic", antialias=True
        )[0].clamp(0, 255)
    pixels = pixels / 127.5 - 1.0
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


def rms_norm(x, weight):
    return functional.rms_norm(x, (x.shape[-1],), weight, EPSILON)


def angles(positions, width, theta):
    """cos and sin [T, width / 2] of one axis."""
    frequencies = theta ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    table = positions.double()[:, None] * frequencies
    return table.cos().float(), table.sin().float()


def rotate(x, tables):
    """x [T, H, D]; one (cos, sin) an axis, equal spans of D, halves of a span rotated together."""
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

    def __init__(self, spec, weights, padded):
        self.vision, self.llm = spec["vision"], spec["llm"]
        self.weights = {name: tensor.clone().requires_grad_() for name, tensor in weights.items()}
        self.attend = attend_padded if padded else attend_packed

    def parameters(self):
        return list(self.weights.values())

    def linear(self, x, name):
        bias = self.weights.get(name + ".bias")
        return functional.linear(x, self.weights[name + ".weight"], bias)

    def norm(self, x, name):
        return rms_norm(x, self.weights[name + ".weight"])

    def mlp(self, x, prefix):
        gate = functional.silu(self.linear(x, prefix + "gate_proj"))
        return self.linear(gate * self.linear(x, prefix + "up_proj"), prefix + "down_proj")

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
        tables = [angles(torch.cat(axis), head_dim // 2, 10000.0) for axis in (rows, columns)]
        x = self.linear(torch.cat([patches for patches, _, _ in images]), "visual.patch_embed.proj")
        for layer in range(spec["num_layers"]):
            prefix = f"visual.blocks.{layer}."
            qkv = self.linear(self.norm(x, prefix + "norm1"), prefix + "attn.qkv")
            query, key, value = qkv.view(-1, 3, heads, head_dim).unbind(1)
            attended = self.attend(
                rotate(query, tables), rotate(key, tables), value, lengths, causal=False
            )
            x = x + self.linear(attended, prefix + "attn.proj")
            x = x + self.mlp(self.norm(x, prefix + "norm2"), prefix + "mlp.")
        merged = self.norm(x, "visual.merger.ln_q").reshape(-1, merge * merge * spec["hidden"])
        middle = functional.gelu(self.linear(merged, "visual.merger.mlp.0"))
        return self.linear(middle, "visual.merger.mlp.2")

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
            x = x.index_copy(0, torch.tensor(places), self.encode(images))
        positions = torch.cat([torch.arange(length) for length in lengths])
        tables = [angles(positions, head_dim, spec.get("rope_theta", 10000.0))]
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
