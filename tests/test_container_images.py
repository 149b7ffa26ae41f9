"""Images: found by the hash of their content, built once, and nothing left of what fails."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fixtures import images
from fixtures.container_image import digest_of, find_recipe, provide_recipe, read_recipe, recipe_tag, repository_name
from fixtures.engine import Container, EngineProblem
from fixtures.engine_build import image, remove_image, split_reference
from fixtures.engine_config import host_config
from fixtures.site import Policy, Site
from suite.errors import UsageProblem
from tests.container.engines import connect, dockerd, either, inventory, recipe, site_of
from tests.container.private_engine import PrivateEngine
from tests.launch_toy import GOOD, ROOT, TRAIN, toy_plan, trainer
from tests.test_container_runs import outcome_of, vendor_with

__all__ = ["dockerd", "either"]

SMALL = "ARG BASE=host:base\nFROM ${BASE}\nRUN echo built > /built\n"
INSTALL = "set -e\ncat /built\necho installed > /installed\n"


def test_the_tag_follows_the_content_and_nothing_else(tmp_path: Path) -> None:
    folder = recipe(tmp_path, SMALL, INSTALL)
    site = Site()
    found = read_recipe(folder, "trainmark-cpu-pytorch", "pytorch")
    first = recipe_tag(found, site)
    os.utime(folder / "Dockerfile", (1, 1))
    assert recipe_tag(found, site) == first
    (folder / "pytorch_install.sh").write_text(INSTALL + "# changed\n")
    assert recipe_tag(found, site) != first
    stranger = site.model_copy(update={"policy": Policy(trust_vendor_code=False)})
    assert recipe_tag(found, stranger) == "untrusted-" + recipe_tag(found, site)


def test_an_executable_bit_and_a_name_count(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    plain = digest_of([], [tmp_path])
    (tmp_path / "a").chmod(0o755)
    executable = digest_of([], [tmp_path])
    (tmp_path / "a").rename(tmp_path / "b")
    assert len({plain, executable, digest_of([], [tmp_path])}) == 3


def test_a_version_of_a_framework_has_a_folder_of_its_own(tmp_path: Path) -> None:
    recipe(tmp_path, SMALL, INSTALL, name="pytorch_1.13")
    place = tmp_path / "images" / "pytorch_1.13"
    (place / "pytorch_1.13_install.sh").rename(place / "pytorch_install.sh")
    found = find_recipe({"trainmark-acme": tmp_path / "images"}, "pytorch_1.13")
    assert found.install is not None and found.install.name == "pytorch_install.sh"
    assert found.repository == "trainmark-acme-pytorch-1-13"
    with pytest.raises(UsageProblem, match=r"no image 'pytorch_1.12'.*did you mean 'pytorch_1.13'"):
        find_recipe({"trainmark-acme": tmp_path / "images"}, "pytorch_1.12")


def test_a_case_s_own_image_goes_before_the_vendors(tmp_path: Path) -> None:
    recipe(tmp_path / "vendor", SMALL)
    own = recipe(tmp_path / "case", SMALL)
    folders = {"trainmark-acme-alma": tmp_path / "case/images", "trainmark-acme": tmp_path / "vendor/images"}
    assert find_recipe(folders, "pytorch").folder == own


def test_an_install_script_of_another_name_is_not_left_out_in_silence(tmp_path: Path) -> None:
    folder = recipe(tmp_path, SMALL)
    (folder / "torch_install.sh").write_text("true\n")
    with pytest.raises(UsageProblem, match=r"torch_install.sh: the install script of pytorch is pytorch_install.sh"):
        read_recipe(folder, "x", "pytorch")


def test_names_that_engines_take() -> None:
    assert repository_name("trainmark-BI-V100_pytorch_1.13") == "trainmark-bi-v100-pytorch-1-13"
    assert split_reference("reg.example:5000/a/b:1") == ("reg.example:5000/a/b", "1")
    assert split_reference("reg.example:5000/a/b") == ("reg.example:5000/a/b", "latest")
    assert split_reference("a@sha256:12") == ("a", "sha256:12")


def test_built_once_and_found_again(either: PrivateEngine, tmp_path: Path) -> None:
    engine, site = connect(either), site_of(either, tmp_path)
    before = inventory(either)
    found = read_recipe(recipe(tmp_path, SMALL, INSTALL), "trainmark-toy-pytorch", "pytorch")
    first = provide_recipe(engine, found, site, tmp_path / "logs", 120)
    again = provide_recipe(engine, found, site, tmp_path / "logs", 120)
    assert (first.built, again.built) == (True, False)
    assert first.id == again.id or first.reference == again.reference
    said = next((tmp_path / "logs").iterdir()).read_text()
    assert "building trainmark-toy-pytorch:" in said and "pytorch_install.sh" in said and "built" in said
    (found.folder / "Dockerfile").write_text(SMALL + "RUN echo more\n")
    changed = provide_recipe(engine, found, site, tmp_path / "logs", 120)
    assert changed.built and changed.reference != first.reference
    for each in (changed, first):
        remove_image(engine, each.reference)
    containers, _, networks = inventory(either)
    assert (containers, networks) == (before[0], before[2])


BROKEN = "FROM host:base\nRUN echo one\nRUN echo last words; exit 3\n"
FAILING: dict[str, tuple[str, str | None, str]] = {
    "the Dockerfile": (BROKEN, None, "returned a non-zero code: 3|exit status 3"),
    "the base": ("FROM nobody/has-this:1\n", None, r"pytorch/Dockerfile: .*"),
    "the install script": (SMALL, "echo last words >&2; exit 7\n", "pytorch_install.sh: left with status 7"),
}


@pytest.mark.parametrize("what", FAILING)
def test_a_failed_build_is_a_provision_error_with_the_last_lines(
    either: PrivateEngine, tmp_path: Path, what: str
) -> None:
    dockerfile, install, reason = FAILING[what]
    before = inventory(either)
    place, catalog = vendor_with(tmp_path, "")
    recipe(place, dockerfile, install)
    site = site_of(either, tmp_path, images={})
    outcome = outcome_of(
        trainer(tmp_path, site=site, catalog=catalog)(toy_plan(tmp_path, GOOD, topology="1x1", vendor_dir=place)).folder
    )
    import re

    assert (outcome.status, outcome.category) == ("error", "provision")
    assert re.search(reason, outcome.reason), outcome.reason
    assert what == "the base" or any("last words" in line for line in outcome.log_tail)
    assert list((tmp_path / "session/images").iterdir()), "the log is kept with the session"
    assert inventory(either) == before


def prepared_vendor(folder: Path, *, setup: str, requirements: str = "") -> tuple[Path, Any, dict[str, Any]]:
    """A vendor whose folder of the toy case has csrc/ and requirements.txt."""
    place, catalog = vendor_with(folder, "")
    case = place / "toy" / "pytorch"
    (case / "csrc").mkdir(parents=True)
    (case / "csrc" / "acme_kernels.py").write_text("ANSWER = 42\n")
    (case / "csrc" / "setup.py").write_text(setup)
    (case / "requirements.txt").write_text(requirements)
    return place, catalog, {"vendor_dir": place, "vendor_case_dir": case}


SETUP = "from setuptools import setup\nsetup(name='acme-kernels', version='1', py_modules=['acme_kernels'])\n"
USES = TRAIN + "import acme_kernels; print('answer', acme_kernels.ANSWER, flush=True); steps(1); stop()\n"


def test_csrc_is_built_once_into_a_prepared_image(dockerd: PrivateEngine, tmp_path: Path) -> None:
    pytest.importorskip("setuptools")
    place, catalog, folders = prepared_vendor(tmp_path, setup=SETUP, requirements="# nothing but words\n")
    site = site_of(dockerd, tmp_path)
    for turn in (1, 2):
        runs = trainer(tmp_path, site=site, catalog=catalog)(toy_plan(tmp_path, USES, topology="1x1", **folders))
        assert outcome_of(runs.folder).status == "passed", outcome_of(runs.folder)
        assert "answer 42" in (runs.folder / "r1/logs/rank0.log").read_text(), turn
    logs = [path for path in (tmp_path / "session/images").iterdir() if "prepared" in path.name]
    assert len(logs) == 1 and logs[0].read_text().count("step csrc took") == 1
    assert not list((place / "toy/pytorch/csrc").glob("build")), "the sources are only read"
    for name in inventory(dockerd)[1]:
        if "prepared" in name:
            remove_image(connect(dockerd), name)


def test_a_failed_csrc_build_fails(dockerd: PrivateEngine, tmp_path: Path) -> None:
    before = inventory(dockerd)
    _, catalog, folders = prepared_vendor(tmp_path, setup="raise SystemExit('no compiler for this chip')\n")
    plan = toy_plan(tmp_path, GOOD, topology="1x1", **folders)
    outcome = outcome_of(trainer(tmp_path, site=site_of(dockerd, tmp_path), catalog=catalog)(plan).folder)
    assert (outcome.status, outcome.category) == ("error", "provision")
    assert "preparing" in outcome.reason and "left with status 1" in outcome.reason
    assert any("no compiler for this chip" in line for line in outcome.log_tail)
    assert inventory(dockerd) == before


def test_requirements_that_cannot_be_had_fail(dockerd: PrivateEngine, tmp_path: Path) -> None:
    before = inventory(dockerd)
    _, catalog, folders = prepared_vendor(tmp_path, setup=SETUP, requirements="no-such-package-of-anybody==0.0.1\n")
    site = site_of(dockerd, tmp_path, build_network="none")
    plan = toy_plan(tmp_path, GOOD, topology="1x1", **folders)
    outcome = outcome_of(trainer(tmp_path, site=site, catalog=catalog)(plan).folder)
    assert outcome.category == "provision" and any("no-such-package" in line for line in outcome.log_tail)
    assert inventory(dockerd) == before


def test_a_name_that_is_taken_is_nobody_s_end(dockerd: PrivateEngine, tmp_path: Path) -> None:
    engine, site = connect(dockerd), site_of(dockerd, tmp_path)
    found = read_recipe(recipe(tmp_path, SMALL, INSTALL), "trainmark-toy-pytorch", "pytorch")
    name = f"{found.repository}-{recipe_tag(found, site)}-making"
    container = Container(name=name, image="host:base", argv=("sleep", "60"), labels={})
    other = engine.create(container, host_config(engine, container, {}))
    before = inventory(dockerd)
    try:
        with pytest.raises(EngineProblem, match="already in use"):
            provide_recipe(engine, found, site, tmp_path / "logs", 120)
        assert inventory(dockerd) == before
        assert engine.state(other).status == "created"
    finally:
        engine.remove(other)


def manager(private: PrivateEngine, folder: Path, *words: str) -> subprocess.Popen[str]:
    """`python -m fixtures.images` with a site of its own."""
    site = folder / "site.toml"
    container = f'[container]\nengine = "{private.name}"\nurl = "{private.url}"\n'
    site.write_text(f'{container}[lease]\ndir = "{folder}/leases"\n')
    argv = [sys.executable, "-m", "fixtures.images", "--site", str(site), "--engine", private.name, *words]
    return subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_two_sessions_build_one_image_once(dockerd: PrivateEngine, tmp_path: Path) -> None:
    folder = recipe(tmp_path, SMALL, INSTALL + "sleep 1\n")
    name = ("-i", "flagperf-acme-pytorch", "-t", "t_v0.1")
    words = ("build", "-d", str(folder), "-f", "pytorch", *name, "--log", str(tmp_path / "l"))
    both = [manager(dockerd, tmp_path, *words) for _ in range(2)]
    said = [process.communicate(timeout=120)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert sorted("was there already" in text for text in said) == [False, True]
    assert image(connect(dockerd), "flagperf-acme-pytorch:t_v0.1") is not None
    exists = manager(dockerd, tmp_path, "exists", "-d", str(folder), "-i", "flagperf-acme-pytorch", "-t", "t_v0.1")
    assert exists.communicate(timeout=60)[0].strip().endswith("exists") and exists.returncode == 0
    listed = manager(dockerd, tmp_path, "list").communicate(timeout=60)[0]
    assert "flagperf-acme-pytorch:t_v0.1" in listed
    pruned = manager(dockerd, tmp_path, "prune").communicate(timeout=60)[0]
    assert "removed flagperf-acme-pytorch:t_v0.1" in pruned
    assert not any("acme" in name for name in inventory(dockerd)[1])
    gone = manager(dockerd, tmp_path, "exists", "-d", str(folder), "-f", "pytorch")
    assert "does not exist" in gone.communicate(timeout=60)[0] and gone.returncode == 1


def test_a_full_disk_ends_a_build_and_leaves_nothing(tmp_path: Path) -> None:
    from tests.container.host_image import import_image
    from tests.container.private_engine import missing, private_engine

    if reason := missing("docker"):
        pytest.skip(reason)
    with private_engine("docker", disk_mb=160) as small:
        import_image(small.url, "host", "base")
        before = inventory(small)
        folder = recipe(tmp_path, "FROM host:base\nRUN head -c 400000000 /dev/zero > /big\n")
        found = read_recipe(folder, "full", "pytorch")
        with pytest.raises(EngineProblem, match=r"non-zero code|[Nn]o space left") as caught:
            provide_recipe(connect(small), found, site_of(small, tmp_path), tmp_path / "logs", 120)
        assert any("No space left on device" in line for line in caught.value.lines)
        assert inventory(small) == before


def test_wrong_words_are_one_sentence(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    url = f"unix://{tmp_path}/nothing"
    site = tmp_path / "site.toml"
    site.write_text(f'[container]\nengine = "docker"\nurl = "{url}"\n')
    assert images.main(["--site", str(site), "list"]) == 1
    assert f"docker does not answer at {url}" in capsys.readouterr().err
    assert images.main(["--site", str(tmp_path / "no.toml"), "list"]) == 4


@pytest.mark.nightly
@pytest.mark.slow
def test_a_self_contained_image_trains_with_nothing_of_the_hosts_python(dockerd: PrivateEngine, tmp_path: Path) -> None:
    """The shipped recipe of cpu/pytorch, on a base without packages: build, install, commit, and a real training."""
    import json

    from tests.container.host_image import import_image

    base = import_image(dockerd.url, "host", "python", python=True)
    site = tmp_path / "site.toml"
    site.write_text(
        f'[container]\nengine = "docker"\nurl = "{dockerd.url}"\nbuild_network = "host"\n'
        f'build_args = {{ BASE = "{base}" }}\n[lease]\ndir = "{tmp_path}/leases"\n'
    )
    words = ("suite", "-k", "glm and 1x1", "--vendor", "cpu", "--site", str(site), "--session", str(tmp_path / "s"))
    argv = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *words, "--mode", "throughput"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=1500, check=False)
    assert done.returncode == 5, done.stdout[-3000:]
    run = next((tmp_path / "s").glob("glm-*/r1"))
    result = json.loads((run.parent / "result.json").read_text())
    assert result["outcome"]["category"] == "no_threshold" and result["metrics"]["steps"]["value"] == 120
    header = json.loads((run / "events" / "rank0.jsonl").read_text().splitlines()[0])
    record = json.loads((run / "container-node0.json").read_text())
    assert header["host"] == record["hostname"]
    command = (run / "command.txt").read_text()
    assert " python3 -m torch.distributed.run" in command and sys.prefix not in command
    assert json.loads((run / "environment.json").read_text())["image"].startswith("trainmark-cpu-")
