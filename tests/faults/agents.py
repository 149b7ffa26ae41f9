"""Launchers, agents, monitors, leases and ports."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import threading

from tests.faults.fault import PASSED, UNAVAILABLE, Fault
from tests.faults.scene import Scene


def kill_launcher(scene: Scene) -> None:
    """torchrun, or what stands for it."""
    scene.trains()
    launcher = scene.pids("-m torch.distributed.run")[0]
    scene.signal(launcher, signal.SIGKILL, "the launcher")


def kill_agent(scene: Scene) -> None:
    """The agent of node 0, once."""
    scene.trains()
    scene.signal(scene.agents()["0"], signal.SIGKILL, "the agent of node 0")


def kill_agent_1(scene: Scene) -> None:
    """The agent of the other node."""
    scene.trains(1)
    scene.signal(scene.agents()["1"], signal.SIGKILL, "the agent of node 1")


def kill_every_agent(scene: Scene) -> None:
    """The agent of the first attempt and that of the second."""
    kill_agent(scene)
    scene.wait_for(lambda: scene.run_dir.name == "r1.2", "a second attempt")
    kill_agent(scene)


def kill_lease(scene: Scene) -> None:
    """The agent that holds the devices over all runs."""
    scene.trains()
    scene.signal(scene.agents()["lease"], signal.SIGKILL, "the agent of the lease")


def stop_agent(scene: Scene) -> None:
    """The agent neither hears nor says anything from now on."""
    scene.trains()
    scene.signal(scene.agents()["0"], signal.SIGSTOP, "the agent of node 0")


def kill_monitor(scene: Scene) -> None:
    """The side process that samples."""
    scene.trains()
    scene.signal(scene.agents()["monitor 0"], signal.SIGKILL, "the monitor")


def stop_monitor(scene: Scene) -> None:
    """As if it were stuck in a driver."""
    scene.trains()
    scene.signal(scene.agents()["monitor 0"], signal.SIGSTOP, "the monitor")


def take_port(scene: Scene) -> None:
    """The site insists on a port, and something listens there."""
    listener = socket.create_server(("127.0.0.1", 0))
    scene.meanwhile.callback(listener.close)
    port = listener.getsockname()[1]
    scene.checkout.write("site.toml", f'[lease]\ndir = "leases"\n[hosts]\nmaster_port = {port}\n')
    scene.tell(f"listen on port {port}")


def _hold(scene: Scene) -> int:
    """A lock on the first device, held by this process."""
    scene.checkout.leases.mkdir()
    scene.checkout.leases.chmod(0o1777)
    path = scene.checkout.leases / "device-cpu0.lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    os.write(descriptor, json.dumps({"user": "somebody", "session": "another"}).encode())
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


def hold_device(scene: Scene) -> None:
    """For as long as the session lasts."""
    scene.meanwhile.callback(os.close, _hold(scene))
    scene.tell("hold the lock of device cpu0")


def hold_device_for_a_while(scene: Scene) -> None:
    """Two seconds."""
    release = threading.Timer(2.0, os.close, [_hold(scene)])
    release.start()
    scene.meanwhile.callback(release.join)
    scene.tell("hold the lock of device cpu0 for 2 s")


def leave_stale_lock(scene: Scene) -> None:
    """A lock file whose owner is long dead."""
    os.close(_hold(scene))
    scene.tell("leave a lock file of a dead owner")


def link_leases(scene: Scene) -> None:
    """A link where the folder of the locks should be."""
    scene.checkout.leases.symlink_to(scene.checkout.root)
    scene.tell("a link in place of the lease folder")


def second_session(scene: Scene) -> None:
    """The same plan in another session, at the same time."""
    command = [word.replace("/out", "/other") for word in scene.command()]
    scene.tell("start a second session", scene.also(command).pid)


def second_session_passed(scene: Scene) -> None:
    """It waited, and trained."""
    assert [other.returncode for other in scene.others] == [0], scene.checkout.output


FAULTS = (
    Fault(
        name="launcher_killed",
        what="torchrun's stand-in is killed",
        topology="1x2",
        act=kill_launcher,
        script="hang@40",
        expect="error: crash",
        exit=1,
        says="the launcher of node 0 was killed by SIGKILL",
    ),
    Fault(
        name="launcher_killed_torchrun",
        what="the real torchrun is killed",
        topology="1x2",
        act=kill_launcher,
        script="hang@40",
        real_launcher=True,
        expect="error: crash",
        exit=1,
        says="the launcher of node 0 was killed by SIGKILL",
    ),
    Fault(
        name="agent_killed",
        what="the agent of a node is killed: tried again, and passed",
        script="hang@40#1",
        act=kill_agent,
        attempts=2,
        **PASSED,
    ),
    Fault(
        name="agent_1_killed",
        what="the agent of the second node is killed: tried again, and passed",
        topology="2x1",
        script="hang@40#1",
        act=kill_agent_1,
        attempts=2,
        **PASSED,
    ),
    Fault(
        name="agents_killed",
        what="the agents of both attempts are killed",
        script="hang@40",
        act=kill_every_agent,
        attempts=2,
        expect="error: lost_node",
        exit=1,
        says="gone without a word",
    ),
    Fault(
        name="agent_stopped",
        what="the agent is stopped with SIGSTOP; the ranks finish",
        act=stop_agent,
        **PASSED,
    ),
    Fault(
        name="lease_lost",
        what="the agent that holds the devices is killed: they are leased again, and the run passes",
        vendor="quill",
        script="hang@40#1",
        act=kill_lease,
        attempts=2,
        **PASSED,
    ),
    Fault(name="monitor_killed", what="the monitor is killed", act=kill_monitor, **PASSED),
    Fault(name="monitor_stopped", what="the monitor is stuck", act=stop_monitor, **PASSED),
    Fault(
        name="port_taken",
        what="the site's master_port is in use",
        before=take_port,
        expect="error: provision",
        exit=1,
        says="is in use on this host",
    ),
    Fault(
        name="port_stolen",
        what="somebody takes the port before the ranks do: tried again on another, and passed",
        script="tell=EADDRINUSE address already in use#1,leave=1#1",
        attempts=2,
        **PASSED,
    ),
    Fault(
        name="stale_lock",
        what="the lock of a device whose owner is dead",
        vendor="quill",
        before=leave_stale_lock,
        **PASSED,
    ),
    Fault(
        name="device_held",
        what="another session holds a device",
        vendor="quill",
        topology="1x2",
        before=hold_device,
        **UNAVAILABLE,
        says="somebody",
    ),
    Fault(
        name="device_held_a_while",
        what="another session holds a device for 2 s, and this one waits",
        vendor="quill",
        topology="1x2",
        arguments=("--wait-for-devices", "30s"),
        before=hold_device_for_a_while,
        **PASSED,
    ),
    Fault(
        name="two_sessions",
        what="two sessions want the same devices at once",
        vendor="quill",
        topology="1x2",
        arguments=("--wait-for-devices", "60s"),
        act=second_session,
        check=second_session_passed,
        **PASSED,
    ),
    Fault(
        name="lease_folder_link",
        what="the folder of the locks is a link that somebody has put there",
        vendor="quill",
        before=link_leases,
        expect="error: provision",
        exit=1,
        says="is not a folder",
    ),
)
