"""Every Delta table of the pipeline, declared once: name, columns, keys, layout.

A table lies at `<warehouse>/<layer>/<name>`. Columns are `name type` pairs in Spark's DDL words; nullable unless `not null`.
"""

from dataclasses import replace

from spark_jobs.lake.schema import ensure_tables as ensure_tables
from spark_jobs.lake.table import Table as Table

ARRIVAL = ("_batch", "_topic", "_partition", "_offset")  # the order of arrival
_COORDINATES = "_topic string, _partition int, _offset bigint, _batch bigint"
_CHANGE_FEED = {"delta.enableChangeDataFeed": "true"}
_COORDINATE_KEYS = ("_topic", "_partition", "_offset")


def _bronze(topic: str) -> Table:
    return Table(
        f"bronze.{topic}",
        """key binary, value binary, headers array<struct<key:string,value:binary>>, _topic string, _partition int, _offset bigint,
        _timestamp timestamp, _batch bigint, _ingested_at timestamp, _ingested_on date""",
        keys=_COORDINATE_KEYS,
        partitioned_by=("_ingested_on",),
    )


def _quarantine(topic: str) -> Table:
    return Table(
        f"silver.{topic}_quarantine",
        f"key binary, value binary, broken_rules array<string>, detail string, {_COORDINATES}",
        keys=_COORDINATE_KEYS,
    )


BRONZE_TRANSACTIONS = _bronze("transactions")
BRONZE_CUSTOMERS = _bronze("customers")
BRONZE_ACCOUNTS = _bronze("accounts")

_TRANSACTION = """transaction_id string, account_id string, customer_id string, event_at timestamp, event_on date, type string,
    operation string, amount decimal(18,2), balance decimal(18,2)"""
SILVER_TRANSACTIONS = Table("silver.transactions", f"{_TRANSACTION}, {_COORDINATES}", keys=("transaction_id",), properties=_CHANGE_FEED)
TRANSACTIONS_DUPLICATES = Table(
    "silver.transactions_duplicates",
    f"transaction_id string, is_conflicting boolean, first_topic string, first_partition int, first_offset bigint, {_COORDINATES}",
    keys=_COORDINATE_KEYS,
)
TRANSACTIONS_LATE = Table(
    "silver.transactions_late",
    f"transaction_id string, event_at timestamp, watermark_at timestamp, late_by_seconds decimal(18,3), {_COORDINATES}",
    keys=_COORDINATE_KEYS,
)
# Where the row of each id is, so that looking for duplicates reads nothing else that grows.
TRANSACTION_IDS = Table("silver.transaction_ids", "id_hash bigint, _partition int, _offset bigint")
TRANSACTIONS_QUARANTINE = _quarantine("transactions")
CUSTOMERS_QUARANTINE = _quarantine("customers")
ACCOUNTS_QUARANTINE = _quarantine("accounts")

_VALIDITY = "valid_from timestamp, valid_to timestamp, is_current boolean, is_deleted boolean"
SILVER_CUSTOMERS = Table(
    "silver.customers",
    f"""customer_id string, sex string, social string, full_name string, phone string, email string, address1 string, address2 string,
    city string, state string, zipcode string, district_id int, birth_date date, {_VALIDITY}, {_COORDINATES}""",
    keys=("customer_id", "valid_from"),
    properties=_CHANGE_FEED,
)
SILVER_ACCOUNTS = Table(
    "silver.accounts",
    f"account_id string, district_id int, frequency string, creation_date date, {_VALIDITY}, {_COORDINATES}",
    keys=("account_id", "valid_from"),
    properties=_CHANGE_FEED,
)

_WINDOW = "window_start timestamp, window_end timestamp, type string, transactions bigint, amount decimal(38,2)"
DAILY_TOTALS = Table("gold.daily_totals", _WINDOW, keys=("window_start", "type"))
SLIDING_TOTALS = Table("gold.sliding_totals", _WINDOW, keys=("window_start", "type"))
CUMULATIVE_TOTALS = Table("gold.cumulative_totals", _WINDOW, keys=("window_start", "window_end", "type"))
CUSTOMER_SESSIONS = Table(
    "gold.customer_sessions",
    "customer_id string, session_start timestamp, session_end timestamp, transactions bigint, amount decimal(38,2)",
    keys=("customer_id", "session_start"),
)
WEEKLY_TOP_CUSTOMERS = Table(
    "gold.weekly_top_customers",
    "window_start timestamp, window_end timestamp, rank int, customer_id string, transactions bigint",
    keys=("window_start", "rank"),
)
LARGE_CREDITS = Table(
    "gold.large_credits",
    f"""transaction_id string, event_at timestamp, account_id string, customer_id string, amount decimal(18,2),
    balance decimal(18,2), {_COORDINATES}""",
    keys=("transaction_id",),
)
DEBIT_CREDIT_PAIRS = Table(
    "gold.debit_credit_pairs",
    "debit_id string, credit_id string, customer_id string, debit_at timestamp, credit_at timestamp",
    keys=("debit_id", "credit_id"),
)
DISTRICT_MINUTES = Table(
    "gold.district_minutes",
    "minute timestamp, district_id int, transactions bigint, amount decimal(38,2), average_5m decimal(18,1)",
    keys=("minute", "district_id"),
)
DEBIT_SHARE = Table("gold.debit_share", "day date, debits bigint, credits bigint, debit_share_percent decimal(7,4)", keys=("day",))
CUSTOMER_ACTIVITY = Table(
    "gold.customer_activity",
    """customer_id string, transactions bigint, credits decimal(38,2), debits decimal(38,2),
    first_event_at timestamp, last_event_at timestamp""",
    keys=("customer_id",),
)
ENRICHED_TRANSACTIONS = Table(
    "gold.enriched_transactions",
    f"""{_TRANSACTION}, customer_full_name string, customer_city string, customer_state string, customer_version_from timestamp,
    customer_status string, {_COORDINATES}""",
    keys=("transaction_id",),
)
ACCOUNT_BALANCES = Table(
    "gold.account_balances",
    """account_id string, balance decimal(18,2), last_event_at timestamp, credits decimal(38,2), debits decimal(38,2),
    transactions bigint, _topic string, _partition int, _offset bigint, _batch bigint""",
    keys=("account_id",),
)
# Not in the contract: per account and day, closing = opening + credits - debits. opening = closing of the account's day before that has
# transactions, null on its first; difference = closing - (opening + credits - debits).
ACCOUNT_DAYS = Table(
    "gold.account_days",
    """account_id string, day date, opening decimal(18,2), closing decimal(18,2), credits decimal(38,2), debits decimal(38,2),
    transactions bigint, difference decimal(38,2)""",
    keys=("account_id", "day"),
)

# Tables of `run live`: ahead of the gates and in no release; each row is final when it comes. A row of bronze.transactions is in
# one of the first two: `reason` is late, duplicate or invalid; watermark_at: of its batch, null before the first.
LIVE_TRANSACTIONS = Table("gold.live_transactions", f"{_TRANSACTION}, {_COORDINATES}", keys=("transaction_id", *_COORDINATE_KEYS))
LIVE_REFUSED = Table(
    "gold.live_refused",
    f"transaction_id string, event_at timestamp, reason string, watermark_at timestamp, {_COORDINATES}",
    keys=_COORDINATE_KEYS,
)
LIVE_DAILY_TOTALS = replace(DAILY_TOTALS, name="gold.live_daily_totals")
LIVE_SLIDING_TOTALS = replace(SLIDING_TOTALS, name="gold.live_sliding_totals")
LIVE_CUMULATIVE_TOTALS = replace(CUMULATIVE_TOTALS, name="gold.live_cumulative_totals")
LIVE_CUSTOMER_SESSIONS = replace(CUSTOMER_SESSIONS, name="gold.live_customer_sessions")
LIVE_DEBIT_CREDIT_PAIRS = replace(DEBIT_CREDIT_PAIRS, name="gold.live_debit_credit_pairs")

BATCHES = Table(
    "control.batches",
    """run_id string, job string, table string, first_batch bigint, last_batch bigint, input bigint, output bigint, duplicates bigint,
    quarantined bigint, superseded bigint, no_change bigint, rules_version string, finished_at timestamp,
    _newest_event_at timestamp, _read_versions string""",
)
QUALITY_RESULTS = Table(
    "control.quality_results",
    """run_id string, layer string, table string, version bigint, suite string, success boolean, evaluated bigint, failed bigint,
    failed_expectations array<string>, report string, _first_batch bigint, _last_batch bigint, _judged_at timestamp""",
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
REDRIVES = Table(
    "control.redrives",
    f"""run_id string, table string, rule string, rules_version string, {_COORDINATES}, outcome string, is_corrected boolean,
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
DECISIONS = Table(
    "control.decisions",
    """decided_at timestamp, choice string, layer string, who string, why string, run_id string, release_id bigint,
    generation bigint""",
)
BACKFILL_GRANTS = Table(  # which run of the DAG backfill_days rebuilds the day of which
    "control.backfill_grants",
    """run_id string, clear_number int, day date, leader string, leader_clear_number int, leader_day date,
    granted_at timestamp""",
)
HOLES = Table(
    "control.holes",
    """table string, _topic string, _partition int, first_offset bigint, last_offset bigint, why string, recorded_at timestamp""",
)
TOPICS = Table(  # the lives of each topic: one that was made anew is another, with a `_topic` of its own
    "control.topics",
    """topic string, incarnation int, _topic string, topic_id string, first_offsets string, who string, why string,
    recorded_at timestamp""",
    keys=("_topic",),
)

BRONZE = (BRONZE_TRANSACTIONS, BRONZE_CUSTOMERS, BRONZE_ACCOUNTS)
SILVER = (
    SILVER_TRANSACTIONS,
    TRANSACTIONS_DUPLICATES,
    TRANSACTIONS_QUARANTINE,
    TRANSACTIONS_LATE,
    SILVER_CUSTOMERS,
    CUSTOMERS_QUARANTINE,
    SILVER_ACCOUNTS,
    ACCOUNTS_QUARANTINE,
)
SILVER_INDEXES = (TRANSACTION_IDS,)  # the silver job's own; made of silver, in no release
SILVER_OWNED = (*SILVER, *SILVER_INDEXES)  # what silver's jobs write, under one lease
GOLD = (
    DAILY_TOTALS,
    SLIDING_TOTALS,
    CUMULATIVE_TOTALS,
    CUSTOMER_SESSIONS,
    WEEKLY_TOP_CUSTOMERS,
    CUSTOMER_ACTIVITY,
    LARGE_CREDITS,
    ENRICHED_TRANSACTIONS,
    DEBIT_CREDIT_PAIRS,
    ACCOUNT_BALANCES,
    DISTRICT_MINUTES,
    DEBIT_SHARE,
    ACCOUNT_DAYS,
)
# Their rows change one here, one there: Delta marks them as removed (deletion vectors), and leaves their files as they are.
MARKED = (CUSTOMER_SESSIONS, LARGE_CREDITS, ENRICHED_TRANSACTIONS, DEBIT_CREDIT_PAIRS, DISTRICT_MINUTES, ACCOUNT_DAYS)
# Each the table of a live query.
LIVE_RESULTS = (LIVE_DAILY_TOTALS, LIVE_SLIDING_TOTALS, LIVE_CUMULATIVE_TOTALS, LIVE_CUSTOMER_SESSIONS, LIVE_DEBIT_CREDIT_PAIRS)
LIVE = (LIVE_TRANSACTIONS, LIVE_REFUSED, *LIVE_RESULTS)
# The silver tables whose changes gold follows, each with the gold tables that keep in their commits how far they have come.
FOLLOWERS = {SILVER_TRANSACTIONS: GOLD, SILVER_CUSTOMERS: (ENRICHED_TRANSACTIONS,), SILVER_ACCOUNTS: (DISTRICT_MINUTES,)}
CONTROL = (
    *(BATCHES, QUALITY_RESULTS, RELEASES, CORRECTIONS, REDRIVES, BACKFILLS, AUDITS),
    *(RULE_SETS, DECISIONS, BACKFILL_GRANTS, HOLES, TOPICS),
)
EVERY = (*BRONZE, *SILVER_OWNED, *GOLD, *LIVE, *CONTROL)
LAYERS = {"bronze": BRONZE, "silver": SILVER, "gold": GOLD}
BY_NAME = {table.name: table for layer in LAYERS.values() for table in layer}  # what gates judge and releases name

# What a backfill may be asked to rebuild: what lies beside a silver table (duplicates, quarantine, late rows) goes with it.
REBUILT = tuple(table.name for table in (*FOLLOWERS, *GOLD))
