"""gold.live_account_lookups: of each live transaction what the bank's own system knows of its account now, looked up in Postgres.

gold.live_lookup_errors: of those the ones that got no answer, as alerts. Switched on by LEDGER_LIVE_LOOKUPS.
"""

import logging
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame, functions as F

from spark_jobs.lake.tables import ARRIVAL, COORDINATE_KEYS, LIVE_ACCOUNT_LOOKUPS, LIVE_LOOKUP_ERRORS, LIVE_TRANSACTIONS
from spark_jobs.live.declaration import LiveQuery
from spark_jobs.live.products.lookup_client import ERROR, Answer, Limits, Source, session
from spark_jobs.runtime.postgres import embedded_password
from spark_jobs.runtime.settings import Settings

log = logging.getLogger(__name__)

KIND = "lookup_error"
_FROM_POSTGRES = ("district_id", "frequency", "creation_date", "updated_at")
# The columns of include/postgres/accounts.sql. Cast, so that a table of like types does.
_SQL = """select district_id::int, frequency::text, creation_date::date, updated_at::timestamptz from accounts where account_id = $1"""
_ARROW = pa.schema(LIVE_ACCOUNT_LOOKUPS.delta_schema().to_arrow())
_OF_TRANSACTIONS = tuple(name for name in _ARROW.names if name in LIVE_TRANSACTIONS.columns)
_SECONDS = 5.0


def look_up_accounts(transactions: DataFrame, settings: Settings) -> DataFrame:
    """gold.live_account_lookups of rows of gold.live_transactions, in order of arrival; each row of these is one of those.

    Each account is asked for once, by one task, however many rows have it: so no more look-ups are in flight than the setting says.
    Raises SettingsError when no Postgres is known; one that does not answer is an error in the rows.
    """
    source = Source(_SQL, settings.postgres(), embedded_password(settings))
    limits = Limits(in_flight=settings.lookups_in_flight)

    def look_up(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return with_answers(batches, source, limits)

    rows = transactions.coalesce(1).sortWithinPartitions(*ARRIVAL).select(*_OF_TRANSACTIONS)
    return rows.mapInArrow(look_up, LIVE_ACCOUNT_LOOKUPS.ddl)


def with_answers(batches: Iterator[pa.RecordBatch], source: Source, limits: Limits) -> Iterator[pa.RecordBatch]:
    """Rows of transactions with the answers to their accounts, in the columns of gold.live_account_lookups."""
    ours = session(source, limits)
    until = ours.begin_batch()
    answers: dict[str, Answer] = {}
    for batch in batches:
        ids = batch.column("account_id").to_pylist()
        answers |= ours.look_up([key for key in dict.fromkeys(ids) if key not in answers], until)
        came = [answers[key] for key in ids]
        rows = [answer.row or (None,) * len(_FROM_POSTGRES) for answer in came]
        columns = {
            **{name: [row[place] for row in rows] for place, name in enumerate(_FROM_POSTGRES)},
            "lookup_status": [answer.status for answer in came],
            "cause": [answer.cause for answer in came],
            "looked_up_at": [answer.at for answer in came],
        }
        arrays = [pa.array(columns[each.name], each.type) if each.name in columns else batch.column(each.name) for each in _ARROW]
        yield pa.RecordBatch.from_arrays(arrays, names=_ARROW.names)


def to_errors(lookups: DataFrame) -> DataFrame:
    """gold.live_lookup_errors of gold.live_account_lookups: those of status error.

    The id of an alert is made of the coordinates of its row, so it is the same when the look-up is repeated.
    """
    errors = lookups.where(F.col("lookup_status") == ERROR)
    name = F.concat_ws("/", F.lit(KIND), *COORDINATE_KEYS)
    return errors.withColumns({"alert_id": name, "kind": F.lit(KIND)}).select(*LIVE_LOOKUP_ERRORS.columns)


def warn(errors: DataFrame, settings: Settings) -> DataFrame:
    """The errors as they are; the log says how many there are of each cause."""
    causes = errors.groupBy("cause").count().orderBy(F.desc("count"), "cause").collect()
    counts = ", ".join(f"{row['cause']}: {row['count']}" for row in causes)
    log.warning("live look-ups of accounts: no answer for %d rows (%s)", sum(row["count"] for row in causes), counts)
    return errors


LOOKUPS = (
    LiveQuery(
        LIVE_ACCOUNT_LOOKUPS,
        lambda read: read("live_transactions"),
        {"look-up": "by account_id"},
        seconds=_SECONDS,
        finish=look_up_accounts,
    ),
    LiveQuery(
        LIVE_LOOKUP_ERRORS,
        lambda read: to_errors(read("live_account_lookups")),
        {"filter": "lookup_status error"},
        sources=("live_account_lookups",),
        seconds=_SECONDS,
        finish=warn,
    ),
)
