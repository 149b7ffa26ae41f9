"""ALMA's data: ten directions, phrases that are never in both parts, rows and shares of the ranks."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
tokenizers = pytest.importorskip("tokenizers")

from suite.drivers.events import RunProblem  # noqa: E402
from tests.case_alma import CASE, CASE_DIR, TINY, params, task  # noqa: E402

Example = CASE.data.Example
GUIDE = "de-en,cs-en,is-en,zh-en,ru-en,en-de,en-cs,en-is,en-zh,en-ru"


@pytest.fixture(scope="module")
def phrases() -> Any:
    return CASE.phrases.Phrases(CASE_DIR / "data/cldr_en_de.tsv.xz")


@pytest.fixture(scope="module")
def tokens() -> Any:
    tokenizer = CASE.translation.read_tokenizer(CASE_DIR / "data/tokenizer.json")
    return CASE.phrases.Tokens(tokenizer, "en-de")


@pytest.fixture(scope="module")
def llama() -> Any:
    """A tokenizer with Llama's special tokens, of single characters."""
    alphabet = sorted(set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ:.\n äöüßžð人ж"))
    model = tokenizers.models.BPE({token: i for i, token in enumerate(["<unk>", "<s>", "</s>", *alphabet])}, [])
    made = tokenizers.Tokenizer(model)
    made.add_special_tokens(["<unk>", "<s>", "</s>"])
    made.decoder = tokenizers.decoders.Fuse()
    return made


# The phrases of mini


def test_held_out_phrases_share_no_text_with_those_that_are_trained_on(phrases: Any) -> None:
    held_out = {text for one in phrases.held_out for text in one[:2]}
    assert len(phrases.held_out) == 300
    assert {one.kind for one in phrases.held_out} == {"date", "unit", "rel"}
    assert not held_out & {text for one in phrases.training for text in one[:2]}
    assert len(phrases.training) == 11280 == len(phrases.domain) + len(phrases.names)
    assert {one.kind for one in phrases.domain} == {"date", "unit", "rel"}
    assert not {one.kind for one in phrases.names} & {"date", "unit", "rel"}


def test_what_lies_underneath_never_sees_a_phrase_with_its_translation(phrases: Any, tokens: Any) -> None:
    """Of the kinds that the adapters learn: each side of such a phrase comes by itself only."""
    underneath = set(CASE.phrases.underneath(phrases, tokens))
    assert not underneath & {tokens.translation(one) for one in (*phrases.domain, *phrases.held_out)}
    assert len(CASE.phrases.underneath(phrases, tokens)) == 11280 + 2 * len(phrases.names)
    asked = {tokens.question(one).prompt for one in phrases.held_out}
    assert not asked & {one.prompt for one in underneath}


def test_tokens_say_what_they_were_made_of(phrases: Any, tokens: Any) -> None:
    phrase = phrases.held_out[0]
    example, question = tokens.translation(phrase), tokens.question(phrase)
    assert example.prompt == question.prompt and question.reference == phrase.de
    assert tokens.text(example.answer) == phrase.de
    assert tokens.text((*example.answer, 40, 41)) == phrase.de
    back = CASE.phrases.Tokens(tokens._tokenizer, "de-en").translation(phrase)
    assert tokens.text(back.answer) == phrase.en
    with pytest.raises(RunProblem, match="language_pair = 'en-is': the phrases have en-de and de-en"):
        CASE.phrases.Tokens(tokens._tokenizer, "en-is")


def test_every_phrase_fits_into_a_row(phrases: Any, tokens: Any) -> None:
    frame = task(params("mini")).frame
    every = CASE.phrases.underneath(phrases, tokens) + [tokens.translation(one) for one in phrases.domain]
    assert all(frame.cut(*one) == one for one in every)


def test_the_tokenizer_is_what_the_training_phrases_give(phrases: Any) -> None:
    made = CASE.phrases.train_tokenizer(phrases.training, params("mini")["vocab_size"])
    assert json.loads(made.to_str()) == json.loads((CASE_DIR / "data/tokenizer.json").read_text(encoding="utf-8"))
    assert [made.token_to_id(name) for name in CASE.phrases.SPECIALS] == list(range(5))


def test_files_are_those_of_data_toml() -> None:
    import hashlib

    for entry in tomllib.loads((CASE_DIR / "data.toml").read_text(encoding="utf-8"))["file"]:
        if entry["path"].startswith("case:"):
            content = (CASE_DIR / "data" / entry["path"].removeprefix("case:")).read_bytes()
            assert (len(content), hashlib.sha256(content).hexdigest()) == (entry["bytes"], entry["sha256"])


# The sentences of full


def test_the_directions_are_the_guides_ten() -> None:
    assert ",".join(CASE.translation.PAIRS) == GUIDE
    assert params()["language_pair"] == "zh-en"
    with pytest.raises(RunProblem, match=r"language_pair = 'en-fr' is not one of de-en, .*: change"):
        CASE.translation.check_pair("en-fr")


def shipped(folder: Path, pair: str) -> Path:
    """The files of one direction, as the project ships them."""
    source, target = pair.split("-")
    other = source if target == "en" else target
    place = folder / f"{other}en"
    place.mkdir()
    rows = [{"translation": {other: f"{other} {i}", "en": f"word {i}"}} for i in "abcde"]
    (place / f"train.{other}-en.json").write_text(json.dumps(rows), encoding="utf-8")
    (place / f"test.{pair}.json").write_text("\n".join(map(json.dumps, rows[:2])), encoding="utf-8")
    return folder


@pytest.mark.parametrize("pair", GUIDE.split(","))
def test_every_direction_is_read_and_asked_for(tmp_path: Path, llama: Any, pair: str) -> None:
    source, target = pair.split("-")
    folder = shipped(tmp_path, pair)
    train = CASE.translation.read_sentences(folder, "train", pair)
    assert len(train) == 5 and len(CASE.translation.read_sentences(folder, "test", pair)) == 2
    other = source if target == "en" else target
    assert train[0] == (("word a", f"{other} a") if source == "en" else (f"{other} a", "word a"))
    prompts = CASE.translation.Prompts(llama, pair, 256)
    names = CASE.translation.LANGUAGES
    text = (
        f"Translate this from {names[source]} to {names[target]}:\n{names[source]}: {train[0].source}\n{names[target]}:"
    )
    prompt = prompts.prompt(train[0].source)
    assert prompt[0] == 1 and llama.decode(list(prompt[1:])) == text
    answer = prompts.answer(train[0].target)
    assert answer[-1] == 2 and prompts.text(answer) == train[0].target


def test_a_long_source_is_cut_and_the_question_is_not(llama: Any) -> None:
    prompts = CASE.translation.Prompts(llama, "zh-en", 60)
    prompt = prompts.prompt("a" * 300)
    assert len(prompt) == 60
    assert llama.decode(list(prompt)).endswith("a\nEnglish:")
    assert prompts.text((*prompts.answer("ab cd\nef")[:-1], 2, 5)) == "ab cd"


def test_two_files_of_lines_serve_as_one_of_pairs(tmp_path: Path) -> None:
    place = tmp_path / "isen"
    place.mkdir()
    (place / "train.is-en.is").write_text("eitt\ntveir\n\n", encoding="utf-8")
    (place / "train.is-en.en").write_text("one\ntwo\nthree\n", encoding="utf-8")
    read = CASE.translation.read_sentences
    assert read(tmp_path, "train", "is-en") == [("eitt", "one"), ("tveir", "two")]
    assert read(tmp_path, "train", "en-is") == [("one", "eitt"), ("two", "tveir")]
    (place / "train.is-en.en").write_text("one\n", encoding="utf-8")
    with pytest.raises(RunProblem, match=r"has 3 lines, .* 1: they must be equal"):
        read(tmp_path, "train", "is-en")


def test_broken_files_are_named(tmp_path: Path) -> None:
    read, place = CASE.translation.read_sentences, tmp_path / "zhen"
    with pytest.raises(
        RunProblem, match=r"zhen/train.zh-en.json \(zh-en\) is missing: python -m tools data status alma"
    ):
        read(tmp_path, "train", "zh-en")
    place.mkdir()
    for content in ("[{}]", '[{"translation": {"zh": "a"}}]', "[1]", "{", '{"translation": 3}'):
        (place / "train.zh-en.json").write_text(content, encoding="utf-8")
        with pytest.raises(RunProblem, match=r"train.zh-en.json is not a list of \{translation: \{zh, en\}\}"):
            read(tmp_path, "train", "zh-en")
    (place / "tokenizer.json").write_text("{}", encoding="utf-8")
    with pytest.raises(RunProblem, match=r"tokenizer.json is no tokenizer.json"):
        CASE.translation.read_tokenizer(place / "tokenizer.json")
    bare = tokenizers.Tokenizer(tokenizers.models.BPE({"a": 0}, []))
    with pytest.raises(RunProblem, match="no tokens <s> and </s>: name the tokenizer of Llama 2"):
        CASE.translation.Prompts(bare, "zh-en", 256)


# Rows


def test_a_row_holds_a_prompt_and_all_of_its_answer_but_the_end() -> None:
    frame = CASE.data.Frame(length=10, max_answer=5, pad_multiple=0)
    batch = frame.pack([Example((1, 7, 8), (9, 6, 2)), Example((1, 5), (2,))])
    assert batch["tokens"].tolist() == [[1, 7, 8, 9, 6, 0, 0, 0, 0, 0], [1, 5, 0, 0, 0, 0, 0, 0, 0, 0]]
    assert batch["labels"].tolist() == [[9, 6, 2, -100, -100], [2, -100, -100, -100, -100]]
    assert batch["first"].tolist() == [2, 1] and batch["length"].tolist() == [5, 2]
    assert CASE.data.unpack(batch) == [Example((1, 7, 8), (9, 6, 2)), Example((1, 5), (2,))]


def test_rows_are_as_long_as_the_longest_needs() -> None:
    frame = CASE.data.Frame(length=20, max_answer=12, pad_multiple=8)
    short = frame.pack([Example((1, 5), (9, 2)), Example((1, 5, 6), (2,))])
    assert short["tokens"].shape == (2, 8) and short["labels"].shape == (2, 8)
    long = frame.pack([Example((1,) * 12, (9,) * 9)])
    assert long["tokens"].shape == (1, 20) and long["labels"].shape == (1, 12)


def test_what_does_not_fit_loses_the_start_of_its_prompt_and_the_end_of_its_answer() -> None:
    frame = CASE.data.Frame(length=6, max_answer=3, pad_multiple=0)
    assert frame.cut((1, 2, 3, 4, 5, 6, 7), (8, 9, 10, 11)) == Example((4, 5, 6, 7), (8, 9, 10))
    assert frame.pack([frame.cut(range(20), range(20))])["tokens"].shape == (1, 6)


def test_mean_work_counts_what_the_mask_lets_through() -> None:
    examples = [Example((1, 7, 8), (9, 6, 2)), Example((1, 5), (2,))]
    assert CASE.data.mean_work(examples) == ((5 + 2) / 2, (15 + 3) / 2, (3 + 1) / 2)


def test_global_batches_are_the_same_sets_for_any_number_of_ranks() -> None:
    examples = [Example((1, i), (i, 2)) for i in range(3, 30)]
    frame = CASE.data.Frame(length=8, max_answer=4, pad_multiple=0)

    def firsts(rank: int, world: int, size: int, skip: int = 0) -> list[list[int]]:
        place = CASE.data.Place(rank, world)
        found = CASE.data.train_batches(examples, frame, seed=1, epoch=2, batch_size=size, place=place, skip=skip)
        return [batch["tokens"][:, 1].tolist() for batch in found]

    whole = firsts(0, 1, 8)
    halves = list(zip(firsts(0, 2, 4), firsts(1, 2, 4)))
    assert len(whole) == len(halves) == 3
    assert [first + second for first, second in halves] == whole
    assert firsts(0, 1, 8, skip=1) == whole[1:]
    assert len(np.unique(whole)) == 24
    epochs = [
        next(
            CASE.data.train_batches(examples, frame, seed=1, epoch=e, batch_size=8, place=CASE.data.Place(0, 1), skip=0)
        )
        for e in (1, 2)
    ]
    assert epochs[0]["tokens"].tolist() != epochs[1]["tokens"].tolist()


def test_shuffled_answers_stand_after_other_prompts() -> None:
    frame = CASE.data.Frame(length=12, max_answer=6, pad_multiple=0)
    examples = [Example((1, *range(3, 3 + n)), (50 + n, 2)) for n in range(1, 7)]
    shuffled = CASE.data.unpack(
        CASE.data.shuffle_answers(frame.pack(examples), frame, torch.Generator().manual_seed(0))
    )
    assert [one.prompt for one in shuffled] == [one.prompt for one in examples]
    assert sorted(one.answer for one in shuffled) == sorted(one.answer for one in examples)
    assert sum(a.answer == b.answer for a, b in zip(shuffled, examples)) < 3


def test_random_tokens_fill_their_rows_and_differ_between_ranks() -> None:
    batches = [next(task(params(**TINY), rank=rank, world=2).synthetic_batches()) for rank in range(2)]
    for batch in batches:
        assert batch["tokens"].shape == (4, 48) and batch["labels"].shape == (4, 16)
        assert batch["first"].tolist() == [32] * 4 and batch["length"].tolist() == [48] * 4
        assert torch.equal(batch["labels"][:, :-1], batch["tokens"][:, 33:])
    assert not torch.equal(batches[0]["tokens"], batches[1]["tokens"])


# What is missing


def test_missing_files_are_named_with_the_remedy(tmp_path: Path) -> None:
    one = task(params(), data_dir=tmp_path, mode="converge")
    with pytest.raises(RunProblem, match=r"ALMA-7B-Pretrain \(init_checkpoint\) is missing: .*--set init_checkpoint"):
        one.build()
    with pytest.raises(RunProblem, match=r"human_written_data \(train_data\) is missing: python -m tools data status"):
        one.prepare_data()


def test_random_tokens_are_refused_where_quality_is_asked_for() -> None:
    with pytest.raises(RunProblem, match="trains on random tokens: add --mode throughput"):
        task(params("llama_1_1b"), mode="converge").prepare_data()


def test_the_mean_work_of_real_sentences_replaces_that_of_random_ones(tmp_path: Path, llama: Any) -> None:
    shipped(tmp_path, "zh-en")
    llama.save(str(tmp_path / "tokenizer.json"))
    changes = {"tokenizer": "tokenizer.json", "train_data": ".", "eval_data": ".", "sequence_length": 128}
    values = params(**{**TINY, **changes, "max_positions": 128, "max_source": 100})
    assert task(values).flops_per_sample()[0] > 0
    one = task(values, data_dir=tmp_path, mode="converge")
    assert one.flops_per_sample() is None
    one.prepare_data()
    work = CASE.data.mean_work(one.examples)
    assert one.flops_per_sample() == (CASE.work.training_flops(one.shape, *work), "counted_lora")
    assert len(one.held_out) == 2 and len(one.examples) == 5


def test_prepare_makes_the_tokenizer_and_says_what_it_cannot(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert CASE.prepare.main(["--preset", "mini", "--data-dir", str(tmp_path)]) == 0
    made = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    assert made == json.loads((CASE_DIR / "data/tokenizer.json").read_text(encoding="utf-8"))
    assert CASE.prepare.main([]) == 4
    assert "are fetched as they are" in capsys.readouterr().err
    assert CASE.prepare.main(["--preset", "mini", "--data-dir", str(tmp_path / "no")]) == 4


def test_a_checkpoint_fills_everything_but_the_adapters(tmp_path: Path) -> None:
    torch.manual_seed(0)
    source = task(params(**TINY)).build()
    weights = {name: value.clone() for name, value in CASE.checkpoint.places(source).items()}
    assert "model.layers.1.self_attn.k_proj.weight" in weights and len(weights) == 3 + 2 * 9
    (tmp_path / "weights").mkdir()
    half = len(weights) // 2
    for number, names in enumerate((list(weights)[:half], list(weights)[half:])):
        content = {name: weights[name] for name in names} | {
            "model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)
        }
        torch.save(content, tmp_path / "weights" / f"pytorch_model-{number}.bin")
    values = params(**{**TINY, "init_checkpoint": "weights"})
    loaded = task(values, data_dir=tmp_path).build()
    for name, value in source.state_dict().items():
        if not CASE.lora.is_adapter(name):
            assert torch.equal(loaded.state_dict()[name], value), name
    assert not loaded.layers[0].feed_out.lora_b["down_proj"].any()
    torch.testing.assert_close(loaded.cosine, source.cosine)
    with pytest.raises(RunProblem, match=r"'model.embed_tokens.weight' is \(101, 32\) in .*, \(99, 32\) in the model"):
        task(values | {"vocab_size": 99}, data_dir=tmp_path).build()
    with pytest.raises(RunProblem, match=r"lacks 'model.layers.2.input_layernorm.weight'"):
        task(values | {"num_layers": 3}, data_dir=tmp_path).build()
    (tmp_path / "weights/pytorch_model-0.bin").write_bytes(b"nothing")
    with pytest.raises(RunProblem, match="cannot be loaded as plain weights"):
        task(values, data_dir=tmp_path).build()
    (tmp_path / "empty").mkdir()
    with pytest.raises(RunProblem, match=r"holds no \*.safetensors and no pytorch_model\*.bin"):
        task(values | {"init_checkpoint": "empty"}, data_dir=tmp_path).build()


def test_shares_of_the_evaluation_are_disjoint_and_together_all() -> None:
    held = []
    for rank in range(3):
        one = task(params("mini"), rank=rank, world=3)
        one.prepare_data()
        held.append(one.held_out)
    assert [len(share) for share in held] == [100, 100, 100]
    assert len({question for share in held for question in share}) == 300
