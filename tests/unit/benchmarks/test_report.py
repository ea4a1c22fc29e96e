"""What `make bench` says of figures, and what it runs in Flink; no engine is started."""

from dataclasses import asdict
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.benchmarks import bench, report
from tests.benchmarks.history import Measured
from tests.benchmarks.peers import flink


def figures(seconds: dict[str, list[float]], **more: object) -> dict[str, Any]:
    """What a benchmark of a thousand rows of bronze found."""
    machine = {"cores": 2, "memory": 2**34, "load": [1.0, 1.0, 1.0], "system": "Linux <6>"}
    runs = {name: [asdict(Measured(each, 2 * each, 1.0)) for each in some] for name, some in seconds.items()}
    return {"machine": machine, "rows": 1000, "repeats": 3, "runs": runs, **more}


def test_a_speed_is_that_of_the_rows_which_a_run_reads_in_its_median_time() -> None:
    found = figures({"silver": [4.0, 2.0, 100.0], "spark": [9.0, 8.0, 7.0]}, rows_read={"silver": 1000, "spark": 800})
    assert report.speeds(found) == {"silver": 250.0, "spark": 100.0}


def test_an_earlier_file_without_the_rows_of_each_run_has_those_of_bronze() -> None:
    assert report.speeds(figures({"silver": [4.0]})) == {"silver": 250.0}


def test_layers_are_compared_with_the_peers_that_ran() -> None:
    found = figures({"bronze": [5.0], "kafka-noop": [4.0], "silver": [10.0], "duckdb": [1.0], "gold": [20.0]})
    assert [" ".join(line.split()) for line in report.ratios(found)] == [
        "rows a second, ratios",
        "bronze to kafka-noop 0.80 (aim: 0.8)",
        "silver to duckdb 0.10",
        "gold, rows a second 50 (aim: 20,000)",
    ]


def test_peers_alone_have_no_ratios() -> None:
    assert report.ratios(figures({"spark": [5.0], "duckdb": [1.0]})) == []


def test_the_table_has_what_another_time_took(capsys: pytest.CaptureFixture[str]) -> None:
    report.report(figures({"silver": [4.0], "gold": [1.0]}), figures({"silver": [8.0]}))
    silver, gold = capsys.readouterr().out.splitlines()[3:5]
    assert silver.split()[-3:] == ["8.0", "0.50", "0.50"]
    assert len(gold.split()) == len(silver.split()) - 3


def test_the_plot_has_a_bar_for_each_run_with_its_slowest_and_quickest() -> None:
    picture = ElementTree.fromstring(report.plot(figures({"bronze": [2.0, 1.0, 4.0], "duckdb": [0.5, 0.5, 0.5]})))
    bars = picture.findall("{*}rect")[1:]
    assert [float(bar.attrib["width"]) for bar in bars] == [105.0, 420.0]  # 500 and 2,000 rows a second
    assert [text.text for text in picture.findall("{*}text")][1:5] == ["bronze", "500", "duckdb", "2,000"]
    assert picture.findall("{*}path")[0].attrib["d"].startswith("M162.5 48H320.0")  # from 250 to 1,000


def test_a_script_of_flink_reads_the_fields_to_the_end_of_the_topic(tmp_path: Path) -> None:
    text = flink.script(tmp_path, "127.0.0.1:9", flink.FIRST)
    topic, files, insert = text.split(";")[:3]
    assert "`amount` decimal(18,2)" in topic
    assert "'scan.bounded.mode' = 'latest-offset'" in topic
    assert "'topic' = 'transactions', 'properties.bootstrap.servers' = '127.0.0.1:9'" in topic
    assert f"'path' = '{tmp_path}/files'" in files
    assert "partition by `transactionId`" in insert


def test_a_run_of_flink_without_finished_files_has_failed(tmp_path: Path) -> None:
    folder = tmp_path / "flink"
    (folder / "files" / ".staging").mkdir(parents=True)
    (folder / "script.sql").write_text("insert into files select nothing;")
    with pytest.raises(SystemExit, match="Flink wrote nothing"):
        flink.check_written(tmp_path)
    (folder / "files" / "part-0").touch()
    flink.check_written(tmp_path)


def test_no_counted_run_is_refused_before_anything_starts(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["bench", "--repeats", "0"])
    with pytest.raises(SystemExit):
        bench.main()
    assert "--repeats: found 0, expected at least 1" in capsys.readouterr().err


def test_a_run_that_there_is_not_is_named_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["bench", "--only", "silver,nosuch"])
    with pytest.raises(SystemExit, match="2"):
        bench.main()
    assert "--only: found nosuch, expected some of bronze, " in capsys.readouterr().err
