"""The first process of a test host, in namespaces of its own: a name, private folders, then sshd in its place.

`python host.py NAME HOSTS_FILE SSHD_CONFIG LOG [FOLDER=SIZE …]`: each folder becomes an empty file system of that size.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys


def mount(kind: str, options: str, source: str, target: str) -> None:
    """One mount, seen by this host alone."""
    subprocess.run(["mount", "-t", kind, "-o", options, source, target], check=True, timeout=10)


def main(name: str, hosts: str, config: str, log: str, *private: str) -> None:
    """Never returns."""
    socket.sethostname(name)
    subprocess.run(["mount", "--bind", hosts, "/etc/hosts"], check=True, timeout=10)
    mount("tmpfs", "mode=1777", "shm", "/dev/shm")
    for each in private:
        folder, _, size = each.rpartition("=")
        mount("tmpfs", f"size={size},mode=700", "private", folder)
    os.execv("/usr/sbin/sshd", ["/usr/sbin/sshd", "-D", "-f", config, "-E", log])


if __name__ == "__main__":
    main(*sys.argv[1:])
