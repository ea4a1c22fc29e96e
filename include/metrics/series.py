"""Every series that the exporter serves, declared once: the exporter refuses a sample of another one, and metrics.md lists them."""

from dataclasses import dataclass

GAUGE, COUNTER = "gauge", "counter"

Sample = tuple[str, tuple[str, ...], float]  # of a series: its name, the values of its labels in order, the value


@dataclass(frozen=True)
class Series:
    """A series: its name, unit included, the names of its labels and what it says. `kind` is GAUGE or COUNTER; `part` reads it."""

    part: str
    name: str
    kind: str
    labels: tuple[str, ...]
    text: str


def _of(part: str, *series: tuple[str, str, str, str]) -> tuple[Series, ...]:
    return tuple(Series(part, f"ledger_{name}", kind, tuple(labels.split()), text) for name, kind, labels, text in series)


APPLICATIONS, JOBS, TABLES, BATCHES, RELEASES, GATES, QUARANTINE, HOST, AIRFLOW = (
    *("applications", "jobs", "tables", "batches", "releases", "gates", "quarantine", "host", "airflow"),
)
EXPORTER = "exporter"

SERIES = (
    *_of(
        APPLICATIONS,
        ("service_wanted", GAUGE, "service", "1: the service is to run; 0: an operator has stopped it"),
        (
            "application_state",
            GAUGE,
            "service application state",
            "1 for the state that an application is in, 0 for the others: starting, "
            "running, stopping, ended (with exit code 0), failed (with another one), dead (without a word), hung (to be replaced)",
        ),
        ("application_heartbeat_timestamp_seconds", GAUGE, "service application", "when it last said how it does"),
        ("application_start_timestamp_seconds", GAUGE, "service application", "when it started"),
        ("query_up", GAUGE, "service query", "1: the query of a topic or live table runs; 0: it does not, or it fails"),
        ("query_failures", GAUGE, "service query", "how often in a row it has failed; 0 when it runs"),
        ("query_lag_records", GAUGE, "service query", "records of its topic, or rows of the table that it follows, that wait"),
        ("query_lag_seconds", GAUGE, "service query", "for how long the oldest of them waits; ingestion only"),
        ("query_arrival_rate", GAUGE, "service query", "records a second that Kafka got, over the last minute; ingestion only"),
        (
            "query_busy_rate",
            GAUGE,
            "service query",
            "records a second that batches took while they ran, over the last minute; ingestion only",
        ),
        (
            "query_pace",
            GAUGE,
            "service query pace",
            "1 for the pace that ingestion has, 0 for the others: keeping up, falling behind, overloaded",
        ),
        ("query_batch_limit_records", GAUGE, "service query", "how many records a batch may bring at present; ingestion only"),
        (
            "query_offset",
            GAUGE,
            "service query partition",
            "bronze holds the partition's records before this offset; its rate over partitions shows skew",
        ),
        ("query_watermark_timestamp_seconds", GAUGE, "service query", "the watermark, an event time; live queries only"),
        (
            "query_dropped_rows_total",
            COUNTER,
            "service query",
            "rows behind the watermark that Spark dropped although they were accepted: 0 unless there is a fault; live queries only",
        ),
        ("query_progress_timestamp_seconds", GAUGE, "service query", "when a batch last ended, or nothing waited"),
        ("query_batches_total", COUNTER, "service query", "batches since the application started"),
        ("query_rows_total", COUNTER, "service query", "rows that they took in"),
        (
            "query_phase_seconds_total",
            COUNTER,
            "service query phase",
            "seconds that they took, by Spark's phases: addBatch is the work and the commit of its rows",
        ),
        ("query_input_rate", GAUGE, "service query", "rows of the last batch by the seconds since the one before it began"),
        ("query_processing_rate", GAUGE, "service query", "rows of the last batch by the seconds that it took"),
        ("query_batch_seconds", GAUGE, "service query", "how long the last batch took"),
        ("query_state_rows", GAUGE, "service query", "entries in its state; queries with state only"),
        ("query_state_bytes", GAUGE, "service query", "memory that its state takes; queries with state only"),
    ),
    *_of(
        JOBS,
        ("job_starts_total", COUNTER, "job_name", "how often a job was started"),
        (
            "job_ends_total",
            COUNTER,
            "job_name exit_code",
            "how often it ended, by exit code; killed: its process is gone without one. 5 is a conflict: another process held the lease",
        ),
        ("job_seconds_total", COUNTER, "job_name", "how long those that ended took, together"),
        ("job_running", GAUGE, "job_name", "processes of the job that run"),
        ("job_failures_in_a_row", GAUGE, "job_name", "ends with another exit code than 0 and 3 since the last of these"),
        ("job_last_end_timestamp_seconds", GAUGE, "job_name", "when one last ended"),
    ),
    *_of(
        TABLES,
        ("table_rows", GAUGE, "table", "its rows"),
        ("table_files", GAUGE, "table", "the files of its newest version"),
        ("table_bytes", GAUGE, "table", "their size"),
        ("table_version", GAUGE, "table", "its version, so its rate is that of the commits"),
        ("table_commit_timestamp_seconds", GAUGE, "table", "when its newest commit was written"),
    ),
    *_of(
        BATCHES,
        ("runs_total", COUNTER, "job_name table", "runs of silver, gold and others on record in control.batches"),
        (
            "rows_total",
            COUNTER,
            "job_name table outcome",
            "the outcome of the rows that they took: input, output, duplicates, quarantined, superseded, no_change",
        ),
        ("batch", GAUGE, "topic reached", "the newest bronze batch of a topic that bronze, silver and the newest release hold"),
    ),
    *_of(
        RELEASES,
        ("release", GAUGE, "", "the number of the newest release; 0 before the first"),
        ("release_timestamp_seconds", GAUGE, "", "when it was published"),
        ("release_newest_event_timestamp_seconds", GAUGE, "", "the newest event time of the transactions in it"),
        ("release_table_rows", GAUGE, "table", "the rows of a table in it"),
        (
            "release_table_version",
            GAUGE,
            "table",
            "the version of a table in it; ledger_table_version is ahead by what it lacks",
        ),
        ("unreleased_rows", GAUGE, "topic", "rows of bronze that it lacks"),
        ("unreleased_since_timestamp_seconds", GAUGE, "", "when the first of them came; absent where it lacks none"),
        ("release_stale_after_seconds", GAUGE, "", "LEDGER_RELEASE_STALE_MINUTES, in seconds"),
    ),
    *_of(
        GATES,
        ("gate_closed", GAUGE, "layer table", "1: the newest verdict on the table stops the pipeline; 0: its rows may pass"),
        (
            "gate_tables",
            GAUGE,
            "layer state",
            "tables by the state of their newest verdict: passed, warned, overruled, closed (nobody has "
            "decided), waiting (a person has decided to wait)",
        ),
        ("gate_verdicts", GAUGE, "layer outcome", "verdicts on record, passed and failed; expired ones go"),
        ("gate_findings", GAUGE, "layer table", "expectations that the newest verdict found not met, warnings included"),
        ("gate_judged_timestamp_seconds", GAUGE, "layer table", "when the table was last judged"),
    ),
    *_of(
        QUARANTINE,
        ("quarantine_rows", GAUGE, "topic rule", "rows in quarantine by the rules that they break, so some count more than once"),
        ("late_rows", GAUGE, "topic", "rows of silver that came behind the watermark"),
    ),
    *_of(
        HOST,
        ("disk_free_bytes", GAUGE, "place", "free on the disk of home, warehouse and checkpoints"),
        ("disk_size_bytes", GAUGE, "place", "the size of that disk"),
        ("lease_held", GAUGE, "lease", "1: a process holds the lease of the table or job"),
        ("lease_takes_total", COUNTER, "lease", "how often it was taken"),
    ),
    *_of(
        AIRFLOW,
        (
            "airflow_heartbeats_total",
            COUNTER,
            "component",
            "heartbeats of scheduler, dag_processor and triggerer",
        ),
        (
            "airflow_tasks_total",
            COUNTER,
            "dag task state",
            "tasks that ended, by their state",
        ),
        ("airflow_runs_total", COUNTER, "dag state", "runs of DAGs that ended: success or failed"),
        ("airflow_run_seconds_total", COUNTER, "dag state", "how long they took, together"),
        ("airflow_queued_seconds_total", COUNTER, "dag task", "how long tasks waited in the queue before they started"),
        ("airflow_executor_tasks", GAUGE, "state", "places of the executor: open, queued, running"),
        ("airflow_import_errors", GAUGE, "", "files of DAGs that cannot be read"),
    ),
    *_of(
        EXPORTER,
        ("scrape_errors", GAUGE, "part", "1: this part could not be read at this scrape, and its series are missing; 0: it was"),
        ("scrape_seconds", GAUGE, "part", "how long reading it took"),
    ),
)
BY_NAME = {series.name: series for series in SERIES}
