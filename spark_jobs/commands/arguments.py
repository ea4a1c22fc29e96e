"""The command line of `python -m spark_jobs.run`: the options of every job."""

import argparse
import os
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from spark_jobs.control import verdicts
from spark_jobs.control.backfills import ROWS_A_STEP
from spark_jobs.lake import tables, topics
from spark_jobs.live.places import MODES
from spark_jobs.runtime import one_line
from spark_jobs.runtime.errors import SettingsError
from spark_jobs.runtime.option_types import some_of, whole, within
from spark_jobs.service.desired_state import ACTIONS
from spark_jobs.service.services import SERVICES

TOPICS = tuple(topic.name for topic in topics.TOPICS)
_ONLY = f"a subset of {','.join(TOPICS)}; by default all"
NO_ENGINE = "none"
_MAINTAINED = tuple(table.name for table in tables.EVERY)
MAINTENANCE_SECONDS = 1800
ENGINE_JOBS = 1000
_QUERIES = tuple(table.name.removeprefix("gold.live_") for table in tables.LIVE_RESULTS)
_OBEYING = "end on any request later than this one; by default: later than its start"
RATES = range(10, 1001)  # rows a second that the example makes
_REDRIVEN = (*(topic.silver.name for topic in topics.TOPICS), *(topic.quarantine.name for topic in topics.TOPICS))


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(SettingsError.exit_code, f"{self.prog}: {message} (see --help)\n")


def is_trial(options: argparse.Namespace) -> bool:
    """Whether a job says what it would do and writes nothing: a rehearsal, or a dry run."""
    return bool(getattr(options, "suite", None) or getattr(options, "dry_run", False))


def job_name(options: argparse.Namespace) -> str:
    """The job as metrics and lineage name it: a gate with its layer, such as `gate-gold`."""
    layer = getattr(options, "layer", None)
    return f"{options.name}-{layer}" if layer else str(options.name)


def parse(arguments: Sequence[str] | None, about: Mapping[str, str | None]) -> argparse.Namespace:
    """The command line; an unusable one ends the process with exit code 2 and one line. `about` says what each job does."""
    parser = _Parser(prog="python -m spark_jobs.run", description="The one entry point of the pipeline.")
    parser.add_argument(
        "--run-id", default=os.environ.get("LEDGER_RUN_ID") or uuid.uuid4().hex, help="names this run in the control tables"
    )
    parser.add_argument("--engine", choices=(NO_ENGINE,), help="start a separate JVM, even while an engine runs")
    jobs = parser.add_subparsers(dest="name", required=True, metavar="job")

    bronze = jobs.add_parser("bronze", help=about["bronze"])
    bronze.add_argument("--available-now", action="store_true", help="stop when all that is there now was read")
    bronze.add_argument("--starting-offsets", metavar="WHERE", help="earliest, latest, committed or an ISO 8601 time with a zone")
    bronze.add_argument("--only", type=some_of(TOPICS), default=TOPICS, metavar="TOPICS", help=_ONLY)
    bronze.add_argument("--obeying", metavar="REQUEST", help=_OBEYING)
    for name in (service.control for service in SERVICES.values()):
        control = jobs.add_parser(name, help=about[name])
        control.add_argument("action", choices=ACTIONS)
        control.add_argument("--who", type=_line, default="an operator", metavar="NAME", help="who wants it, for the record")
        control.add_argument("--why", type=_line_or_nothing, default="", metavar="TEXT", help="the reason, for the record")
        control.add_argument("--wait", type=whole, default=300, metavar="SECONDS", help="how long to wait until it is done (300)")
    accept = jobs.add_parser("accept", help=about["accept"])
    accept.add_argument("--topic", required=True, choices=TOPICS, help="the topic that ingestion refuses")
    accept.add_argument("--partition", type=whole, metavar="P", help="with --offset: give up one record that is too large")
    accept.add_argument("--offset", type=whole, metavar="O", help="of that record")
    _add_who_and_why(accept, "who accepts")
    districts = jobs.add_parser("districts", help=about["districts"])
    districts.add_argument(
        "--file", required=True, type=Path, metavar="PATH", help="CSV: district_id,name,region; it replaces all districts"
    )
    replay = jobs.add_parser("replay", help=about["replay"])
    replay.add_argument("--from", dest="begin", required=True, metavar="TIME", help="the first broker time: ISO 8601 with a zone")
    replay.add_argument("--to", dest="end", metavar="TIME", help="the first broker time after the range; by default the newest record's")
    replay.add_argument("--only", type=some_of(TOPICS), default=TOPICS, metavar="TOPICS", help=_ONLY)
    history = jobs.add_parser("import", help=about["import"])
    history.add_argument("--topic", required=True, choices=TOPICS, help="what the rows are")
    history.add_argument("--name", dest="source", required=True, metavar="NAME", help="their _topic in bronze is file:NAME")
    history_from = history.add_mutually_exclusive_group(required=True)
    history_from.add_argument("--file", type=Path, metavar="PATH", help="a CSV or Parquet file, or a folder of them")
    history_from.add_argument("--postgres", metavar="TABLE", help="a table of LEDGER_POSTGRES_URL")
    history.add_argument("--order-by", metavar="COLUMN", help="with --postgres: a unique column that new rows have at its end")
    live = jobs.add_parser("live", help=about["live"])
    live.add_argument("--available-now", action="store_true", help="stop when all that is there now was taken")
    live.add_argument("--obeying", metavar="REQUEST", help=_OBEYING)
    upgrade = jobs.add_parser("upgrade", help=about["upgrade"])
    upgrade.add_argument("--mode", required=True, choices=MODES, help="keep the states, keep them after a savepoint, or rebuild them")
    upgrade.add_argument("--query", nargs="+", choices=_QUERIES, default=_QUERIES, metavar="NAME", help="with stateless: only these")
    savepoint = jobs.add_parser("savepoint", help=about["savepoint"])
    savepoint_to = savepoint.add_subparsers(dest="action", required=True, metavar="action")
    savepoint_to.add_parser("create", help="save states and table versions").add_argument(
        "savepoint", nargs="?", metavar="NAME", help="by default: the time"
    )
    savepoint_to.add_parser("list", help="what is kept")
    savepoint_to.add_parser("restore", help="restore a savepoint").add_argument("savepoint", metavar="NAME")
    alerts = jobs.add_parser("live_alerts", help=about["live_alerts"]).add_subparsers(dest="action", required=True, metavar="action")
    alerts.add_parser("list", help="the newest, and which accounts are silenced").add_argument(
        "--account", metavar="ID", help="only of this account"
    )
    for action, text in (("silence", "publish no alerts of an account"), ("unsilence", "publish those raised from now on")):
        silence = alerts.add_parser(action, help=text)
        silence.add_argument("--account", type=_line, required=True, metavar="ID", help="the account")
        _add_who_and_why(silence, "who decides")
        if action == "silence":
            silence.add_argument("--until", metavar="TIME", help="ISO 8601, UTC without a zone; by default until further notice")
    example = jobs.add_parser("example", help=about["example"])
    example.add_argument(
        "--rate",
        type=within(RATES),
        default=RATES.start,
        metavar="N",
        help=f"rows a second, {RATES.start} to {RATES.stop - 1} ({RATES.start})",
    )
    example.add_argument("--seconds", type=whole, metavar="S", help="end after so many seconds; by default it runs until Ctrl-C")
    state = jobs.add_parser("state", help=about["state"]).add_subparsers(dest="action", required=True, metavar="list|show|export")
    state.add_parser("list", help="of each query its batch, watermark, operators, state stores, keys and sizes")
    show = state.add_parser("show", help="what a query holds of a key, a JSON object a line")
    show.add_argument("--where", required=True, metavar="CONDITION", help="which keys: one condition in SQL on the key columns of the list")
    taken = state.add_parser("export", help="all that a query holds, as Parquet")
    taken.add_argument("--to", required=True, type=Path, metavar="DIR", help="a folder that is empty or new")
    for part in (show, taken):
        part.add_argument("--query", required=True, metavar="NAME", help="a live query of the list, such as customer_sessions")
    jobs.add_parser("silver", help=about["silver"])
    jobs.add_parser("gold", help=about["gold"])
    redrive = jobs.add_parser("redrive", help=about["redrive"])
    redrive.add_argument("--rule", required=True, metavar="NAME", help="judge the rows of quarantine that break this rule")
    redrive.add_argument("--table", choices=_REDRIVEN, help="of this table only; by default of every table that has the rule")
    redrive.add_argument("--first-batch", type=whole, default=0, metavar="N", help="only rows of this bronze batch and later ones")
    redrive.add_argument("--last-batch", type=whole, metavar="N", help="only rows of this bronze batch and earlier ones")
    redrive.add_argument("--source", default="", metavar="NAME", help="only rows of this source: a topic, or file:NAME of an import")
    redrive.add_argument("--corrections", type=Path, metavar="FILE", help="values to judge instead, one JSON object a line")
    redrive.add_argument("--dry-run", action="store_true", help="say how many rows it would judge again; changes nothing")
    backfill = jobs.add_parser("backfill", help=about["backfill"])
    backfill.add_argument("--start", required=True, metavar="TIME", help="the first event time, a date or a time; UTC without a zone")
    backfill.add_argument("--end", required=True, metavar="TIME", help="the event time before which it ends")
    backfill.add_argument("--tables", nargs="+", choices=tables.REBUILT, default=tables.REBUILT, metavar="TABLE", help="only these tables")
    backfill.add_argument("--dry-run", action="store_true", help="say which rows, files and windows it would touch; changes nothing")
    backfill.add_argument("--publish", action="store_true", help="judge and release each step, so that readers see it at once")
    backfill.add_argument(
        "--step-rows", type=whole, default=ROWS_A_STEP, metavar="N", help=f"rows rebuilt while live runs wait ({ROWS_A_STEP})"
    )
    forget = jobs.add_parser("forget", help=about["forget"])
    forget.add_argument("--customer", type=_line, required=True, metavar="ID", help="the customerId of the person")
    _add_who_and_why(forget, "who erases")
    forget.add_argument("--dry-run", action="store_true", help="say how many records it would empty; changes nothing")
    audit = jobs.add_parser("audit", help=about["audit"])
    audit.add_argument("--as-of", type=whole, metavar="RELEASE", help="the tables of this release; by default as they are now")
    jobs.add_parser("migrate", help=about["migrate"])
    maintenance = jobs.add_parser("maintenance", help=about["maintenance"])
    maintenance.add_argument("--tables", nargs="+", choices=_MAINTAINED, default=_MAINTAINED, metavar="TABLE", help="only these tables")
    maintenance.add_argument(
        "--wait",
        type=whole,
        default=MAINTENANCE_SECONDS,
        metavar="S",
        help=f"seconds to wait for the lease of a table ({MAINTENANCE_SECONDS})",
    )
    gate = jobs.add_parser("gate", help=about["gate"])
    gate.add_argument("layer", choices=tuple(tables.LAYERS))
    gate.add_argument("--verdict", type=Path, metavar="FILE", help="write the verdict here, as JSON")
    gate.add_argument("--suite", type=Path, metavar="FILE", help="rehearse this suite or rule set on stored batches; writes nothing")
    gate.add_argument("--since", type=whole, default=0, metavar="RELEASE", help="with --suite: the batches after this release (0: all)")
    release = jobs.add_parser("release", help=about["release"])
    release.add_argument("--keep", type=int, metavar="ID", help="publish nothing; copy this release, so that it can be read for good")
    decide = jobs.add_parser("decide", help=about["decide"])
    decide.add_argument("choice", choices=[choice.replace(" ", "-") for choice in verdicts.CHOICES])
    _add_who_and_why(decide, "who decides")
    export = jobs.add_parser("export", help=about["export"])
    rows = export.add_mutually_exclusive_group(required=True)
    rows.add_argument("--table", metavar="NAME", help="a table of a release, such as silver.transactions")
    rows.add_argument("--postgres", metavar="SCHEMA.TABLE", help="a table in LEDGER_POSTGRES_URL")
    export.add_argument("--to", required=True, metavar="URL", help="a folder, or s3a://bucket/prefix")
    export.add_argument("--start", metavar="TIME", help="the first time, in ISO 8601; UTC where it has no zone")
    export.add_argument("--end", metavar="TIME", help="the first time after the range")
    export.add_argument("--release", type=whole, metavar="N", help="with --table: this release; by default the newest")
    export.add_argument("--file-mb", type=within(range(1, 4097)), default=128, metavar="M", help="about how large a file may become (128)")
    export.add_argument("--date-column", metavar="C", help="with --postgres: the time of a row; by default the day of the export")
    export.add_argument("--partition-column", metavar="C", help="with --postgres: read in parallel, cut by this column")
    explain = jobs.add_parser("explain", help=about["explain"])
    explain.add_argument("--table", required=True, metavar="NAME", help="a table of gold, such as gold.daily_totals")
    explain.add_argument("--where", required=True, metavar="CONDITION", help="which cells: one condition in SQL on the table's columns")
    explain.add_argument("--as-of", type=whole, metavar="RELEASE", help="as this release has it; by default as it is now")
    endless = jobs.add_parser("engine", help=about["engine"])
    endless.add_argument("--obeying", metavar="REQUEST", help=_OBEYING)
    endless.add_argument("--jobs", type=whole, default=ENGINE_JOBS, metavar="N", help=f"end after so many jobs ({ENGINE_JOBS})")
    return parser.parse_args(arguments)


def _add_who_and_why(job: argparse.ArgumentParser, who: str) -> None:
    job.add_argument("--who", type=_line, required=True, metavar="NAME", help=who)
    job.add_argument("--why", type=_line, required=True, metavar="TEXT", help="the reason, for the record")


def _line(text: str, least: int = 1) -> str:
    if wrong := one_line.problem(text, least):
        raise argparse.ArgumentTypeError(wrong)
    return text


def _line_or_nothing(text: str) -> str:
    return _line(text, least=0)
