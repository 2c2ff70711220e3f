"""What results pages have in common: where and from what they were made, and their tables."""

import os
import platform
import resource
import subprocess
import time
from pathlib import Path


def processor():
    """The processor's name as the system tells it."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def commit():
    """The short hash of the checkout."""
    result = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    return result.stdout.strip()


def describe():
    """One line: commit, processor, system, cores."""
    return (
        f"Commit {commit()}; {processor()}, {platform.system()} {platform.machine()}, "
        f"{os.cpu_count()} cores"
    )


def table(header, rows):
    """Lines of a table in Markdown; header and rows: lists of texts."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]


def give(text, output):
    """Writes a page to the file, or to standard output where none is named."""
    if output:
        Path(output).write_text(text)
    else:
        print(text)


def processor_seconds(work):
    """Of this process's children and itself while `work` runs."""
    total = 0.0
    before = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    work()
    after = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    for old, new in zip(before, after, strict=True):
        total += new.ru_utime + new.ru_stime - old.ru_utime - old.ru_stime
    return total


class OtherLoad:
    """How much of the machine other programs take, from its making on."""

    def __init__(self):
        self.begun = time.monotonic()
        self.busy = _busy_seconds() - _own_seconds()

    def share(self):
        """Cores that others kept busy in the mean, of all."""
        busy = _busy_seconds() - _own_seconds() - self.busy
        return max(0.0, busy / (time.monotonic() - self.begun) / os.cpu_count())

    def text(self):
        return f"other programs took {100 * self.share():.0f} % of the cores"


def _busy_seconds():
    fields = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    user, nice, system, _, _, irq, soft_irq, steal = fields[:8]
    return (user + nice + system + irq + soft_irq + steal) / os.sysconf("SC_CLK_TCK")


def _own_seconds():
    return sum(os.times()[:4])
