"""Entrain for Python: `torchrun --nproc-per-node N -m entrain train run.toml` trains on N processes.

`python -m entrain train …` is `entrain train …`. From Python, run_program().
"""

from pathlib import Path

from entrain._build import TORCH_VERSION, VERSION

__version__ = VERSION
__all__ = ["check_torch", "load_engine", "run_program"]


def check_torch(found, built_against=TORCH_VERSION):
    """Whether this build runs with a torch of version `found`: its minor version must be the same.

    Raises ImportError with both versions, instead of the undefined symbols that would come of it.
    """

    def minor(version):
        return version.split("+")[0].split(".")[:2]

    if minor(found) != minor(built_against):
        raise ImportError(
            f"this build of entrain {VERSION} belongs to torch {built_against}, and torch {found} "
            "is installed: install that one, or build again with `make clean build`"
        )


def load_engine():
    """The module `_engine`, loaded behind the torch that it was built against.

    Raises ImportError when torch is missing or another minor version.
    """
    import torch

    check_torch(torch.__version__)
    try:
        from entrain import _engine
    except ImportError as error:
        if any(Path(__file__).parent.glob("_engine*.so")):
            raise
        raise ImportError(
            "its module _engine is not built; `make build` builds it, `make demo` the program alone"
        ) from error

    return _engine


def run_program(arguments, process_group="", make_device_groups=None, restarted=False):
    """Runs `entrain` with these arguments ("train", "run.toml", …) and returns its exit code.

    `process_group` is the name of the c10d group whose ranks train together, this process among
    them; empty: ranks are threads of this process. `make_device_groups()` makes two more groups of all
    ranks with a backend for GPUs and returns their names, for `execution.device_messages = "nccl"`.
    `restarted`: an attempt of the same launcher failed before this one.
    """
    return load_engine().run_program(list(arguments), process_group, make_device_groups, restarted)
