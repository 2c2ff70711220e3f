"""Ranks that are processes: the communicator's contract, and gradients bitwise those of threads."""

from pathlib import Path

import process_fixture
from process_fixture import ProcessTest


class Communicator(ProcessTest):
    def check(self, *names, processes=4):
        script = Path(__file__).with_name("process_check_main.py")
        code, output = self.run_command(self.torchrun(processes, script, *names), timeout=900)
        self.assertEqual(code, 0, output)
        for name in names:
            self.assertIn(f"passed: {name}", output)
        return output

    def test_messages_and_collectives(self):
        self.check(
            "collectives", "channels", "thousands_of_messages", "freed_elsewhere", "mismatches"
        )

    def test_devices_that_are_not_the_processor(self):
        self.check("device_messages", "device_runs")

    def test_transfers_between_devices(self):
        self.check("device_links", "lost_transfer")

    def test_failures_reach_every_rank(self):
        self.check("deadline", "chain_of_waits", "ended_wait", "abort_stops_all", "death")

    def test_gradients_are_those_of_threads(self):
        for name, processes in (("shared_lanes", 4), ("covering_gradients", 30)):
            output = self.check(name, processes=processes)
            print(*(line for line in output.splitlines() if "of values" in line), sep="\n")
            print(next(line for line in output.splitlines() if "configurations" in line))


if __name__ == "__main__":
    process_fixture.main()
