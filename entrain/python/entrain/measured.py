"""Costs of a real run: each module's analytic cost, scaled to the times of a StepLog."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from entrain.data import Index, Model, costs, scratch_file, write_costs

_FEWEST = 8  # microbatches that a scale needs


@dataclass(frozen=True)
class Scales:
    """How measured microbatches compare with analytic costs.

    scale: module -> measured over analytic. constant: seconds that every microbatch takes besides.
    analytic_error, error: median |predicted / measured - 1| of analytic costs under one common scale,
    and of these.
    """

    scale: dict[str, float]
    constant: float
    microbatches: int
    analytic_error: float
    error: float

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {value:.2f} ×" for name, value in self.scale.items())
        return (
            f"Measured on {self.microbatches} microbatches: {parts} the analytic cost, and "
            f"{1e3 * self.constant:.1f} ms each. Analytic costs under one common scale are off by "
            f"{100 * self.analytic_error:.1f} % in the median, these by {100 * self.error:.1f} %."
        )


def fit(log: str | Path | Sequence[dict[str, Any]], model: Any, profile: str | Path) -> Scales:
    """Least squares, no scale below zero.

    log: a StepLog's file or entries. Raises ValueError for a log of fewer than 8 microbatches, one that
    is not a StepLog's, or a file that does not exist; RuntimeError for one that cannot be read.
    """
    import numpy

    entries = read_log(log) if isinstance(log, (str, Path)) else list(log)
    if len(entries) < _FEWEST:
        raise ValueError(f"the log has {len(entries)} microbatches; at least {_FEWEST} are needed")
    names = Model.of(model).modules
    analytic = numpy.array(_analytic(entries, model, profile, names))
    seconds = numpy.array([entry["seconds"] for entry in entries])
    columns = numpy.column_stack([analytic, numpy.ones(len(entries))])
    kept = [i for i in range(columns.shape[1]) if columns[:, i].any()]
    while True:
        # Relative errors count: a long microbatch no more than a short one.
        solved = numpy.linalg.lstsq(
            columns[:, kept] / seconds[:, None], numpy.ones(len(entries)), rcond=None
        )[0]
        if (solved >= 0).all() or len(kept) == 1:
            break
        kept.remove(kept[int(solved.argmin())])
    values = dict.fromkeys(range(columns.shape[1]), 0.0)
    values.update(zip(kept, map(float, solved), strict=True))
    whole = analytic.sum(axis=1)
    common = whole * median(seconds / whole)
    fitted = columns @ numpy.array([values[i] for i in range(columns.shape[1])])
    return Scales(
        {name: values[i] for i, name in enumerate(names)},
        values[len(names)],
        len(entries),
        float(median(abs(common / seconds - 1))),
        float(median(abs(fitted / seconds - 1))),
    )


def read_log(path: str | Path) -> list[dict[str, Any]]:
    """Entries of a StepLog's file. Raises ValueError naming the line that is none; a last line that
    was cut when the run was killed is left out. Raises for files as fit()."""
    entries = []
    try:
        lines = Path(path).read_text(errors="replace").splitlines()
    except FileNotFoundError:
        raise ValueError(f"the log of measured times {path} does not exist") from None
    except OSError as error:
        raise RuntimeError(f"cannot read the log of measured times: {error}") from None
    for number, line in enumerate(lines, 1):
        try:
            entry = json.loads(line)
            known = {key: entry[key] for key in ("tokens", "images", "padded_tokens", "seconds")}
            if not known["seconds"] > 0:
                raise ValueError("seconds")
        except (ValueError, KeyError, TypeError, RecursionError):
            if number == len(lines):
                break
            raise ValueError(f"{path}:{number}: no line of a StepLog: {line[:80]!r}") from None
        entries.append(known)
    return entries


def scaled_costs(index: Any, model: Any, profile: str | Path, scales: Scales) -> Path:
    """A table of costs as `--costs` takes it."""
    table = scratch_file("measured.csv")
    write_costs(costs(index, model, profile=profile), table, scales.scale)
    return table


def _analytic(
    entries: list[dict[str, Any]], model: Any, profile: str | Path, names: list[str]
) -> list[list[float]]:
    """[microbatch][module] seconds: images by themselves, sequences as text of the computed length."""
    sizes = sorted({tuple(size) for entry in entries for size in entry["images"]})
    lengths = sorted({_computed(entry, n) for entry in entries for n in entry["tokens"]})
    rows = [{"id": f"{w}x{h}", "images": [(w, h)], "response_tokens": 1} for w, h in sizes]
    rows += [{"id": str(n), "prompt_tokens": 0, "response_tokens": n} for n in lengths]
    found = costs(Index.from_rows(rows, progress=False), model, profile=profile)
    place = {name: i for i, name in enumerate(found.ids)}
    result = []
    for entry in entries:
        line = dict.fromkeys(names, 0.0)
        for width, height in entry["images"]:
            line["vision"] += found.seconds["vision"][place[f"{width}x{height}"]]
        for tokens in entry["tokens"]:
            line["llm"] += found.seconds["llm"][place[str(_computed(entry, tokens))]]
        result.append([line[name] for name in names])
    return result


def _computed(entry: dict[str, Any], tokens: int) -> int:
    """A sequence's length as it was computed: that of the longest, where the microbatch was padded."""
    padded = entry["padded_tokens"] > sum(entry["tokens"])
    return max(1, max(entry["tokens"]) if padded else tokens)
