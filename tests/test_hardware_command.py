"""A vendor whose devices are told by its own tool: probe, use, permission to run it, and `try-parser`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fixtures.faults.shebang import interpreter_line
from fixtures.hardware import device_use, probe
from fixtures.site import Policy, Site
from fixtures.tool_probe import require_listed
from suite.catalog import VendorFolder, load_catalog
from suite.errors import UsageProblem
from tests.launch_toy import ROOT

HEAD = """
title = "Acme"
topologies = ["1x1"]
[device]
type = "cpu"
backend = "gloo"
identity = "pci"
visible_devices = "ACME_VISIBLE"
"""

TOOL = """#!{python}
import sys
if "--list" in sys.argv:
    print("idx;bus;model;mem;fw")
    print("0;0000:5e:00.0;Acme A1;64 GiB;7.1")
    print("1;0000:3b:00.0;Acme A1;N/A;7.1")
else:
    print('[{{"bus": "00000000:3B:00.0", "used": 12, "procs": [41]}}, {{"bus": "00000000:5E:00.0", "used": null}}]')
"""

TABLES = """
[probe]
method = "command"
command = ["{tool}", "--list"]
format = "csv"
delimiter = ";"
[probe.fields]
index = "idx"
pci = "bus"
name = "model"
memory_total_bytes = "mem"
driver_version = "fw"
[monitor]
method = "command"
command = ["{tool}"]
format = "json"
[monitor.fields]
pci = "bus"
memory_bytes = {{ column = "used", unit = "MiB" }}
pids = "procs"
"""


def acme(folder: Path, tables: str = TABLES, code: str = TOOL) -> VendorFolder:
    """A vendor outside the checkout, with its tool."""
    vendor, tool = folder / "acme", folder / "acme-smi"
    vendor.mkdir()
    tool.write_text(code.format(python=interpreter_line()), encoding="utf-8")
    tool.chmod(0o755)
    (vendor / "vendor.toml").write_text(HEAD + tables.format(tool=tool), encoding="utf-8")
    return load_catalog(ROOT / "suite", [vendor]).vendor("acme")


def test_devices_come_in_the_order_of_the_bus(tmp_path: Path) -> None:
    found = probe(acme(tmp_path), environ={})
    assert (found.problem, found.driver_version, found.device_name) == ("", "7.1", "Acme A1")
    assert [(d.key, d.index, d.memory_bytes) for d in found.devices] == [
        ("0000:3b:00.0", 1, None),
        ("0000:5e:00.0", 0, 64 << 30),
    ]
    bounded = probe(load_catalog(ROOT / "suite", [tmp_path / "acme"]).vendor("acme"), environ={"ACME_VISIBLE": "0"})
    assert [device.pci for device in bounded.devices] == ["0000:5e:00.0"]


def test_what_occupies_the_devices_now(tmp_path: Path) -> None:
    vendor = acme(tmp_path)
    use = device_use(probe(vendor, environ={}).devices, vendor)
    assert (use["0000:3b:00.0"].used_bytes, use["0000:3b:00.0"].pids) == (12 << 20, (41,))
    assert (use["0000:5e:00.0"].used_bytes, use["0000:5e:00.0"].pids) == (None, ())


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("#!{python}\nraise SystemExit('no driver')\n", "exit status 1: no driver"),
        ("#!{python}\nprint('nothing found')\n", "finds no row"),
        ("#!{python}\nimport time; time.sleep(60)\n", "did not answer within 0.4 s and was killed"),
        ("no program\n", "cannot be run"),
    ],
)
def test_a_tool_that_does_not_work_is_said_and_never_raised(tmp_path: Path, code: str, words: str) -> None:
    found = probe(acme(tmp_path, TABLES.replace("[probe]", "[probe]\ntimeout_s = 0.4"), code), environ={})
    assert found.devices == ()
    assert found.problem.startswith(f"no devices of acme can be used: {tmp_path}/acme-smi: ")
    assert words in found.problem


def monitor(*lines: str, command: str = '["x"]', fields: str = 'index = "i"') -> str:
    """A [monitor] of the method `command`."""
    table = ["[monitor]", 'method = "command"', f"command = {command}", *lines, "[monitor.fields]", fields]
    return "\n".join(table) + "\n"


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        ('[monitor]\nmethod = "command"\n', "monitor: command, format and fields are needed by method 'command'"),
        (monitor(), "monitor: format is missing: it says how the output of 'x' is read"),
        (monitor('format = "csv"', fields='power_w = "p"'), "fields name no uuid, pci, serial or index"),
        (monitor('format = "csv"', fields='pwer_w = "p"'), "pwer_w"),
        (monitor('format = "regex"'), "pattern is missing: format 'regex' needs one"),
        (monitor('format = "json"', "lines = 2"), "lines has no meaning for format 'json', only for table"),
        (
            monitor('format = "csv"', fields='index = "i"\npower_w = {{ column = "p", unit = "V" }}'),
            "monitor.fields.power_w",
        ),
        (
            monitor('format = "csv"', command='["x", "{{index}}"]').replace("monitor", "probe"),
            "no command can name a device before the devices are known",
        ),
    ],
)
def test_a_mistake_in_the_tables_names_file_and_key(tmp_path: Path, tables: str, words: str) -> None:
    with pytest.raises(UsageProblem) as told:
        print(acme(tmp_path, tables).spec)
    assert "acme/vendor.toml: " in str(told.value)
    assert words in str(told.value)


def test_a_host_program_needs_the_sites_permission(tmp_path: Path) -> None:
    vendor, tool = acme(tmp_path), str(tmp_path / "acme-smi")
    require_listed(vendor, Site())
    closed = Site(path="ci.toml", policy=Policy(trust_vendor_code=False, host_commands=("/usr/bin/other",)))
    with pytest.raises(UsageProblem) as told:
        require_listed(vendor, closed)
    assert str(told.value) == (
        f"vendor acme wants to run {tool} on the host; ci.toml allows only: /usr/bin/other. Add it to [policy]"
        ' host_commands, or set probe.where = "sandbox" and use a container'
    )
    require_listed(vendor, Site(policy=Policy(trust_vendor_code=False, host_commands=(tool,))))
    require_listed(load_catalog(ROOT / "suite").vendor("cpu"), closed)


def try_parser(*arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fixtures.hardware", "try-parser", *arguments]
    return subprocess.run(command, cwd=ROOT, input=text, capture_output=True, text=True, timeout=60)


def test_try_parser_prints_the_table(tmp_path: Path) -> None:
    acme(tmp_path)
    where = ("--vendor", "acme", "--vendor-path", str(tmp_path / "acme"))
    sample = tmp_path / "sample.json"
    sample.write_text('[{"bus": "0000:3b:00.0", "used": 1.5, "procs": []}, {"bus": "0000:5e:00.0", "used": "N/A"}]')
    good = try_parser(*where, str(sample))
    assert (good.returncode, good.stderr) == (0, "")
    head, _, first, second = (line.split() for line in good.stdout.splitlines())
    assert head == ["pci", "memory_bytes", "pids"]
    assert first == ["0000:3b:00.0", "1572864", "[]"]
    assert second == ["0000:5e:00.0", "null", "[]"]
    listed = try_parser(*where, "--table", "probe", "-", text="idx;bus;model;mem;fw\n0;5e:00.0;A1;lots;7\n")
    assert listed.returncode == 1
    assert listed.stderr == "-: memory_total_bytes: 'lots' is not a number\n"
    assert "A1" in listed.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--vendor", "cpu", "x"), 4, "vendor cpu: monitor.method = 'proc' reads no tool; it must be 'command'"),
        (("--vendor", "cpo", "x"), 4, "did you mean 'cpu'"),
        (("--vendor", "acme", "nowhere.txt"), 4, "nowhere.txt: cannot be read: No such file or directory"),
        (("--vendor", "acme", "--source", "3", "x"), 4, "--source 3: monitor has 1 tools"),
        (("--vendor", "acme", "-"), 1, "-: format = 'json': the output is none"),
    ],
)
def test_try_parser_says_what_is_wrong(tmp_path: Path, arguments: tuple[str, ...], code: int, words: str) -> None:
    acme(tmp_path)
    told = try_parser("--vendor-path", str(tmp_path / "acme"), *arguments, text="oops")
    assert told.returncode == code
    assert words in told.stderr
    assert "Traceback" not in told.stderr


def test_try_parser_gives_up_on_a_pattern_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fixtures import tool_probe

    spec = acme(tmp_path, monitor('format = "regex"', 'pattern = "(?P<i>(a+)+)$"')).spec
    told = tool_probe.read_text(spec.monitor.sources[0], "a" * 60 + "!", limit_s=1)
    assert told == {"problem": "the parser did not answer within 1 s"}
