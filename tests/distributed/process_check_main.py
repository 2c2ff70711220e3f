"""One rank of tests/distributed/process_checks.cc, under torchrun: runs the checks named, each over a
group of its own and two more."""

import importlib
import os
import sys

import torch.distributed as dist

dist.init_process_group("gloo")
checks = importlib.import_module("entrain_process_checks")  # linked to torch, which is loaded now
for name in sys.argv[1:]:
    group = dist.new_group(backend="gloo")
    more = [dist.new_group(backend="gloo") for _ in range(2)]
    checks.run(name, group.group_name, [each.group_name for each in more])
    if dist.get_rank() == 0:
        print(f"passed: {name}", flush=True)
sys.stdout.flush()
os._exit(0)  # groups of checks that fail on purpose cannot be taken down in order
