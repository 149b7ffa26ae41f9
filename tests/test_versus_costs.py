"""`versus` and what cannot be held against each other without more ado: energy, and money."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.versus_toy import FAST, MISSED, SLOW, chip, compared, line, refused, session


@pytest.mark.parametrize(
    ("scopes", "reason"),
    [
        (("die", "die"), ""),
        (("die", "board"), "not compared: power is read of the die on A and of the board on B"),
        (("unknown", "board"), "not compared: what the power reading of A covers is unknown"),
        (("unknown", "unknown"), "not compared: what the power reading of A covers is unknown"),
    ],
)
def test_energy_is_compared_within_one_power_scope_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], scopes: tuple[str, str], reason: str
) -> None:
    a = session(tmp_path / "a", (chip("Z1", scope=scopes[0]), [SLOW | {"power_w": 300.0}] * 2))
    b = session(tmp_path / "b", (chip("Z2", scope=scopes[1]), [SLOW | {"power_w": 150.0}] * 2))
    report = compared(capsys, a, b)
    for metric in ("energy_j", "energy_per_sample_j", "power_mean_w"):
        one = line(report, metric)
        assert one["a"] is not None and one["b"] is not None, "each side's own figure is shown"
        if reason:
            assert (one["gain"], one["low"], one["reason"]) == (None, None, reason)
        else:
            assert one["gain"] == pytest.approx(2, rel=0.1)


def test_energy_nobody_measured_is_no_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = session(tmp_path / "a", (chip("Z1"), [SLOW]))
    b = session(tmp_path / "b", (chip("Z2"), [MISSED]))
    assert "energy_j" not in {one["metric"] for one in compared(capsys, a, b)["duels"][0]["lines"]}


def site(path: Path, **machines: str) -> list[str]:
    """--site and a file with these tables."""
    path.write_text("".join(f"[price.{name}]\n{text}\n" for name, text in machines.items()))
    return ["--site", str(path)]


def price(per_hour: float, currency: str = "EUR", date: str = "2026-01-01", source: str = "the contract") -> str:
    return f'per_device_hour = {per_hour}\ncurrency = "{currency}"\ndate = "{date}"\nsource = "{source}"\n'


def test_price_to_target_names_source_and_day(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """3.60 an hour is a thousandth a second: a chip at twice the price must be twice as fast to break even."""
    a = session(tmp_path / "a", (chip("Z1"), [SLOW]))
    b = session(tmp_path / "b", (chip("Z2"), [FAST]))
    words = site(tmp_path / "site.toml", Z1=price(3.6), Z2=price(7.2))
    report = compared(capsys, a, b, *words)
    cost, time = line(report, "price_to_target"), line(report, "time_to_train_s")
    assert cost["a"] == {"unit": "EUR", "values": [pytest.approx(time["a"]["values"][0] / 1000)], "bounds": []}
    assert cost["gain"] == pytest.approx(time["gain"] / 2)
    assert report["prices"][0] == "Z1: 3.6 EUR a device and hour (the contract, 2026-01-01)"
    other = compared(capsys, a, b, *site(tmp_path / "s2.toml", Z1=price(3.6), Z2=price(7.2, "USD")))
    assert line(other, "price_to_target")["reason"] == "not compared: EUR and USD"
    one = compared(capsys, a, b, *site(tmp_path / "s3.toml", Z1=price(3.6)))
    assert "no site names a price of Z2" in line(one, "price_to_target")["reason"]


def test_a_price_without_source_or_day_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = session(tmp_path / "a", (chip("Z1"), [SLOW]))
    b = session(tmp_path / "b", (chip("Z2"), [SLOW]))
    for broken, sentence in (
        (price(1.0, source=""), "price.Z1 has no source"),
        (price(1.0, date=" "), "price.Z1 has no date"),
        (price(-1.0), "price.Z1.per_device_hour = -1.0"),
        ("currency = 3", "price.Z1.per_device_hour is missing"),
    ):
        assert sentence in refused(capsys, a, b, *site(tmp_path / "site.toml", Z1=broken))
    (tmp_path / "none.toml").write_text("[data]\n")
    assert "has no [price.<machine>] table" in refused(capsys, a, b, "--site", str(tmp_path / "none.toml"))
