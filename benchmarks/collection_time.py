"""Collection of the shipped catalog against one empty test: `python benchmarks/collection_time.py [ROUNDS]`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from sidebyside import side_by_side, timed

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    """Print the ratio for each shipped vendor that plans something."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    pytest = [sys.executable, "-m", "pytest"]
    with tempfile.TemporaryDirectory() as empty:
        test = Path(empty, "test_empty.py")
        test.write_text("def test_nothing():\n    pass\n")
        bare = [*pytest, "-p", "no:cacheprovider", "--collect-only", "-q", "-c", "/dev/null", str(test)]
        for vendor in ("cpu", "nvidia"):
            ours = [
                *pytest,
                str(ROOT / "suite"),
                "--rootdir",
                str(ROOT),
                "-c",
                str(ROOT / "pytest.ini"),
                "--collect-only",
                "-q",
            ]
            machine = ["--machine", "H200"] if vendor == "nvidia" else []
            pair = side_by_side(
                lambda o=ours, v=vendor, m=machine: timed([*o, "--vendor", v, *m, "-k", "glm"]),
                lambda: timed(bare),
                rounds,
            )
            print(pair.line(f"pytest suite --collect-only --vendor {vendor}", "pytest on one empty test"))


if __name__ == "__main__":
    main()
