"""The preset 124m_text and its reference: the text, the same training on both sides, the ratio."""

from __future__ import annotations

import hashlib
import importlib.util
import io
import json
import math
import sys
import tarfile
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from suite.drivers.events import RunProblem
from suite.drivers.schedule import Schedule
from tests.case_gpt3 import CASE, ROOT, bits, drive, params

SENTENCE = "It is easy to see that the {n}th of these pages can be read by you in an hour, as it is written for this. "


def script(name: str) -> ModuleType:
    """A module of benchmarks/, leaving what other tests see of the interpreter as it was."""
    path, modules = list(sys.path), dict(sys.modules)
    spec = importlib.util.spec_from_file_location(name, ROOT / f"benchmarks/{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path[:] = path
        for one in (name, "data", "words"):
            sys.modules.pop(one, None)
            if one in modules:
                sys.modules[one] = modules[one]
    return module


TIMES = script("time_to_train")


# The text


def page(*blocks: str) -> bytes:
    head = "<html><head><title>menu</title></head><body><nav>Home</nav><p>Shared by all pages of this manual</p>"
    return (head + "".join(f"<p>{block}</p>" for block in blocks) + "<script>x()</script></body></html>").encode()


def package(folder: Path, name: str, files: dict[str, bytes]) -> Any:
    """A .deb file with these files, and its entry of the list."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:xz") as archive:
        for path, data in files.items():
            member = tarfile.TarInfo(f"./{path}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    whole = b"!<arch>\n"
    for member_name, data in (("debian-binary", b"2.0"), ("data.tar.xz", content.getvalue())):
        whole += f"{member_name:<16}{'0':<12}{'0':<6}{'0':<6}{'100644':<8}{len(data):<10}`\n".encode()
        whole += data + b"\n" * (len(data) % 2)
    path = folder / f"{name}_1%3a2_all.deb"
    path.write_bytes(whole)
    digest = hashlib.sha256(whole).hexdigest()
    return CASE.debian_text.Package(name=name, version="1:2", sha256=digest, licence="free", files=("*.html",))


def manual(pages: int, start: int = 0) -> dict[str, bytes]:
    found = {f"usr/share/doc/m/{n:03}.html": page(*(SENTENCE.format(n=f"{start + n}.{k}") * 2 for k in range(4)))
             for n in range(pages)}  # fmt: skip
    return found | {"usr/share/doc/m/copyright": b"free as air", "usr/share/doc/m/skipped.txt": b"no page"}


def test_paragraphs_are_the_text_without_what_surrounds_it() -> None:
    text = b"<head>h</head><p>a  <b>b</b>\n c</p><pre>x\n  y\n</pre><style>s</style>&amp;" + b"=" * 30
    assert CASE.debian_text.paragraphs(text.decode()) == ["a b c", "x\n  y", "&========"]


def test_copies_menus_and_other_languages_are_left_out(tmp_path: Path) -> None:
    files = manual(20)
    files["usr/share/doc/m/german.html"] = page("Das ist ein deutscher Satz und kein englischer. " * 20)
    files["usr/share/doc/m/index.html"] = page(*(f"function_{n} function_{n + 1} returns" for n in range(100)))
    entries = [package(tmp_path, "one", files), package(tmp_path, "two", manual(20))]
    text = CASE.debian_text.make(CASE.debian_text.fetch(tmp_path, entries), entries)
    documents = text.train + text.held_out
    assert len(documents) == 20  # the second package is a copy of the first
    assert not any("Shared" in one or "menu" in one or "Home" in one or "deutscher" in one for one in documents)
    assert text.licences == {"one": "free as air", "two": "free as air"}
    half = CASE.debian_text.make(CASE.debian_text.fetch(tmp_path, entries), entries, limit=len(documents[0]) * 10)
    assert 8 <= len(half.train + half.held_out) <= 10


def test_a_document_is_held_out_by_its_own_digest(tmp_path: Path) -> None:
    entries = [package(tmp_path, "one", manual(300))]
    text = CASE.debian_text.make(CASE.debian_text.fetch(tmp_path, entries), entries)
    assert 0 < len(text.held_out) < 30 and not set(text.held_out) & set(text.train)
    more = [*entries, package(tmp_path, "two", manual(100, start=1000))]
    grown = CASE.debian_text.make(CASE.debian_text.fetch(tmp_path, more), more)
    assert set(text.held_out) <= set(grown.held_out) and set(text.train) <= set(grown.train)


def test_the_same_packages_make_the_same_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [package(tmp_path, "one", manual(200))]
    monkeypatch.setattr(CASE.debian_text, "packages", lambda: entries)
    monkeypatch.setattr(CASE.prepare, "WHOLE", 64)
    for name in ("a", "b"):
        argv = ["--data-dir", str(tmp_path / name), "--debian", str(tmp_path), "--vocab-size", "400"]
        assert CASE.prepare.main(argv) == 0
    made = {path.name: path.read_bytes() for path in (tmp_path / "a/debian").iterdir()}
    assert made == {path.name: path.read_bytes() for path in (tmp_path / "b/debian").iterdir()}
    assert set(made) == {"train.npy", "held_out.npy", "byte_lengths.npy", "tokenizer.json", "licences.txt"}
    held_out = np.load(tmp_path / "a/debian/held_out.npy")
    assert len(held_out) % 64 == 1 and len(held_out) > 64 and held_out.dtype == np.uint16


def test_wrong_missing_and_broken_packages_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = package(tmp_path, "one", manual(2))
    path = next(tmp_path.glob("*.deb"))
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(RunProblem, match=r"one_1%3a2_all.deb: sha256 is .*, data/debian.toml knows .*: take version"):
        CASE.debian_text.fetch(tmp_path, [entry])
    path.write_bytes(b"<html>not found</html>")
    with pytest.raises(RunProblem, match="is no Debian package: download it again"):
        CASE.debian_text.make({"one": path}, [entry])
    path.unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RunProblem, match=r"apt-get download cannot be had .*: put one=1:2 in "):
        CASE.debian_text.fetch(tmp_path, [entry])


def test_every_package_of_the_list_has_a_version_a_digest_and_a_licence() -> None:
    listed = CASE.debian_text.packages()
    assert len({entry.name for entry in listed}) == len(listed) == 22
    for entry in listed:
        assert entry.version and entry.licence and entry.files and len(bytes.fromhex(entry.sha256)) == 32, entry.name


# The same training on both sides


def toy(**changes: Any) -> dict[str, Any]:
    return params("124m_text") | TIMES.TINY | {"threads": 1, "vocab_size": 300, "precision": "fp32"} | changes


def tokens_in(folder: Path) -> Path:
    """Tokens of which each is likelier after some than after others."""
    (folder / "debian").mkdir(parents=True)
    draw = np.random.default_rng(1)
    for name, size in (("train", 20_000), ("held_out", 16 * 32 + 1)):
        np.save(folder / f"debian/{name}.npy", (np.cumsum(draw.integers(0, 3, size)) % 300).astype(np.uint16))
    np.save(folder / "debian/byte_lengths.npy", np.full(300, 2, dtype=np.uint8))
    return folder


def weights_of_gpt2(model: Any) -> dict[str, torch.Tensor]:
    """Our model's weights under transformers' names: matrices turned, query, key and value by kind, not by head."""
    found, heads = {}, model.shape.num_heads
    names = {"attention_norm": "ln_1", "feed_norm": "ln_2", "feed_in": "mlp.c_fc", "feed_out": "mlp.c_proj",
             "attention_out": "attn.c_proj", "query_key_value": "attn.c_attn"}  # fmt: skip
    for name, value in model.state_dict().items():
        if name.startswith("blocks."):
            _, number, part, kind = name.split(".")
            if part == "query_key_value":
                value = value.view(heads, 3, -1, *value.shape[1:]).transpose(0, 1).reshape(value.shape)
            turned = value.T if value.dim() == 2 else value
            found[f"transformer.h.{number}.{names[part]}.{kind}"] = turned
    top = {"words.weight": ("transformer.wte.weight", "lm_head.weight"), "places.weight": ("transformer.wpe.weight",),
           "head.norm.weight": ("transformer.ln_f.weight",), "head.norm.bias": ("transformer.ln_f.bias",)}  # fmt: skip
    return found | {new: model.state_dict()[name] for name, several in top.items() for new in several}


def test_the_reference_is_the_same_model_on_the_same_sequences_at_the_same_rate(tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    pytest.importorskip("transformers")
    reference = script("reference_gpt2_text")
    values, home = toy(max_steps=100), tokens_in(tmp_path)
    job = {"params": values, "data_dir": str(home), "seed": 5, "target": None, "compiled": False, "device": "cpu",
           "micro_batch": 8, "precision": "fp32"}  # fmt: skip
    theirs = reference.trainer_of(job, str(tmp_path / "out"))
    corpus = CASE.data.read_tokens(home / "debian/train.npy", home / "debian/held_out.npy", 300)
    cutter, place = CASE.data.Cutter(32), CASE.data.Place(0, 1)
    ours = [batch for epoch in (1, 2) for batch in
            cutter.batches(corpus.train, seed=5, epoch=epoch, batch_size=8, place=place, skip=0)]  # fmt: skip
    assert len(ours) > 100 and len(theirs.train_dataset) == 800
    for mine, other in zip(ours, theirs.get_train_dataloader()):
        assert torch.equal(mine["tokens"], other["input_ids"]) and torch.equal(mine["following"], other["labels"])
    made = CASE.model.Gpt(CASE.model.Shape.of(values), CASE.model.standard_attention)
    torch.nn.init.normal_(made.blocks[0].query_key_value.bias)
    theirs.model.load_state_dict(weights_of_gpt2(made), strict=True)
    mine = made(ours[0]["tokens"], ours[0]["following"]).mean() / 32
    given = next(iter(theirs.get_train_dataloader()))
    assert theirs.compute_loss(theirs.model, given).item() == pytest.approx(mine.item(), rel=1e-5)
    spread = {name: value.std().item() for name, value in reference.model_of(values).state_dict().items()}
    own = weights_of_gpt2(CASE.model.Gpt(CASE.model.Shape.of(values), CASE.model.standard_attention))
    for name, value in own.items():
        assert spread[name] == pytest.approx(value.std().item(), rel=0.25, abs=1e-9), name
    theirs.create_optimizer_and_scheduler(values["max_steps"])
    groups = theirs.optimizer.param_groups
    assert sorted(group["weight_decay"] for group in groups) == [0.0, 0.1]
    assert {parameter.dim() for group in groups if group["weight_decay"] for parameter in group["params"]} == {2}
    schedule = Schedule(values, 8)
    for step in range(12):
        assert groups[0]["lr"] == pytest.approx(values["lr"] * schedule(step))
        theirs.optimizer.step()
        theirs.lr_scheduler.step()


def reference_line(home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *more: str) -> Any:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setitem(TIMES.TINY, "vocab_size", 300)
    TIMES.main(["--data-dir", str(home), "--tiny", "--device", "cpu", *more])
    return json.loads(capsys.readouterr().out)


@pytest.mark.slow
@pytest.mark.nightly
def test_the_reference_stops_at_its_target(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("accelerate")
    pytest.importorskip("transformers")
    # Nothing learnt is log2(300) / 2 bytes = 4.11: the target lies on the way.
    more = ("--target", "3.9", "--seeds", "1", "--variant", "eager")
    line = reference_line(tokens_in(tmp_path), capsys, monkeypatch, *more)
    assert line["met"] and line["bits_per_byte"] <= 3.9 and line["steps"] in (3, 6, 9), line
    assert 0 < line["without_evaluation_s"] < line["time_to_train_s"] <= line["train_s"]
    assert line["tokens"] == line["steps"] * 8 * 32
    assert line["bits_per_byte"] == pytest.approx(line["token_loss"] / math.log(2) / 2)
    assert [point["step"] for point in line["curve"]] == list(range(3, line["steps"] + 1, 3))


@pytest.mark.slow
@pytest.mark.nightly
def test_both_sides_learn_alike_and_the_pilot_gives_the_target(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("accelerate")
    pytest.importorskip("transformers")
    home = tokens_in(tmp_path / "data")
    pilot = reference_line(home, capsys, monkeypatch, "--pilot")
    values = toy(compile=False, eval_sequences=16, gradient_accumulation_steps=1)
    (events,) = drive(tmp_path / "ours", values, data_dir=str(home), seed=100)
    theirs = [point["bits_per_byte"] for point in pilot["curve"]]
    assert bits(events) == pytest.approx(theirs, rel=0.05)
    assert pilot["target_by_rule"] == math.ceil(theirs[1] * 100) / 100  # step 6 of 9: two thirds of 12 is 8


def test_what_the_reference_fails_at_is_a_line_and_no_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks/reference_gpt2_text.py").write_text("raise SystemExit(3)")
    monkeypatch.setattr(TIMES, "HERE", tmp_path / "benchmarks")
    monkeypatch.setattr(TIMES.importlib.metadata, "version", lambda name: "0")
    assert TIMES.main(["--data-dir", str(tmp_path), "--seeds", "1", "--variant", "eager", "--device", "cpu"]) == 1
    line = json.loads(capsys.readouterr().out)
    assert "left with 3" in line["error"] and "time_to_train_s" not in line


# The ratio


def test_the_pilots_target_is_its_curve_at_two_thirds_rounded_up() -> None:
    curve = [{"step": step, "bits_per_byte": value} for step, value in ((200, 1.5), (400, 1.2311), (420, 1.1))]
    assert TIMES.rule({"curve": curve}, 600) == 1.24


def test_the_ratio_of_logarithms_is_welchs() -> None:
    theirs = [2 * math.exp(x) for x in (0.0, 0.1, 0.2)]
    ours = [math.exp(x) for x in (0.0, 0.1, 0.2)]
    # Variance 0.01 on both sides, so 4 degrees of freedom: 2.7764 x sqrt(0.02 / 3) = 0.22669.
    middle, low, high = TIMES.ratio(ours, theirs)
    assert middle == pytest.approx(2.0)
    assert (math.log(low / 2), math.log(high / 2)) == pytest.approx((-0.22669, 0.22669), abs=1e-4)
    assert TIMES.ratio([10.0, 10.0], [20.0, 20.0]) == pytest.approx((2.0, 2.0, 2.0))
    assert math.isnan(TIMES.ratio([10.0], [20.0])[1])


def results(folder: Path, times: list[float | None], target: float = 1.3) -> Path:
    """A result.json as reports write it, in what is read of it."""
    runs = [{"seed": n, "metrics": {"steps": 400.0} | ({} if t is None else {"time_to_train_s": t}), "curve": [],
             "ledger": {"eval": 5.0}, "outcome": {"status": "passed"}, "environment": {"device": {"type": "cpu"}}}
            for n, t in enumerate(times)]  # fmt: skip
    result = {"id": "x", "params": {"compile": False}, "checks": [{"name": "quality", "threshold": target}]}
    folder.mkdir()
    (folder / "result.json").write_text(json.dumps(result | {"runs": runs}))
    return folder


def lines_in(path: Path, times: list[float | None]) -> Path:
    found = [{"compiled": False, "target": 1.3, "device": "cpu", "steps": 400, "time_to_train_s": t,
              "without_evaluation_s": t and t - 10} for t in times]  # fmt: skip
    path.write_text("a word of a library\n" + "\n".join(map(json.dumps, found)))
    return path


def test_results_are_compared_with_and_without_evaluations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ours, theirs = results(tmp_path / "ours", [50.0, 50.0, 50.0]), lines_in(tmp_path / "a", [100.0, 100.0, 100.0])
    assert TIMES.main(["--ours", str(ours), "--reference", str(theirs)]) == 0
    line = json.loads(capsys.readouterr().out)
    assert line["time_to_train_s"]["ratio"] == pytest.approx(2.0)
    assert line["without_evaluation_s"]["ratio"] == pytest.approx(90 / 45)
    assert line["runs"] == [3, 3] and line["missed"] == [0, 0]


def test_nothing_to_compare_with_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ours, theirs = results(tmp_path / "ours", [50.0, 51.0]), lines_in(tmp_path / "a", [])
    assert TIMES.main(["--ours", str(ours), "--reference", str(theirs)]) == 1
    assert "holds no trainings" in json.loads(capsys.readouterr().out)["error"]
    with pytest.raises(SystemExit, match=r"no result\.json with a run in it"):
        TIMES.main(["--ours", str(tmp_path / "absent"), "--reference", str(theirs)])


@pytest.mark.parametrize(
    ("times", "target", "sentence"),
    [([50.0, None], 1.3, "missed the target"), ([50.0, 50.0], 1.4, "only runs to one target are compared")],
)
def test_no_ratio_without_a_time_or_of_two_targets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], times: list[float | None], target: float, sentence: str
) -> None:
    ours, theirs = results(tmp_path / "ours", times, target), lines_in(tmp_path / "a", [100.0, 100.0])
    assert TIMES.main(["--ours", str(ours), "--reference", str(theirs)]) == 1
    line = json.loads(capsys.readouterr().out)
    assert sentence in line["error"] and "time_to_train_s" not in line


def test_the_preset_has_gpt2s_size() -> None:
    shape = CASE.model.Shape.of(params("124m_text"))
    assert shape.parameters() == 124_475_904
