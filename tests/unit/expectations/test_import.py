"""What a gate imports: Great Expectations, and nothing large that only other users of it need."""

import json
import subprocess
import sys

from spark_jobs.runtime.settings import ROOT

CODE = """
import json, sys
from expectations.context import import_great_expectations
import_great_expectations()
large = {"pyspark", "sqlalchemy", "boto3", "botocore", "scipy.optimize", "altair.vegalite"}
found = [sorted(large & sys.modules.keys()), "_LateFinder" in [type(finder).__name__ for finder in sys.meta_path]]
import altair, boto3, scipy.stats, sqlalchemy  # who needs them has them
print(json.dumps([*found, altair.Chart.__name__, boto3.client.__name__, float(scipy.stats.entropy([1, 0])), sqlalchemy.text.__name__]))
"""


def test_what_gates_do_not_use_is_not_loaded_and_is_there_for_others() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [[], False, "Chart", "client", 0.0, "text"]
