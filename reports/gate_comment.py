"""What a gate decided, as a comment for a pull request."""

from __future__ import annotations

from collections.abc import Iterator

from reports.comparison import Row
from reports.gate import PASS, Decided, Judged
from reports.markdown import code, rows, within

ORDER = ("failed", "infrastructure", "not judged", "passed", "shown", "not started")


def comment(decided: Decided) -> str:
    """Markdown under the limit of a comment: what ran, what failed, against what, and what nobody could judge."""
    mark = "✅" if decided.code == PASS else "❌"
    lines = [f"### {mark} Trainmark: {decided.sentence}", ""]
    lines += [_session(decided), ""]
    lines += [f"- {code(note)}" for note in decided.notes]
    plans = sorted(decided.plans, key=lambda plan: ORDER.index(plan.standing))
    if not plans:
        return within([*lines, "No plan was selected."])
    lines += ["", *rows(("plan", "gate", "outcome", "compared with"), (_row(plan) for plan in plans))]
    lines += list(_reasons(plans))
    lines += list(_changes(plans))
    return within(lines)


def _session(decided: Decided) -> str:
    session = decided.session
    commit = f", commit {code(session.git.commit)}" if session.git.commit else ""
    return f"Session {code(session.id)}{commit}. Run again: {code(session.command, 500) or 'the command is not known'}"


def _row(plan: Judged) -> tuple[str, ...]:
    outcome = plan.result.outcome
    told = ": ".join(part for part in (outcome.status, outcome.category) if part)
    unproven = "" if plan.result.verified else " (vendor not verified)"
    return (code(plan.result.id), f"**{plan.standing}**", f"{told}{unproven}", code(plan.baseline))


def _reasons(plans: list[Judged]) -> Iterator[str]:
    for title, standings in (
        ("Failed", ("failed",)),
        ("Could not be judged", ("infrastructure", "not judged", "not started")),
        ("Shown only", ("shown",)),
    ):
        chosen = [plan for plan in plans if plan.standing in standings]
        if chosen:
            yield from ("", f"**{title}**", "")
        for plan in chosen:
            yield f"- {code(plan.result.id)}: {code(plan.reason, 500)}"


def _changes(plans: list[Judged]) -> Iterator[str]:
    """Every gating number against its baseline, and what the runs could have shown."""
    compared = [row for plan in plans if plan.pair for row in plan.pair.rows if row.tolerance is not None]
    if compared:
        yield from ("", "**Against the baseline**", "")
        yield from rows(
            ("plan", "metric", "new / old", "95 %", "accepted", "detectable", "verdict"),
            (_change(row) for row in compared),
        )
    notes = [f"{plan.result.id}: {note}" for plan in plans for note in (plan.pair.notes if plan.pair else ())]
    notes += [f"{plan.result.id}: {text}" for plan in plans for text in plan.detectable]
    if notes:
        yield from ("", "<details><summary>Notes</summary>", "")
        yield from (f"- {code(note, 500)}" for note in notes)
        yield from ("", "</details>")


def _change(row: Row) -> tuple[str, ...]:
    interval = f"{row.low:.4f} to {row.high:.4f}" if row.low is not None and row.high is not None else "-"
    return (
        code(row.id),
        code(row.metric),
        "-" if row.ratio is None else f"{row.ratio:.4f}",
        interval,
        "-" if row.tolerance is None else f"{100 * row.tolerance:.2g} %",
        "-" if row.detectable is None else f"{100 * row.detectable:.2g} %",
        f"{row.verdict}: {code(row.reason)}" if row.reason else row.verdict,
    )
