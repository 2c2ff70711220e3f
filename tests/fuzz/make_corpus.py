"""Writes the seeds of the fuzz targets: a few small good inputs each, made here byte by byte,
taken from tests/golden/images, or encoded by libsndfile.

Example:
    python tests/fuzz/make_corpus.py            # into tests/fuzz/corpus/TARGET/
"""

import ctypes
import gzip
import io
import json
import struct
import sys
import tarfile
import tempfile
import zlib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

MODEL = (ROOT / "tests/documents/tiny_model.toml").read_text()

AUDIO = """[audio]
num_layers = 2
hidden = 16
num_heads = 2
intermediate = 32
window_seconds = 30.0
pad_windows = true
"""

CLUSTER = """name = "two"
nodes = 2
devices_per_node = 8
device = "h100"
memory_gib = 74.5
[intra_node]
latency_us = 5
gigabytes_per_second = 360
[inter_node]
latency_us = 10
gigabytes_per_second = 40
"""

RUN = """output = "run"
steps = 4
model = "model.toml"
freeze = ["vision"]
[data]
train = "train.csv"
global_batch = 8
[plan]
replicas = 2
num_slots = 3
without = ["shape"]
[plan.stages]
vision = 2
[optimizer]
learning_rate = 1e-3
[checkpoint]
every_steps = 2
[execution]
fault_drill = [0, 1, 2]
"""

INDEX = """sample_id,n_images,image_sizes,audio_seconds,video_seconds,video_frames,video_size,\
prompt_chars,response_chars,text_chars,prompt_tokens_estimate,response_tokens_estimate,\
text_tokens_estimate,prompt_tokens,response_tokens,text_digest,shard,offset,bytes,source
a,1,64x48,,,,,3,5,8,3,5,8,7,6,00ff,train-0.tar,0,2048,x
b,2,64x48;16x16,1.5;2,,,,3,5,8,3,5,8,7,6,00ff,train-0.tar,2048,4096,"x, ""y"" z"
c,0,,,2.5,60,32x32,3,5,8,3,5,8,7,6,00ff,train-0.tar,6144,1024,
"""

COSTS = """sample_id,vision_tokens,vision_forward_s,vision_backward_s,llm_tokens,llm_forward_s,\
llm_backward_s
a,16,0.001,0.002,40,0.003,0.006
b,0,0,0,20,0.001,0.002
"""
SEGMENTS = """sample_id,module,segment,tokens,forward_s,backward_s
a,vision,0,8,0.0005,0.001
a,vision,1,8,0.0005,0.001
"""

PLAN = {
    "version": 1,
    "replicas": 2,
    "num_slots": 3,
    "modules": {
        "vision": {"tensor_parallel": 1, "context_parallel": 1, "stages": [[0, 1], [1, 4]]},
        "llm": {"tensor_parallel": 2, "context_parallel": 1, "stages": [[0, 4]]},
    },
    "lanes": [[["vision", 0]], [["vision", 1]], [["llm", 0]]],
    "policy": "entrain",
    "schedule": "1f1b",
}

ASSIGNMENT = {
    "version": 1,
    "policy": "entrain",
    "step": 0,
    "seed": 0,
    "replicas": [
        {
            "num_slots": 2,
            "modules": {
                "vision": [
                    ["a", {"sample": "c", "segments": [0]}],
                    [{"sample": "c", "segments": [1]}],
                ],
                "llm": [
                    ["b", {"sample": "a", "tokens": [0, 5]}],
                    [{"sample": "a", "tokens": [5, 18]}, "c"],
                ],
            },
            "deferred": [{"sample": "c", "module": "vision", "from_slot": 0, "to_slot": 1}],
        }
    ],
}

MANIFEST = {
    "version": 1,
    "step": 20,
    "entrain_version": "0.1.0",
    "torch_version": "2.13.0",
    "seed": 3,
    "global_batch": 8,
    "index_digest": "00",
    "model_digest": "11",
    "plan_digest": "22",
    "config_digest": "33",
    "config": {},
    "plan": {},
    "model": {},
    "lanes": [
        {
            "files": [{"name": "weights-0.safetensors", "bytes": 128, "digest": "44"}],
            "tensors": [
                {
                    "name": "model.norm.weight",
                    "dtype": "F32",
                    "shape": [16],
                    "file": "weights-0.safetensors",
                }
            ],
        }
    ],
}


def dump(rank, state, call):
    return {
        "version": 1,
        "rank": rank,
        "num_ranks": 3,
        "place": "replica 0 lane 0",
        "host": "h",
        "process": 7,
        "state": state,
        "failure": "why",
        "failed_s": 2.5,
        "taken_s": 3.0,
        "origin_unix_s": 1.0,
        "calls": [{"step": 1, "what": "forward llm 0", "start_s": 1.0, "finish_s": 1.5}, call],
    }


DUMPS = [
    dump(
        0,
        "lost",
        {
            "step": 1,
            "what": "receive",
            "communication": True,
            "number": 0,
            "peer": 1,
            "channel": 2,
            "tag": 9,
            "start_s": 1.5,
        },
    ),
    dump(
        1,
        "running",
        {
            "step": 1,
            "what": "barrier",
            "communication": True,
            "number": 0,
            "group": [0, 1, 2],
            "start_s": 1.5,
        },
    ),
]


def png(width, height, colour=2, depth=8, interlaced=False, chunks=()):
    """A PNG of zeros; an interlaced one of a single pixel."""

    def chunk(kind, body):
        checksum = zlib.crc32(kind + body)
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", checksum)

    channels = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[colour]
    row = b"\x00" + bytes((width * channels * depth + 7) // 8)
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, int(interlaced))
    body = b"".join(chunk(kind, content) for kind, content in chunks)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + body
        + chunk(b"IDAT", zlib.compress(row * height))
        + chunk(b"IEND", b"")
    )


def jpeg(components, progressive=False):
    """An 8 x 8 JPEG of mid grey: every coefficient zero, Huffman tables of one code each."""

    def segment(marker, body):
        return bytes([0xFF, marker]) + struct.pack(">H", len(body) + 2) + body

    one_code = bytes([1] + [0] * 15) + b"\x00"
    ids = range(1, components + 1)
    frame = struct.pack(">BHHB", 8, 8, 8, components)
    frame += b"".join(bytes([i, 0x11, 0]) for i in ids)
    scan = bytes([components]) + b"".join(bytes([i, 0]) for i in ids)
    scan += bytes([0, 0 if progressive else 63, 0])
    bits = components * (1 if progressive else 2)
    return (
        b"\xff\xd8"
        + segment(0xDB, bytes([0]) + bytes([1] * 64))
        + segment(0xC2 if progressive else 0xC0, frame)
        + segment(0xC4, b"\x00" + one_code)
        + segment(0xC4, b"\x10" + one_code)
        + segment(0xDA, scan)
        + bytes([(1 << (8 - bits)) - 1])
        + b"\xff\xd9"
    )


def golden_images(*names):
    return [(ROOT / "tests/golden/images" / name).read_bytes() for name in names]


def wav(channels, bits, form=1):
    """Eight frames of silence at 16 kHz."""
    block = channels * bits // 8
    head = struct.pack("<HHIIHH", form, channels, 16000, 16000 * block, block, bits)
    data = bytes(8 * block)
    body = b"WAVEfmt " + struct.pack("<I", len(head)) + head
    body += b"data" + struct.pack("<I", len(data)) + data
    return b"RIFF" + struct.pack("<I", len(body)) + body


def flac(channels, bits):
    """Eight frames of silence at 16 kHz, one block of constant subframes."""

    def crc(content, width, polynomial):
        value = 0
        for byte in content:
            value ^= byte << (width - 8)
            for _ in range(8):
                value = value << 1 ^ (polynomial if value >> (width - 1) else 0)
                value &= (1 << width) - 1
        return value.to_bytes(width // 8, "big")

    size_code = {8: 1, 16: 4, 24: 6}[bits]
    header = bytes([0xFF, 0xF8, 0x65, (channels - 1) << 4 | size_code << 1, 0, 7])
    block = header + crc(header, 8, 0x07) + channels * bytes(1 + bits // 8)
    sizes = (16000 << 44) | (channels - 1) << 41 | (bits - 1) << 36 | 8
    information = struct.pack(">HH", 16, 16) + bytes(6) + sizes.to_bytes(8, "big") + bytes(16)
    return b"fLaC\x80\x00\x00\x22" + information + block + crc(block, 16, 0x8005)


def encoded(form, frames):
    """Silence at 16 kHz by libsndfile, in one of its formats."""

    class Info(ctypes.Structure):
        _fields_ = [("frames", ctypes.c_int64)] + [
            (name, ctypes.c_int)
            for name in ("samplerate", "channels", "format", "sections", "seekable")
        ]

    library = ctypes.CDLL("libsndfile.so.1")
    library.sf_open.restype = ctypes.c_void_p
    info = Info(samplerate=16000, channels=1, format=form)
    with tempfile.NamedTemporaryFile() as file:
        sound = ctypes.c_void_p(library.sf_open(file.name.encode(), 0x20, ctypes.byref(info)))
        library.sf_writef_float(sound, (ctypes.c_float * frames)(), ctypes.c_int64(frames))
        library.sf_close(sound)
        return Path(file.name).read_bytes()


def exif(order):
    """A block of two entries: a text outside of them, and orientation 6."""
    entries = struct.pack(order + "HHII", 0x010F, 2, 5, 38)
    entries += struct.pack(order + "HHIHH", 0x0112, 3, 1, 6, 0)
    head = {"<": b"II", ">": b"MM"}[order] + struct.pack(order + "HIH", 42, 8, 2)
    return head + entries + bytes(4) + b"maker"


def lines(*documents):
    return b"".join(json.dumps(document).encode() + b"\n" for document in documents)


def table_answers():
    """A table of two rows, as tables.py answers."""
    media = {"images": [3, "a.png"], "audio": [1]}
    return (
        b"t"
        + lines({"rows": 2, "largest": 1000}, {"json": '{"text": "a"}', "media": media})
        + b"ABCD"
        + lines({"json": "{}", "media": {}})
    )


MP3, VORBIS, OPUS = 0x230082, 0x200060, 0x200064  # libsndfile's numbers


def tar(members, form=tarfile.USTAR_FORMAT):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=form, bufsize=512) as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    content = stream.getvalue().rstrip(b"\0")
    return content + bytes(-len(content) % 512 + 1024)


def safetensors():
    header = {
        "__metadata__": {"format": "pt"},
        "a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
        "b": {"dtype": "BF16", "shape": [4, 0], "data_offsets": [24, 24]},
        "c": {"dtype": "I64", "shape": [5], "data_offsets": [24, 64]},
    }
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(64), text


def profile():
    curve = {"per_pair_ns": 0.5, "per_token_ns": 2.0, "per_launch_ns": 1000}
    layer = {
        "module": "llm",
        "kind": "decoder",
        "tensor_parallel": 1,
        "forward": curve,
        "backward_input": curve,
        "backward_weight": curve,
        "recompute": curve,
        "activation_bytes_per_token": 64.0,
        "range": {"least_tokens": 16, "most_tokens": 512, "most_pairs": 1000},
    }
    return {
        "version": 1,
        "device": "cpu",
        "source": "measured",
        "threads": 1,
        "layers": [layer],
        "link": {"latency_ns": 5},
    }


def seeds():
    text = json.dumps({"question": "what é?", "answer": "red", "kind": "x"}).encode()
    sample = [("s0.0.png", png(4, 4)), ("s0.1.jpg", jpeg(3)), ("s0.json", text)]
    whole, header = safetensors()
    gzipped = gzip.compress(INDEX.encode(), mtime=0)
    return {
        "index_csv": [INDEX],
        "cost_table": [COSTS, COSTS + "\0" + SEGMENTS],
        "torch_csv": [
            "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n",
            "0F0,0I0,0W0\n1F0,1I0,1W0\n,REDUCE_GRAD\n",
        ],
        "model_toml": [MODEL, MODEL + AUDIO],
        "cluster_toml": [CLUSTER],
        "run_toml": [RUN, RUN + '\0plan.replicas=3\0freeze=["llm"]\0output=x y'],
        "plan_json": [json.dumps(PLAN)],
        "assignment_json": [json.dumps(ASSIGNMENT)],
        "profile_json": [json.dumps(profile())],
        "dump_json": [json.dumps(DUMPS[1]), "\0".join(json.dumps(d) for d in DUMPS)],
        "manifest_json": [json.dumps(MANIFEST)],
        "tar": [
            tar(sample[:1]),
            tar([("a" * 120 + "/" + "b" * 120, b"x")], tarfile.PAX_FORMAT),
            tar([("c" * 150, b"x")], tarfile.GNU_FORMAT),
        ],
        "shard": [tar(sample), tar([("t.json", text)])],
        "safetensors": [whole, header],
        "sample_text": [
            text,
            json.dumps({"prompt": "p", "response": ""}),
            json.dumps({"caption": "a cat"}),
        ],
        "png": [
            png(4, 4),
            png(3, 2, colour=6, depth=16),
            png(1, 1, interlaced=True),
            png(8, 2, colour=3, depth=1, chunks=[(b"PLTE", bytes(6)), (b"tRNS", b"\x80")]),
            *golden_images("exif-end.png"),
        ],
        "jpeg": [
            jpeg(1),
            jpeg(3),
            jpeg(1, progressive=True),
            *golden_images("ycck.jpg", "orientation-6.jpg"),
        ],
        "webp": golden_images(
            "lossy-alpha.webp", "lossless.webp", "animated-part.webp", "metadata.webp"
        ),
        "gif": golden_images("interlaced.gif", "part-transparent.gif", "two-frames.gif"),
        "exif": [exif("<"), b"Exif\0\0" + exif(">")],
        "wav": [wav(1, 16), wav(2, 8), wav(1, 24), wav(2, 32, form=3)],
        "flac": [flac(1, 16), flac(2, 24)],
        "mp3": [encoded(MP3, 2000)],
        "ogg": [encoded(VORBIS, 2000), encoded(OPUS, 2000)],
        "python_answers": [
            table_answers(),
            b"v"
            + lines({"frames": 9, "fps": 25.0, "width": 2, "height": 1})
            + 2 * (lines({"width": 2, "height": 1}) + b"abcdef"),
            b"v" + lines({"error": "it is cut"}),
        ],
        "mixture_toml": [
            '"a/*" = 2\n"b/*" = {weight = 1, epochs = 3}\n"c/*" = {weight = [[0, 0.5], [20, 2]]}\n',
            '"a/*" = {repeat = 2}\n"*/0" = {}\n',
        ],
        "gzip": [gzipped, gzipped[:-4], b"plain"],
    }


def main():
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "corpus"
    for target, contents in seeds().items():
        (folder / target).mkdir(parents=True, exist_ok=True)
        for i, content in enumerate(contents):
            data = content.encode() if isinstance(content, str) else content
            (folder / target / f"seed-{i}").write_bytes(data)


if __name__ == "__main__":
    main()
