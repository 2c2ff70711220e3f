"""Runs a command of `entrain` in this process: keywords are its options."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from entrain import _core

_core.set_python(sys.executable, str(Path(__file__).resolve().parents[1]))


def arguments_of(command: str, *words: str, **options: Any) -> list[str]:
    """["audit", "--ranks", "8"] of command="audit", ranks=8.

    True is a flag, False and None are left out, a list is joined by commas.

    >>> arguments_of("audit", "index.csv", ranks=8, padded=True, everywhere=["vision"], seed=None)
    ['audit', 'index.csv', '--ranks', '8', '--padded', '--everywhere', 'vision']
    """
    result = [command, *words]
    for name, value in options.items():
        if value is None or value is False or (isinstance(value, (list, tuple)) and not value):
            continue
        result.append("--" + name.replace("_", "-"))
        if value is not True:
            many = isinstance(value, (list, tuple))
            result.append(",".join(map(str, value)) if many else str(value))
    return result


def run(command: str, *words: str, **options: Any) -> str:
    """What the command prints.

    Raises ValueError for input to correct, TypeError for an option that the command does not have,
    RuntimeError where nothing fits or a file fails.
    """
    try:
        code, text = _core.call(arguments_of(command, *words, **options))
    except ValueError as error:
        unknown = re.match(r"'--(\S+)' is unknown(?:, did you mean '--(\S+)'\?)?", str(error))
        if unknown is None:
            raise
        name, closest = ((word or "").replace("-", "_") for word in unknown.groups())
        advice = f". Did you mean {closest!r}?" if closest else f"; `entrain {command} --help`"
        raise TypeError(
            f"{command}() got an unexpected keyword argument {name!r}{advice}"
        ) from None
    if code != 0:
        raise RuntimeError(f"entrain {command} ended with {code}: {text.strip() or 'see above'}")
    return text


def run_json(command: str, *words: str, **options: Any) -> dict[str, Any]:
    """The same for a command's one line of JSON."""
    document: dict[str, Any] = json.loads(run(command, *words, json=True, **options))
    return document
