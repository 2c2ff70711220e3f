"""What is trained, by sizes alone: Index (samples), Model (layers and widths), costs() of both."""

from __future__ import annotations

import csv
import gzip
import hashlib
import itertools
import json
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, TypedDict, Unpack

from entrain import _core
from entrain._run import run
from entrain.conversations import Refused
from entrain.rows import FILES_OF_ROWS, INDEX_COLUMNS, Columns, read_rows

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
    def from_hf(cls, config: Any) -> Model:
        """Reads a Hugging Face config: a dictionary, a config.json, a folder with one, or a config of
        `transformers`. One without architectures is read by its model_type.

        A folder's preprocessor_config.json counts; with the config alone, pixels are made as by the
        family's default processor. docs/models.md lists the families.

        Raises ValueError for a family or key that the cost model does not know, by name.
        """
        if isinstance(config, (str, Path)):
            return cls._checked(Path(config))
        of_transformers = hasattr(config, "to_json_string")
        if not of_transformers and not isinstance(config, Mapping):
            raise TypeError(
                f"a model of type {type(config).__name__}; needed is a path, a config's dictionary, or "
                "a config or model of transformers"
            )
        path = scratch_file("config.json")
        path.write_text(config.to_json_string() if of_transformers else json.dumps(dict(config)))
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
        return cls.from_hf(getattr(model, "config", model))

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


class RowColumns(TypedDict, total=False):
    """The keywords of Index.from_rows(), which explains them."""

    id: str | None
    images: str | None
    audio_seconds: str | None
    prompt: str | None
    response: str | None
    messages: str | None
    images_folder: str | Path | None
    tokenizer: Any
    progress: bool | None


class DataFrame(Protocol):
    """A table as pandas has it."""

    @property
    def columns(self) -> Any: ...
    @property
    def to_dict(self) -> Any: ...


class Table(Protocol):
    """A table as pyarrow has it."""

    @property
    def to_pylist(self) -> Any: ...


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
    def of(
        cls,
        data: Index | str | Path | DataFrame | Table | Iterable[Mapping[str, Any]],
        **columns: Unpack[RowColumns],
    ) -> Index:
        """An Index, a path, a pandas or pyarrow table, a `datasets.Dataset`, or an iterable of
        dictionaries. `columns` as in from_rows().

        Paths: an index (CSV), or rows in JSON lines, a JSON list or Parquet, whose images are
        relative to images_folder, by default the file's folder. Shards: from_shards().
        """
        if isinstance(data, Index):
            return data
        if isinstance(data, (str, Path)):
            path = Path(data)
            if path.suffix.lower() in FILES_OF_ROWS:
                columns.setdefault("images_folder", path.parent)
                return cls.from_rows(read_rows(path), **columns)
            if columns:
                raise ValueError(
                    f"{path}: an index (CSV) takes no {', '.join(columns)}; give a table of your own "
                    f"as rows: Index.of(pandas.read_csv(...), ...), or a file {', '.join(FILES_OF_ROWS)}"
                )
            return cls.read(path)
        rows: Any = data
        if hasattr(rows, "to_dict") and hasattr(rows, "columns"):  # pandas
            rows = rows.to_dict("records")
        elif hasattr(rows, "to_pylist"):  # pyarrow
            rows = rows.to_pylist()
        return cls.from_rows(rows, **columns)

    @classmethod
    def read(cls, path: str | Path) -> Index:
        """A CSV file: an index of `entrain index` or a manifest with the same columns (docs/data.md).

        Raises ValueError naming line and column of what cannot be read.
        """
        if Path(path).is_dir():
            raise ValueError(f"{path}: a folder; Index.from_shards() reads the shards in it")
        if not Path(path).is_file():
            raise ValueError(f"{path}: there is no such file")
        if ".tar" in Path(path).suffixes or Path(path).suffix == ".tgz":
            raise ValueError(f"{path}: a shard; Index.from_shards() reads it")
        if _core.check_index(str(path)) == 0:
            raise ValueError(f"{path}: an index of no sample")
        return cls(Path(path))

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Writes the CSV file that commands and Index.read() take, whole or not at all.

        Raises ValueError for a file at `path` that is no index, without `force`.
        """
        _core.copy_index(str(self.path), str(path), force)

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
        id: str | None = None,
        images: str | None = None,
        audio_seconds: str | None = None,
        prompt: str | None = None,
        response: str | None = None,
        messages: str | None = None,
        images_folder: str | Path | None = None,
        tokenizer: Any = None,
        progress: bool | None = None,
    ) -> Index:
        """One dictionary a sample; names of columns can be given. By default those of the parameters
        are read where a sample has them; "" reads none.

        id             unique; where there is none, the sample's number.
        images         a list of sizes (width, height), "WxH", PIL images, {"bytes": …} or {"path": …}
                       as of `datasets`, encoded bytes, or paths, relative to `images_folder`; or one of
                       them. None, NaN and "" are no image. Sizes alone are read, as EXIF turns them.
        audio_seconds  a number or a list of them.
        prompt, response  texts. Their tokens are counted by `tokenizer` (whatever returns a list of ids
                       or {"input_ids": …}), or estimated as a quarter of the characters; columns
                       PROMPT_tokens and RESPONSE_tokens give numbers instead.
        messages       chats instead: lists of {"role": …, "content": …}, or of {"from": …, "value": …},
                       in whose texts <image> and <audio> are media (docs/tokens.md). Counted by the
                       tokenizer's chat template; what "assistant" or "gpt" says is the response.

        Raises ValueError for a named column that no sample has, and naming the sample for an image
        that cannot be read, a number or size out of range, an id that is there twice, a tokenizer
        without a chat template, media in a chat that are not the sample's, and a row without any of
        these columns.
        """
        columns = Columns(
            {"id": id, "images": images, "audio_seconds": audio_seconds, "prompt": prompt,
             "response": response, "messages": messages},
            tokenizer,
            images_folder,
        )  # fmt: skip
        columns.check(rows)
        found: list[dict[str, str]] = []
        seen: set[str] = set()
        for number, row in enumerate(_with_progress(rows, progress)):
            name = columns.sample_id(number, row)
            if name in seen:
                raise ValueError(
                    f"sample {name!r} is there twice; ids have to be unique (id='' numbers the samples)"
                )
            seen.add(name)
            try:
                found.append(columns.index_row(name, row))
            except (OSError, TypeError, KeyError, AttributeError, ValueError, Refused) as error:
                raise ValueError(f"sample {name!r}: {error}") from None
        if not found:
            raise ValueError("an index of no sample")
        columns.check_names(columns.seen)
        path = scratch_file("index.csv")
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, INDEX_COLUMNS)
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
