"""A run bound by decoding: by its own threads, by a feed beside it, by one on another host, or by
one rank of a lane for all of them.

Trains on large JPEGs with 1, 2 … decode threads, then fed by
another process over the loopback, and by one in another network namespace over a virtual cable,
encrypted. Rounds take turns; fails unless all losses are equal to the last bit. All of it shares the
machine's cores. The cable needs root and iproute2.

With --lanes, four ranks under torchrun on two lanes of two ranks: each decodes for itself, or one of
a lane decodes for both; on large JPEGs and on the samples of shards.

Examples:
    python benchmarks/feed.py --rounds 3 --output benchmarks/results/feed.md
    python benchmarks/feed.py --rounds 3 --lanes vlm-small/train-*.tar
"""

import contextlib
import io
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import launch
import machine
from machine import table

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "distributed"))
sys.path.insert(0, str(ROOT / "tests" / "end_to_end"))  # its `formats`, not the one here
import cli_fixture
import formats
import network_hosts
from process_fixture import lines, ranks_of, rows

STEPS = 12
LANE_STEPS = {"JPEGs": 16, "shards": 60}
BATCH = 8
RUN = launch.TWO_LANES.format(steps=STEPS, batch=BATCH, model="tiny.toml")


def parse():
    parser = launch.parser(__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pixels", default="2400x1800", help="of the large JPEGs")
    parser.add_argument("--threads", default="1,2", help="decode threads, with commas")
    parser.add_argument("--lanes", nargs="+", default=[], help="shards; measures lanes")
    parser.add_argument("--workers", default="1,2", help="of a feed, with commas")
    options = parser.parse_args()
    options.entrain = str(Path(options.entrain).resolve())
    options.lanes = [str(Path(shard).resolve()) for shard in options.lanes]
    return options


def large_images(options, folder):
    """An index of samples of one noisy JPEG each, whose decoding takes longer than the rest of a step."""
    import numpy
    from PIL import Image

    width, height = map(int, options.pixels.split("x"))
    generator = numpy.random.default_rng(1)
    samples = []
    for number in range(32):
        coarse = generator.integers(0, 256, (height // 8, width // 8, 3), dtype=numpy.uint8)
        picture = Image.fromarray(coarse).resize((width, height), Image.BICUBIC)
        content = io.BytesIO()
        picture.save(content, "JPEG", quality=90)
        text = {"question": "what?", "answer": "noise"}
        samples.append((f"s{number}", [("image", f"s{number}.jpg", content.getvalue())], text))
    formats.write_llava(samples, folder)
    data = ["llava.json", "--media", "files", "--model", "tiny.toml", "-o", "train.csv"]
    launch.run(options.entrain, "index", *data, cwd=folder)


@contextlib.contextmanager
def feed(options, folder, listen, workers, *more, host=None):
    command = [options.entrain, "feed", "run.toml", "--listen", listen, "--workers", str(workers)]
    command += more
    process = subprocess.Popen(
        host.command(command) if host else command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        if not any("listens at" in line for line in process.stdout):
            sys.exit("the feed did not begin to listen")
        yield
    finally:
        process.kill()
        process.communicate()


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def train(options, folder, output, settings, host):
    """Rows of the run's steps."""
    changes = launch.settings({"output": output, **settings})
    command = [options.entrain, "train", "run.toml", *changes]
    launch.run(*(host.command(command) if host else command), cwd=folder)
    return [row for row in launch.rows(folder / output) if "loss" in row]


def contestants(options, folder, network):
    """[(name, context of its feed, settings, host of the training)]"""
    nothing = contextlib.nullcontext
    for count in options.threads.split(","):
        name = f"{count} thread{'s' if count != '1' else ''} of the run"
        yield name, nothing, {"data.decode_threads": count}, None
    for count in options.workers.split(","):
        address = f"127.0.0.1:{free_port()}"
        settings = {"data.decode_threads": 1, "data.feed": f'["{address}"]'}
        begin = lambda address=address, count=count: feed(options, folder, address, count)
        yield f"a feed of {count}, another process", begin, settings, None
    if network is None:
        return
    trains, decodes = network.hosts
    settings = {
        "data.decode_threads": 1,
        "data.feed": '["beta:7000"]',
        "data.feed_key": "feed.key",
    }
    count = options.workers.split(",")[-1]
    begin = lambda: feed(options, folder, ":7000", count, "--key", "feed.key", host=decodes)
    yield f"a feed of {count}, across a cable, encrypted", begin, settings, trains


def measure(options, folder, network):
    (folder / "run.toml").write_text(RUN)
    entries = list(contestants(options, folder, network))
    rows_of = {name: [] for name, *_ in entries}
    losses = set()
    for round_number in range(options.rounds):
        for number, (name, begin, settings, host) in enumerate(entries):
            with begin():
                output = f"run-{round_number}-{number}"
                rows = train(options, folder, output, settings, host)
            rows_of[name] += rows[2:]
            losses.add(tuple(row["loss"] for row in rows))
    if len(losses) != 1:
        sys.exit("losses depend on who decodes")
    lines = []
    first = None
    for name, rows in rows_of.items():
        steps = sorted(1e3 * row["step_s"] for row in rows)
        middle = statistics.median(steps)
        first = first or middle
        waits = statistics.median(row["data_wait_s"] / row["step_s"] for row in rows)
        fed = statistics.median(row.get("fed", 0) for row in rows)
        lines.append(
            [
                name,
                f"{middle:.0f} ({steps[0]:.0f} … {steps[-1]:.0f})",
                f"{first / middle:.2f}",
                f"{100 * waits:.0f} %",
                f"{100 * fed:.0f} %",
            ]
        )
    return lines


def lane_model():
    """The tests' model on images of up to a megapixel, in patches so large that it computes little."""
    text = cli_fixture.MODEL.replace("num_kv_heads = 1", "num_kv_heads = 2")
    sizes = {"patch_size": 28, "min_pixels": 3136, "max_pixels": 1003520, "max_tokens": 8192}
    lines = [line.split(" = ") for line in text.splitlines()]
    return "\n".join(" = ".join([*line[:-1], str(sizes.get(line[0], line[-1]))]) for line in lines)


def processor_seconds(pid):
    """Of a process's living threads: (all, those in the background, which decode and assign)."""
    seconds = [0, 0]
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):  # it has just ended
            fields = (thread / "stat").read_text().rpartition(")")[2].split()
            used = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
            seconds[0] += used
            seconds[1] += used if int(fields[16]) >= 10 else 0
    return seconds


def train_lanes(options, folder, output, steps, shares):
    """Rows of a run's steps, and processor seconds a step of both ranks that read images, as above."""
    share = str(shares).lower()
    changes = {"output": output, "steps": steps, "data.share_decoding": share}
    command = [*launch.command(options.entrain, 4), "train", "run.toml", *launch.settings(changes)]
    environment = launch.environment(Path(options.entrain).parents[2] / "python")
    ranks = {}
    readings = []  # (steps done, processor seconds)
    with (folder / "output.txt").open("w") as sink:
        run = subprocess.Popen(command, cwd=folder, env=environment, stdout=sink, stderr=sink)
        while run.poll() is None:
            done = lines(folder / output).count(b"\n")
            ranks = ranks or (ranks_of(run.pid) if done > 0 else {})
            if 2 < done < steps:
                used = [processor_seconds(ranks[rank]) for rank in (0, 1)]
                readings.append((done, *map(sum, zip(*used, strict=True))))
            time.sleep(0.02)
    if run.returncode != 0:
        sys.exit((folder / "output.txt").read_text())
    first, last = readings[0], readings[-1]
    taken = [row for row in rows(folder / output) if "loss" in row]
    return taken, [(last[i] - first[i]) / (last[0] - first[0]) for i in (1, 2)]


def spread(values):
    values = sorted(values)
    return f"{statistics.median(values):.1f} ({values[0]:.1f} … {values[-1]:.1f})"


def measure_lanes(options, folder, name):
    """Lines of the table for the data of train.csv, one of each that decodes for itself or shares."""
    losses = set()
    found = {False: [], True: []}
    for number in range(options.rounds):
        for shares, runs in found.items():
            output = f"{name}-{number}-{shares}"
            steps, seconds = train_lanes(options, folder, output, LANE_STEPS[name], shares)
            runs.append((steps[2:], seconds))
            losses.add(tuple(row["loss"] for row in steps))
    if len(losses) != 1:
        sys.exit("losses depend on who decodes")
    lines = []
    for shares, runs in found.items():
        steps = [row for rows, _ in runs for row in rows]
        waits = statistics.median(row["data_wait_s"] / row["step_s"] for row in steps)
        lines.append(
            [
                name,
                "one rank for both" if shares else "each rank",
                spread(1e3 * row["step_s"] for row in steps),
                f"{statistics.mean(row['decoded']['images'] for row in steps):.1f}",
                spread(1e3 * seconds[0] for _, seconds in runs),
                f"{100 * waits:.0f} %",
            ]
        )
    return lines, image_costs(found)


def image_costs(found):
    """Processor ms of an image: (to decode it, to take it from another rank), medians of rounds."""
    costs = []
    for (alone, apart), (_, together) in zip(found[False], found[True], strict=True):
        images = statistics.mean(row["decoded"]["images"] for row in alone) / 2
        assigns = statistics.mean(row["assign_ms"] for row in alone)
        decode = (1e3 * apart[1] / 2 - assigns) / images
        costs.append((decode, decode - 1e3 * (apart[0] - together[0]) / images))
    return [spread(cost) for cost in zip(*costs, strict=True)]


def lanes_page(options, folder):
    degrees = "[plan.tensor_parallel]\nvision = 2\nllm = 2\n"
    (folder / "tiny.toml").write_text(lane_model())
    (folder / "run.toml").write_text(RUN.replace("[optimizer]", degrees + "[optimizer]"))
    large_images(options, folder)
    found, large = measure_lanes(options, folder, "JPEGs")
    data = ["-o", "train.csv", "--model", "tiny.toml", "--force"]
    launch.run(options.entrain, "index", *options.lanes, *data, cwd=folder)
    more, small = measure_lanes(options, folder, "shards")
    found += more
    headers = ["data", "who decodes", "step, ms", "images decoded a step"]
    headers += ["processor ms a step", "waiting for data"]
    newline = "\n"
    steps = LANE_STEPS
    return f"""## Two ranks of a lane: each decodes, or one for both

Command: `python benchmarks/feed.py --rounds {options.rounds} --lanes vlm-small/train-*.tar`. {machine.describe()}.
torchrun with four ranks: a lane of two for the encoder, one for the LLM; {BATCH} samples a step, which become patches of up to a
megapixel. JPEGs of {options.pixels} pixels in {steps["JPEGs"]} steps, the shards' samples in {steps["shards"]}, the first two left out, {options.rounds} rounds in turn.
Processor time is that of both ranks that read images. Medians, with least and most of all steps or rounds. The losses of all
runs on the same data are equal to the last bit.

{newline.join(table(headers, found))}

An image, in processor ms, medians of rounds (decoding: of the background threads, less the assignment; taking it from another
rank, both sides together: decoding less what both ranks save):

{newline.join(table(["data", "to decode", "to take"], [["JPEGs", *large], ["shards", *small]]))}
"""


def main():
    options = parse()
    if options.lanes:
        with tempfile.TemporaryDirectory() as name:
            machine.give(lanes_page(options, Path(name)), options.output)
        return
    missing = network_hosts.why_not()
    network = None if missing else network_hosts.TwoHosts()
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        if network is not None:
            stack.callback(network.close)
        folder = Path(name)
        (folder / "tiny.toml").write_text(cli_fixture.MODEL)
        large_images(options, folder)
        launch.run(options.entrain, "feed", "--new-key", "feed.key", cwd=folder)
        lines = measure(options, folder, network)
    headers = [
        *["who decodes", "step, ms (least … most)", "ratio", "waiting for data", "fed"],
    ]
    newline = "\n"
    page = f"""# A run bound by decoding, and a feed

Command: `python benchmarks/feed.py --rounds {options.rounds}`. {machine.describe()}. JPEGs of {options.pixels} pixels, {BATCH} a step,
{STEPS} steps, the first two left out, {options.rounds} rounds in turn. Run and feed share the cores. The losses of all runs are equal
to the last bit.

{newline.join(table(headers, lines))}
"""
    if missing:
        page += f"\nNot measured: a feed across a cable ({missing}).\n"
    machine.give(page, options.output)


if __name__ == "__main__":
    main()
