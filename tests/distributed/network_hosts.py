"""Hosts on one machine: network namespaces with names and addresses of their own, joined by a cable.

What runs on one shares processors, files and kernel with the others, and nothing of the network:
ranks of two hosts reach each other over the cable alone, which can be pulled. Needs root and
iproute2.
"""

import os
import subprocess
import tempfile
from pathlib import Path

# Becomes the host (name, list of hosts), then the command: the process id stays.
ENTER = 'hostname "$1"; mount --bind "$2" /etc/hosts; shift 2; exec "$@"'


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


def why_not():
    """Why no hosts can be made here; empty where they can."""
    probe = f"entrain-probe-{os.getpid()}"
    try:
        ip("netns", "add", probe)
        try:
            command = ["ip", "netns", "exec", probe, "unshare", "--uts", "--mount", "true"]
            subprocess.run(command, check=True, capture_output=True)
        finally:
            ip("netns", "del", probe)
    except (OSError, subprocess.CalledProcessError) as error:
        return f"no network namespaces: {getattr(error, 'stderr', None) or error}"
    return ""


class Host:
    """One end of the cable."""

    def __init__(self, name, address, namespace, hosts_file):
        self.name = name
        self.address = address
        self.namespace = namespace
        self._hosts_file = hosts_file

    def command(self, command):
        """What runs `command` on this host; the process id becomes the command's."""
        enter = ["unshare", "--uts", "--mount", "sh", "-ec", ENTER, "sh", self.name]
        inside = ["ip", "netns", "exec", self.namespace]
        return [*inside, *enter, str(self._hosts_file), *map(str, command)]

    def plug(self, state):
        """`state`: "up" or "down", of this host's end."""
        ip("-n", self.namespace, "link", "set", "cable", state)


class TwoHosts:
    """Hosts `alpha` and `beta`. close() removes them, with whatever still runs there cut off."""

    def __init__(self):
        self._folder = tempfile.TemporaryDirectory()
        hosts_file = Path(self._folder.name) / "hosts"
        mark = f"entrain-{os.getpid()}-{id(self)}"
        names = ("alpha", "beta")
        self.hosts = [
            Host(name, f"10.77.0.{i + 1}", f"{mark}-{name}", hosts_file)
            for i, name in enumerate(names)
        ]
        hosts_file.write_text(
            "".join(f"{host.address} {host.name}\n" for host in self.hosts)
            + "127.0.0.1 localhost\n"
        )
        try:
            for host in self.hosts:
                ip("netns", "add", host.namespace)
            first, second = (host.namespace for host in self.hosts)
            ip(
                "-n",
                first,
                "link",
                "add",
                "cable",
                "type",
                "veth",
                "peer",
                "cable",
                "netns",
                second,
            )
            for host in self.hosts:
                ip("-n", host.namespace, "address", "add", f"{host.address}/24", "dev", "cable")
                ip("-n", host.namespace, "link", "set", "lo", "up")
                host.plug("up")
        except subprocess.CalledProcessError:
            self.close()
            raise

    def close(self):
        for host in self.hosts:
            command = ["ip", "netns", "del", host.namespace]
            subprocess.run(command, check=False, capture_output=True)
        self._folder.cleanup()
