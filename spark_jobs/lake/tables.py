"""Every Delta table of the pipeline, and the lists by which jobs find them. A table lies at `<warehouse>/<layer>/<name>`.

The tables of bronze and silver follow from the topics, each declared in a file in topics/; a gold table is declared in a file in
spark_jobs/gold/tables; a live table may be a file in SQL in spark_jobs/live. All are found: to add one, no line of this file changes.
The control tables, what the pipeline notes of its own runs, are declared here.
"""

import pkgutil
from importlib import import_module

from spark_jobs.lake import topics
from spark_jobs.lake.schema import ensure_tables as ensure_tables
from spark_jobs.lake.silver_tables import (
    ACCOUNTS_QUARANTINE as ACCOUNTS_QUARANTINE,
    ARRIVAL as ARRIVAL,
    BRONZE_ACCOUNTS as BRONZE_ACCOUNTS,
    BRONZE_CUSTOMERS as BRONZE_CUSTOMERS,
    BRONZE_TRANSACTIONS as BRONZE_TRANSACTIONS,
    COORDINATE_KEYS as COORDINATE_KEYS,
    COORDINATES as COORDINATES,
    CUSTOMERS_QUARANTINE as CUSTOMERS_QUARANTINE,
    SILVER_ACCOUNTS as SILVER_ACCOUNTS,
    SILVER_CUSTOMERS as SILVER_CUSTOMERS,
    SILVER_TRANSACTIONS as SILVER_TRANSACTIONS,
    TRANSACTION as TRANSACTION,
    TRANSACTION_IDS as TRANSACTION_IDS,
    TRANSACTIONS_DUPLICATES as TRANSACTIONS_DUPLICATES,
    TRANSACTIONS_LATE as TRANSACTIONS_LATE,
    TRANSACTIONS_QUARANTINE as TRANSACTIONS_QUARANTINE,
)
from spark_jobs.lake.table import Table as Table
from spark_jobs.runtime.settings import ROOT

# The order in which pages, reports and commands name them; tables that are not here come after these.
_ORDER = (
    *("daily_totals", "sliding_totals", "cumulative_totals", "customer_sessions", "weekly_top_customers", "customer_activity"),
    *("large_credits", "enriched_transactions", "debit_credit_pairs", "account_balances", "district_minutes", "debit_share"),
)


def _find_gold() -> tuple[dict[str, Table], list[str]]:
    """The table that each module of spark_jobs/gold/tables declares as TABLE, or a file in SQL, by its name; and why a file is refused."""
    folder = ROOT / "spark_jobs" / "gold"
    names = [found.name for found in pkgutil.iter_modules([str(folder / "tables")])]
    names.sort(key=lambda name: _ORDER.index(name) if name in _ORDER else len(_ORDER))
    found = {table.name: table for table in (import_module(f"spark_jobs.gold.tables.{name}").TABLE for name in names)}
    in_sql, refused = import_module("spark_jobs.gold.sql_tables").find_tables(folder, found)
    return found | {table.name: table for table in in_sql}, refused


_OF_GOLD, REFUSED = _find_gold()  # no job runs while a file in SQL is refused; readers do without its table
# Those that code or tests name. What works for every table of gold goes by the list GOLD.
DAILY_TOTALS = _OF_GOLD["gold.daily_totals"]
SLIDING_TOTALS = _OF_GOLD["gold.sliding_totals"]
CUMULATIVE_TOTALS = _OF_GOLD["gold.cumulative_totals"]
CUSTOMER_SESSIONS = _OF_GOLD["gold.customer_sessions"]
WEEKLY_TOP_CUSTOMERS = _OF_GOLD["gold.weekly_top_customers"]
CUSTOMER_ACTIVITY = _OF_GOLD["gold.customer_activity"]
LARGE_CREDITS = _OF_GOLD["gold.large_credits"]
ENRICHED_TRANSACTIONS = _OF_GOLD["gold.enriched_transactions"]
DEBIT_CREDIT_PAIRS = _OF_GOLD["gold.debit_credit_pairs"]
ACCOUNT_BALANCES = _OF_GOLD["gold.account_balances"]
DISTRICT_MINUTES = _OF_GOLD["gold.district_minutes"]
DEBIT_SHARE = _OF_GOLD["gold.debit_share"]
ACCOUNT_DAYS = _OF_GOLD["gold.account_days"]
GOLD = tuple(_OF_GOLD.values())

# Tables of `run live`: ahead of the gates and in no release; each row is final when it comes. A row of bronze.transactions is in
# one of the first two: `reason` is late, duplicate or invalid; watermark_at: of its batch, null before the first.
LIVE_TRANSACTIONS = Table(
    "gold.live_transactions", f"{TRANSACTION}, {COORDINATES}", keys=("transaction_id", *COORDINATE_KEYS), time_column="event_at"
)
LIVE_REFUSED = Table(
    "gold.live_refused",
    f"transaction_id string, event_at timestamp, reason string, watermark_at timestamp, {COORDINATES}",
    keys=COORDINATE_KEYS,
    time_column="event_at",
)
# Each row of live_transactions with the district of its account; districts_version is that of control.districts which names it.
LIVE_DISTRICT_TRANSACTIONS = Table(
    "gold.live_district_transactions",
    f"""transaction_id string, event_at timestamp, account_id string, type string, amount decimal(18,2), district_id int,
    district_name string, region string, district_status string, districts_version bigint, {COORDINATES}""",
    keys=("transaction_id", *COORDINATE_KEYS),
    time_column="event_at",
)


def _live(table: Table) -> Table:
    """The table of a live query, with the columns of one that gold follows."""
    layer, name = table.name.split(".")
    return Table(f"{layer}.live_{name}", table.ddl, keys=table.keys, time_column=table.time_column, texts=table.texts)


LIVE_DAILY_TOTALS = _live(DAILY_TOTALS)
LIVE_SLIDING_TOTALS = _live(SLIDING_TOTALS)
LIVE_CUMULATIVE_TOTALS = _live(CUMULATIVE_TOTALS)
LIVE_CUSTOMER_SESSIONS = _live(CUSTOMER_SESSIONS)
LIVE_DEBIT_CREDIT_PAIRS = _live(DEBIT_CREDIT_PAIRS)
LIVE_DEBIT_SHARE = _live(DEBIT_SHARE)
# The customer is the one that had come when the row was written; customer_status: unknown, too, where none came in time.
LIVE_ENRICHED_TRANSACTIONS = Table(
    "gold.live_enriched_transactions",
    ENRICHED_TRANSACTIONS.ddl,
    keys=("transaction_id", *COORDINATE_KEYS),
    time_column="event_at",
    texts=ENRICHED_TRANSACTIONS.texts,
)
# raised_at: an event time. found, allowed: of many_debits a number, of much_money and unusual_debit money, of silence days. caused_by: the
# rows, by event time. is_silenced: an operator had silenced the account when it was written. _live_batch: of the query, and it rises.
LIVE_ALERTS = Table(
    "gold.live_alerts",
    """alert_id string, kind string, account_id string, raised_at timestamp, found decimal(38,2), allowed decimal(38,2),
    caused_by array<struct<transaction_id:string,_topic:string,_partition:int,_offset:bigint>>, is_silenced boolean, _live_batch bigint""",
    keys=("alert_id",),
    time_column="raised_at",
)

# `lookup_status`: found, unknown (there is no such account) or error, with its `cause`; the four columns before it are null unless found.
# looked_up_at: when Postgres gave the answer, up to five minutes before the row was written; of an error when it was given up.
LIVE_ACCOUNT_LOOKUPS = Table(
    "gold.live_account_lookups",
    f"""transaction_id string, event_at timestamp, account_id string, customer_id string,
    district_id int, frequency string, creation_date date, updated_at timestamp,
    lookup_status string, cause string, looked_up_at timestamp, {COORDINATES}""",
    keys=("transaction_id", *COORDINATE_KEYS),
    time_column="event_at",
)
LIVE_LOOKUP_ERRORS = Table(
    "gold.live_lookup_errors",
    f"""alert_id string, kind string, event_at timestamp, transaction_id string, account_id string, customer_id string,
    cause string, looked_up_at timestamp, {COORDINATES}""",
    keys=("alert_id",),
    time_column="event_at",
)

# The control tables.
BATCHES = Table(
    "control.batches",
    """run_id string, job string, table string, first_batch bigint, last_batch bigint, input bigint, output bigint, duplicates bigint,
    quarantined bigint, superseded bigint, no_change bigint, rules_version string, finished_at timestamp,
    _newest_event_at timestamp, _read_versions string""",
)
QUALITY_RESULTS = Table(
    "control.quality_results",
    """run_id string, layer string, table string, version bigint, suite string, success boolean, evaluated bigint, failed bigint,
    failed_expectations array<string>, report string, _first_batch bigint, _last_batch bigint, _judged_at timestamp,
    _found array<string>, _expected array<string>""",
)
RELEASES = Table(
    "control.releases",
    """release_id bigint, released_at timestamp, table string, version bigint, rows bigint, last_batch bigint,
    rules_version string""",
    keys=("release_id", "table"),
)
CORRECTIONS = Table(
    "control.corrections",
    "_topic string, _partition int, _offset bigint, value binary, who string, why string, corrected_at timestamp",
)
# What `run forget` emptied, a row a bronze record; and of each erasure a last row without coordinates: what its search found.
# customer_hash: SHA-256 of erasure_id and the customer's id.
ERASURES = Table(
    "control.erasures",
    "erasure_id string, customer_hash string, _topic string, _partition int, _offset bigint, who string, why string, "
    "erased_at timestamp, found string",
)
REDRIVES = Table(
    "control.redrives",
    f"""run_id string, table string, rule string, rules_version string, {COORDINATES}, outcome string, is_corrected boolean,
    redriven_at timestamp, _newest_event_at timestamp, _silver_version bigint""",
)
# What backfills did, in the order of `number`: `started`, then of each step `begun` and `done`, and `finished`. A step is a range of times
# of transactions, or of customers and accounts (`part`). _versions (JSON): of `begun`
# the versions of all tables before it, of `done` those after it of the tables that the step changed.
BACKFILLS = Table(
    "control.backfills",
    """number bigint, backfill_id string, run_id string, state string, range_start timestamp, range_end timestamp,
    tables array<string>, part string, step_start timestamp, step_end timestamp, rules_versions string, rows bigint, changed bigint,
    last_batch bigint, recorded_at timestamp, _newest_event_at timestamp, _versions string""",
)
# What audits found, a row a table: how many it holds, lacks, and holds beside those; some, masked. release_id: null without --as-of.
AUDITS = Table(
    "control.audits",
    """run_id string, release_id bigint, table string, version bigint, rows bigint, missing bigint, unexpected bigint,
    examples array<string>, seconds decimal(18,3), audited_at timestamp""",
)
RULE_SETS = Table("control.rule_sets", "topic string, version string, text string, recorded_at timestamp", keys=("topic", "version"))
# The schemas of a schema registry by which values of a topic are read, in the order in which they came to be known (`number`, from 1).
REGISTRY_SCHEMAS = Table(
    "control.registry_schemas",
    "topic string, number int, schema_id bigint, kind string, schema string, references array<string>, recorded_at timestamp",
    keys=("topic", "number"),
)
DECISIONS = Table(
    "control.decisions",
    """decided_at timestamp, choice string, layer string, who string, why string, run_id string, release_id bigint,
    generation bigint""",
)
HOLES = Table(
    "control.holes",
    """table string, _topic string, _partition int, first_offset bigint, last_offset bigint, why string, recorded_at timestamp""",
)
ALERT_SILENCES = Table(  # until_at: null for good
    "control.alert_silences",
    "account_id string, is_silenced boolean, until_at timestamp, who string, why string, decided_at timestamp",
)
# Not what the pipeline notes, but what operators tell it (run districts): the whole table is replaced, so a version is one state of it.
DISTRICTS = Table(
    "control.districts",
    "district_id int, name string, region string",
    keys=("district_id",),
    description="Reference data, replaced as a whole by `run districts`. `gold.live_district_transactions` names the version of each row.",
)
TOPICS = Table(  # the lives of each topic: one that was created again is another, with a `_topic` of its own
    "control.topics",
    """topic string, incarnation int, _topic string, topic_id string, first_offsets string, who string, why string,
    recorded_at timestamp""",
    keys=("_topic",),
)

BRONZE = tuple(topic.bronze for topic in topics.TOPICS)
SILVER = tuple(table for topic in topics.TOPICS for table in topic.released)
SILVER_INDEXES = tuple(table for topic in topics.TOPICS for table in topic.indexes)  # made of silver, in no release
SILVER_OWNED = (*SILVER, *SILVER_INDEXES)  # what silver's jobs write, under one lease
_LIVE_IN_PYTHON = {
    LIVE_DAILY_TOTALS: LIVE_TRANSACTIONS,
    LIVE_SLIDING_TOTALS: LIVE_TRANSACTIONS,
    LIVE_CUMULATIVE_TOTALS: LIVE_TRANSACTIONS,
    LIVE_CUSTOMER_SESSIONS: LIVE_TRANSACTIONS,
    LIVE_DEBIT_CREDIT_PAIRS: LIVE_TRANSACTIONS,
    LIVE_DEBIT_SHARE: LIVE_TRANSACTIONS,
    LIVE_ENRICHED_TRANSACTIONS: LIVE_TRANSACTIONS,
    LIVE_ALERTS: LIVE_TRANSACTIONS,
    LIVE_ACCOUNT_LOOKUPS: LIVE_TRANSACTIONS,
    LIVE_LOOKUP_ERRORS: LIVE_ACCOUNT_LOOKUPS,
    LIVE_DISTRICT_TRANSACTIONS: LIVE_TRANSACTIONS,
}


def _find_live() -> tuple[tuple[Table, ...], dict[str, str]]:
    """The live table that each file in SQL declares; and, by the name of its query, why a file is refused."""
    known = {table.name for table in (*GOLD, LIVE_TRANSACTIONS, LIVE_REFUSED, *_LIVE_IN_PYTHON)}
    found, refused = import_module("spark_jobs.live.sql_tables").find_tables(ROOT / "spark_jobs" / "live", known)
    return tuple(found), refused


LIVE_IN_SQL, REFUSED_LIVE = _find_live()  # no job that writes live tables runs while a file is refused; all others do without its table
# Each the table of a live query, and the live table whose rows it takes.
LIVE_RESULTS = _LIVE_IN_PYTHON | dict.fromkeys(LIVE_IN_SQL, LIVE_TRANSACTIONS)
# Of a live query, what it reads beside that table: a table of bronze, which no savepoint sets back.
LIVE_BESIDE = {LIVE_ENRICHED_TRANSACTIONS: BRONZE_CUSTOMERS}
LIVE = (LIVE_TRANSACTIONS, LIVE_REFUSED, *LIVE_RESULTS)
CONTROL = (
    *(BATCHES, QUALITY_RESULTS, RELEASES, CORRECTIONS, ERASURES, REDRIVES, BACKFILLS, AUDITS),
    *(RULE_SETS, REGISTRY_SCHEMAS, DECISIONS, HOLES, TOPICS, ALERT_SILENCES, DISTRICTS),
)
EVERY = (*BRONZE, *SILVER_OWNED, *GOLD, *LIVE, *CONTROL)
LAYERS = {"bronze": BRONZE, "silver": SILVER, "gold": GOLD}
BY_NAME = {table.name: table for layer in LAYERS.values() for table in layer}  # what gates judge and releases name

# The silver tables whose changes gold follows, each with the gold tables that keep in their commits how far they have come.
_FOLLOWED = {topic.silver: tuple(table for table in GOLD if topic.silver in table.follows) for topic in topics.TOPICS}
FOLLOWERS = {source: followers for source, followers in _FOLLOWED.items() if followers}
# What a backfill may be asked to rebuild: what lies beside a silver table (duplicates, quarantine, late rows) goes with it.
REBUILT = tuple(table.name for table in (*_FOLLOWED, *GOLD))
