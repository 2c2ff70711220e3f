"""Compute orders exchanged with torch.distributed.pipelining, by its own loader and schedules.

Called as `torch_csv_test.py --tool PATH` by a Python that has torch; exit status 77 (skipped)
where it cannot be imported. Nothing is computed: torch's schedules only want to know of their
stages where they stand.
"""

import argparse
import csv
import io
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace

try:
    from torch.distributed.pipelining import schedules
except ImportError as error:
    print(f"SKIPPED: no torch.distributed.pipelining here ({error})")
    sys.exit(77)

TOOL = None


def run_tool(*arguments, text=None):
    return subprocess.run(
        [TOOL, *map(str, arguments)], input=text, capture_output=True, text=True, check=False
    )


def export(schedule, slots, stages, lanes, encoder_stages=0):
    result = run_tool("export", schedule, slots, stages, lanes, encoder_stages)
    if result.returncode != 0:
        raise AssertionError(result.stderr)
    return result.stdout


def simulated_ns(text, slots, stages, lanes, encoder_stages=0):
    result = run_tool("import", slots, stages, lanes, encoder_stages, text=text)
    if result.returncode != 0:
        raise AssertionError(result.stderr)
    return int(result.stdout)


def torch_stages(rank, stages, lanes):
    """What the schedules look at in a rank's stages."""
    return [
        SimpleNamespace(
            stage_index=index,
            num_stages=stages,
            group_size=lanes,
            group_rank=rank,
            is_first=index == 0,
            is_last=index == stages - 1,
            has_backward=True,
            submod=None,
        )
        for index in range(rank, stages, lanes)
    ]


def torch_schedule(kind, slots, stages, lanes):
    return kind(torch_stages(0, stages, lanes), slots, loss_fn=lambda *_: None)


def names(order):
    """Compute actions of one rank as torch writes them."""
    compute = [a for a in order if a is not None and a.is_compute_op]
    return [str(action) for action in compute]


def as_csv(orders):
    """As torch's own _dump_csv writes them."""
    text = io.StringIO()
    writer = csv.writer(text)
    for rank in sorted(orders):
        writer.writerow(orders[rank])
    return text.getvalue()


class Export(unittest.TestCase):
    def load(self, text, slots, stages, lanes):
        """Lets torch read, check and lower the orders; returns its schedule."""
        schedule = torch_schedule(schedules._PipelineScheduleRuntime, slots, stages, lanes)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "orders.csv"
            path.write_text(text, encoding="utf-8")
            schedule._load_csv(str(path), format="compute_only")
        return schedule

    def test_torch_loads_every_schedule(self):
        cases = [
            (name, slots, stages, lanes, encoder)
            for name in ("gpipe", "1f1b", "zb-h1", "zb-h2", "1f1b-eager", "entrain")
            for slots, stages, lanes, encoder in ((1, 2, 2, 0), (6, 4, 4, 0), (9, 4, 4, 1))
        ]
        cases += [("interleaved", slots, 6, 3, 0) for slots in (1, 2, 3, 4, 7, 9)]
        for case in cases:
            with self.subTest(case=case):
                name, slots, stages, lanes, encoder = case
                text = export(name, slots, stages, lanes, encoder)
                loaded = self.load(text, slots, stages, lanes)
                for rank, line in enumerate(text.splitlines()):
                    self.assertEqual(names(loaded.pipeline_order[rank]), line.split(","))
                    # Lowered to sends and receives, which torch refuses where orders get stuck.
                    self.assertEqual(names(loaded.pipeline_order_with_comms[rank]), line.split(","))
                self.assertEqual(
                    loaded.stage_index_to_group_rank, {s: s % lanes for s in range(stages)}
                )
        print(f"{len(cases)} programs loaded by torch")

    def test_torch_refuses_an_order_that_lacks_an_operation(self):
        text = export("zb-h1", 4, 2, 2).replace(",0W3", "")
        with self.assertRaises(AssertionError):
            self.load(text, 4, 2, 2)


class Orders(unittest.TestCase):
    """Where torch has the same schedule, the orders are equal."""

    def test_1f1b_is_torchs(self):
        # All ranks but the last, whose list torch 2.13 numbers from microbatch 1.
        for lanes in (2, 4):
            for slots in (lanes, lanes + 1, 3 * lanes):
                with self.subTest(lanes=lanes, slots=slots):
                    stage = SimpleNamespace(
                        **vars(torch_stages(0, lanes, lanes)[0]), stage_index_to_group_rank=None
                    )
                    torchs = schedules.Schedule1F1B(stage, slots, loss_fn=lambda *_: None)
                    expected = torchs._get_pipeline_order()
                    lines = export("1f1b", slots, lanes, lanes).splitlines()
                    for rank, line in enumerate(lines[:-1]):
                        self.assertEqual(line.split(","), names(expected[rank]))

    def test_interleaved_is_torchs(self):
        compared = 0
        for lanes in (2, 3, 4):
            for chunks in (2, 3):
                for slots in range(1, 4 * lanes):
                    rounds = max(1, slots // lanes)
                    if slots % rounds != 0:
                        continue  # torch takes no such number
                    with self.subTest(lanes=lanes, chunks=chunks, slots=slots):
                        stages = lanes * chunks
                        kind = schedules.ScheduleInterleaved1F1B
                        torchs = torch_schedule(kind, slots, stages, lanes)
                        lines = export("interleaved", slots, stages, lanes).splitlines()
                        for rank, line in enumerate(lines):
                            expected = names(torchs.pipeline_order[rank])
                            self.assertEqual(line.split(","), expected)
                        compared += 1
        print(f"{compared} interleaved orders equal to torch's")


class Import(unittest.TestCase):
    def test_torchs_schedules_run(self):
        lanes, chunks, slots = 4, 2, 8
        stages = lanes * chunks
        times = {}
        for kind in (
            schedules.ScheduleLoopedBFS,
            schedules.ScheduleInterleaved1F1B,
            schedules.ScheduleInterleavedZeroBubble,
        ):
            torchs = torch_schedule(kind, slots, stages, lanes)
            text = as_csv(torchs.pipeline_order)
            times[kind.__name__] = simulated_ns(text, slots, stages, lanes)
        print(times)
        ours = simulated_ns(export("interleaved", slots, stages, lanes), slots, stages, lanes)
        self.assertEqual(times["ScheduleInterleaved1F1B"], ours)
        self.assertLess(times["ScheduleInterleavedZeroBubble"], ours)
        self.assertGreaterEqual(times["ScheduleLoopedBFS"], ours)
        self.assertGreaterEqual(min(times.values()), slots * chunks * 30)

    def test_refusals_name_the_cell(self):
        result = run_tool("import", 2, 2, 2, text="0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1Q1\n")
        self.assertEqual(result.returncode, 2)
        self.assertIn("row 2 column 4: '1Q1'", result.stderr)


def main():
    global TOOL
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tool", required=True, help="path of torch_csv_tool")
    options, rest = parser.parse_known_args()
    TOOL = str(Path(options.tool).resolve())
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)


if __name__ == "__main__":
    main()
