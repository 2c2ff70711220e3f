"""Plans, assignments, simulations and audits as results that print, convert and draw themselves."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from entrain._run import run_json
from entrain.data import Index, Model, scratch_file
from entrain.measured import Scales, fit, scaled_costs


@dataclass(frozen=True)
class Result:
    """What a command found. document: all of it, as `--json` prints it."""

    document: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        return self.document

    def to_json(self) -> str:
        return json.dumps(self.document)

    def save(self, path: str | Path) -> None:
        """Writes to_json(), whole or not at all."""
        partial = Path(f"{path}.partial")
        partial.write_text(self.to_json())
        partial.replace(path)

    def rows(self) -> list[dict[str, Any]]:
        """Of the table: one dictionary a row."""
        raise NotImplementedError

    def to_pandas(self) -> Any:
        """rows() as a pandas.DataFrame."""
        import pandas

        return pandas.DataFrame(self.rows())

    def __str__(self) -> str:
        return _table(self.rows())

    def _bars(self, label: str, value: str, title: str) -> Any:
        import matplotlib.pyplot as plt

        rows = self.rows()
        figure, axes = plt.subplots(figsize=(7, 0.35 * len(rows) + 1.2), layout="constrained")
        axes.barh([str(row[label]) for row in rows], [row[value] for row in rows])
        axes.invert_yaxis()
        axes.set_xlabel(title)
        return figure


@dataclass(frozen=True)
class Plan(Result):
    """A static plan, and the splits that were tried."""

    @property
    def fits(self) -> bool:
        return bool(self.document["fits"])

    @property
    def plan(self) -> dict[str, Any]:
        """As `entrain train` reads it."""
        return self.document["plan"]

    def rows(self) -> list[dict[str, Any]]:
        """What was tried: schedule, step and bound in seconds, and of a split the lanes of each module
        and the peak in bytes, of a cluster's candidate its plan in words.
        """
        keys = ("lanes", "plan", "schedule", "step_s", "lower_bound_s", "peak_bytes")
        tried = self.document.get("splits") or self.document.get("candidates") or []
        return [{key: row[key] for key in keys if key in row} for row in tried]

    def plot(self) -> Any:
        """A matplotlib figure: step time of every split, "vision 1 + llm 3", or candidate."""
        modules = self.document.get("modules", [])

        def name_of(row: dict[str, Any]) -> str:
            if "plan" in row:
                return row["plan"]
            return " + ".join(f"{m} {n}" for m, n in zip(modules, row["lanes"], strict=True))

        named = [row | {"split": name_of(row)} for row in self.rows()]
        return _Rows({"rows": named})._bars("split", "step_s", "simulated step (s)")


@dataclass(frozen=True)
class Assignment(Result):
    """One step: which samples are in which slot of which replica and module."""

    @property
    def replicas(self) -> list[dict[str, Any]]:
        return self.document["replicas"]

    def rows(self) -> list[dict[str, Any]]:
        """replica, module, slot, and the ids of its samples."""
        return [
            {"replica": number, "module": module, "slot": slot, "samples": samples}
            for number, replica in enumerate(self.replicas)
            for module, slots in replica["modules"].items()
            for slot, samples in enumerate(slots)
        ]

    def __str__(self) -> str:
        return _table([row | {"samples": len(row["samples"])} for row in self.rows()])

    def plot(self) -> Any:
        """A matplotlib figure: samples in each slot, by module."""
        import matplotlib.pyplot as plt

        figure, axes = plt.subplots(layout="constrained")
        for module, slots in self.replicas[0]["modules"].items():
            axes.plot([len(samples) for samples in slots], marker="o", label=module)
        axes.set(xlabel="slot of replica 0", ylabel="samples")
        axes.legend()
        return figure


@dataclass(frozen=True)
class Simulation(Result):
    """Policies × schedules, simulated."""

    def rows(self) -> list[dict[str, Any]]:
        """policy, schedule, step_s and its bound in seconds, gap and bubble as shares, peak_bytes."""
        keys = ("policy", "schedule", "step_s", "vs_best", "lower_bound_s", "gap", "bubble",
                "num_slots", "deferred", "chunks", "peak_bytes")  # fmt: skip
        return [{key: row.get(key) for key in keys} for row in self.document["rows"]]

    def plot(self) -> Any:
        """A matplotlib figure: step time of every policy and schedule."""
        named = [row | {"case": f"{row['policy']}, {row['schedule']}"} for row in self.rows()]
        return _Rows({"rows": named})._bars("case", "step_s", "simulated step (s)")


@dataclass(frozen=True)
class Audit(Result):
    """What imbalance costs a data-parallel run (docs/audit.md)."""

    page: Path | None = None
    scales: Scales | None = None  # of measured costs

    @property
    def findings(self) -> list[str]:
        """In sentences."""
        measured = [str(self.scales)] if self.scales else []
        return [*self.document["findings"], *measured]

    def rows(self) -> list[dict[str, Any]]:
        """policy, mean step over perfect balance with spread over steps, and the largest microbatch."""
        return [
            {
                "policy": row["name"],
                "step_s": sum(row["seconds"]) / len(row["seconds"]),
                "over_perfect": row["over_perfect"],
                "std": row["std"],
                "worst": row["worst"],
                "most_tokens": row["most_tokens"],
            }
            for row in self.document["policies"]
        ]

    def __str__(self) -> str:
        return "\n".join([*self.findings, "", super().__str__()])

    def plot(self) -> Any:
        """A matplotlib figure: step over perfect balance."""
        return self._bars("policy", "over_perfect", "step / perfect balance")


@dataclass(frozen=True)
class _Rows(Result):
    def rows(self) -> list[dict[str, Any]]:
        return self.document["rows"]


def plan(index: Any, model: Any, *, lanes: int | None = None, **options: Any) -> Plan:
    """The best split of `lanes` among encoders and LLM by simulation, or with cluster=FILE the static
    plan of a cluster.

    index, model: as in Index.of() and Model.of(). options: those of `entrain plan --help`, with
    underscores (global_batch=32, profile="analytic:h100", policy="entrain", output="plan.json").

    Raises ValueError for options that are wrong, RuntimeError where nothing fits. Cost: seconds.
    """
    return Plan(run_json("plan", **_study(index, model), lanes=lanes, **options))


def assign(index: Any, model: Any, *, plan: Any = None, **options: Any) -> Assignment:
    """One step's samples in microbatches: `entrain assign`. plan: a Plan or its file; or lanes=N.

    Raises ValueError for several policies, which simulate() compares; else as plan().
    """
    policies = options.get("policy", "entrain")
    names = policies.split(",") if isinstance(policies, str) else list(policies)
    if len(names) != 1 or names == ["all"]:
        raise ValueError(
            f"policy is {policies!r}; assign() takes one policy, simulate() compares several"
        )
    return Assignment(run_json("assign", **_study(index, model), plan=_plan_file(plan), **options))


def simulate(
    index: Any,
    model: Any,
    *,
    plan: Any = None,
    policy: str | Sequence[str] = "entrain",
    schedule: str | Sequence[str] | None = None,
    assignment: Any = None,
    **options: Any,
) -> Simulation:
    """Step times of policies × schedules ("all" for either): `entrain simulate`.

    assignment: an Assignment or its file (docs/assignment.md), simulated too as the policy "given".
    options: global_batch, steps, memory, trace="trace.json" (a timeline for Perfetto), …
    """
    return Simulation(
        run_json("simulate", **_study(index, model), plan=_plan_file(plan),
                 policy=policy, schedule=schedule, assignment=_assignment_file(assignment),
                 **options)
    )  # fmt: skip


def audit(
    index: Any,
    model: Any,
    *,
    layout: str = "fsdp",
    ranks: int = 8,
    profile: str | Path = "analytic:a40",
    measured: Any = None,
    output: str | Path | None = None,
    **options: Any,
) -> Audit:
    """What imbalance costs a run of `ranks` data-parallel ranks, from sizes alone: `entrain audit`.

    layout    "fsdp" or "ddp".
    measured  a StepLog or its file: its times scale the costs of `profile`, and what a microbatch
              takes besides its samples is part of every step.
    output    a page to write (HTML).
    options   microbatches, microbatch, padded, max_tokens, memory (MiB), everywhere, steps, …

    Raises ValueError and RuntimeError as plan(). Cost: seconds.
    """
    scales = None
    study: dict[str, Any] = {**_study(index, model), "profile": profile}
    if measured is not None:
        scales = fit(getattr(measured, "entries", measured), model, profile)
        study = {
            "costs": scaled_costs(index, model, profile, scales),
            "costs_note": f"{profile} for {study['index']} and {study['model']}, scaled to "
            f"measured times. {scales}",
            "constant_ms": 1e3 * scales.constant,
        }
    document = run_json("audit", **study, layout=layout, ranks=ranks, output=output, **options)
    return Audit(document, Path(output) if output else None, scales)


def _study(index: Any, model: Any) -> dict[str, Path]:
    return {"index": Index.of(index).path, "model": Model.of(model).path}


def _plan_file(plan: Any) -> Path | None:
    return _file_of("plan", plan.plan if isinstance(plan, Plan) else plan)


def _assignment_file(assignment: Any) -> Path | None:
    given = assignment.document if isinstance(assignment, Assignment) else assignment
    return _file_of("assignment", given)


def _file_of(what: str, given: Any) -> Path | None:
    """The file itself; of a document one with it."""
    if given is None or isinstance(given, (str, Path)):
        return None if given is None else Path(given)
    if not isinstance(given, dict):
        kind = what.capitalize()
        raise TypeError(f"{what} is a {type(given).__name__}; a {kind} or a file's path is needed")
    path = scratch_file(f"{what}.json")
    path.write_text(json.dumps(given))
    return path


def _table(rows: Sequence[dict[str, Any]]) -> str:
    if not rows:
        return "(no rows)"
    cells = [[_cell(value) for value in row.values()] for row in rows]
    header = list(rows[0])
    widths = [max(len(line[i]) for line in [header, *cells]) for i in range(len(header))]
    lines = [header, ["-" * width for width in widths], *cells]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return "-" if value is None else str(value)
