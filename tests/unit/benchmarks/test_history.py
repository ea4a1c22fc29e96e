"""How a run is measured."""

from pathlib import Path

from tests.benchmarks.history import run_command


def test_a_run_has_ended_when_all_that_it_started_has(tmp_path: Path) -> None:
    late = tmp_path / "late"
    measured = run_command(["sh", "-c", f"(sleep 1.5; touch '{late}') & sleep 0.5"], tmp_path)
    assert late.exists()
    assert measured.seconds < 1.5
