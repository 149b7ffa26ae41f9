"""What vendors and sites may ask of a container, in the words of `docker run`, and what the engine is told."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures.container_options import KNOWN, Flags, read_options
from fixtures.engine import Container, EngineProblem, Mount
from fixtures.engine_config import clamp, device_files, docker_words, host_config, mount_of, size_bytes
from suite.errors import UsageProblem


class Fake:
    """As much of an engine as a configuration needs."""

    def __init__(self, name: str) -> None:
        self.name = name


def told(name: str, flags: Flags, **fields: Any) -> dict[str, Any]:
    parts: dict[str, Any] = {"name": "n", "image": "i", "argv": (), "labels": {}} | fields
    return host_config(Fake(name), Container(flags=flags, **parts), flags.ulimits)  # type: ignore[arg-type]


NGC = """--net=host --shm-size=1g --ulimit memlock=-1 --ulimit stack=67108864
 -e LD_LIBRARY_PATH='/workspace/install/lib/' -v /src/bert:/workspace/bert -v /src/results:/results"""
"""The launch script of NVIDIA's BERT recipe, without the words that are ours to set."""


def test_the_launch_script_of_a_published_recipe() -> None:
    flags = read_options((NGC,), "launch.sh")
    assert flags == Flags(
        network="host",
        shm_size="1g",
        ulimits={"memlock": -1, "stack": 67108864},
        environment={"LD_LIBRARY_PATH": "/workspace/install/lib/"},
        mounts=("/src/bert:/workspace/bert", "/src/results:/results"),
    )
    config = told("docker", flags)
    assert config["ShmSize"] == 1 << 30
    assert {"Name": "memlock", "Soft": -1, "Hard": -1} in config["Ulimits"]
    assert config["Mounts"][0] == {
        "Type": "bind", "Source": "/src/bert", "Target": "/workspace/bert", "ReadOnly": False,
    }  # fmt: skip
    assert (config["CapDrop"], config["SecurityOpt"], config["Init"]) == (["ALL"], ["no-new-privileges"], True)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--gpu=all",), "'--gpu' is not an option that containers take here (did you mean '--gpus'?)"),
        (("--name=mine",), "--name is the harness's own to set; remove it"),
        (("--device",), "--device takes a value, as in --device=VALUE"),
        (("--shm-size=1gb",), "--shm-size '1gb' is not a size; write a number with k, m or g, as in 1g"),
        (("--ulimit=memlock=lots",), "--ulimit memlock 'lots' is not a whole number, or -1 for no limit"),
        (("-e", "HF_TOKEN"), "-e 'HF_TOKEN' is not NAME=VALUE; a variable of the host is not passed on unseen"),
        (("--privileged=maybe",), "--privileged=maybe is neither true nor false"),
    ],
)
def test_words_that_cannot_be_meant(words: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(UsageProblem) as caught:
        read_options(words, "vendor.toml [container] options")
    assert str(caught.value).startswith(f"vendor.toml [container] options: {sentence}")


def test_the_sites_flags_go_over_the_vendors() -> None:
    vendor = read_options(("--shm-size=32g", "--device=/dev/null", "-e", "A=1", "--gpus=all"), "v")
    site = read_options(("--shm-size=1g", "--device=/dev/zero", "-e", "A=2"), "s")
    both = site.over(vendor)
    assert (both.shm_size, both.gpus, both.environment) == ("1g", "all", {"A": "2"})
    assert both.devices == ("/dev/null", "/dev/zero")


@given(
    st.builds(
        Flags,
        gpus=st.sampled_from(["", "all"]),
        ulimits=st.dictionaries(st.sampled_from(["memlock", "stack"]), st.integers(-1, 1 << 40)),
        devices=st.lists(st.sampled_from(["/dev/null", "/dev/zero"]), unique=True).map(tuple),
        shm_size=st.sampled_from(["", "64m", "1g"]),
        privileged=st.booleans(),
        cap_add=st.lists(st.sampled_from(["SYS_NICE", "IPC_LOCK"]), unique=True).map(tuple),
    )
)
def test_what_is_shown_can_be_typed(flags: Flags) -> None:
    assert read_options(docker_words(flags), "shown") == flags


def test_every_known_word_is_read() -> None:
    values = {"-e": "A=1", "--env": "A=1", "--ulimit": "core=0", "--shm-size": "1g", "--memory": "1g", "-m": "1g"}
    for word in KNOWN:
        words = (word,) if word == "--privileged" else (word, values.get(word, "1"))
        assert read_options(words, "x") != Flags(), word


def test_limits_are_lowered_to_the_hosts_and_each_is_told() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    lowered, sentences = clamp({"nofile": -1, "core": 0})
    assert lowered == {"nofile": hard, "core": 0}
    assert len(sentences) == (hard != resource.RLIM_INFINITY)
    assert all("nofile: unlimited was asked for" in sentence and str(hard) in sentence for sentence in sentences)


def test_chips_are_given_by_their_identity() -> None:
    flags = Flags(gpus="all")
    docker = told("docker", flags, device_ids=("GPU-1", "GPU-2"))
    assert docker["DeviceRequests"] == [{"Driver": "", "Capabilities": [["gpu"]], "DeviceIDs": ["GPU-1", "GPU-2"]}]
    podman = told("podman", flags, device_ids=("GPU-1",), cdi="acme.com/gpu")
    assert podman["DeviceRequests"] == [] and podman["Devices"][0]["PathOnHost"] == "acme.com/gpu=GPU-1"
    with pytest.raises(EngineProblem, match="podman does not know --gpus: name the devices' kind"):
        told("podman", flags)


def test_device_files_by_glob(tmp_path: Path) -> None:
    for name in ("acme1", "acme0", "other"):
        (tmp_path / name).touch()
    assert device_files(f"{tmp_path}/acme*") == [f"{tmp_path}/acme0", f"{tmp_path}/acme1"]
    with pytest.raises(EngineProblem, match="no device file /dev/acme9 on this host: check the driver"):
        device_files("/dev/acme9")


def test_mounts_and_sizes() -> None:
    assert mount_of("/a:/b:ro") == Mount(path="/a", inside="/b")
    assert mount_of("/a:/b") == Mount(path="/a", inside="/b", writable=True)
    for wrong in ("/a", "a:/b", "/a:b", "/a:/b:rx"):
        with pytest.raises(EngineProblem, match="is not HOST:CONTAINER"):
            mount_of(wrong)
    assert [size_bytes(text) for text in ("7", "64m", "1G", "2t")] == [7, 64 << 20, 1 << 30, 2 << 40]


def test_privileged_keeps_what_it_asks_for() -> None:
    config = told("docker", Flags(privileged=True))
    assert config["Privileged"] is True and "CapDrop" not in config


def test_a_memory_limit_is_one() -> None:
    config = told("docker", Flags(memory="100m"))
    assert config["Memory"] == config["MemorySwap"] == 100 << 20
