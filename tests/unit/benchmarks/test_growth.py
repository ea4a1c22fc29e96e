"""How the benchmark of growth tells exponents, and draws them; no cycle is run."""

from xml.etree import ElementTree

import pytest

from tests.benchmarks import growth, history


def figures(silver: float, gold: float) -> growth.Figures:
    """What a cycle found: each measure has the same figure."""
    return {job: dict.fromkeys(growth.MEASURES, gold if job == "gold" else silver) for job in growth.JOBS}


FOUND = {1_000: figures(2.0, 3.0), 10_000: figures(2.0, 30.0), 100_000: figures(2.0, 300.0)}


def test_an_exponent_is_the_power_by_which_a_cost_grows() -> None:
    assert history.exponent([1, 10, 100], [3, 30, 300]) == pytest.approx(1.0)
    assert history.exponent([1, 10, 100], [7, 7, 7]) == pytest.approx(0.0)
    assert history.exponent([1, 4], [8, 16]) == pytest.approx(0.5)


def test_the_table_has_a_row_for_each_value_and_one_of_the_exponents() -> None:
    lines = growth.table("keys", FOUND)
    assert [line.split()[0] for line in lines[1:]] == ["1,000", "10,000", "100,000", "exponent"]
    assert lines[-1].split()[1:] == ["0.00"] * 4 + ["1.00"] * 4 + ["0.00"] * 4
    assert len({len(line) for line in lines[1:]}) == 1
    assert len(growth.table("keys", {1_000: figures(2.0, 3.0)})) == 2


@pytest.mark.parametrize("values", [3, 1])
def test_the_plot_has_a_line_for_each_job_and_measure(values: int) -> None:
    picture = ElementTree.fromstring(growth.plot("keys", dict(list(FOUND.items())[:values])))
    lines = picture.findall("{*}polyline")
    assert [len(line.attrib["points"].split()) for line in lines] == [values] * 9
    labels = [text.text or "" for text in picture.findall("{*}text")]
    assert f"gold, cpu s: exponent {1.0 if values > 1 else 0.0:.2f}" in labels


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--only", "history,size"], "--only: found size, expected some of history, late, new, cores, keys"),
        (["--values", "5"], "--values: found 5 names of what grows, expected one in --only"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    arguments: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["growth", *arguments])
    with pytest.raises(SystemExit):
        growth.main()
    assert said in capsys.readouterr().err
