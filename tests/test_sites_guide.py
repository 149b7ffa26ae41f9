"""The cluster sites: values are the guide's, and a plan's sbatch and srun are the guide's but for what is listed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import pytest

from fixtures.site import Site, load_site
from fixtures.slurm_shown import job_lines, shown_job
from suite.catalog import load_catalog
from suite.plan import Plan, Request
from suite.selection import plans

ROOT = Path(__file__).resolve().parent.parent
SITES = ROOT / "fixtures" / "sites"
NAMES = ("azure-a100", "oci-a100", "oci-h100")
MODELS = ("alma", "gpt3", "vivit", "whisper")

EVERYWHERE = {
    "TRANSFORMERS_OFFLINE": "0",
    "TORCH_NCCL_AVOID_RECORD_STREAMS": "1",
    "NCCL_NVLS_ENABLE": "0",
    "NVTE_DP_AMAX_REDUCE_INTERVAL": "0",
    "NVTE_ASYNC_AMAX_REDUCTION": "1",
    "NVTE_FUSED_ATTN": "0",
}
"""The guide's tabs for NeMo: OCI A100 and OCI H100 set no more."""

AZURE = {
    **EVERYWHERE,
    "NCCL_TOPO_FILE": "/cm/shared/etc/ndv4-topo.xml",
    "NCCL_IB_PCI_RELAXED_ORDERING": "1",
    "NCCL_PROTO": "LL,LL128,Simple",
    "HYDRA_FULL_ERROR": "1",
    "OMPI_MCA_coll_hcoll_enable": "0",
    "UCX_TLS": "rc",
    "UCX_NET_DEVICES": ",".join(f"mlx5_{port}:1" for port in range(8)),
    "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    "NCCL_SOCKET_IFNAME": "eth0",
    "NCCL_ALGO": "Tree,Ring,CollnetDirect,CollnetChain,NVLS",
    "MELLANOX_VISIBLE_DEVICES": "all",
    "PMIX_MCA_gds": "hash",
    "PMIX_MCA_psec": "native",
}

VIVIT_EXPORTS = {
    "OMPI_MCA_coll_hcoll_enable": "0",
    "UCX_TLS": "tcp",
    "UCX_NET_DEVICES": "eth0",
    "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    "NCCL_SOCKET_IFNAME": "eth0",
    "NCCL_IB_PCI_RELAXED_ORDERING": "1",
    "NCCL_TOPO_FILE": "/cm/shared/etc/ndv4-topo.xml",
    "NCCL_PROTO": "LL,LL128,Simple",
    "NCCL_ALGO": "Tree,Ring,CollnetDirect,CollnetChain,NVLS",
    "MELLANOX_VISIBLE_DEVICES": "all",
    "PMIX_MCA_gds": "hash",
    "PMIX_MCA_psec": "native",
}
"""Of its batch script for ViViT."""

ALMA_EXPORTS = {
    "TRANSFORMERS_OFFLINE": "0",
    "TORCH_NCCL_AVOID_RECORD_STREAMS": "1",
    "NCCL_NVLS_ENABLE": "0",
    "NCCL_ASYNC_ERROR_HANDLING": "1",
}
"""Of its batch script for ALMA, the caches apart."""

HF_SCRIPT = {
    "job-name": "by hand",
    "nodes": "2",
    "gpus-per-node": "8",
    "account": "lab",
    "output": "%x_%j.out",
    "error": "%x_%j.err",
    "partition": "polar",
    "time": "01:00:00",
    "exclusive": "",
    "ntasks-per-node": "1",
}
"""ViViT and Whisper on two nodes."""

SBATCH: Mapping[str, Mapping[str, str]] = {
    "alma": {**HF_SCRIPT, "output": "%x-%j.out", "error": "%x-%j.err", "mem": "0"},
    "vivit": HF_SCRIPT,
    "whisper": HF_SCRIPT,
    "gpt3": {"account": "lab", "partition": "polar", "nodes": "2", "time": "0-02:00:00"},
}
"""The guide's options of sbatch; of GPT-3 those that it writes into the launcher's files."""

SRUN = {
    "l": "",
    "container-image": "IMAGE",
    "container-mounts": "/cm/shared/etc:/cm/shared/etc,WORKSPACE:/workspace",
    "container-workdir": "/workspace",
    "no-container-mount-home": "",
}
LAUNCHER_SETS = {"job-name", "gpus-per-node", "exclusive", "ntasks-per-node", "mem"}
"""What NeMo's launcher adds to its own job by itself."""


@cache
def planned() -> tuple[Plan, ...]:
    """Every plan of the guide's models on 2x8 A100."""
    request = Request(vendor="nvidia", machine="A100", models=MODELS, topologies=("2x8",))
    return tuple(plans(load_catalog(ROOT / "suite"), request))


def site(name: str, image: str = "IMAGE") -> Site:
    """A site with the reader's own account, partition and image filled in."""
    found = load_site(SITES / f"{name}.toml")
    slurm = found.slurm.model_copy(update={"account": "lab", "partition": "polar"})
    frameworks = {f"{plan.model}/{plan.framework}": image for plan in planned()}
    return found.model_copy(
        update={"slurm": slurm, "container": found.container.model_copy(update={"images": frameworks})}
    )


def flags(words: Sequence[str]) -> dict[str, str]:
    """Options by name; `--name=value` and `-l` alike."""
    parted = [word.lstrip("-").partition("=") for word in words if word.startswith("-")]
    return {name: value for name, _, value in parted}


def listed(command: str) -> set[str]:
    """The flags that README.md lists as different."""
    rows = [row.split("|")[1:-1] for row in (SITES / "README.md").read_text().splitlines() if row.startswith("|")]
    found = [cells[1] for cells in rows if len(cells) == 5 and cells[0].strip() == command]
    return {flag.strip().lstrip("-") for cell in found for flag in cell.split(",")}


def differing(guide: Mapping[str, str], here: Mapping[str, str]) -> set[str]:
    """Names of options that are not the same on both sides."""
    return {name for name in {*guide, *here} if guide.get(name) != here.get(name)}


def each_plan() -> Iterator[object]:
    """Every plan on every site."""
    for name in NAMES:
        for model in MODELS:
            yield pytest.param(name, model, id=f"{name}-{model}")


# --- values


@pytest.mark.parametrize(
    ("name", "machine", "environment"),
    [("azure-a100", "A100", AZURE), ("oci-a100", "A100", EVERYWHERE), ("oci-h100", "H100", EVERYWHERE)],
)
def test_a_site_says_what_the_guide_says(name: str, machine: str, environment: dict[str, str]) -> None:
    found = load_site(SITES / f"{name}.toml")
    assert found.environment == environment
    assert (found.launch.launcher, found.container.engine) == ("slurm", "pyxis")
    assert (found.slurm.machine, found.slurm.devices, found.slurm.nodes) == (machine, 8, 2)
    assert (found.slurm.account, found.slurm.partition) == ("", ""), "these are the reader's own"
    assert found.image_for("alma", "accelerate") == "/lustre/fs0/scratch/images/alma-24.01.sqsh"
    assert found.image_for("vivit", "accelerate") == found.image_for("whisper", "accelerate")
    assert found.image_for("alma", "pytorch") == "/lustre/fs0/scratch/images/pytorch.sqsh"
    assert found.image_for("gpt3", "nemo") is None, "the guide names none"


def test_where_the_guide_s_scripts_differ_from_its_cluster_s_tab() -> None:
    environment = load_site(SITES / "azure-a100.toml").environment
    assert {name for name, value in VIVIT_EXPORTS.items() if environment.get(name) != value} == {
        *("UCX_TLS", "UCX_NET_DEVICES"),
    }
    assert {name for name, value in ALMA_EXPORTS.items() if environment.get(name) != value} == {
        *("NCCL_ASYNC_ERROR_HANDLING",),
    }
    text = (SITES / "README.md").read_text()
    assert all(name in text for name in ("UCX_TLS=tcp", "UCX_NET_DEVICES=eth0", "NCCL_ASYNC_ERROR_HANDLING=1"))


# --- commands


@pytest.mark.parametrize(("name", "model"), [*each_plan()])
def test_sbatch_is_the_guide_s_but_for_what_is_listed(name: str, model: str) -> None:
    mine = [plan for plan in planned() if plan.model == model]
    assert mine, f"{model} has a plan on 2x8"
    for plan in mine:
        here = flags(job_lines(plan, site(name))[0])
        found = differing(SBATCH[model], here) - (LAUNCHER_SETS if model == "gpt3" else set())
        assert found <= listed("sbatch"), f"{plan.id} differs in what README.md does not list"
        assert here["account"] == "lab" and here["partition"] == "polar"
        assert (here["nodes"], here["gpus-per-node"], here["ntasks-per-node"]) == ("2", "8", "1")


def test_the_list_of_sbatch_holds_nothing_that_is_equal() -> None:
    by_model = [differing(SBATCH[p.model], flags(job_lines(p, site("azure-a100"))[0])) for p in planned()]
    assert listed("sbatch") <= set().union(*by_model)


@pytest.mark.parametrize(("name", "model"), [*each_plan()])
def test_srun_is_the_guide_s_but_for_what_is_listed(name: str, model: str) -> None:
    for plan in (plan for plan in planned() if plan.model == model):
        here = flags(job_lines(plan, site(name))[2])
        assert differing(SRUN, here) == listed("srun"), plan.id
        assert here["container-image"] == "IMAGE"
        assert "no-container-mount-home" in here
        assert "/cm/shared:/cm/shared" in here["container-mounts"].split(",")


def test_every_plan_prints_its_sbatch() -> None:
    argv = [sys.executable, "-m", "pytest", "suite", "-p", "no:cacheprovider", "--vendor", "nvidia", "--plan"]
    argv += [word for model in MODELS for word in ("--model", model)]
    argv += ["--topology", "2x8", "--site", str(SITES / "azure-a100.toml")]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    printed = [line for line in done.stdout.splitlines() if line.startswith("    sbatch ")]
    names = [plan.id for plan in planned()]
    assert {plan.model for plan in planned()} == set(MODELS)
    assert [f"--job-name=tm-{name}-RUN" in line for name, line in zip(names, printed, strict=True)] == [True] * len(
        names
    )
    assert "--container-workdir=RUN --no-container-mount-home" in done.stdout


def test_without_a_scheduler_no_job_is_shown() -> None:
    assert shown_job(planned()[0], Site()) == ()
    local = load_site(SITES / "slurm-gpu.toml")
    assert len(shown_job(planned()[0], local)) == 2, "no container, no step of its own"
