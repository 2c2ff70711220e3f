"""The program `entrain`, and one rank of `train` under torchrun."""

import os
import select
import signal
import sys
import threading
import time
import uuid
from datetime import timedelta

import entrain

# Of the rendezvous alone: afterwards execution.deadline_seconds holds for every wait.
JOIN_TIMEOUT = timedelta(minutes=5)
EXIT_INVALID = 2
EXIT_FAILED = 3
ENGINE_COMMANDS = ("train", "profile", "eval", "checkpoint")
DEVICE_GROUPS = []  # torch keeps groups no longer than whoever made them
NETWORK_ADVICE = (
    "Ranks of several hosts connect at the address that each host's name stands for on that host "
    "(127.0.1.1 is none that others reach); GLOO_SOCKET_IFNAME=eth0 names a network interface instead."
)


# What breaks is said in a sentence of ours; the store's warnings are backtraces.
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")


def end(message, code):
    """Ends the process now, whatever its other threads wait for."""
    try:
        os.write(2, f"entrain: {message}\n".encode())
    finally:
        os._exit(code)


def watch(launcher):
    """On a thread of its own: ends this process when it is told to before training takes signals
    itself, and at any time when its launcher is gone, whose next run would meet it in the folder.

    launcher: process id of torchrun; None: there is none. A thread is needed because Python's own
    handlers wait until the main thread comes back from the store, which may take minutes.
    """
    told, tell = os.pipe()
    os.set_blocking(tell, False)
    signal.set_wakeup_fd(tell, warn_on_full_buffer=False)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)  # the pipe has it

    def run():
        while True:
            ready, _, _ = select.select([told], [], [], 0.5)
            if ready:
                number = os.read(told, 1)[0]
                end("told to stop before training began; nothing was trained", 128 + number)
            if launcher is not None and os.getppid() != launcher:
                rank = os.environ.get("RANK", "?")
                end(f"rank {rank}: its launcher (process {launcher}) is gone; ending", EXIT_FAILED)

    threading.Thread(target=run, daemon=True).start()


def under_torchrun():
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def agree_on_attempt(store, rank, size):
    """A name of this attempt that no other has, the same on all ranks; whether one failed before.

    torchrun keeps one store over its restarts: entries of earlier attempts (addresses of ranks, reasons
    to stop) must not be used. Agents count restarts separately, and differently, so
    TORCHELASTIC_RESTART_COUNT does not identify an attempt. Instead every rank publishes a random key,
    and rank 0 publishes the attempt's name under each key; keys of dead ranks are harmless.
    """
    own = uuid.uuid4().hex
    if rank != 0:
        store.set(f"asks/{rank}", own)
        attempt = store.get(f"attempt-for/{own}").decode()
        store.set(f"{attempt}/knows/{rank}", "")
        return attempt, not attempt.startswith("attempt-1-")
    number = store.add("attempts", 1)
    attempt = f"attempt-{number}-{own}"
    asked = {}  # rank → its key; a later one of the same rank replaces it
    waiting = set(range(1, size))
    end = time.monotonic() + JOIN_TIMEOUT.total_seconds()
    while waiting:
        for other in sorted(waiting):
            if store.check([f"{attempt}/knows/{other}"]):
                waiting.remove(other)
            elif store.check([f"asks/{other}"]):
                key = store.get(f"asks/{other}").decode()
                if asked.get(other) != key:
                    asked[other] = key
                    store.set(f"attempt-for/{key}", attempt)
        if waiting and time.monotonic() > end:
            raise RuntimeError(f"no answer from ranks {sorted(waiting)}")
        time.sleep(0.01 if waiting else 0)
    return attempt, number > 1


def make_device_groups():
    """Names of two NCCL groups of all ranks, for messages to higher ranks and to lower ones.

    Raises RuntimeError where this rank has no GPU of its own.
    """
    import torch
    import torch.distributed as dist

    ranks, gpus = int(os.environ.get("LOCAL_WORLD_SIZE", "1")), torch.cuda.device_count()
    if not dist.is_nccl_available():
        raise RuntimeError(f"torch {torch.__version__} was built without NCCL")
    if ranks > gpus:
        raise RuntimeError(f"{ranks} ranks on this host, which has {gpus} GPUs; each needs its own")
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    groups = (dist.new_group(backend="nccl", timeout=JOIN_TIMEOUT) for _ in range(2))
    DEVICE_GROUPS.extend(groups)
    return [group.group_name for group in DEVICE_GROUPS]


def run(arguments):
    """Runs one command and returns its exit code."""
    command = arguments[0] if arguments else ""
    first = os.environ.get("RANK", "0") == "0"
    if command not in ENGINE_COMMANDS:
        from entrain import _core, _run  # noqa: F401 - tells the core of this interpreter

        return _core.run(arguments) if first else 0
    if command == "train":
        watch(os.getppid() if under_torchrun() else None)
    elif not first:  # says the same on every rank
        return 0
    try:
        entrain.load_engine()
    except ImportError as error:
        if first:
            print(f"entrain: {error}", file=sys.stderr)
        return EXIT_INVALID
    if command != "train" or not under_torchrun():
        return entrain.run_program(arguments)
    if {"--dry-run", "--help", "-h"} & set(arguments):
        return entrain.run_program(arguments) if first else 0

    import torch.distributed as dist

    try:
        store, rank, size = next(dist.rendezvous("env://", timeout=JOIN_TIMEOUT))
        attempt, restarted = agree_on_attempt(store, rank, size)
        store = dist.PrefixStore(attempt, store)
        dist.init_process_group(
            "gloo", store=store, rank=rank, world_size=size, timeout=JOIN_TIMEOUT
        )
    except RuntimeError as error:
        reason = str(error).partition("\n")[0]
        print(
            f"entrain: rank {os.environ['RANK']} did not join the others: {reason}", file=sys.stderr
        )
        print(NETWORK_ADVICE, file=sys.stderr)
        return EXIT_FAILED
    code = entrain.run_program(
        arguments, dist.group.WORLD.group_name, make_device_groups, restarted
    )
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
