"""The text about one cell, line by line."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from spark_jobs.explain.evidence import MOST_BESIDE, MOST_ROWS, Evidence
from spark_jobs.explain.runs import Runs, place_of, ranges
from spark_jobs.explain.snapshot import Row
from spark_jobs.gold.declaration import GoldTable
from spark_jobs.gold.tables.enriched_transactions import mask_text
from spark_jobs.lake import tables
from spark_jobs.lake.tables import Table
from spark_jobs.runtime.text import listed, named_values, shown

_COLUMNS = ("transaction_id", "event_at", "account_id", "customer_id", "type", "operation", "amount", "balance")
_MOST_RUNS = 20
_ORDERED = "record (topic partition:offset)"


class CellReport:
    """The lines about a cell. `differences` are known once the lines have been read."""

    def __init__(self, table: GoldTable, cell: Row, evidence: Evidence, runs: Runs) -> None:
        self.table, self.cell, self.evidence, self.runs = table, cell, evidence, runs
        self.differences: list[str] = []
        self._redriven = evidence.redriven() if runs.redriven else []
        self._shown_by = self._first_run()

    def lines(self) -> Iterator[str]:
        """The cell, its rows, what lies beside them, the runs that brought them, and whether they add up."""
        names = [name for name in self.table.columns if name not in self.table.keys]
        yield f"cell {named_values(self.cell, self.table.keys)}"
        yield f"  is: {named_values(self.cell, names)}"
        yield f"  rows: {self.evidence.count} of silver.transactions where {self.evidence.condition}" + (
            f" ({self.table.cell.note})" if self.table.cell.note else ""
        )
        yield from self._days() if self.table.cell.by_day else self._rows()
        yield from self._versions()
        yield from self._runs()
        self.differences = self.evidence.differences()
        if self.evidence.not_made:
            yield f"  sums: not computed again: {self.evidence.not_made}; run audit computes the whole table again"
        elif self.differences:
            in_sql = "; DataFusion computed it: where its functions differ from Spark's, run audit decides" if self.table.query else ""
            yield f"  sums: DIFFERENT: {'; '.join(self.differences)}{in_sql}"
        else:
            yield f"  sums: equal, the rows make {named_values(self.cell, [name for name in names if name in self.evidence.made[0]])}"

    def _rows(self) -> Iterator[str]:
        rows, late = self.evidence.rows(), self.evidence.late()
        if rows:
            names = (*_COLUMNS, _ORDERED, "batch", "marks")
            cells = [(*(row[name] for name in _COLUMNS), _record(row), row["_batch"], self._marks(row, late)) for row in rows]
            yield from listed(names, cells)
        if self.evidence.count > len(rows):
            yield f"    (the first {MOST_ROWS} by time)"
        yield f"  late: {len(late)}"
        left_out = self.evidence.duplicates()
        conflicting = sum(row["is_conflicting"] for row in left_out)
        yield f"  duplicates left out: {len(left_out)}" + (f", {conflicting} of them conflicting" if conflicting else "")
        for row in left_out[:MOST_BESIDE]:
            first = f"{row['first_topic']} {row['first_partition']}:{row['first_offset']}"
            kind = "conflicts with" if row["is_conflicting"] else "repeats"
            yield f"    {shown(row['transaction_id'])} at {_record(row)}, batch {row['_batch']}, {kind} {shown(first)}"
        if len(left_out) > MOST_BESIDE:
            yield f"    (the first {MOST_BESIDE} by id)"

    def _days(self) -> Iterator[str]:
        days = self.evidence.rows()
        yield from listed(("day", "debits", "credits", ""), [(row["day"], row["debits"], row["credits"], "") for row in days])
        if len(days) == MOST_ROWS:
            yield f"    (the last {MOST_ROWS} days)"
        yield f"  late: {self.evidence.late_count()} (a day of gold.daily_totals, explained, shows its rows)"

    def _marks(self, row: Row, late: dict[str, Row]) -> str:
        marks = []
        if row["_is_aside"]:
            marks.append("beside the cell")
        if (found := late.get(row["transaction_id"])) is not None:
            marks.append(f"late by {shown(found['late_by_seconds'])} s, behind the watermark {shown(found['watermark_at'])}")
        if redrive := self.runs.redriven.get((tables.SILVER_TRANSACTIONS.name, place_of(row))):
            marks.append(self._redriven_as(redrive))
        return "; ".join([*marks, *self._amended(tables.SILVER_TRANSACTIONS, row)])

    def _redriven_as(self, redrive: Row) -> str:
        given = self.runs.correction(redrive) if redrive["is_corrected"] else None
        by = f", its value corrected by {shown(given['who'])}: {shown(given['why'])}" if given else ""
        return f"re-driven from quarantine ({redrive['rule']}, rules {redrive['rules_version']}, run {redrive['run_id']}){by}"

    def _versions(self) -> Iterator[str]:
        """The versions of customers or accounts that hold at the rows' times; names are masked."""
        dimension = self.table.cell.dimension
        if dimension is None:
            return
        versions = self.evidence.versions()
        yield f"  versions of {dimension.name} at the rows' times: {len(versions)}" + (" or more" if len(versions) == MOST_ROWS else "")
        if not versions:
            return
        of_customers = dimension == tables.SILVER_CUSTOMERS
        fields = ("full_name", "city", "state") if of_customers else ("district_id",)
        names = (dimension.keys[0], "valid_from", "valid_to", "is_deleted", *fields)
        rows = [row | ({"full_name": mask_text(row["full_name"])} if of_customers else {}) for row in versions]
        cells = [(*(row[name] for name in names), _record(row), row["_batch"], self._marks_of(dimension, row)) for row in rows]
        yield from listed((*names, _ORDERED, "batch", "marks"), cells)

    def _marks_of(self, dimension: Table, version: Row) -> str:
        redrive = self.runs.redriven.get((dimension.name, place_of(version)))
        marks = [self._redriven_as(redrive)] if redrive else []
        run = self.runs.silver_run(dimension, version["_batch"])
        marks += [f"silver run {run['run_id']}, rules {run['rules_version']}"] if run else []
        return "; ".join([*marks, *self._amended(dimension, version)])

    def _first_run(self) -> int | None:
        """The number of the run of gold that first showed the cell."""
        return min(self._by_gold(), default=None)

    def _by_gold(self) -> dict[int, list[tuple[int, int]]]:
        """For each run of gold the batches that it took of the cell's rows, with their numbers of rows."""
        taken: dict[int, list[tuple[int, int]]] = defaultdict(list)
        apart: dict[int, int] = defaultdict(int)
        for row in self._redriven:
            run = self.runs.gold_run(tables.SILVER_TRANSACTIONS, row["_batch"], place_of(row))
            taken[-1 if run is None else run].append((row["_batch"], 1))
            apart[row["_batch"]] += 1
        for row in self.evidence.arrivals:
            run = self.runs.gold_run_of_batch(row["_batch"])
            if row["n"] > apart[row["_batch"]]:
                taken[-1 if run is None else run].append((row["_batch"], row["n"] - apart[row["_batch"]]))
        self._unknown = taken.pop(-1, [])
        return dict(sorted(taken.items()))

    def _amended(self, table: Table, row: Row) -> list[str]:
        run = self.runs.gold_run(table, row["_batch"], place_of(row))
        if run is None or self._shown_by is None or run <= self._shown_by:
            return []
        return [f"came when the cell was there: amended by gold run {self.runs.gold[run].run_id}"]

    def _runs(self) -> Iterator[str]:
        by_silver: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
        for row in self.evidence.arrivals:
            run = self.runs.silver_run(tables.SILVER_TRANSACTIONS, row["_batch"])
            by_silver[(run["run_id"], run["rules_version"]) if run else ("not recorded", "")].append((row["_batch"], row["n"]))
        lines = [f"silver run {name}{f', rules {rules}' if rules else ''}{_brought(taken)}" for (name, rules), taken in by_silver.items()]
        yield from _limited("silver runs", lines)
        lines = []
        for number, taken in self._by_gold().items():
            did = "first showed the cell" if number == self._shown_by else "amended it"
            lines.append(f"gold run {self.runs.gold[number].run_id}: {did}{_brought(taken)}")
        lines += [f"gold run not recorded{_brought(self._unknown)}"] if self._unknown else []
        yield from _limited("gold runs", lines)
        span = self.evidence.span
        for step in self.runs.steps_within(span["first"], span["last"]) if span["first"] else []:
            within = self.evidence.within(step["step_start"], step["step_end"])
            yield (
                f"  rebuilt by a backfill: {shown(step['step_start'])} to {shown(step['step_end'])}, {within} of these rows, "
                f"run {step['run_id']}, rules {shown(step['rules_versions'])}, {step['changed']} rows of its tables changed"
            )


def _record(row: Row) -> str:
    return f"{row['_topic']} {row['_partition']}:{row['_offset']}"


def _brought(taken: Sequence[tuple[int, int]]) -> str:
    count = sum(n for _, n in taken)
    return f", {count} row{'' if count == 1 else 's'} of batch{'' if len({batch for batch, _ in taken}) == 1 else 'es'} " + shown(
        ranges([batch for batch, _ in taken])
    )


def _limited(what: str, lines: Sequence[str]) -> Iterator[str]:
    yield f"  {what}: {len(lines)}"
    for line in lines[:_MOST_RUNS]:
        yield f"    {line}"
    if len(lines) > _MOST_RUNS:
        yield f"    (the first {_MOST_RUNS})"
