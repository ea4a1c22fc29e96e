"""The topics, and the silver tables that hold their rows."""

from dataclasses import dataclass

from spark_jobs.lake import tables
from spark_jobs.lake.tables import Table
from spark_jobs.silver import history


@dataclass(frozen=True)
class Topic:
    """A bronze table, and the silver tables that hold its rows."""

    name: str
    bronze: Table
    silver: Table
    quarantine: Table
    duplicates: Table | None = None
    others: tuple[Table, ...] = ()  # that follow from these
    dimension: history.Dimension | None = None

    @property
    def valid(self) -> tuple[Table, ...]:
        """The tables that hold its valid rows."""
        return (self.silver, self.duplicates) if self.duplicates else (self.silver,)

    @property
    def written(self) -> tuple[Table, ...]:
        """All of its tables."""
        return (*self.others, *self.valid, self.quarantine)


TOPICS = (
    Topic(
        "transactions",
        tables.BRONZE_TRANSACTIONS,
        tables.SILVER_TRANSACTIONS,
        tables.TRANSACTIONS_QUARANTINE,
        tables.TRANSACTIONS_DUPLICATES,
        others=(tables.TRANSACTION_IDS, tables.TRANSACTIONS_LATE),
    ),
    Topic("customers", tables.BRONZE_CUSTOMERS, tables.SILVER_CUSTOMERS, tables.CUSTOMERS_QUARANTINE, dimension=history.CUSTOMERS),
    Topic("accounts", tables.BRONZE_ACCOUNTS, tables.SILVER_ACCOUNTS, tables.ACCOUNTS_QUARANTINE, dimension=history.ACCOUNTS),
)
