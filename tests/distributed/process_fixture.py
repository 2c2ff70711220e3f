"""Helpers of the tests whose ranks are processes under torchrun."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "end_to_end"))
from cli_fixture import CliTest, options_parser, run_tests


def lines(run, begin=0):
    """Whole lines of a run's metrics.jsonl from a byte on; a kill may have cut the last one short."""
    path = run / "metrics.jsonl"
    text = path.read_bytes()[begin:] if path.exists() else b""
    return text[: text.rfind(b"\n") + 1]


def whole_lines(run):
    """Their bytes."""
    return len(lines(run))


def rows(run, begin=0):
    return [json.loads(line) for line in lines(run, begin).splitlines()]


def history(run):
    """What must not depend on where ranks live: of every row what is computed, not timed."""
    kept = ("step", "loss", "grad_norm", "learning_rate", "validation_loss", "num_slots", "batch")
    return [{key: row[key] for key in kept if key in row} for row in rows(run)]


def validated_patches(run):
    """Of every validation, how many patches all ranks together decoded."""
    return [row["patches"] for row in rows(run) if "validation_loss" in row]


def ranks_of(launcher):
    """Rank → process id of the launcher's living children."""
    ranks = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
            if int(fields[1]) != launcher or fields[0] == "Z":
                continue
            environment = (status.parent / "environ").read_bytes().split(b"\0")
        except OSError:
            continue  # it has just ended
        for entry in environment:
            if entry.startswith(b"RANK="):
                ranks[int(entry[5:])] = int(status.parent.name)
    return ranks


def is_running(pid):
    """Whether there is such a process, and it has not ended: nobody may have asked how yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class ProcessTest(CliTest):
    package = None

    def environment(self):
        paths = [str(self.package), os.environ.get("PYTHONPATH", "")]
        return os.environ | {
            "PYTHONPATH": os.pathsep.join(path for path in paths if path),
            "OMP_NUM_THREADS": "1",
        }

    def torchrun(self, processes, *program, restarts=0, node=("--standalone",)):
        return [
            *[sys.executable, "-m", "torch.distributed.run", *node],
            *["--nproc-per-node", str(processes), "--max-restarts", str(restarts)],
            *map(str, program),
        ]

    def start_agents(self, agents, processes, *program, restarts=0, rejoin=False, hosts=None):
        """Starts as many torchrun agents as hosts would have, `processes` ranks each; a list.

        rejoin: agents meet anew after a failure, so that `restarts` holds for all of them together.
        hosts: where they run, one each (network_hosts.Host); None: all on this machine.
        """
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        addresses = [host.address for host in hosts] if hosts else ["127.0.0.1"] * agents
        started = []
        for agent in range(agents):
            node = ["--nnodes", str(agents), "--node-rank", str(agent)]
            if rejoin:
                node += ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"{addresses[0]}:{port}"]
                node += ["--rdzv-id", "run", "--local-addr", addresses[agent]]
            else:
                node += ["--master-addr", addresses[0], "--master-port", str(port)]
            command = self.torchrun(processes, *program, restarts=restarts, node=node)
            started.append(self.start(hosts[agent].command(command) if hosts else command))
            self.addCleanup(self.end_agent, started[-1])
        return started

    def end_agent(self, agent):
        """It and its ranks, if they still run."""
        for pid in ranks_of(agent.pid).values():
            os.kill(pid, signal.SIGKILL)
        if agent.poll() is None:
            agent.kill()
        agent.wait()
        agent.stdout.close()

    def wait_until(self, agents, holds, seconds=120):
        """Until the condition holds or an agent has ended."""
        end = time.monotonic() + seconds
        while all(agent.poll() is None for agent in agents) and not holds():
            self.assertLess(time.monotonic(), end, "it does not come to that")
            time.sleep(0.01)

    def wait_for_rows(self, agents, count, seconds=120, run="run"):
        """Rows are many in a run of small steps, so they are counted, not read."""
        path = self.folder / run
        self.wait_until(agents, lambda: lines(path).count(b"\n") >= count, seconds)

    def finish_agents(self, agents, timeout=120):
        """Exit codes and outputs, in the agents' order."""
        outputs = []
        for agent in agents:
            try:
                outputs.append(agent.communicate(timeout=timeout)[0])
            except subprocess.TimeoutExpired:
                for each in agents:
                    self.end_agent(each)
                self.fail(f"agent {agents.index(agent)} hung after {outputs}")
        return [agent.returncode for agent in agents], outputs

    def start(self, command, **options):
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            **options,
        )

    def run_command(self, command, timeout=300):
        """Exit code and output. Nothing of it is left running."""
        process = self.start(command)
        try:
            output, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            output, _ = process.communicate()
            self.fail(f"{command} hung\n{output}")
        return process.returncode, output

    def train(self, processes, *settings, restarts=0, timeout=300):
        """Exit code and output of `entrain train run.toml` on that many processes."""
        values = [part for setting in settings for part in ("--set", setting)]
        program = ["-m", "entrain", "train", "run.toml", *values]
        return self.run_command(
            self.torchrun(processes, *program, restarts=restarts), timeout=timeout
        )

    def expect_trained(self, processes, *settings, **options):
        code, output = self.train(processes, *settings, **options)
        self.assertEqual(code, 0, output)
        return output

    def train_threads(self, *settings):
        values = [part for setting in settings for part in ("--set", setting)]
        return self.expect_success("train", "run.toml", *values)

    def weights(self, run):
        return (self.folder / run / "weights.safetensors").read_bytes()


def main():
    os.environ.pop("RANK", None)
    parser = options_parser()
    parser.add_argument("--package", required=True, help="folder with the Python package")
    options, rest = parser.parse_known_args()
    ProcessTest.package = Path(options.package).resolve()
    run_tests(options, rest)
