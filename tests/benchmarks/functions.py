"""How long each function for SQL takes over some rows, beside the nearest that Spark brings: include/docs/functions.md has the table.

    python -m tests.benchmarks.functions [--rows N]

Of three passes in one session the fastest counts, after one that is not timed. Rows are made by `range`; the first line of the table
says how long that alone takes. The last columns say what a session pays for the registration.
"""

import argparse
import tempfile
import time
from collections.abc import Callable

from pyspark.sql import SparkSession

from spark_jobs.lake import functions
from spark_jobs.runtime.session import start_session
from spark_jobs.runtime.settings import read_settings

PASSES = 3
ROWS = """select cast(id as string) as id, concat('A', pmod(hash(id), 5000)) as account_id,
    concat('Zoe Ann Mary', cast(id as string), ' Smith-Jones') as name,
    element_at(array('Credit in Cash', 'Remittance to Another Bank', null), 1 + cast(pmod(id, 3) as int)) as operation,
    cast(pmod(hash(id, 1), 10000000) / 100 as decimal(18,2)) as amount from range({rows})"""
QUERIES = (
    ("rows alone", "select * from given"),
    ("mask_name", "select mask_name(name) from given"),
    ("mask_name", "select mask(name) from given"),
    ("split_words", "select * from split_words(table(select id, operation from given))"),
    ("split_words", "select id, word.* from given, lateral posexplode(split(operation, ' ')) as word"),
    ("exact_quantiles", "select account_id, exact_quantiles(amount, array(0.5, 0.9, 0.99)) from given group by account_id"),
    ("exact_quantiles", "select account_id, percentile(amount, array(0.5, 0.9, 0.99)) from given group by account_id"),
    ("top_amounts", "select * from top_amounts(table(select account_id, amount from given) partition by account_id)"),
    ("top_amounts", "select account_id, explode(max_by(amount, amount, 2)) from given group by account_id"),
)


def seconds(work: Callable[[], object]) -> float:
    begun = time.monotonic()
    work()
    return time.monotonic() - begun


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.functions")
    parser.add_argument("--rows", type=int, default=1_000_000)
    rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as home:
        spark = start_session(read_settings({"LEDGER_HOME": home, "LEDGER_SPARK_MASTER": "local[2]"}), "functions")
        spark.sql(ROWS.format(rows=rows)).createOrReplaceTempView("given")
        print(f"{rows:,} rows of 5,000 accounts; seconds\n{'function':16} {'took':>6}  query")
        for name, query in QUERIES:
            print(f"{name:16} {fastest(spark, query):6.2f}  {query}", flush=True)
        for name in functions.NAMES:
            took = [seconds(lambda name=name: functions.register(spark.newSession(), f"{name}(")) for _ in range(PASSES)]  # type: ignore[misc]
            print(f"{name:16} {min(took):6.3f}  to register", flush=True)
        spark.stop()


def fastest(spark: SparkSession, query: str) -> float:
    """The seconds of the fastest pass; the rows are made and thrown away."""
    functions.register(spark, query)
    taken = [seconds(spark.sql(query).write.format("noop").mode("overwrite").save) for _ in range(PASSES + 1)]
    return min(taken[1:])


if __name__ == "__main__":
    main()
