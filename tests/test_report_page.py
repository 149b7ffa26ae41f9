"""The web pages of a session: complete without a script, safe whatever a log holds, and without effect on a verdict."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures.option_table import OPTIONS
from reports import plots
from reports.__main__ import main
from reports.html import SINGLE_FILE_BYTES, write_pages, write_single_file
from reports.html_rerun import CARRIED, rerun_command
from reports.html_text import ABSENT, TEMPLATES, duration, environment, flat, linkable, page_name
from reports.json_report import SessionReport, read_session
from suite.errors import UsageProblem
from tests.report_pages import HOSTILE, large_session, mixed_session, page_plan, write_report_session
from tests.reports_toy import toy_result

GLM = "glm-pytorch-cpu-host-mini"


class Page(HTMLParser):
    """A page as a browser takes it apart: tags with attributes, and the text."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.words: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def values(self, name: str) -> list[str]:
        """Of the attribute `name`, on every tag that has it."""
        return [attributes[name] for _, attributes in self.tags if name in attributes]


@dataclass(frozen=True)
class Reported:
    """A session with its pages."""

    folder: Path
    before: dict[str, str]
    """The digests of its files before there were pages."""


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Reported:
    """A session of every outcome, and its pages."""
    folder = tmp_path_factory.mktemp("mixed") / "a session"
    report = mixed_session(folder)
    before = digests(folder)
    write_pages(report, folder, folder / "report")
    return Reported(folder, before)


@pytest.fixture
def session(reported: Reported) -> Path:
    """Its folder, for who only looks."""
    return reported.folder


def pages(session: Path) -> list[Page]:
    """All pages of the report."""
    return [Page(path) for path in sorted((session / "report").rglob("*.html"))]


def plan_of(session: Path, id: str) -> Page:
    """The page of one plan."""
    return Page(session / "report" / "plans" / f"{id}.html")


def digests(folder: Path) -> dict[str, str]:
    """Of every file below `folder` but the report's."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "report" not in path.relative_to(folder).parts
    }


def test_every_plan_has_a_page_and_every_link_leads_somewhere(session: Path) -> None:
    made = pages(session)
    assert len(made) == 1 + len(read_session(session).results)
    for page in made:
        ids = set(page.values("id"))
        for target in [*page.values("href"), *page.values("src")]:
            path, _, fragment = target.partition("#")
            if "://" in target:
                continue
            assert not path or (page.path.parent / unquote(path)).is_file(), f"{page.path.name}: {target}"
            assert path or fragment in ids, f"{page.path.name}: {target}"


def test_no_page_needs_what_a_strict_content_policy_forbids(session: Path) -> None:
    for page in pages(session):
        for tag, attributes in page.tags:
            assert tag not in ("style", "iframe", "object", "base")
            assert tag != "script" or attributes["src"].endswith("report.js")
            assert not [name for name in attributes if name == "style" or name.startswith("on")]
        assert not [value for value in page.values("src") if value.startswith("data:")]


def test_text_from_a_log_is_text(session: Path) -> None:
    id = "faster_rcnn-pytorch-cpu-host-mini-2x1"
    raw = (session / "report" / "plans" / f"{id}.html").read_text(encoding="utf-8")
    assert "<script>document" not in raw and "<img src=x" not in raw
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", raw)
    told = HOSTILE.replace("\x1b", "\\x1b").replace("\u202e", "\\u202e")
    page = plan_of(session, id)
    assert page.text.count(told) == 3  # the reason, the log's tail, and the origin of a parameter


def test_only_addresses_of_the_web_become_links(session: Path) -> None:
    index = Page(session / "report" / "index.html")
    assert "https://ci.example.org/job/trainmark/7/" in index.values("href")
    assert "javascript:alert(1)" in index.text
    assert not [target for target in index.values("href") if target.lower().startswith("javascript")]
    assert not linkable("https://a b") and not linkable("data:text/html,x") and linkable("http://host:8080/job")


def test_the_overview_tells_outcome_and_numbers_of_each_case_and_topology(session: Path) -> None:
    text = Page(session / "report" / "index.html").text
    for part in (
        "1 failed 2 error 1 inconclusive 1 not started 3 passed",
        "Case 1x1 1x2 1x4 1x8 2x1",
        "✓ passed Quality 0.75 Time to train 12.9 s Throughput 160 sample/s Speedup 4×",
        "✗ failed: quality 0.41 is not >= 0.7",
        "· not_started: unavailable 8 devices wanted, 2 here",
        "pytest suite --vendor cpu --preset mini --seed 7",
        "0123456789abcdef0123456789abcdef01234567 with changes",
    ):
        assert part in text, part


def test_a_missing_number_is_never_zero(session: Path) -> None:
    lost = plan_of(session, f"{GLM}-1x8").text
    assert f"Quality {ABSENT} ≥ 0.7 Time to train {ABSENT} ≤ 10 min Throughput {ABSENT} Speedup {ABSENT}" in lost
    assert "No ledger: nothing of this plan was measured." in lost
    assert not re.search(r"\b0(\.0+)? (s|%|sample/s)", lost.replace("≤ 0 s", ""))


def test_a_plan_shows_checks_with_sources_and_how_to_run_it_again(session: Path) -> None:
    text = plan_of(session, f"{GLM}-1x4").text
    base = "toy-pytorch-cpu-host-mini-throughput-1x1: 40 image/s, folder base"
    assert re.search(
        rf"speedup ✓ pass 6\.66\d ≥ 3\.9 compared with {base}, low 6\.6\S+, high 6\.6\S+, degrees_of_freedom 1 a", text
    )
    assert "no_threshold: nobody has declared one" in text
    assert f"pytest suite -k '[{GLM}-1x4]' --vendor cpu --preset mini --seed 7 --set lr=0.1" in text
    assert "python -m torch.distributed.run train.py" in text
    assert "lr 0.1 cases/toy/pytorch/case.toml" in text
    assert "framework.version 2.13.0" in text


def test_a_crash_shows_the_end_of_its_log_and_what_was_still_measured(session: Path) -> None:
    page = plan_of(session, "bert-pytorch-cpu-host-mini-1x2")
    assert "Last lines of the log of rank 1" in page.text and "boom \\x1b[31m" in page.text
    assert "open" in page.text and "closed" not in page.text
    assert any("Training loss of run 1" in alt for alt in page.values("alt"))


def test_plots_say_in_words_what_they_show(session: Path) -> None:
    alts = plan_of(session, f"{GLM}-1x4").values("alt")
    assert len(alts) == 6
    for part in ("the last 0.75 after 15.3 s; target ≥ 0.7", "1x2: 2 times the speed of 1x1", "the longest: train"):
        assert any(part in alt for alt in alts), (part, alts)
    for image in (session / "report" / "images").iterdir():
        assert image.read_bytes().startswith(b"\x89PNG") and 2_000 < image.stat().st_size < 80_000


def test_a_report_changes_nothing_but_itself_and_is_the_same_twice(reported: Reported, tmp_path: Path) -> None:
    assert digests(reported.folder) == reported.before
    folder = shutil.copytree(reported.folder, tmp_path / "session")
    first = {path: path.read_bytes() for path in (folder / "report").rglob("*") if path.is_file()}
    (folder / "report" / "notes.txt").write_text("mine")
    write_pages(read_session(folder), folder, folder / "report")
    assert {path: path.read_bytes() for path in first} == first
    assert (folder / "report" / "notes.txt").read_text() == "mine"
    assert digests(folder) == reported.before


def test_without_matplotlib_the_pages_come_without_plots_and_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plots, "available", lambda: False)
    folder = tmp_path / "session"
    written = write_pages(mixed_session(folder), folder, folder / "report")
    assert "matplotlib is not installed" in written.remarks[0]
    page = plan_of(folder, f"{GLM}-1x2")
    assert "matplotlib is not installed" in page.text and page.values("src") == ["../report.js"]
    assert "Time by phase Phase Time Share prepare 0.20 s" in page.text
    assert not list((folder / "report" / "images").iterdir())


def test_events_that_cannot_be_read_cost_their_plots_and_are_told(tmp_path: Path) -> None:
    folder = tmp_path / "session"
    report = mixed_session(folder)
    (folder / f"{GLM}-1x2" / "r1" / "events" / "rank0.jsonl").write_text("no event\n")
    (folder / f"{GLM}-1x4" / "r1").rename(folder / "elsewhere")
    faulty = [result for result in report.results if result.id in (f"{GLM}-1x2", f"{GLM}-1x4")]
    write_pages(write_report_session(folder, faulty), folder, folder / "report")
    broken = plan_of(folder, f"{GLM}-1x2")
    assert "run 1: events/rank0.jsonl:1: not strict JSON" in broken.text
    assert any("accuracy of run 1 over 3 evaluations" in alt for alt in broken.values("alt"))
    assert "no run folder r1 lies in the session" in plan_of(folder, f"{GLM}-1x4").text


def test_a_result_cannot_lead_the_report_out_of_its_session(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    mixed_session(outside)
    result = read_session(outside).results[1]
    run = result.runs[0].model_copy(update={"folder": f"../../outside/{GLM}-1x2/r1"})
    hostile = result.model_copy(update={"id": "../../x<b>", "runs": (run,)})
    folder = tmp_path / "session"
    write_pages(write_report_session(folder, [hostile]), folder, folder / "report")
    (path,) = (folder / "report" / "plans").iterdir()
    assert path.name == page_name("../../x<b>") + ".html" and "/" not in path.name
    assert not any("Training loss" in alt for alt in Page(path).values("alt"))
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "report").symlink_to(outside)
    with pytest.raises(UsageProblem, match="a link, so the report would be written elsewhere"):
        write_pages(read_session(folder), folder, tmp_path / "linked" / "report")


def test_a_single_file_holds_everything_and_refers_to_nothing(session: Path, tmp_path: Path) -> None:
    written = write_single_file(read_session(session), session, tmp_path / "mail.html")
    page = Page(written.path)
    assert written.path.stat().st_size < SINGLE_FILE_BYTES and written.remarks == ()
    assert not [tag for tag, _ in page.tags if tag == "link"] and "src" not in dict(page.tags).get("script", {})
    assert all(source.startswith("data:image/png;base64,") for source in page.values("src"))
    assert len(page.values("src")) > 20
    ids = page.values("id")
    assert len(ids) == len(set(ids))
    assert {target[1:] for target in page.values("href") if target.startswith("#")} <= set(ids)


def test_five_hundred_plans_fit_into_a_file_for_mail_worst_first(session: Path, tmp_path: Path) -> None:
    report = large_session(tmp_path / "large", read_session(session).results, 500)
    written = write_single_file(report, tmp_path / "large", tmp_path / "mail.html", draw=False)
    page = Page(written.path)
    assert SINGLE_FILE_BYTES // 2 < written.path.stat().st_size < SINGLE_FILE_BYTES
    shown = [attributes["id"] for tag, attributes in page.tags if tag == "article"]
    assert written.remarks == (f"{500 - len(shown)} plans stand here in the overview only, to keep the file small.",)
    assert written.remarks[0] in page.text
    failed = {page_name(result.id) for result in report.results if result.outcome.status == "failed"}
    assert failed <= set(shown)
    assert all(result.id in page.text for result in report.results)
    assert {target[1:] for target in page.values("href") if target.startswith("#")} <= set(page.values("id"))


def test_a_file_that_mail_would_refuse_is_not_written(session: Path, tmp_path: Path) -> None:
    report = large_session(tmp_path / "huge", read_session(session).results, 2500)
    with pytest.raises(UsageProblem, match=r"overview of 2500 plans alone is larger .*without --single-file"):
        write_single_file(report, tmp_path / "huge", tmp_path / "mail.html", draw=False)
    assert not (tmp_path / "mail.html").exists()


def test_a_session_without_plans_has_a_page(tmp_path: Path) -> None:
    report = write_report_session(tmp_path / "session", [])
    write_pages(report, tmp_path, tmp_path / "report")
    assert "no plan was selected" in Page(tmp_path / "report" / "index.html").text


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_numbers_that_no_axis_can_hold_cost_their_plot_only(tmp_path: Path) -> None:
    result = toy_result(page_plan("odd"), ledger={"train": 1.7e308, "eval": 1.7e308, "wall_s": 1.0})
    run = result.runs[0].model_copy(update={"ledger": result.ledger})
    report = write_report_session(tmp_path, [result.model_copy(update={"runs": (run,)})])
    write_pages(report, tmp_path, tmp_path / "report")
    text = plan_of(tmp_path, result.id).text
    assert "passed" in text and ("a plot could not be drawn" in text or "Where the time went" in text)


def test_the_command_writes_pages_where_it_is_told(
    session: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["html", str(session), "--output", str(tmp_path / "out"), "--no-plots"]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'out' / 'index.html'}\n"
    assert not list((tmp_path / "out" / "images").iterdir())
    assert main(["html", str(session), "--single-file", str(tmp_path / "new" / "mail.html"), "--no-plots"]) == 0
    assert (tmp_path / "new" / "mail.html").is_file()


def test_wrong_input_is_one_sentence(session: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "journal-main.jsonl").write_text("")
    file = tmp_path / "file"
    file.write_text("")
    for arguments, said in (
        ([str(tmp_path)], f"no session.json yet; make it with `python -m reports rebuild {tmp_path}`"),
        ([str(tmp_path / "none")], "no such folder"),
        ([str(session), "--single-file", str(tmp_path)], "a folder; name a file"),
        ([str(session), "--output", str(file)], "a file; name a folder"),
    ):
        assert main(["html", *arguments]) == 4
        captured = capsys.readouterr()
        assert said in captured.err and captured.err.count("\n") == 1 and captured.out == ""


def test_rebuild_makes_the_pages_too(tmp_path: Path) -> None:
    plan = page_plan("one")
    record = {"kind": "selected", "plans": [plan.model_dump(mode="json")]}
    line = {"schema": 1, "t_wall": 1.0, "worker": "main", "record": record}
    (tmp_path / "journal-main.jsonl").write_text(json.dumps(line) + "\n")
    assert main(["rebuild", str(tmp_path)]) == 0
    assert "not_started: interrupted" in Page(tmp_path / "report" / "plans" / f"{plan.id}.html").text


def test_the_rerun_command_keeps_what_the_options_say_a_repetition_needs(session: Path) -> None:
    assert set(CARRIED) == {option.name for option in OPTIONS if option.rerun}
    result = read_session(session).results[0]
    given = "pytest suite -k 'a b' --seed=3 --set 'x=a b' --session out -n 4 --set y=1 --data-dir"
    assert rerun_command(result, given) == (
        f"pytest suite -k '[{GLM}-1x1]' --vendor cpu --seed=3 --set 'x=a b' --set y=1 --data-dir"
    )
    assert rerun_command(result, "pytest 'unbalanced") == f"pytest suite -k '[{GLM}-1x1]' --vendor cpu"


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.0123, "0.0123 s"), (61.93, "61.9 s"), (588.25, "9 min 48 s"), (600, "10 min"), (11_111, "3 h 05 min"),
     (190_000, "2 d 04 h"), (None, ABSENT)],
)  # fmt: skip
def test_durations_are_said_as_people_say_them(seconds: float | None, said: str) -> None:
    assert duration(seconds) == said


@given(st.text())
def test_a_page_name_is_a_plain_file_name(id: str) -> None:
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]*", page_name(id)) and len(page_name(id)) < 200


@given(st.text(), st.sampled_from(["<p>{{ x }}</p>", '<p title="{{ x }}">{{ [x]|join(",") }}</p>']))
def test_whatever_is_printed_stays_inside_its_tag(text: str, template: str) -> None:
    page = environment().from_string(template).render(x=text)
    assert (
        page.count("<") == 2
        and page.count(">") == 2
        and page.count('"') == template.count('"') - 2 * ("join" in template)
    )
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]", page)


def test_nested_facts_become_rows() -> None:
    facts = {"a": {"b": [1, 2], "c": None}, "devices": [{"name": "x"}, {"name": "y"}], "empty": [], "text": ""}
    assert flat(facts) == (
        ("a.b", "1, 2"), ("a.c", "none"), ("devices.0.name", "x"), ("devices.1.name", "y"), ("empty", "none"),
        ("text", "none"),
    )  # fmt: skip
    assert flat({}) == ()
    assert flat({str(i): i for i in range(9)}, limit=3)[-1] == ("…", "6 more, in environment.json of the run folder")


def test_templates_trust_only_what_is_made_here() -> None:
    trusted = [line for path in TEMPLATES.glob("*.html") for line in path.read_text().splitlines() if "safe" in line]
    assert len(trusted) == 1 and 'src="{{ source|safe }}"' in trusted[0]


def test_a_report_of_many_reads_its_session_once(session: Path, tmp_path: Path) -> None:
    report: SessionReport = large_session(tmp_path / "large", read_session(session).results, 500)
    write_pages(report, tmp_path / "large", tmp_path / "large" / "report", draw=False)
    made = sorted((tmp_path / "large" / "report" / "plans").iterdir())
    assert len(made) == 500 and (tmp_path / "large" / "report" / "index.html").stat().st_size < 2_000_000
