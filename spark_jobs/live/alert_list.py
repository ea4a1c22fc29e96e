"""`run live_alerts`: what gold.live_alerts holds, and the accounts whose alerts an operator has silenced. Starts no JVM."""

from datetime import datetime
from string import Template

from deltalake import DeltaTable

from spark_jobs import control
from spark_jobs.control import alert_silences
from spark_jobs.lake.tables import LIVE_ALERTS
from spark_jobs.runtime.settings import Settings
from spark_jobs.runtime.text import listed, print_lines, sql_text
from spark_jobs.runtime.times import to_text
from spark_jobs.runtime.values import to_rows

MOST_ROWS = 100
_NEWEST = Template("select * from t where $where order by raised_at desc, alert_id limit $most")
_HEADS = ("raised at", "kind", "account", "found", "allowed", "silenced", "transactions")


def print_all(settings: Settings, account: str | None, now: datetime) -> None:
    """Print the newest hundred alerts, of one account or of all, the newest first, and who has silenced which of these accounts."""
    path = str(LIVE_ALERTS.path(settings))
    where = "true" if account is None else f"account_id = {sql_text(account)}"
    sql = _NEWEST.substitute(where=where, most=MOST_ROWS)
    rows = to_rows(control.query(DeltaTable(path), sql, LIVE_ALERTS)) if DeltaTable.is_deltatable(path) else []
    lines = [
        (
            *(to_text(row["raised_at"]), row["kind"], row["account_id"], row["found"], row["allowed"]),
            "yes" if row["is_silenced"] else "no",
            " ".join(cause["transaction_id"] for cause in row["caused_by"]),
        )
        for row in rows
    ]
    print_lines("\n".join(listed(_HEADS, lines)) if lines else "no alerts")
    for name, silence in sorted(alert_silences.in_effect(settings, now).items()):
        if account in (None, name):
            until = f"until {to_text(silence['until_at'])}" if silence["until_at"] else "until further notice"
            since = to_text(silence["decided_at"].replace(microsecond=0))
            print_lines(f"{name} is silenced {until}, since {since}, by {silence['who']}: {silence['why']}")
