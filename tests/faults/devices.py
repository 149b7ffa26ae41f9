"""Devices, and what tells of them: a management library, a vendor's tool, somebody else's work."""

from __future__ import annotations

from fixtures.node import processes
from tests.faults.fault import INVALID, PASSED, UNAVAILABLE, Act, Fault
from tests.faults.scene import Scene


def foreign_process(scene: Scene) -> None:
    """Somebody's process, which the devices will show."""
    scene.checkout.variables["FAULT_PID"] = str(scene.sleeper())


def foreign_left_alone(scene: Scene) -> None:
    """It is none of ours to end. Asked before the scene closes, which ends it."""
    process = processes.read(int(scene.checkout.variables["FAULT_PID"]))
    assert process is not None and process.state not in "ZX"


def devices(**state: int) -> Act:
    """A state of the fake devices from the start."""

    def arrange(scene: Scene) -> None:
        scene.checkout.write("devices", "".join(f"{word} {number}\n" for word, number in state.items()))
        scene.tell(f"devices: {', '.join(f'{word} {number}' for word, number in state.items())}")

    return arrange


def remove_tool(scene: Scene) -> None:
    """The program is not there."""
    (scene.checkout.root / "cinder-smi").unlink()
    scene.tell("remove the tool")


FAULTS = (
    Fault(
        name="foreign_process",
        what="somebody else's process on a leased device in the timed window; it is left alone",
        vendor="zephyr",
        script="device=foreign/pid@20",
        arguments=("--set", "step_s=0.03"),
        before=foreign_process,
        check=foreign_left_alone,
        **INVALID,
        says="another process used device",
    ),
    Fault(
        name="device_memory_kept",
        what="device memory does not come back after the run",
        vendor="zephyr",
        script="device=leak/4096@20",
        expect="error: harness",
        exit=1,
        says="still holds 4096 MiB more than before the run",
    ),
    Fault(
        name="driver_lost",
        what="the driver loses the devices during a run",
        vendor="zephyr",
        script="device=gone@20",
        **PASSED,
    ),
    Fault(
        name="driver_refuses",
        what="the management library cannot be initialised",
        vendor="zephyr",
        before=devices(refused=1),
        **UNAVAILABLE,
        says="NVML cannot be used",
    ),
    Fault(
        name="driver_stuck",
        what="the management library never answers",
        vendor="zephyr",
        before=devices(stuck=2),
        **UNAVAILABLE,
        says="did not answer within",
    ),
    Fault(
        name="driver_stuck_in_run",
        what="the management library stops answering during a run; the monitor dies of it, the run does not",
        vendor="zephyr",
        script="device=stuck@20,device=stuck/0@end",
        **PASSED,
    ),
    Fault(
        name="tool_stuck",
        what="the vendor's tool never answers",
        vendor="cinder",
        before=devices(stuck=2),
        **UNAVAILABLE,
        says="cinder",
    ),
    Fault(
        name="tool_stuck_in_run",
        what="the vendor's tool stops answering during a run",
        vendor="cinder",
        script="device=stuck@20,device=stuck/0@end",
        arguments=("--set", "step_s=0.03"),
        **PASSED,
    ),
    Fault(
        name="tool_garbage",
        what="the vendor's tool prints every byte there is",
        vendor="cinder",
        script="device=garbage@20,device=garbage/0@end",
        arguments=("--set", "step_s=0.03"),
        **PASSED,
    ),
    Fault(
        name="tool_fails",
        what="the vendor's tool says that there is no driver",
        vendor="cinder",
        before=devices(gone=1),
        **UNAVAILABLE,
        says="driver not loaded",
    ),
    Fault(
        name="tool_missing",
        what="the vendor's tool is not installed",
        vendor="cinder",
        before=remove_tool,
        **UNAVAILABLE,
        says="cinder-smi",
    ),
    Fault(
        name="tool_foreign",
        what="the vendor's tool shows somebody else's process in the timed window; it is left alone",
        vendor="cinder",
        script="device=foreign/pid@20,device=foreign/0@end",
        arguments=("--set", "step_s=0.05"),
        before=foreign_process,
        check=foreign_left_alone,
        **INVALID,
        says="another process used device",
    ),
    Fault(
        name="too_few_devices",
        what="a device has gone since the plan was made",
        vendor="zephyr",
        topology="1x2",
        before=devices(count=1),
        **UNAVAILABLE,
        says="needs 2 devices",
    ),
)
