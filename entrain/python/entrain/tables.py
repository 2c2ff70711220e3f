"""Rows of Parquet and Arrow files as samples, for `entrain index`, `train` and `eval`.

A process: reads a request a line, answers with a line of JSON. Requests and answers:

    {"open": PATH}              {"rows": number, "largest": bytes that are read for one row at most}
    {"path": PATH, "row": N}    {"json": the record's text, "media": {"images": [size or path], "videos": …,
                                "audio": …}}, then the bytes of the media whose size is given, in this order

or {"error": TEXT} for a file or row that is damaged. `entrain/core/dataset/table.h` is the other end.
"""

import bisect
import itertools
import json
import sys
from collections import OrderedDict

# Columns that a record's text may come from (conversations.py), and what else the program reads of it.
TEXTS = (
    *("messages", "conversations", "texts"),
    *("question", "answer", "prompt", "response", "caption", "text"),
    *("id", "kind", "source", "fps"),
)
# As entrain/core/dataset/media_refs.cc has them.
MEDIA = {
    "images": ("image", "images", "image_path", "image_paths"),
    "videos": ("video", "videos", "video_path", "video_paths"),
    "audio": ("audio", "audios", "audio_path", "audio_paths"),
}
# Types of `datasets`, which columns of other names may have.
FEATURES = {"Image": "images", "Video": "videos", "Audio": "audio"}
MOST_HELD = 1 << 28  # bytes of decoded row groups


class Missing(Exception):
    """A package that this Python lacks: no fault of the data."""


class Damaged(Exception):
    """A file or row that cannot be read."""


# What reading a damaged file raises, pyarrow's own among them.
ERRORS = (
    *(Damaged, ArithmeticError, LookupError, MemoryError, NotImplementedError),
    *(OSError, TypeError, ValueError),
)


def pyarrow():
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise Missing(
            "Parquet and Arrow files are read by pyarrow, which this Python lacks: pip install pyarrow "
            f"({sys.executable}; ENTRAIN_PYTHON names another)"
        ) from error
    return pyarrow


def holds_bytes(kind):
    """Whether a column of that type is bytes, or structs with bytes, or lists of either."""
    types = pyarrow().types
    if types.is_list(kind) or types.is_large_list(kind):
        return holds_bytes(kind.value_type)
    if types.is_struct(kind):
        return any(field.name == "bytes" for field in kind)
    return types.is_binary(kind) or types.is_large_binary(kind)


def feature_kinds(schema):
    """Column → kind, of columns that `datasets` says are media."""
    try:
        features = json.loads(schema.metadata[b"huggingface"])["info"]["features"]
    except (TypeError, KeyError, ValueError):
        return {}
    kinds = {}
    for name, feature in features.items():
        while isinstance(feature, (list, dict)):
            if isinstance(feature, list):
                feature = feature[0] if feature else None
            elif feature.get("_type") in FEATURES:
                kinds[name] = FEATURES[feature["_type"]]
                break
            else:
                feature = feature.get("feature")
    return kinds


class Table:
    """Columns of a file that a sample may need, by row: in groups of rows from `starts` on."""

    def __init__(self, path):
        schema = self.open(path)
        kinds = feature_kinds(schema)
        for kind, names in MEDIA.items():
            kinds.update((name, kind) for name in names if name in schema.names)
        self.media = [(name, kinds[name]) for name in schema.names if name in kinds]
        self.texts = [name for name in schema.names if name in TEXTS and name not in kinds]
        unread = [
            field.name for field in schema if field.name not in kinds and holds_bytes(field.type)
        ]
        if unread and not self.media:
            raise Damaged(
                f"column '{unread[0]}' holds bytes, and media are read from columns named "
                f"{', '.join(names[0] for names in MEDIA.values())}: rename it"
            )
        if not self.texts:
            raise Damaged(
                f"no column of text; needed is one of {', '.join(TEXTS[:9])}; the file has "
                f"{', '.join(schema.names) or 'none'}"
            )
        self.columns = [name for name, _ in self.media] + self.texts
        self.rows = self.starts[-1]

    def record(self, row):
        """(text, {kind: [bytes or path]})."""
        group = bisect.bisect_right(self.starts, row) - 1
        place = row - self.starts[group]
        values = {name: column[place].as_py() for name, column in self.group(group).items()}
        media = {}
        for name, kind in self.media:
            found = list(media_of(values[name], name))
            if found and media.get(kind):
                raise Damaged(f"two columns of {kind} are filled, one of them '{name}'")
            if found:
                media[kind] = found
        texts = {name: values[name] for name in self.texts if values[name] is not None}
        return json.dumps(without_bytes(texts), default=str, ensure_ascii=False), media


class ParquetTable(Table):
    def open(self, path):
        self.file = pyarrow().parquet.ParquetFile(path, memory_map=True)
        groups = [self.file.metadata.row_group(i) for i in range(self.file.metadata.num_row_groups)]
        self.starts = starts_of(group.num_rows for group in groups)
        self.largest = max((group.total_byte_size for group in groups), default=0)
        self.held = OrderedDict()  # row group -> (its columns, their bytes)
        return self.file.schema_arrow

    def group(self, group):
        if group not in self.held:
            while self.held and sum(size for _, size in self.held.values()) > MOST_HELD:
                self.held.popitem(last=False)
            table = self.file.read_row_group(group, columns=self.columns)
            columns = {name: table.column(name).combine_chunks() for name in self.columns}
            self.held[group] = columns, table.nbytes
        self.held.move_to_end(group)
        return self.held[group][0]


class ArrowTable(Table):
    """A file of `datasets`, or of any Arrow stream or file: mapped, so that a row costs its own bytes."""

    def open(self, path):
        arrow = pyarrow()
        source = arrow.memory_map(path)
        try:
            reader = arrow.ipc.open_stream(source)
        except arrow.ArrowInvalid:
            source.seek(0)
            reader = arrow.ipc.open_file(source)
        self.batches = reader.read_all().to_batches()
        self.starts = starts_of(batch.num_rows for batch in self.batches)
        self.largest = 0
        return reader.schema

    def group(self, group):
        return {name: self.batches[group].column(name) for name in self.columns}


def starts_of(counts):
    return list(itertools.accumulate(counts, initial=0))


def media_of(value, name):
    """Bytes or paths."""
    if value is None or value == "":
        return
    if isinstance(value, list):
        for entry in value:
            if entry is None:
                raise Damaged(f"column '{name}' has an empty entry in its list")
            yield from media_of(entry, name)
    elif isinstance(value, (bytes, str)):
        yield value
    elif isinstance(value, dict) and (value.get("bytes") or value.get("path")):
        yield value.get("bytes") or value["path"]
    else:
        raise Damaged(
            f"column '{name}' is {type(value).__name__}; bytes, a path or both are needed"
        )


def without_bytes(value):
    if isinstance(value, dict):
        return {
            key: without_bytes(entry)
            for key, entry in value.items()
            if entry is not None and not isinstance(entry, bytes)
        }
    if isinstance(value, list):
        return [without_bytes(entry) for entry in value if not isinstance(entry, bytes)]
    return value


class Tables:
    """Open files, the last ones used."""

    MOST = 8

    def __init__(self):
        self.open = OrderedDict()

    def table(self, path):
        if path not in self.open:
            while len(self.open) >= self.MOST:
                self.open.popitem(last=False)
            kind = ArrowTable if path.endswith(".arrow") else ParquetTable
            self.open[path] = kind(path)
        self.open.move_to_end(path)
        return self.open[path]


def answer(tables, request):
    """A JSON object, and bytes behind it."""
    if "open" in request:
        table = tables.table(request["open"])
        return {"rows": table.rows, "largest": table.largest}, []
    table = tables.table(request["path"])
    if not 0 <= request["row"] < table.rows:
        raise Damaged(f"row {request['row']} of a table of {table.rows}")
    text, media = table.record(request["row"])
    sizes = {
        kind: [len(entry) if isinstance(entry, bytes) else entry for entry in entries]
        for kind, entries in media.items()
    }
    contents = [
        entry for kind in MEDIA for entry in media.get(kind, []) if isinstance(entry, bytes)
    ]
    return {"json": text, "media": sizes}, contents


def serve(source, sink):
    tables = Tables()
    for line in source:
        contents = []
        try:
            document, contents = answer(tables, json.loads(line))
        except Missing as error:
            document = {"failure": str(error)}
        except ERRORS as error:
            document = {"error": f"{error}" if isinstance(error, Damaged) else f"damaged: {error}"}
        sink.write(json.dumps(document).encode() + b"\n")
        for entry in contents:
            sink.write(entry)
        sink.flush()


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer)
