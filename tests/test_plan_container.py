"""`--plan` shows the container that a run would start in, or says which key of the site is missing."""

from __future__ import annotations

import re
import shlex
from functools import cache
from pathlib import Path

import pytest

from fixtures.container_shown import lacking, remarks
from fixtures.mounts import mounts_of
from fixtures.plan_text import plan_lines
from fixtures.site import Container, Data, Launch, Site, load_site
from fixtures.slurm_shown import job_lines
from fixtures.topology import describe
from suite.catalog import VendorFolder, load_catalog
from suite.plan import Plan, Request
from suite.selection import plans

ROOT = Path(__file__).resolve().parent.parent
SITES = ROOT / "fixtures" / "sites"
GUIDE = ("azure-a100", "oci-a100", "oci-h100")
MODELS = ("alma", "bert", "gpt3")


@cache
def planned() -> tuple[Plan, ...]:
    """All plans of these models on two nodes of eight A100: three frameworks."""
    request = Request(vendor="nvidia", machine="A100", models=MODELS, topologies=("2x8",))
    return tuple(plans(load_catalog(ROOT / "suite"), request))


def plan_of(model: str, framework: str) -> Plan:
    """One of them."""
    return next(plan for plan in planned() if (plan.model, plan.framework) == (model, framework))


def vendor_of(plan: Plan) -> VendorFolder:
    """The folder of its vendor."""
    return VendorFolder(plan.vendor_dir, plan.case_dir.parents[2])


def pyxis(data: str = "", **container: object) -> Site:
    """A site of Slurm with pyxis."""
    return Site(
        launch=Launch(launcher="slurm"),
        data=Data(default=data),
        container=Container.model_validate({"engine": "pyxis", "squash_dir": "/shared", **container}),
    )


def option(words: list[str], name: str) -> str:
    """The value of `--name=value`."""
    return next(word for word in words if word.startswith(f"--{name}=")).partition("=")[2]


@pytest.mark.parametrize("name", GUIDE)
def test_no_plan_of_the_guide_s_sites_shows_the_name_of_a_framework_as_an_image(name: str) -> None:
    site = load_site(SITES / f"{name}.toml")
    for plan in planned():
        image = option(shlex.split(describe(plan, site)[0]), "container-image")
        told = lacking(plan, vendor_of(plan), site)
        assert image.endswith(".sqsh") or (image == "IMAGE" and told), plan.id
        assert "{run_dir}" not in "\n".join(plan_lines(plan, site)), plan.id


def test_a_site_without_an_image_is_told_the_key() -> None:
    plan, site = plan_of("gpt3", "nemo"), load_site(SITES / "azure-a100.toml")
    lines = list(plan_lines(plan, site))
    said = lines[lines.index("  missing") + 1]
    assert "name it as nemo under [container.images] of " in said and "azure-a100.toml" in said
    assert "--container-image=IMAGE " in "\n".join(lines)


def test_the_image_of_a_registry_is_the_file_that_it_is_imported_into() -> None:
    site = pyxis(images={"nemo": "lab/nemo:24.05"})
    words = shlex.split(describe(plan_of("gpt3", "nemo"), site)[0])
    assert option(words, "container-image") == "/shared/lab_nemo_24.05.sqsh"
    assert not lacking(plan_of("gpt3", "nemo"), vendor_of(plan_of("gpt3", "nemo")), site)


def test_a_site_without_a_folder_of_images_is_told_so_in_the_plan() -> None:
    site = pyxis(squash_dir="", images={"nemo": "lab/nemo:24.05"})
    (said,) = lacking(plan_of("gpt3", "nemo"), vendor_of(plan_of("gpt3", "nemo")), site)
    assert "needs [container] squash_dir" in said


def test_what_nothing_can_be_added_to_must_be_named_for_the_case() -> None:
    plan = plan_of("bert", "pytorch")
    (said,) = lacking(plan, vendor_of(plan), pyxis(images={"pytorch": "/shared/pytorch.sqsh"}))
    assert "nvidia/bert/pytorch/requirements.txt: --container pyxis adds nothing to an image" in said
    assert '"bert/pytorch" under [container.images]' in said
    assert not lacking(plan, vendor_of(plan), pyxis(images={"bert/pytorch": "/shared/bert.sqsh"}))


def test_code_and_data_are_mounted_in_the_step_and_in_the_command() -> None:
    plan = plan_of("bert", "pytorch")
    site = pyxis("/lustre/data", images={"pytorch": "/shared/pytorch.sqsh"})
    own = [f"{mount.path}:{mount.inside}:ro" for mount in mounts_of(plan, Path("/lustre/data"))]
    assert f"{ROOT}/suite:{ROOT}/suite:ro" in own and "/lustre/data:/lustre/data:ro" in own
    for words in (shlex.split(describe(plan, site)[0]), list(job_lines(plan, site)[2])):
        mounts = option(words, "container-mounts").split(",")
        assert mounts == [*own, "RUN:RUN"]


def test_docker_shows_the_tag_of_the_recipe_its_mounts_and_what_is_added() -> None:
    plan = plan_of("bert", "pytorch")
    site = Site(container=Container(engine="docker"), data=Data(default="/data"))
    line = describe(plan, site)[0]
    assert re.search(r" trainmark-nvidia-pytorch:[0-9a-f]{16} env ", line)
    assert " --volume=/data:/data:ro " in line and f" --volume={ROOT}/suite:{ROOT}/suite:ro " in line
    assert " --cap-drop=ALL " in line and " --volume=RUN:RUN " in line
    (said,) = remarks(plan, vendor_of(plan), site)
    assert "nvidia/bert/pytorch/requirements.txt" in said


def test_a_framework_without_a_recipe_is_told_so() -> None:
    plan, site = plan_of("gpt3", "nemo"), Site(container=Container(engine="docker"))
    (said,) = lacking(plan, vendor_of(plan), site)
    assert said.startswith("no image 'nemo': ")
    assert " IMAGE env " in describe(plan, site)[0]


def test_what_a_run_fills_in_is_filled_in() -> None:
    plan, site = plan_of("alma", "accelerate"), load_site(SITES / "azure-a100.toml")
    lines = "\n".join(plan_lines(plan, site))
    assert "    HF_DATASETS_CACHE=RUN/.cache/huggingface_cache/datasets" in lines
    assert not re.search(r"\{(seed|run_dir|data_dir|case_dir)\}", lines)
