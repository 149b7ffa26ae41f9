"""Images by name: pushed to and pulled from a registry that wants a login, whose password is a secret of the site's."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fixtures.engine_build import add_tag, image, remove_image
from fixtures.training import Runs
from tests.container.engines import BASE, connect, either, inventory, site_of
from tests.container.private_engine import PrivateEngine
from tests.container.registry import Registry, registry
from tests.launch_toy import GOOD, ROOT, toy_plan, trainer
from tests.test_container_runs import outcome_of

__all__ = ["either"]

pytestmark = [pytest.mark.slow, pytest.mark.nightly]

PASSWORD = "s3cret-of-the-registry"


@pytest.fixture
def shelf() -> Iterator[Registry]:
    with registry("ci", PASSWORD) as made:
        yield made


class Manager:
    """`python -m fixtures.images` with a site of its own."""

    def __init__(self, private: PrivateEngine, folder: Path, shelf: Registry) -> None:
        token = folder / "token"
        token.write_text(PASSWORD + "\n")
        token.chmod(0o600)
        self.site = folder / "site.toml"
        self.site.write_text(
            f'[container]\nengine = "{private.name}"\nurl = "{private.url}"\n'
            f'[container.registries."{shelf.name}"]\nuser = "ci"\nsecret = "REGISTRY"\n'
            f'[secrets]\nREGISTRY = {{ file = "{token}" }}\n'
        )
        self.argv = [sys.executable, "-m", "fixtures.images", "--engine", private.name]

    def __call__(self, *words: str, site: bool = True) -> tuple[int, str]:
        argv = [*self.argv, *(["--site", str(self.site)] if site else []), *words]
        done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False, env=self.env)
        assert PASSWORD not in done.stdout + done.stderr
        return done.returncode, done.stdout + done.stderr

    env: dict[str, str] | None = None


def allow_plain_http(private: PrivateEngine, shelf: Registry) -> None:
    """Docker takes a loopback registry for what it is; Podman has to be told."""
    if private.name == "podman":
        conf = private.folder / "registries.conf"
        conf.write_text(f'[[registry]]\nlocation = "{shelf.name}"\ninsecure = true\n')
        private.environment["CONTAINERS_REGISTRIES_CONF"] = str(conf)
        private.stop()
        private.start_again()


def test_pushed_pulled_and_run_by_digest(either: PrivateEngine, shelf: Registry, tmp_path: Path) -> None:
    allow_plain_http(either, shelf)
    engine, manager = connect(either), Manager(either, tmp_path, shelf)
    before = inventory(either)
    name = f"{shelf.name}/lab/base"
    found = image(engine, BASE)
    assert found is not None
    add_tag(engine, found.id, name, "1")
    code, said = manager("push", f"{name}:1")
    assert code == 0, said
    assert shelf.manifests and shelf.refused >= 1, "it asked for the login"
    remove_image(engine, f"{name}:1")
    digest = next(key for key in shelf.manifests if key.startswith("sha256:"))
    pinned = f"{name}@{digest}"
    told = outcome_of(run_in(either, tmp_path / "missing", pinned).folder)
    assert (told.status, told.category) == ("error", "provision")
    assert f"fetch it: python -m fixtures.images pull {pinned}" in told.reason
    code, said = manager("pull", pinned)
    assert code == 0, said
    runs = run_in(either, tmp_path / "there", pinned)
    assert outcome_of(runs.folder).status == "passed", outcome_of(runs.folder)
    assert f'"{pinned}"' in (runs.folder / "r1/environment.json").read_text()
    assert manager("rm", pinned)[0] == 0
    assert inventory(either) == before
    texts = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path.name != "token"]
    assert texts and not any(PASSWORD.encode() in text for text in texts)


def run_in(private: PrivateEngine, folder: Path, name: str) -> Runs:
    """A toy training in that image."""
    folder.mkdir()
    site = site_of(private, folder, images={"pytorch": name})
    return trainer(folder, site=site)(toy_plan(folder, GOOD, topology="1x1"))


def test_a_login_that_is_missing_or_wrong_is_one_sentence(
    either: PrivateEngine, shelf: Registry, tmp_path: Path
) -> None:
    allow_plain_http(either, shelf)
    manager = Manager(either, tmp_path, shelf)
    manager.env = {**os.environ, **either.variables}
    code, said = manager("pull", f"{shelf.name}/lab/base:1", site=False)
    assert code == 1 and "Traceback" not in said
    assert f"{shelf.name}/lab/base:1 cannot be pulled" in said.splitlines()[-1]
    manager.site.write_text(re.sub(r"\[secrets\].*", "", manager.site.read_text(), flags=re.DOTALL))
    code, said = manager("pull", f"{shelf.name}/lab/base:1")
    assert code == 4 and "[secrets] has no 'REGISTRY'" in said
