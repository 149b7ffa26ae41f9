"""Real engines for tests, the base image in them, and a toy training in a container of theirs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fixtures.engine import Engine
from fixtures.site import Container, Lease, Site
from tests.container.host_image import import_image
from tests.container.private_engine import PrivateEngine, missing, private_engine

BASE = "host:base"


def _started(name: str) -> Iterator[PrivateEngine]:
    if reason := missing(name):
        pytest.skip(f"no {name} here: {reason}")
    with private_engine(name) as engine:
        import_image(engine.url, "host", "base")
        yield engine


@pytest.fixture(scope="module", params=["docker", "podman"])
def either(request: pytest.FixtureRequest) -> Iterator[PrivateEngine]:
    """A Docker daemon, then a Podman service, each with BASE."""
    yield from _started(request.param)


@pytest.fixture(scope="module")
def dockerd() -> Iterator[PrivateEngine]:
    """A Docker daemon with BASE."""
    yield from _started("docker")


def connect(private: PrivateEngine) -> Engine:
    """The harness's view of it."""
    return Engine("podman" if private.name == "podman" else "docker", private.url)


def site_of(private: PrivateEngine, folder: Path, **container: Any) -> Site:
    """A site whose containers are BASE with this interpreter mounted."""
    fields: dict[str, Any] = {"images": {"pytorch": BASE}, "host_python": True} | container
    engine = "podman" if private.name == "podman" else "docker"
    return Site(container=Container(engine=engine, url=private.url, **fields), lease=Lease(dir=str(folder / "leases")))


def inventory(private: PrivateEngine) -> tuple[list[str], list[str], list[str]]:
    """Names of containers, of images (nameless ones too), and of networks."""
    api = connect(private).api
    containers = [name for found in api.containers(all=True) for name in found["Names"]]
    images = [tag for found in api.images() for tag in found["RepoTags"] or [found["Id"]]]
    return sorted(containers), sorted(images), sorted(found["Name"] for found in api.networks())


def recipe(folder: Path, dockerfile: str, install: str | None = None, name: str = "pytorch") -> Path:
    """An image's folder under `folder`/images."""
    place = folder / "images" / name
    place.mkdir(parents=True, exist_ok=True)
    (place / "Dockerfile").write_text(dockerfile, encoding="utf-8")
    if install is not None:
        (place / f"{name}_install.sh").write_text(install, encoding="utf-8")
    return place
