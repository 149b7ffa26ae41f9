"""Whisper's data: spectrograms, labels, who gets which, spoken digits, and files of recordings."""

from __future__ import annotations

import io
import wave
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from suite.catalog import load_catalog
from suite.drivers.events import RunProblem
from suite.drivers.pytorch.device import EnvironmentProblem
from suite.plan import Request
from suite.selection import plans
from tests.case_whisper import CASE, DATA_DIR, TINY_FULL, make_tokenizer, params, task, written
from tests.one_case import ROOT

Collator, Place, shares = CASE.data.Collator, CASE.data.Place, CASE.data.shares
IGNORED = CASE.model.IGNORED
digits = CASE.digits
CATALOG = load_catalog(ROOT / "suite")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small models are slower with several threads, on a busy machine much slower."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# Spectrograms


def test_a_tone_is_heard_in_its_own_band() -> None:
    mel = CASE.mel.LogMel.of(params())
    time = torch.arange(mel.samples) / mel.sample_rate
    for hertz in (200.0, 1000.0, 4000.0):
        levels = mel(torch.sin(2 * torch.pi * hertz * time)[None])
        assert levels.shape == (1, 80, 3000)
        band = int(levels[0, :, 1500].argmax())
        weights = mel.filters[band]
        assert weights[round(hertz / 40)] > 0
    assert mel.filters.shape == (80, 201)


def test_silence_and_range() -> None:
    mel = CASE.mel.LogMel.of(params("mini"))
    assert bool((mel(torch.zeros(1, mel.samples)) == (-10 + 4) / 4).all())
    levels = mel(torch.randn(2, mel.samples))
    assert levels.amax((1, 2)).sub(levels.amin((1, 2))).le(2).all()


def test_bands_have_an_area_of_one_and_leave_no_gap() -> None:
    for preset in ("full", "mini"):
        mel = CASE.mel.LogMel.of(params(preset))
        width = mel.sample_rate / mel.fft_size
        assert bool((mel.filters.sum(1) > 0).all())
        assert mel.filters[-1].sum() * width == pytest.approx(1, rel=0.05)


# Labels


def collator(multiple: int = 4, longest: int = 12) -> Any:
    return Collator(start_token=90, multiple=multiple, longest=longest)


def test_labels_are_padded_ignored_and_lose_their_start() -> None:
    batch = collator()(torch.zeros(3, 8, 60), [[90, 1, 2, 91], [90, 3, 91], [5, 6, 7, 8, 91]])
    x = IGNORED
    assert batch["labels"].tolist() == [
        [1, 2, 91, x, x, x, x, x],
        [3, 91, x, x, x, x, x, x],
        [5, 6, 7, 8, 91, x, x, x],
    ]
    assert x == -100


def test_only_the_first_start_is_dropped() -> None:
    assert collator(1)(torch.zeros(1, 8, 60), [[90, 90, 1]])["labels"].tolist() == [[90, 1]]


def test_labels_have_few_shapes_and_never_more_than_the_places() -> None:
    widths = {collator()(torch.zeros(1), [[1] * n])["labels"].shape[1] for n in range(1, 13)}
    assert widths == {4, 8, 12}
    assert collator(8)(torch.zeros(1), [[1] * 11])["labels"].shape[1] == 12
    with pytest.raises(RunProblem, match="a transcript has 13 tokens, max_labels is 12: leave it out"):
        collator()(torch.zeros(1), [[1] * 13])


def test_the_decoder_reads_the_start_then_all_labels_but_the_last() -> None:
    net = SimpleNamespace(shape=SimpleNamespace(start_token=90, end_token=91))
    labels = torch.tensor([[1, 2, 91, IGNORED], [3, 91, IGNORED, IGNORED]])
    assert CASE.model.Whisper.inputs(net, labels).tolist() == [[90, 1, 2, 91], [90, 3, 91, 91]]


def test_shuffled_labels_are_the_same_ones_with_other_sounds() -> None:
    batch = {"features": torch.rand(8, 2, 3), "labels": torch.arange(8)[:, None]}
    broken = CASE.data.shuffle_labels(batch, torch.Generator().manual_seed(0))
    assert torch.equal(broken["features"], batch["features"])
    assert sorted(broken["labels"].flatten().tolist()) == list(range(8))
    assert not torch.equal(broken["labels"], batch["labels"])


# Who gets which


@pytest.mark.parametrize("world", [1, 2, 4])
def test_global_batches_are_the_same_for_any_number_of_ranks(world: int) -> None:
    order = np.random.default_rng(0).permutation(100)
    parts = [list(shares(order, 8 // world, Place(rank, world))) for rank in range(world)]
    together = [np.concatenate(batch) for batch in zip(*parts)]
    assert len(together) == 13
    assert np.array_equal(np.concatenate(together)[:100], order)
    assert np.array_equal(together[-1][4:], order[:4]), "the last batch is filled from the beginning"


@pytest.mark.parametrize(("world", "steps"), [(1, 125), (2, 63), (4, 32), (8, 16), (16, 8)])
def test_an_epoch_of_the_guide_has_its_steps(world: int, steps: int) -> None:
    for rank in (0, world - 1):
        batches = list(shares(np.arange(1000), 8, Place(rank, world)))
        assert len(batches) == steps and {len(batch) for batch in batches} == {8}
    assert len(list(shares(np.arange(1000), 8, Place(0, world), skip=3))) == steps - 3


def test_evaluation_shares_are_disjoint_and_all() -> None:
    found = [CASE.data.evaluation_share(150, Place(rank, 4)) for rank in range(4)]
    assert sorted(np.concatenate(found).tolist()) == list(range(150))


def test_random_samples_differ_in_every_batch_and_rank() -> None:
    values = params(**TINY_FULL)
    batches = [one for rank in range(2) for one, _ in zip(task(values, rank=rank, world=2).synthetic_batches(), "ab")]
    assert len({batch["features"].sum().item() for batch in batches}) == 4
    assert {tuple(batch["labels"].shape) for batch in batches} == {(2, 16)}


# Spoken digits


def test_the_file_holds_one_real_voice_and_twelve_synthetic_ones() -> None:
    voices = digits.read_voices(DATA_DIR / "spoken_digits.npz")
    assert (len(voices.real), len(voices.synthetic)) == (1, 12)
    for voice in (*voices.real, *voices.synthetic):
        assert len(voice) == 10
        assert all(0.5 < np.abs(sound).max() <= 1 and 0.2 < len(sound) / 8000 < 1 for sound in voice)


def test_mu_law_expands_to_known_values() -> None:
    assert digits.expand(np.array([0, 255], dtype=np.uint8)).tolist() == [-1, 1]
    assert abs(digits.expand(np.array([128], dtype=np.uint8))[0]) < 1e-3


def utterances() -> Any:
    mel = CASE.mel.LogMel.of(params("mini"))
    return digits.Utterances(digits.read_voices(DATA_DIR / "spoken_digits.npz").real, mel)


def test_no_held_out_sequence_is_trained_on() -> None:
    reserved = set(digits.held_out_sequences())
    assert len(reserved) == digits.EVALUATED == 150
    _, labels = utterances().take(1, 1, range(600))
    trained = {tuple(row[1:-1]) for row in labels}
    assert not trained & reserved
    assert {len(row) for row in trained} == {2, 3, 4}
    drawn = [digits.draw(np.random.default_rng(n), 4) for n in range(600)]
    assert set(drawn) & reserved, "without the rule they would be"


def test_a_training_utterance_is_a_function_of_seed_epoch_and_index() -> None:
    some = utterances()
    features, labels = some.take(1, 1, [3, 4])
    again, same = utterances().take(1, 1, [4])
    assert torch.equal(features[1:], again) and labels[1] == same[0]
    for other in ((2, 1, [4]), (1, 2, [4]), (1, 1, [5])):
        assert not torch.equal(some.take(*other)[0], again)


def test_hardly_any_utterance_is_longer_than_its_clip() -> None:
    """The quiet end of a clip is what is padded: where there is some, no word was cut."""
    voice = digits.read_voices(DATA_DIR / "spoken_digits.npz").real[0]
    samples = CASE.mel.LogMel.of(params("mini")).samples
    said = [
        digits.say(voice, digits.draw(np.random.default_rng(n), 4, 4), samples, np.random.default_rng(n))
        for n in range(200)
    ]
    assert np.mean([sound[-1] != 0 for sound in said]) < 0.02


def test_mean_work_is_that_of_many_utterances() -> None:
    _, labels = utterances().take(5, 1, range(400))
    counts = np.array([len(row) - 1 for row in labels])
    expected = digits.mean_work()
    assert counts.mean() == pytest.approx(expected[0], rel=0.03)
    assert (counts * (counts + 1) / 2).mean() == pytest.approx(expected[1], rel=0.05)


# Files of recordings


class Letters:
    """A tokenizer of single letters, as Transcripts would be."""

    prompt = (90, 80)

    def labels(self, text: str) -> list[int]:
        return [*self.prompt, *(ord(letter) - 97 for letter in text if letter != " "), 91]

    def words(self, tokens: list[int]) -> list[str]:
        return ["".join(chr(token + 97) for token in tokens if 0 <= token < 26)]


def wav(samples: np.ndarray, rate: int = 16000, width: int = 2) -> bytes:
    content = io.BytesIO()
    with wave.open(content, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes((samples * 32767).astype("<i2").tobytes())
    return content.getvalue()


def small_mel() -> Any:
    return CASE.mel.LogMel(sample_rate=16000, fft_size=64, hop=32, mel_bins=8, audio_frames=60)


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow"])
def test_ready_spectrograms_and_labels_are_read_as_the_guides_files_hold_them(tmp_path: Path, name: str) -> None:
    values = np.random.default_rng(0).random((5, 8, 60)).astype(np.float32)
    labels = [[90, n, 91] for n in range(5)]
    rows = CASE.tables.Rows(
        [written(tmp_path, {"input_features": values.tolist(), "labels": labels}, name)], small_mel(), Letters()
    )
    assert len(rows) == 5
    assert np.array_equal(rows.features([4, 1]).numpy(), values[[4, 1]])
    assert rows.labels(3) == [90, 3, 91]
    source = CASE.tables.Recordings(rows, rows, Letters(), 4)
    assert source.size == 4 and source.mean_work() == (2, 3)
    assert source.held_out.take([2])[1] == [["c"]]
    with pytest.raises(RunProblem, match="train_data has 5 rows, epoch_samples is 1000"):
        CASE.tables.Recordings(rows, rows, Letters(), 1000)


def test_sounds_become_spectrograms_and_sentences_labels(tmp_path: Path) -> None:
    sound = np.sin(np.arange(1500) / 5).astype(np.float32) * 0.5
    audio = [{"bytes": wav(sound), "path": "a.wav"}]
    rows = CASE.tables.Rows([written(tmp_path, {"audio": audio, "sentence": ["ab c"]})], small_mel(), Letters())
    expected = small_mel()(torch.from_numpy(np.pad(sound, (0, 1920 - 1500)))[None])
    torch.testing.assert_close(rows.features([0]), expected, atol=1e-2, rtol=0)
    assert rows.labels(0) == [90, 80, 0, 1, 2, 91]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"audio": [{"bytes": wav(np.zeros(9), 8000)}], "text": ["a"]}, "row 0 of .* has 8000 samples a second, not"),
        ({"audio": [{"bytes": b"ID3 an mp3"}], "text": ["a"]}, "the audio of row 0 of .* is no WAV file"),
        ({"audio": [{"bytes": None, "path": "a.wav"}], "text": ["a"]}, "has a path instead of a sound: embed"),
        ({"input_features": [[[1.0, 2.0]]], "labels": [[1]]}, "row 0 of .* has 2 values, not 8 x 60"),
        ({"sound": [1], "labels": [[1]]}, "has the columns sound, labels: it needs input_features or audio"),
    ],
)
def test_what_cannot_be_read_is_a_sentence(tmp_path: Path, columns: dict[str, Any], message: str) -> None:
    path = written(tmp_path, columns)
    with pytest.raises(RunProblem, match=message):
        CASE.tables.Rows([path], small_mel(), Letters()).features([0])


def test_a_torn_file_is_a_sentence(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    for name in ("a.parquet", "a.arrow"):
        (tmp_path / name).write_bytes(b"PAR1 torn")
        with pytest.raises(RunProblem, match=f"{name} cannot be read as {name[2:]}"):
            CASE.tables.Rows([tmp_path / name], small_mel(), Letters())


def test_files_are_sorted_and_limited_and_their_absence_is_a_sentence(tmp_path: Path) -> None:
    for name in ("train-1.parquet", "train-0.parquet", "train.txt", "eval-0.arrow"):
        (tmp_path / name).touch()
    find = CASE.tables.find_files
    assert [path.name for path in find(tmp_path, "train*", "train_data")] == ["train-0.parquet", "train-1.parquet"]
    assert [path.name for path in find(tmp_path, "train*", "train_data", 1)] == ["train-0.parquet"]
    with pytest.raises(RunProblem, match=r"test\* \(eval_data\) names no .parquet or .arrow file: python -m tools"):
        find(tmp_path, "test*", "eval_data")


def test_without_pyarrow_there_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(EnvironmentProblem, match="needs the package pyarrow: pip install pyarrow"):
        CASE.tables.Rows([tmp_path / "a.parquet"], small_mel(), Letters())


def test_a_transcript_begins_with_the_prompt_and_ends(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    make_tokenizer(path, ("<|startoftranscript|>", "<|bn|>", "<|transcribe|>", "<|notimestamps|>", "<|endoftext|>"))
    transcripts = CASE.transcripts.Transcripts(path, "bn", "transcribe")
    labels = transcripts.labels("two one two")
    assert labels[:4] == list(transcripts.prompt) and labels[4:7] == [2, 1, 2] and len(labels) == 8
    assert transcripts.words(labels) == ["two", "one", "two"]
    assert transcripts.words([-1, 2]) == ["two"]
    with pytest.raises(RunProblem, match=r"has no token <\|xx\|>: name another language"):
        CASE.transcripts.Transcripts(path, "xx", "transcribe")


# Configurations


@pytest.mark.parametrize("topology", ["1x1", "1x2", "2x1"])
def test_the_cpu_keeps_the_global_batch_of_mini(topology: str) -> None:
    (plan,) = plans(
        CATALOG,
        Request(vendor="cpu", models=("whisper",), frameworks=("pytorch",), topologies=(topology,), presets=("mini",)),
    )
    assert int(str(plan.params["train_batch_size"])) * plan.world_size == 32


GUIDE = {"1x1": (125, 371), "1x2": (63, 183), "1x4": (32, 93), "1x8": (16, 49), "2x8": (8, 25)}


@pytest.mark.parametrize("machine", ["A100", "H100", "H200"])
@pytest.mark.parametrize("topology", GUIDE)
def test_the_guides_table_is_held_to(machine: str, topology: str) -> None:
    request = Request(
        vendor="nvidia",
        machine=machine,
        models=("whisper",),
        frameworks=("pytorch",),
        topologies=(topology,),
        presets=("*",),
    )
    found = {plan.preset: plan for plan in plans(CATALOG, request)}
    checks = {check.name: check for check in found["full"].checks}
    steps, seconds = GUIDE[topology]
    assert checks["steps_of_the_epoch"].threshold == steps and checks["steps_of_the_epoch"].op == "=="
    assert checks["trainable_parameters"].threshold == 7_864_320
    if machine == "H200":
        assert "epoch_time" not in checks
        assert (found["full"].params["precision"], found["full"].params["base_weights"]) == ("bf16", "compute")
    else:
        assert checks["epoch_time"].threshold == seconds and "4.3.7.4" in checks["epoch_time"].source
        assert (found["full"].params["precision"], found["full"].params["base_weights"]) == ("fp16", "int8")
    mini = found["mini"]
    assert int(str(mini.params["train_batch_size"])) * mini.world_size == 32
