"""The control tables, declared: what the pipeline notes of its own runs. Columns are in the words of Spark's DDL."""

from spark_jobs.lake.silver_tables import COORDINATES
from spark_jobs.lake.table import Table

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
