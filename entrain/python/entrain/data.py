"""What is trained, by sizes alone: Index (samples), Model (layers and widths), costs() of both."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import itertools
import json
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from entrain import _core
from entrain._run import run

_CHARACTERS_PER_TOKEN = 4.0  # of an estimate, where no tokenizer is given
_COLUMNS = [
    *("sample_id", "n_images", "image_sizes", "audio_seconds", "prompt_chars", "response_chars"),
    *("prompt_tokens_estimate", "response_tokens_estimate"),
]
_MOST_SECONDS = 1000.0  # of a sample in a module
_scratch: tempfile.TemporaryDirectory[str] | None = None
_numbers = itertools.count()


def scratch_file(name: str) -> Path:
    """A new path in a folder that goes with this process."""
    global _scratch
    if _scratch is None:
        _scratch = tempfile.TemporaryDirectory(prefix="entrain-")
    return Path(_scratch.name) / f"{next(_numbers)}-{name}"


@dataclass(frozen=True)
class Model:
    """Layers, widths and size rules of a model: what costs, memory and token counts follow from.

    >>> llm = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64,
    ...        "intermediate_size": 172, "num_hidden_layers": 2, "num_attention_heads": 4,
    ...        "num_key_value_heads": 2, "vocab_size": 512, "rms_norm_eps": 1e-5,
    ...        "max_position_embeddings": 2048, "hidden_act": "silu", "tie_word_embeddings": False}
    >>> Model.from_hf(llm).modules
    ['llm']
    """

    path: Path

    @classmethod
    def from_hf(cls, config: str | Path | Mapping[str, Any]) -> Model:
        """Reads a Hugging Face config: a dictionary, a config.json, or a folder with one.

        A folder's preprocessor_config.json counts; with the config alone, pixels are made as by the
        family's default processor. docs/models.md lists the families.

        Raises ValueError for a family or key that the cost model does not know, by name.
        """
        if isinstance(config, Mapping):
            path = scratch_file("config.json")
            path.write_text(json.dumps(dict(config)))
        else:
            path = Path(config)
        return cls._checked(path)

    @classmethod
    def from_toml(cls, path: str | Path) -> Model:
        """Reads a model file of Entrain (configs/models/ has examples)."""
        return cls._checked(Path(path))

    @classmethod
    def of(cls, model: Any) -> Model:
        """The model itself; or of a path, a config's dictionary, a `transformers` config or model."""
        if isinstance(model, Model):
            return model
        config = getattr(model, "config", model)
        if hasattr(config, "to_json_string"):
            document = json.loads(config.to_json_string())
            if not document.get("architectures"):
                document["architectures"] = [type(model).__name__]
            return cls.from_hf(document)
        return cls.from_hf(model)

    @classmethod
    def _checked(cls, path: Path) -> Model:
        model = cls(path)
        model.document  # noqa: B018 - read now, so that errors come here
        return model

    @cached_property
    def document(self) -> dict[str, Any]:
        """The description: sizes of every module, by name."""
        document: dict[str, Any] = json.loads(_core.read_model(str(self.path)))
        return document

    @property
    def name(self) -> str:
        return str(self.document.get("name", self.path.stem))

    @property
    def modules(self) -> list[str]:
        """Encoders, then the LLM."""
        return [name for name in ("vision", "audio", "llm") if name in self.document]


@dataclass(frozen=True)
class Index:
    """Sizes of samples: images, seconds of audio, tokens of text. No pixel is kept.

    path: the CSV file that commands read (docs/data.md). Index.of() takes whatever you have.

    >>> index = Index.from_rows([
    ...     {"id": "a", "images": [(640, 480)], "prompt_tokens": 12, "response_tokens": 30},
    ...     {"id": "b", "prompt": "Why is the sky blue?", "response": "Rayleigh scattering."}])
    >>> len(index), index.ids
    (2, ['a', 'b'])
    """

    path: Path
    _rows: list[dict[str, str]] = field(default_factory=list, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def rows(self) -> list[dict[str, str]]:
        """[sample] its columns as text."""
        if self._rows:
            return self._rows
        opened: Callable[..., Any] = gzip.open if self.path.suffix == ".gz" else open
        with opened(self.path, "rt", newline="", errors="surrogateescape") as file:
            return list(csv.DictReader(file))

    @property
    def ids(self) -> list[str]:
        return [row["sample_id"] for row in self.rows]

    @classmethod
    def of(cls, data: Any, **columns: Any) -> Index:
        """An Index, a path of a CSV file (shards: from_shards()), a pandas or pyarrow table, a
        `datasets.Dataset`, or an iterable of dictionaries. `columns` as in from_rows()."""
        if isinstance(data, Index):
            return data
        if isinstance(data, (str, Path)):
            return cls.read(data)
        if hasattr(data, "to_dict") and hasattr(data, "columns"):  # pandas
            return cls.from_rows(data.to_dict("records"), **columns)
        if hasattr(data, "to_pylist"):  # pyarrow
            return cls.from_rows(data.to_pylist(), **columns)
        return cls.from_rows(data, **columns)

    @classmethod
    def read(cls, path: str | Path) -> Index:
        """A CSV file: an index of `entrain index` or a manifest with the same columns.

        Raises ValueError for a file that is not there.
        """
        if not Path(path).is_file():
            raise ValueError(f"{path}: there is no such file")
        return cls(Path(path))

    @classmethod
    def from_shards(cls, shards: str | Path | Sequence[str | Path], model: Any) -> Index:
        """WebDataset tar shards, read by `entrain index`; `model` as in Model.of()."""
        names = [shards] if isinstance(shards, (str, Path)) else list(shards)
        path = scratch_file("index.csv")
        run("index", *map(str, names), model=Model.of(model).path, output=path)
        return cls(path)

    @classmethod
    def from_rows(
        cls,
        rows: Iterable[Mapping[str, Any]],
        *,
        id: str = "id",
        images: str = "images",
        audio_seconds: str = "audio_seconds",
        prompt: str = "prompt",
        response: str = "response",
        messages: str = "messages",
        tokenizer: Any = None,
        progress: bool | None = None,
    ) -> Index:
        """One dictionary a sample; names of columns can be given.

        id             unique; default: its number.
        images         a list of sizes (width, height), "WxH", PIL images, {"bytes": …} or {"path": …}
                       as of `datasets`, or encoded bytes; or one of them. Sizes alone are read.
        audio_seconds  a number or a list of them.
        prompt, response  texts. Their tokens are counted by `tokenizer` (whatever returns a list of ids
                       or {"input_ids": …}), or estimated as a quarter of the characters; columns
                       PROMPT_tokens and RESPONSE_tokens give numbers instead.
        messages       chats instead: lists of {"role": …, "content": …}, counted by the tokenizer's chat
                       template; what the role "assistant" says is the response.

        Raises ValueError naming the sample for an image that cannot be read, an id that is there
        twice, a tokenizer without a chat template, and a row without any of these columns.
        """
        columns = _Columns(images, audio_seconds, prompt, response, messages, tokenizer)
        found: list[dict[str, str]] = []
        seen: set[str] = set()
        for number, row in enumerate(_with_progress(rows, progress)):
            name = str(row.get(id, number))
            if name in seen:
                raise ValueError(f"sample {name!r} is there twice; ids have to be unique")
            seen.add(name)
            try:
                found.append(columns.index_row(name, row))
            except (OSError, TypeError, KeyError, AttributeError, ValueError) as error:
                raise ValueError(f"sample {name!r}: {error}") from None
        if not found:
            raise ValueError("an index of no sample")
        path = scratch_file("index.csv")
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, _COLUMNS)
            writer.writeheader()
            writer.writerows(found)
        return cls(path, found)


@dataclass(frozen=True)
class Costs:
    """What samples cost.

    seconds: module -> [sample] forward and backward on one device; encoders first, the LLM last.
    tokens: [sample] in the LLM. bytes: [sample] activations kept until the backward; empty: unknown.
    target_tokens: [sample] tokens with loss; empty: unknown. ids: [sample], unique; empty: unknown.

    Raises ValueError naming module and sample for a cost that is negative, NaN or above 1,000 s, and
    for lists of different lengths.

    >>> costs = Costs({"vision": [0.1, 0.0], "llm": [0.2, 0.3]}, tokens=[500, 700])
    >>> len(costs)
    2
    """

    seconds: Mapping[str, Sequence[float]]
    tokens: Sequence[int]
    bytes: Sequence[int] = ()
    target_tokens: Sequence[int] = ()
    ids: Sequence[str] = ()
    digest: str = field(init=False, repr=False, default="")

    def __post_init__(self) -> None:
        if not self.seconds:
            raise ValueError("costs of no module; at least the LLM's are needed")
        count = len(self.tokens)
        if count == 0:
            raise ValueError("costs of no sample; at least one is needed")
        parts: dict[str, Sequence[Any]] = {
            f"seconds of {name}": values for name, values in self.seconds.items()
        }
        parts |= {"bytes": self.bytes, "target_tokens": self.target_tokens, "ids": self.ids}
        for name, values in parts.items():
            optional = not name.startswith("seconds")
            if len(values) != count and not (optional and len(values) == 0):
                raise ValueError(f"{name} has {len(values)} values for {count} samples")
        for name, values in self.seconds.items():
            _check_numbers(f"seconds of {name}", values, _MOST_SECONDS)
        _check_numbers("tokens", self.tokens, 1e12)
        _check_numbers("bytes", self.bytes, 1e13)
        _check_numbers("target_tokens", self.target_tokens, 1e12)
        if len(set(self.ids)) != len(self.ids):
            twice = max(self.ids, key=list(self.ids).count)
            raise ValueError(f"sample {twice!r} is there twice; ids have to be unique")
        hashed = hashlib.blake2b(digest_size=8)
        for value in self.tokens:
            hashed.update(int(value).to_bytes(8, "little"))
        for name in self.ids:
            hashed.update(name.encode() + b"\0")
        object.__setattr__(self, "digest", hashed.hexdigest())

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def modules(self) -> list[str]:
        return list(self.seconds)


def _check_numbers(what: str, values: Sequence[float], most: float) -> None:
    for sample, value in enumerate(values):
        if not 0 <= value <= most:  # false for NaN as well
            raise ValueError(f"{what}: sample {sample} has {value}; allowed are 0 to {most:g}")


def costs(
    index: Any,
    model: Any,
    *,
    profile: str | Path = "analytic:a40",
    measured: Any = None,
    freeze: Sequence[str] = (),
    ignore_modality: Sequence[str] = (),
) -> Costs:
    """What every sample of an index costs in every module of a model, for BalancedBatchSampler.

    profile   measured by `entrain profile`, or analytic:DEVICE (a40, h100, cpu-2core).
    measured  a StepLog or its file, whose times scale each module's costs.
    freeze    modules that are not trained.

    Raises ValueError for what the model cannot read. Cost: about a second for 50,000 samples.

    >>> index = Index.from_rows([{"prompt_tokens": 12, "response_tokens": n} for n in (30, 300)])
    >>> found = costs(index, "configs/models/qwen2.5-vl-llama-1b.toml")
    >>> list(found.tokens), list(found.target_tokens), found.seconds["vision"]
    ([42, 312], [30, 300], [0.0, 0.0])
    """
    samples = Index.of(index)
    table = scratch_file("costs.csv")
    run("cost", index=samples.path, model=Model.of(model).path, profile=profile, output=table,
        freeze=list(freeze), ignore_modality=list(ignore_modality), activation_bytes=True)  # fmt: skip
    with table.open(newline="", errors="surrogateescape") as file:
        rows = list(csv.DictReader(file))
    modules = [name[: -len("_forward_s")] for name in rows[0] if name.endswith("_forward_s")]
    scale: Mapping[str, float] = {}
    if measured is not None:
        from entrain.measured import fit

        scale = fit(getattr(measured, "entries", measured), model, profile).scale
    return Costs(
        {
            name: [
                scale.get(name, 1.0)
                * (float(row[f"{name}_forward_s"]) + float(row[f"{name}_backward_s"]))
                for row in rows
            ]
            for name in modules
        },
        tokens=[int(row["llm_tokens"]) for row in rows],
        bytes=[sum(int(row[f"{name}_activation_bytes"] or 0) for name in modules) for row in rows],
        target_tokens=_target_tokens(samples, rows),
        ids=[row["sample_id"] for row in rows],
    )


def write_costs(found: Costs, path: Path, scale: Mapping[str, float]) -> None:
    """Writes costs as a table that `--costs` takes, the seconds of each module times its scale."""
    columns = ["tokens", "forward_s", "backward_s", "activation_bytes"]
    with path.open("w", newline="", errors="surrogateescape") as file:
        writer = csv.writer(file)
        writer.writerow(["sample_id", *(f"{m}_{c}" for m in found.modules for c in columns)])
        for i, tokens in enumerate(found.tokens):
            row: list[Any] = [found.ids[i] if found.ids else str(i)]
            for module in found.modules:
                seconds = found.seconds[module][i] * scale.get(module, 1.0)
                last = module == found.modules[-1]
                size = found.bytes[i] if last and found.bytes else 0
                count = tokens if last else int(seconds > 0)
                row += [count, f"{seconds / 3:.9f}", f"{seconds * 2 / 3:.9f}", size]
            writer.writerow(row)


def _target_tokens(index: Index, rows: list[dict[str, str]]) -> list[int]:
    known = index.rows
    if len(known) != len(rows) or not known or "response_tokens_estimate" not in known[0]:
        return []
    exact = "response_tokens" if "response_tokens" in known[0] else "response_tokens_estimate"
    return [int(float(row[exact] or row["response_tokens_estimate"] or 0)) for row in known]


@dataclass(frozen=True)
class _Columns:
    """Names of columns, as Index.from_rows() takes them."""

    images: str
    audio_seconds: str
    prompt: str
    response: str
    messages: str
    tokenizer: Any

    def index_row(self, name: str, row: Mapping[str, Any]) -> dict[str, str]:
        known = [self.images, self.audio_seconds, self.prompt, self.response, self.messages]
        numbers = [f"{self.prompt}_tokens", f"{self.response}_tokens"]
        if not any(key in row for key in known + numbers):
            raise ValueError(
                f"none of the columns {', '.join(known)}; there are "
                f"{', '.join(map(str, row)) or 'none'}"
            )
        sizes = [_size_of(image) for image in _listed(row.get(self.images))]
        clips = [f"{float(seconds):.6g}" for seconds in _listed(row.get(self.audio_seconds))]
        prompt, response = _text_of(row.get(self.prompt)), _text_of(row.get(self.response))
        tokens = [self.count(prompt), self.count(response)]
        if row.get(self.messages) is not None:
            prompt, response, tokens = self.of_chat(row[self.messages])
        for part, column in enumerate(numbers):
            tokens[part] = tokens[part] if row.get(column) is None else int(row[column])
        return {
            "sample_id": name,
            "n_images": str(len(sizes)),
            "image_sizes": ";".join(f"{width}x{height}" for width, height in sizes),
            "audio_seconds": ";".join(clips),
            "prompt_chars": str(len(prompt) or round(tokens[0] * _CHARACTERS_PER_TOKEN)),
            "response_chars": str(len(response) or round(tokens[1] * _CHARACTERS_PER_TOKEN)),
            "prompt_tokens_estimate": str(tokens[0]),
            "response_tokens_estimate": str(tokens[1]),
        }

    def of_chat(self, messages: Any) -> tuple[str, str, list[int]]:
        """What is asked and what is answered, and tokens of both."""
        said = [(message["role"], _text_of(message)) for message in messages]
        prompt = "".join(text for role, text in said if role != "assistant")
        response = "".join(text for role, text in said if role == "assistant")
        answer = self.count(response)
        if not hasattr(self.tokenizer, "apply_chat_template"):
            return prompt, response, [self.count(prompt), answer]
        if not getattr(self.tokenizer, "chat_template", None):
            raise ValueError(
                "the tokenizer has no chat template: set tokenizer.chat_template, or give texts in "
                f"the columns {self.prompt} and {self.response}"
            )
        whole = _length_of(self.tokenizer.apply_chat_template(list(messages), tokenize=True))
        return prompt, response, [max(0, whole - answer), answer]

    def count(self, text: str) -> int:
        if self.tokenizer is None:
            return -(-len(text) // int(_CHARACTERS_PER_TOKEN))
        return _length_of(self.tokenizer(text)) if text else 0


def _listed(value: Any) -> list[Any]:
    """[] for None, [value] for one image, size or number."""
    if value is None:
        return []
    one = isinstance(value, (str, bytes, Mapping, int, float)) or hasattr(value, "size")
    pair = isinstance(value, tuple) and len(value) == 2 and all(isinstance(v, int) for v in value)
    return [value] if one or pair else list(value)


def _size_of(image: Any) -> tuple[int, int]:
    """Width and height of an image in any of the forms of Index.from_rows()."""
    if isinstance(image, Mapping):
        if image.get("bytes") is None and image.get("path") is None:
            raise KeyError("an image with neither bytes nor path")
        image = image["bytes"] if image.get("bytes") is not None else Path(image["path"])
    if isinstance(image, str) and image.lower().replace("x", "", 1).isdigit():
        width, height = map(int, image.lower().split("x"))
        return width, height
    if isinstance(image, (bytes, Path, str)):
        try:
            from PIL import Image, UnidentifiedImageError
        except ImportError:
            raise ImportError("sizes of encoded images need Pillow: pip install pillow") from None
        try:
            with Image.open(io.BytesIO(image) if isinstance(image, bytes) else image) as opened:
                width, height = opened.size
                return width, height
        except UnidentifiedImageError as error:
            raise OSError(str(error)) from None
    size = image.size if isinstance(getattr(image, "size", None), tuple) else image
    width, height = (int(value) for value in size)
    return width, height


def _text_of(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return _text_of(value.get("content", value.get("text")))
    return "".join(_text_of(part) for part in value)


def _length_of(ids: Any) -> int:
    """Of a list of ids, or of what holds one."""
    if isinstance(ids, Mapping) or hasattr(ids, "input_ids"):
        ids = ids["input_ids"]
    return len(getattr(ids, "ids", ids))


def _with_progress(rows: Iterable[Any], progress: bool | None) -> Iterable[Any]:
    if progress is False:
        return rows
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return rows
    # Says nothing before a second has passed.
    shown: Iterable[Any] = tqdm(
        rows, desc="index", unit=" samples", delay=1, disable=None if progress is None else False
    )
    return shown
