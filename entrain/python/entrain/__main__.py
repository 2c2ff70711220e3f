"""`python -m entrain train …`, and one rank of it under torchrun."""

import os
import sys
from datetime import timedelta

import entrain

# Of the rendezvous alone: afterwards execution.deadline_seconds holds for every wait.
JOIN_TIMEOUT = timedelta(minutes=5)
EXIT_INVALID = 2


def under_torchrun():
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def run(arguments):
    """Runs one command and returns its exit code."""
    try:
        entrain.load_engine()
    except ImportError as error:
        if os.environ.get("RANK", "0") == "0":
            print(f"entrain: {error}", file=sys.stderr)
        return EXIT_INVALID
    trains = arguments[:1] == ["train"] and not {"--dry-run", "--help", "-h"} & set(arguments)
    if not under_torchrun():
        return entrain.run_program(arguments)
    if not trains:  # says the same on every rank
        return entrain.run_program(arguments) if os.environ["RANK"] == "0" else 0

    import torch.distributed as dist

    # torchrun keeps one store over its restarts: what an attempt before this one left there (where its
    # ranks listened, why they stopped) is not this one's.
    store, rank, size = next(dist.rendezvous("env://", timeout=JOIN_TIMEOUT))
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    store = dist.PrefixStore(f"attempt-{attempt}", store)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=JOIN_TIMEOUT)
    code = entrain.run_program(arguments, dist.group.WORLD.group_name)
    if code == 0:
        dist.destroy_process_group()
    return code


def main():
    code = run(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    if code != 0:
        # Groups of ranks that failed are not taken down in order: that would wait for peers.
        os._exit(code)


if __name__ == "__main__":
    main()
