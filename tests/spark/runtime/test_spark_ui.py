"""Spark's own pages and metrics: off unless they are asked for, and then for this host alone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from spark_jobs.runtime.job_process import job_environment
from spark_jobs.runtime.session import submit_conf, ui_environment
from spark_jobs.runtime.settings import ROOT, read_settings

_LOOK = """
import json, logging, urllib.request, psutil
from spark_jobs.runtime import progress, session
from spark_jobs.runtime.settings import read_settings
spark = session.start_session(read_settings(), "pages")
(address,) = progress._links
listening = {each.laddr.ip for each in psutil.Process(session.jvm_of(spark)).net_connections("tcp") if each.status == psutil.CONN_LISTEN}
spark.range(5).count()
(file,) = (read_settings().checkpoints / "ui").glob("*.json")
(found,) = json.loads(file.read_text())
metrics = urllib.request.urlopen(f"http://{found['targets'][0]}/metrics/prometheus/").read().decode()
print(found["labels"], "metrics_spark_driver_DAGScheduler_job_allJobs_Number" in metrics, "local-" in metrics)
print(urllib.request.urlopen(f"{address}/jobs/").status, sorted(ip.removeprefix("::ffff:") for ip in listening))
"""


def test_sparks_pages_answer_on_loopback_only(tmp_path: Path) -> None:
    environment = os.environ | job_environment() | {"LEDGER_HOME": str(tmp_path), "LEDGER_SPARK_UI": "on"}
    done = subprocess.run([sys.executable, "-c", _LOOK], env=environment, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines()[-2:] == ["{'application': 'pages'} True False", "200 ['127.0.0.1']"], done.stderr
    assert list((tmp_path / "checkpoints/ui").iterdir()) == []  # Prometheus looks for it no more
    assert not [left for left in (tmp_path / "scratch").rglob("*") if left.is_file() and left.name != "lock"]  # and Spark has cleaned up


@pytest.mark.parametrize(("chosen", "enabled", "bound"), [({}, "false", False), ({"LEDGER_SPARK_UI": "on"}, "true", True)])
def test_they_are_off_unless_asked_for(tmp_path: Path, chosen: dict[str, str], enabled: str, bound: bool) -> None:
    settings = read_settings({"LEDGER_HOME": str(tmp_path), **chosen})
    assert submit_conf(settings)["spark.ui.enabled"] == enabled
    assert bool(ui_environment(settings)) == bound
