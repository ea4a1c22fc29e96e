"""The Great Expectations project that gates leave: anybody can judge its last profiles again, and nobody can change a verdict there."""

import json
from collections.abc import Callable
from decimal import Decimal

import pytest

from expectations.context import import_great_expectations
from spark_jobs.releases import gates
from spark_jobs.runtime.errors import GateClosed
from spark_jobs.runtime.settings import Settings
from tests.support.warehouse import good_rows, write

pytestmark = pytest.mark.xdist_group("expectations")
Copy = Callable[[], Settings]


def write_amount(settings: Settings, amount: str) -> None:
    rows = good_rows()["silver.transactions"]
    rows[0]["amount"] = Decimal(amount)
    write(settings, {"silver.transactions": rows}, mode="overwrite")


def test_the_checkpoint_of_a_layer_judges_its_last_profiles_again(copy_home: Copy) -> None:
    settings = copy_home()
    write_amount(settings, "-0.01")
    with pytest.raises(GateClosed):
        gates.run(settings, "silver", "run-1")
    context = import_great_expectations().get_context(mode="file", context_root_dir=settings.quality / "gx")
    outcome = context.checkpoints.get("silver").run().run_results.values()
    failed = {
        result.suite_name: [each.expectation_config.kwargs["column"] for each in result.results if not each.success] for result in outcome
    }
    assert failed.pop("silver.transactions") == ["negative_amounts"]
    assert len(failed) == 7
    assert not any(failed.values())


def test_a_stored_suite_that_somebody_changed_opens_no_gate(copy_home: Copy) -> None:
    settings = copy_home()
    gates.run(settings, "silver", "run-1")
    (file,) = (settings.quality / "gx/expectations/silver").rglob("transactions.json")
    suite = json.loads(file.read_text())
    suite["expectations"] = [each for each in suite["expectations"] if each["kwargs"]["column"] != "negative_amounts"]
    file.write_text(json.dumps(suite))
    write_amount(settings, "-0.01")
    with pytest.raises(GateClosed, match="negative_amounts"):
        gates.run(settings, "silver", "run-2")
