"""Spark's own pages: off unless they are asked for, and then for this host alone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from spark_jobs.runtime.job_process import job_environment
from spark_jobs.runtime.session import submit_conf, ui_environment
from spark_jobs.runtime.settings import ROOT, read_settings

_LOOK = """
import logging, urllib.request, psutil
from spark_jobs.runtime import progress, session
from spark_jobs.runtime.settings import read_settings
spark = session.start_session(read_settings(), "pages")
(address,) = progress._links
listening = {each.laddr.ip for each in psutil.Process(session.jvm_of(spark)).net_connections("tcp") if each.status == psutil.CONN_LISTEN}
print(urllib.request.urlopen(f"{address}/jobs/").status, sorted(ip.removeprefix("::ffff:") for ip in listening))
"""


def test_sparks_pages_answer_on_loopback_only(tmp_path: Path) -> None:
    environment = os.environ | job_environment() | {"LEDGER_HOME": str(tmp_path), "LEDGER_SPARK_UI": "on"}
    done = subprocess.run([sys.executable, "-c", _LOOK], env=environment, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines()[-1:] == ["200 ['127.0.0.1']"], done.stderr


@pytest.mark.parametrize(("chosen", "enabled", "bound"), [({}, "false", False), ({"LEDGER_SPARK_UI": "on"}, "true", True)])
def test_they_are_off_unless_asked_for(tmp_path: Path, chosen: dict[str, str], enabled: str, bound: bool) -> None:
    settings = read_settings({"LEDGER_HOME": str(tmp_path), **chosen})
    assert submit_conf(settings)["spark.ui.enabled"] == enabled
    assert bool(ui_environment(settings)) == bound
