"""Site files: what they say, what the command line says instead, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures.site import Site, load_site
from suite.errors import UsageProblem
from tests.user_toy import ROOT

FULL = """
[hosts]
names = ["node1", "node2"]
user = "root"
key = "~/.ssh/id_ed25519"
master_port = 29501
[launch]
launcher = "local"
[container]
engine = "none"
options = ["--gpus", "all"]
shm_size = "32G"
[data]
default = "here"
cases = { glm = "/data/glm" }
[environment]
NCCL_DEBUG = "WARN"
[policy]
trust_vendor_code = false
host_commands = ["/usr/bin/true"]
[log]
level = "debug"
clear_caches = true
[lease]
dir = "/run/lock/x"
wait_s = 60
[price.H200]
per_device_hour = 3.1
currency = "EUR"
"""


def site_of(folder: Path, text: str) -> Site:
    """The site in a file of that text."""
    path = folder / "site.toml"
    path.write_text(text, encoding="utf-8")
    return load_site(path)


def overridden(site: Site, **changed: object) -> Site:
    """The site with some of the command line's answers, and none of the others."""
    nothing = {"data_dirs": {}, "wait_s": None, "launcher": None, "container": None}
    return site.overridden(**(nothing | changed))  # type: ignore[arg-type]


def test_every_documented_key_is_read(tmp_path: Path) -> None:
    """docs/configuration.md, «Site files»."""
    site = site_of(tmp_path, FULL)
    assert site.hosts.names == ("node1", "node2")
    assert site.environment == {"NCCL_DEBUG": "WARN"}
    assert site.data_dir_for("glm") == Path("/data/glm")
    assert site.data_dir_for("bert") == tmp_path / "here"
    assert site.lease_dir() == Path("/run/lock/x")
    assert site.price["H200"].per_device_hour == 3.1


def test_without_a_file_everything_has_a_default() -> None:
    """This host, no container, vendor code trusted, no data folder, locks where every user finds them."""
    site = load_site(None)
    assert site.launch.launcher == "local"
    assert site.policy.trust_vendor_code
    assert site.data_dir_for("glm") is None
    assert site.lease_dir().is_absolute()


def test_the_command_line_outdoes_the_file(tmp_path: Path) -> None:
    """One model's folder beside the others, or one folder for all."""
    site = site_of(tmp_path, FULL)
    one = overridden(site, data_dirs={"bert": Path("/fast/bert")}, wait_s=5.0)
    assert one.data_dir_for("bert") == Path("/fast/bert")
    assert one.data_dir_for("glm") == Path("/data/glm")
    assert one.lease.wait_s == 5.0
    everything = overridden(site, data_dirs={"": Path("/fast")})
    assert everything.data_dir_for("glm") == Path("/fast")
    assert everything.lease.wait_s == 60
    assert everything.path == site.path


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[hsots]\n", "unknown table 'hsots' (did you mean 'hosts'?)"),
        ("[data]\ndefalt = 'x'\n", "unknown key 'data.defalt' (did you mean 'default'?)"),
        ("[hosts]\nport = 70000\n", "hosts.port = 70000"),
        ("[hosts]\nport = '22'\n", "hosts.port = '22'"),
        ("[policy]\ntrust_vendor_code = 1\n", "policy.trust_vendor_code = 1"),
        ("[container]\nshm_size = 'big'\n", "container.shm_size = 'big'"),
        ("[environment]\n'A B' = 'x'\n", "environment.A B cannot be set"),
        ("[price.H200]\ncurrency = 'EUR'\n", "price.H200.per_device_hour is missing"),
        ("path = 'x'\n", "unknown key 'path'"),
    ],
)
def test_wrong_sites_are_refused(tmp_path: Path, text: str, sentence: str) -> None:
    """File, key, value, remedy."""
    with pytest.raises(UsageProblem) as refused:
        site_of(tmp_path, text)
    assert str(refused.value).startswith(f"{tmp_path / 'site.toml'}: ")
    assert sentence in str(refused.value)


@pytest.mark.parametrize("path", sorted((ROOT / "fixtures" / "sites").glob("*.toml")), ids=lambda path: path.name)
def test_shipped_sites_load(path: Path) -> None:
    """The examples are right."""
    assert load_site(path).path == str(path)
