"""What a vendor's folder may do: told in one sentence before anything starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures.container import require_trust
from fixtures.secrets import HIDDEN, SecretSource, looks_secret, read_secret, redact, shown_value
from fixtures.site import Container, Data, Policy, Site
from suite.errors import UsageProblem
from suite.plan import Plan
from tests.launch_toy import toy_plan
from tests.test_container_runs import vendor_with
from tests.user_toy import CPU, FILES, Checkout, make_checkout


def plan_of(folder: Path, options: str) -> Plan:
    place, _ = vendor_with(folder, f"options = [{options}]")
    return toy_plan(folder, vendor_dir=place)


def site(*allowed: Any, **more: Any) -> Site:
    policy = Policy(container=allowed)
    return Site(container=Container(engine="docker"), policy=policy, path="site.toml", **more)


ASKED = {
    '"--privileged"': ("privileged", "--privileged"),
    '"--net=host"': ("host_network", "--network host"),
    '"--network", "bridge"': ("host_network", "--network bridge"),
    '"--ipc=host"': ("host_namespaces", "--ipc host"),
    '"--pid=host"': ("host_namespaces", "--pid host"),
    '"-v", "/etc:/etc:ro"': ("host_mounts", "the mount /etc:/etc:ro"),
    '"--cap-add=SYS_PTRACE"': ("capabilities", "--cap-add SYS_PTRACE"),
    '"--security-opt", "seccomp=unconfined"': ("capabilities", "--security-opt seccomp=unconfined"),
    '"--runtime=acme"': ("runtime", "--runtime acme"),
    '"--device=/dev/mem"': ("privileged", "the device /dev/mem"),
    '"--device=/dev/*"': ("privileged", "the device /dev/*"),
    '"--device=/dev/../etc"': ("privileged", "the device /dev/../etc"),
    '"--device=/etc/shadow"': ("privileged", "the device /etc/shadow"),
}


@pytest.mark.parametrize("options", ASKED)
def test_what_goes_beyond_devices_needs_the_site(tmp_path: Path, options: str) -> None:
    permission, words = ASKED[options]
    plan = plan_of(tmp_path, options)
    with pytest.raises(UsageProblem) as caught:
        require_trust(plan, site())
    sentence = str(caught.value)
    assert f"[container] asks for {words}, which the site has to allow" in sentence
    assert f'add "{permission}" to [policy] container in site.toml, or remove it' in sentence
    require_trust(plan, site(permission))


@pytest.mark.parametrize(
    "options",
    ['"--gpus=all"', '"--device=/dev/null"', '"--device", "acme.com/gpu=all"', '"-e", "A=1"', '"--shm-size=1g"'],
)
def test_devices_and_environment_need_nobody(tmp_path: Path, options: str) -> None:
    require_trust(plan_of(tmp_path, options), site())


def test_a_mount_within_the_data_is_the_runs_own(tmp_path: Path) -> None:
    (tmp_path / "data" / "toy").mkdir(parents=True)
    plan = plan_of(tmp_path, f'"-v", "{tmp_path}/data/toy:/mnt:ro"')
    require_trust(plan, site(data=Data(default=str(tmp_path / "data"))))
    escaping = plan_of(tmp_path / "b", f'"-v", "{tmp_path}/data/../..:/mnt"')
    with pytest.raises(UsageProblem, match="the mount"):
        require_trust(escaping, site(data=Data(default=str(tmp_path / "data"))))


def test_what_the_site_says_itself_needs_no_consent(tmp_path: Path) -> None:
    own = Site(container=Container(engine="docker", options=("--privileged", "--net=host")))
    require_trust(plan_of(tmp_path, '"--gpus=all"'), own)


def test_a_secret_in_the_environment_file_is_refused(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, "").model_copy(update={"environment": {"HF_TOKEN": "abc"}})
    with pytest.raises(UsageProblem, match=r"HF_TOKEN, which looks like a secret; name it under \[secrets\]"):
        require_trust(plan, site())


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    asking = CPU + '[container]\noptions = ["--privileged"]\n'
    return make_checkout(tmp_path / "a clone", {**FILES, "suite/vendors/cpu/vendor.toml": asking})


def test_the_user_reads_one_sentence_and_exit_status_4(checkout: Checkout) -> None:
    done = checkout.pytest("suite", "-k", "toy", "--vendor", "cpu", "--container", "docker")
    assert done.code == 4
    assert "[container] asks for --privileged, which the site has to allow" in done.err
    assert "Traceback" not in done.out and not checkout.sessions()


def test_code_of_strangers_on_the_bare_host_is_refused_with_the_remedy(checkout: Checkout) -> None:
    checkout.write("suite/vendors/cpu/vendor.toml", CPU)
    checkout.write("suite/vendors/cpu/toy/pytorch/requirements.txt", "x\n")
    checkout.write("gate.toml", "[policy]\ntrust_vendor_code = false\n")
    done = checkout.pytest("suite", "-k", "toy", "--vendor", "cpu", "--site", "gate.toml")
    assert done.code == 4
    assert "run it in a container (--container docker), or set [policy] trust_vendor_code = true" in done.err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--container", "dokcer"), "did you mean 'docker'"),
        (("--container", "apptainer"), "'apptainer' is not known (have: docker, none, podman, pyxis)"),
        (
            ("--container", "docker", "--launcher", "slurm"),
            "--container docker is for --launcher local, and the launcher is slurm; say --container pyxis",
        ),
        (
            ("--container", "podman", "--launcher", "ssh", "--site", "hosts.toml"),
            "--container podman is for --launcher local, and the launcher is ssh; say --container none",
        ),
        (
            ("--container", "pyxis"),
            "--container pyxis starts with srun, and the launcher is local; say --launcher slurm",
        ),
    ],
)
def test_engines_that_cannot_serve(checkout: Checkout, arguments: tuple[str, ...], sentence: str) -> None:
    checkout.write("suite/vendors/cpu/vendor.toml", CPU)
    checkout.write("hosts.toml", '[hosts]\nnames = ["h1"]\n')
    done = checkout.pytest("suite", "-k", "toy", "--vendor", "cpu", *arguments)
    assert done.code == 4 and sentence in done.err, done.err


def test_a_missing_secret_is_told_before_anything_starts(checkout: Checkout) -> None:
    checkout.write("suite/vendors/cpu/vendor.toml", CPU)
    checkout.write("site.toml", '[secrets]\nHF_TOKEN = { env = "NOBODY_SET_THIS" }\n')
    done = checkout.pytest("suite", "-k", "toy", "--vendor", "cpu", "--site", "site.toml")
    assert done.code == 4 and "secret HF_TOKEN: the variable NOBODY_SET_THIS holds nothing" in done.err
    assert not checkout.sessions()


def test_a_plan_shows_the_container_and_no_secret(checkout: Checkout) -> None:
    checkout.write("suite/vendors/cpu/vendor.toml", CPU + '[container]\noptions = ["--shm-size=1g"]\n')
    checkout.write(
        "site.toml", '[container]\nengine = "podman"\n[environment]\nAPI_KEY = "hush"\nPLAIN = "http://u:hush@x/"\n'
    )
    done = checkout.pytest("suite", "-k", "toy and 1x1", "--vendor", "cpu", "--site", "site.toml", "--plan")
    assert done.code == 0, done.out
    confined = "--cap-drop=ALL --security-opt=no-new-privileges"
    assert f"podman run --rm --init --interactive {confined} --shm-size=1g --network=none --volume=" in done.out
    assert " --volume=RUN:RUN IMAGE env " in done.out and "no image 'pytorch': " in done.out, "the toy has no recipe"
    assert "python3 -m torch.distributed.run" in done.out
    assert "hush" not in done.out and f"API_KEY={HIDDEN}" in done.out


LEAKS = [
    "export HF_TOKEN=abcdef123",
    'docker login -p x --env AWS_SECRET_ACCESS_KEY="abcdef123"',
    "{'password': 'abcdef123'}",
    "Authorization: Bearer abcdef123",
    "https://user:abcdef123@index.example/simple",
    "--api-key=abcdef123",
    "-----BEGIN RSA PRIVATE KEY-----\nabcdef123\n-----END RSA PRIVATE KEY-----",
    "GITHUB_TOKEN: abcdef123",
]


@pytest.mark.parametrize("text", LEAKS)
def test_secrets_are_redacted_by_their_names(text: str) -> None:
    assert "abcdef123" not in redact(f"before {text} after")


@pytest.mark.parametrize(
    "text", ["tokens = 4096", "tokenizer=byte", "step 3 of token shards", "NCCL_PROTO=LL", "key = value", "a://b/c:d"]
)
def test_other_words_stay(text: str) -> None:
    assert redact(text) == text


@given(st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=4, max_size=40))
def test_a_known_value_is_redacted_wherever_it_stands(value: str) -> None:
    assert value not in redact(f"<{value}|{value}>", [value]).replace(HIDDEN, "")


def test_names_that_look_secret() -> None:
    for name in ("HF_TOKEN", "WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY", "DB_PASSWORD", "MY_CREDENTIALS"):
        assert looks_secret(name) and shown_value(name, "v") == HIDDEN, name
    for name in ("TOKENIZERS_PARALLELISM", "NCCL_DEBUG", "KEYBOARD", "OMP_NUM_THREADS"):
        assert not looks_secret(name) and shown_value(name, "v") == "v", name


def test_where_secrets_come_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "token"
    file.write_text("abc\n")
    file.chmod(0o600)
    monkeypatch.setenv("OUTER", "xyz")
    sources = {"A": SecretSource(env="OUTER"), "B": SecretSource(file=str(file)), "C": SecretSource(env="NOT_SET")}
    assert (read_secret("A", sources, "s"), read_secret("B", sources, "s")) == ("xyz", "abc")
    with pytest.raises(UsageProblem, match="secret C: the variable NOT_SET holds nothing"):
        read_secret("C", sources, "s")
    with pytest.raises(UsageProblem, match=r"\[secrets\] has no 'D'"):
        read_secret("D", sources, "s")
    file.chmod(0o644)
    with pytest.raises(UsageProblem, match=r"others may read .*chmod 600") as caught:
        read_secret("B", sources, "s")
    assert "abc" not in str(caught.value)
