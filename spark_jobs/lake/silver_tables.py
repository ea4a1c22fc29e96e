"""The tables of the bank's topics that code names: what gold is made of. What works for every topic goes by TOPICS (lake/topics)."""

from spark_jobs.lake.topic import ARRIVAL as ARRIVAL, COORDINATE_KEYS as COORDINATE_KEYS, COORDINATES as COORDINATES
from spark_jobs.lake.topics import BY_TOPIC

_TRANSACTIONS, _CUSTOMERS, _ACCOUNTS = (BY_TOPIC[name] for name in ("transactions", "customers", "accounts"))

BRONZE_TRANSACTIONS, BRONZE_CUSTOMERS, BRONZE_ACCOUNTS = _TRANSACTIONS.bronze, _CUSTOMERS.bronze, _ACCOUNTS.bronze
SILVER_TRANSACTIONS, SILVER_CUSTOMERS, SILVER_ACCOUNTS = _TRANSACTIONS.silver, _CUSTOMERS.silver, _ACCOUNTS.silver
TRANSACTION = _TRANSACTIONS.columns
TRANSACTIONS_DUPLICATES, TRANSACTIONS_LATE, TRANSACTION_IDS = _TRANSACTIONS.duplicates, _TRANSACTIONS.late, _TRANSACTIONS.ids
TRANSACTIONS_QUARANTINE = _TRANSACTIONS.quarantine
CUSTOMERS_QUARANTINE, ACCOUNTS_QUARANTINE = _CUSTOMERS.quarantine, _ACCOUNTS.quarantine
