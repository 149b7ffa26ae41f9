"""A checkout of many invented cases around the harness, which is there by link; nothing in it is ever trained."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MACHINE = "M1"

_CASE = """title = "An invented case"
measurement_version = 1
samples_unit = "image"
mutable = ["lr", "train_batch_size"]
estimate_s = 60
[quality]
metric = "accuracy"
better = "higher"
unit = "fraction"
[params]
gradient_accumulation_steps = 1
lr = 0.1
precision = "fp32"
train_batch_size = 8
[target]
value = 0.7
source = "nobody"
[limit]
time_to_train_s = 600
source = "nobody"
"""
_TEST = '''def test_case(plan, train, judge):
    """An invented case reaches its target."""
    judge(train(plan))
'''
_TRAIN = '"""Never run."""\n'
_VENDOR = """title = "An invented chip"
verified = false
default_preset = "full"
topologies = ["1x1"]
[device]
type = "cpu"
backend = "gloo"
shared = true
[probe]
method = "host"
"""


def make_checkout(root: Path, cases: int, configs: int) -> None:
    """`cases` cases with `configs` configurations each, of the topologies 1x1, 1x2 …; `root` must not exist."""
    (root / "suite").mkdir(parents=True)
    for path in (ROOT / "suite").iterdir():
        if path.suffix == ".py" or path.name in ("conformance", "drivers", "schemas"):
            (root / "suite" / path.name).symlink_to(path)
    for name in ("fixtures", "reports", "pytest.ini", "conftest.py"):
        (root / name).symlink_to(ROOT / name)
    vendor = root / "suite/vendors/maker"
    _write(vendor, {"vendor.toml": _VENDOR, f"machines/{MACHINE}.toml": f'match = ["{MACHINE}*"]\n'})
    settings = {"config_default.toml": "lr = 0.2\n"}
    settings |= {f"config_{MACHINE}x1x{n}.toml": f"lr = {n / 100}\n" for n in range(1, configs + 1)}
    for number in range(cases):
        name = f"case{number:04}"
        files = {"case.toml": _CASE, f"test_{name}.py": _TEST, "train.py": _TRAIN}
        _write(root / "suite/cases" / name / "pytorch", files)
        _write(vendor / name / "pytorch", settings)


def _write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
