"""`python -m tools data`, as its user sees it."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools import data_digest
from tools.__main__ import main
from tools.data_digest import STAMPS, Stamps, sha256_of
from tools.stage import content_name

CONTENT = b"questions and answers\n"


def sha256(content: bytes) -> str:
    """The digest of some bytes."""
    return hashlib.sha256(content).hexdigest()


def entry(path: str = "train.h5", **keys: object) -> str:
    """One `[[file]]` of data.toml."""
    fields = {"preset": "full", "path": path, "source": "on request", "licence": "MIT"} | keys
    return "\n".join(["[[file]]", *(f"{key} = {json.dumps(value)}" for key, value in fields.items()), ""])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A checkout with the case glm/pytorch, without data."""
    case = tmp_path / "checkout/suite/cases/glm/pytorch"
    (case / "data").mkdir(parents=True)
    (case / "case.toml").write_text("")
    return tmp_path / "checkout"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A data folder with one file."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data/train.h5").write_bytes(CONTENT)
    return tmp_path / "data"


def describe(root: Path, *entries: str) -> None:
    """Write the case's data.toml."""
    (root / "suite/cases/glm/pytorch/data.toml").write_text("\n".join(entries))


def data(root: Path, action: str, *more: str | Path, model: str = "glm") -> int:
    """Run the command; its exit status."""
    return main(["data", action, model, *map(str, more)], root)


def test_status_lists_what_is_there(root: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    describe(root, entry(bytes=len(CONTENT), sha256=sha256(CONTENT)), entry("eval.h5", preset=["full", "big"]))
    assert data(root, "status", "--data-dir", folder) == 1
    told = capsys.readouterr().out
    train, evaluation = [line.split() for line in told.splitlines()[2:4]]
    assert train == ["train.h5", "full", "present", "22", "not", "hashed", "required", "MIT"]
    assert evaluation[:4] == ["eval.h5", "full,", "big", "missing"]
    assert "glm/pytorch: 1 of 2 files are missing or wrong" in told
    assert f"get them: python -m tools data fetch glm --data-dir {folder}" in told


def test_status_is_content_when_everything_required_is_there(
    root: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    describe(root, entry(bytes=len(CONTENT)), entry("checkpoint.pt", required=False))
    assert data(root, "status", "--data-dir", folder) == 0
    assert "1 optional of 2 files" in capsys.readouterr().out


def test_a_wrong_size_is_seen_without_hashing(root: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    describe(root, entry(bytes=1000000))
    assert data(root, "status", "--data-dir", folder) == 1
    assert "22 bytes, expected 1,000,000" in capsys.readouterr().out


def test_files_of_the_repository_need_no_data_folder(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (root / "suite/cases/glm/pytorch/data/phrases.xz").write_bytes(CONTENT)
    describe(root, entry("case:phrases.xz", preset="mini", sha256=sha256(CONTENT)), entry())
    assert data(root, "verify", "--preset", "mini") == 0
    assert "case:phrases.xz: verified" in capsys.readouterr().out
    assert not (root / "suite/cases/glm/pytorch/data" / STAMPS).exists()
    assert data(root, "verify") == 4
    assert "--data-dir is missing: train.h5 lies in the data folder" in capsys.readouterr().err


def test_verify_compares_and_status_then_says_so(root: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    describe(root, entry(sha256=sha256(CONTENT)))
    assert data(root, "verify", "--data-dir", folder) == 0
    assert data(root, "status", "--data-dir", folder) == 0
    assert "present  not known  verified" in capsys.readouterr().out


def test_verify_tells_other_content_of_equal_size(root: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    describe(root, entry(bytes=len(CONTENT), sha256=sha256(CONTENT)))
    assert data(root, "verify", "--data-dir", folder) == 0
    (folder / "train.h5").write_bytes(CONTENT.swapcase())
    os.utime(folder / "train.h5", ns=(1, 1))
    assert data(root, "verify", "--data-dir", folder) == 1
    assert f"sha256 is {sha256(CONTENT.swapcase())}, data.toml knows {sha256(CONTENT)}" in capsys.readouterr().out


def test_verify_does_not_call_unknown_content_verified(
    root: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    describe(root, entry())
    assert data(root, "verify", "--data-dir", folder) == 0
    assert f"train.h5: sha256 {sha256(CONTENT)}; data.toml knows none, so it is not verified" in capsys.readouterr().out


def test_unchanged_data_is_hashed_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[Path] = []

    def counting(path: Path) -> str:
        hashed.append(path)
        return sha256_of(path)

    monkeypatch.setattr(data_digest, "sha256_of", counting)
    stamps, path = Stamps(folder=folder), folder / "train.h5"
    assert [stamps.digest(path) for _ in range(3)] == [sha256(CONTENT)] * 3
    assert len(hashed) == 1
    path.write_bytes(CONTENT * 2)
    assert stamps.known(path) == ""
    assert stamps.digest(path) == sha256(CONTENT * 2)
    assert len(hashed) == 2


def test_damaged_stamps_are_made_again(folder: Path) -> None:
    (folder / STAMPS).write_text("{")
    assert Stamps(folder=folder).digest(folder / "train.h5") == sha256(CONTENT)
    assert Stamps(folder=folder).known(folder / "train.h5") == sha256(CONTENT)


def test_the_digest_of_a_folder_is_that_of_its_sorted_lines(tmp_path: Path) -> None:
    (tmp_path / "tree/b").mkdir(parents=True)
    (tmp_path / "tree/b/1").write_bytes(b"one")
    (tmp_path / "tree/a").write_bytes(b"two")
    lines = f"{sha256(b'two')}  a\n{sha256(b'one')}  b/1\n"
    assert sha256_of(tmp_path / "tree") == sha256(lines.encode())


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A web server on this host over the folder `web`; its address."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    (tmp_path / "web").mkdir()
    (tmp_path / "web/train.h5").write_bytes(CONTENT)

    class Quiet(SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path != "/cut":
                return super().do_GET()
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(CONTENT)
            self.close_connection = True

        def log_message(self, format: str, *values: object) -> None:
            """Nothing on the terminal of the tests."""

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path / "web"))) as httpd:
        thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield f"http://127.0.0.1:{httpd.server_port}"
        httpd.shutdown()
        thread.join(10)


def test_fetch_downloads_what_has_an_address(root: Path, tmp_path: Path, server: str) -> None:
    describe(root, entry("deep/train.h5", source=f"{server}/train.h5", bytes=len(CONTENT), sha256=sha256(CONTENT)))
    assert data(root, "fetch", "--data-dir", tmp_path / "data") == 0
    assert (tmp_path / "data/deep/train.h5").read_bytes() == CONTENT


def test_fetch_copies_from_a_file_address(root: Path, tmp_path: Path, folder: Path) -> None:
    describe(root, entry(source=(folder / "train.h5").as_uri()))
    assert data(root, "fetch", "--data-dir", tmp_path / "other") == 0
    assert (tmp_path / "other/train.h5").read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"sha256": "0" * 64}, f"sha256 is {sha256(CONTENT)}, data.toml knows {'0' * 64}"),
        ({"bytes": 10}, "more than the 10 bytes that data.toml knows"),
        ({"bytes": 1000}, "22 bytes arrived, data.toml knows 1,000"),
    ],
)
def test_what_arrives_wrong_takes_no_place(
    root: Path, tmp_path: Path, server: str, capsys: pytest.CaptureFixture[str], keys: dict[str, object], sentence: str
) -> None:
    describe(root, entry(source=f"{server}/train.h5", **keys))
    assert data(root, "fetch", "--data-dir", tmp_path / "data") == 1
    assert f"train.h5: not fetched: {sentence}" in capsys.readouterr().out
    assert list((tmp_path / "data").iterdir()) == []


def test_an_address_that_is_not_there_is_one_line(
    root: Path, tmp_path: Path, server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    describe(root, entry(source=f"{server}/gone"), entry("x", source="http://127.0.0.1:1/x"))
    assert data(root, "fetch", "--data-dir", tmp_path / "data") == 1
    told = capsys.readouterr().out
    assert "train.h5: not fetched" in told and "File not found" in told
    assert "x: not fetched" in told


def test_a_connection_that_breaks_is_no_file(
    root: Path, tmp_path: Path, server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    describe(root, entry(source=f"{server}/cut"))
    assert data(root, "fetch", "--data-dir", tmp_path / "data") == 1
    assert "train.h5: not fetched" in capsys.readouterr().out
    assert list((tmp_path / "data").iterdir()) == []


def test_what_has_no_address_is_told_with_source_and_licence(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    describe(root, entry(source="ask the authors", licence="CC BY 4.0", prepare="python -m tools data prepare glm"))
    assert data(root, "fetch", "--data-dir", tmp_path / "data") == 1
    told = capsys.readouterr().out
    assert "train.h5: to be had by hand: ask the authors (licence: CC BY 4.0)" in told
    assert "then: python -m tools data prepare glm" in told


@pytest.mark.parametrize("separator", [[], ["--"]])
def test_prepare_runs_the_cases_own_code_with_its_options(
    root: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], separator: list[str]
) -> None:
    case = root / "suite/cases/glm/pytorch"
    (case / "sibling.py").write_text("WORD = 'prepared'\n")
    (case / "prepare.py").write_text("import sibling\ndef main(argv):\n    print(sibling.WORD, *argv)\n    return 0\n")
    assert data(root, "prepare", "--data-dir", tmp_path, *separator, "--what", "record") == 0
    assert capfd.readouterr().out == f"prepared --data-dir {tmp_path} --what record\n"


@pytest.mark.parametrize(("body", "status"), [("return 4", 4), ("return 3", 1), ("raise ValueError('x')", 1)])
def test_prepare_tells_a_failure(root: Path, capfd: pytest.CaptureFixture[str], body: str, status: int) -> None:
    (root / "suite/cases/glm/pytorch/prepare.py").write_text(f"def main(argv):\n    {body}\n")
    assert data(root, "prepare") == status
    assert "trainmark: prepare.py of glm left with" in capfd.readouterr().err


def test_prepare_has_a_deadline(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (root / "suite/cases/glm/pytorch/prepare.py").write_text("import time\ndef main(argv):\n    time.sleep(60)\n")
    assert data(root, "prepare", "--timeout", "0.5") == 4
    assert "prepare.py of glm was ended after 0.5 s" in capsys.readouterr().err


def test_stage_copies_by_content_and_only_once(
    root: Path, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "tree").mkdir()
    (folder / "tree/part").write_bytes(b"part")
    describe(root, entry(), entry("tree"), entry("absent.pt", required=False))
    assert data(root, "stage", "--data-dir", folder, "--to", tmp_path / "local") == 0
    told = capsys.readouterr().out
    (staged,) = (tmp_path / "local").iterdir()
    assert f"staged: {staged}" in told and f"use it: --data-dir glm={staged}" in told
    assert (staged / "train.h5").read_bytes() == CONTENT
    assert (staged / "tree/part").read_bytes() == b"part"
    assert data(root, "stage", "--data-dir", folder, "--to", tmp_path / "local") == 0
    assert "already staged" in capsys.readouterr().out
    (folder / "train.h5").write_bytes(b"new")
    assert data(root, "stage", "--data-dir", folder, "--to", tmp_path / "local") == 0
    assert len(list((tmp_path / "local").iterdir())) == 2


def test_stage_refuses_what_is_not_complete(
    root: Path, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    describe(root, entry(), entry("eval.h5"))
    assert data(root, "stage", "--data-dir", folder, "--to", tmp_path / "local") == 4
    assert "eval.h5: missing; nothing is staged" in capsys.readouterr().err
    assert not (tmp_path / "local").exists()


@given(st.dictionaries(st.text(min_size=1, max_size=5), st.just("0" * 64), min_size=1, max_size=4))
def test_the_name_of_a_staged_folder_ignores_the_order(digests: dict[str, str]) -> None:
    turned = dict(reversed(digests.items()))
    assert content_name(digests) == content_name(turned)
    assert content_name(digests) != content_name(digests | {"another": "1" * 64})


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["status", "gml"], "gml: no such model under suite/cases (did you mean 'glm'?)"),
        (["status", "glm", "--framework", "paddle"], "--framework paddle: glm has no such case (have: pytorch)"),
        (["status", "glm", "--preset", "ful", "--data-dir", "."], "lists nothing for it (did you mean 'full'?)"),
        (["status", "glm", "--prset", "full"], "unknown argument '--prset'"),
        (["status", "glm", "--data-dir", ".", "--", "x"], "unknown argument 'x'"),
        (["stage", "glm", "--data-dir", "."], "--to"),
        (["fetch", "glm", "--timeout", "soon"], "'soon' is not a number of seconds"),
        (["prepare", "glm"], "the case has no prepare.py"),
        (["status", "glm", "--data-dir", __file__], "is not a folder"),
    ],
)
def test_a_wrong_command_line_is_one_sentence(
    root: Path, capsys: pytest.CaptureFixture[str], argv: list[str], sentence: str
) -> None:
    describe(root, entry())
    assert main(["data", *argv], root) == 4
    told = capsys.readouterr().err
    assert sentence in told
    assert told.startswith("trainmark: ") and told.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (entry("../secret"), "must be a path below the data folder"),
        (entry() + "colour = 1\n", "unknown key"),
        ("[[file]\n", "data.toml:1: not valid TOML"),
    ],
)
def test_a_broken_data_toml_names_file_and_key(
    root: Path, folder: Path, capsys: pytest.CaptureFixture[str], text: str, sentence: str
) -> None:
    describe(root, text)
    assert data(root, "status", "--data-dir", folder) == 4
    told = capsys.readouterr().err
    assert sentence in told and "suite/cases/glm/pytorch/data.toml" in told


def test_a_case_without_data_toml_needs_nothing(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert data(root, "status") == 0
    assert "glm/pytorch lists no files" in capsys.readouterr().out


def test_a_full_disk_is_told_before_the_first_byte(
    root: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    describe(root, entry())
    monkeypatch.setattr("tools.stage.shutil.disk_usage", lambda path: type("Usage", (), {"free": 3})())
    assert data(root, "stage", "--data-dir", folder, "--to", tmp_path / "local") == 4
    assert "22 bytes to stage, 3 free; choose another --to" in capsys.readouterr().err
    assert list((tmp_path / "local").iterdir()) == []


def test_a_copy_that_differs_is_not_published(
    root: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def faulty(source: Path, target: Path) -> None:
        target.write_bytes(b"rotten")

    describe(root, entry())
    monkeypatch.setattr("tools.stage.shutil.copy2", faulty)
    assert data(root, "stage", "--data-dir", folder, "--to", tmp_path / "local") == 4
    assert "its copy in" in capsys.readouterr().err
    assert list((tmp_path / "local").iterdir()) == []
