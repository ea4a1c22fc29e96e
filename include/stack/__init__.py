"""The embedded stack: Kafka, Postgres and Airflow as processes of this machine, for one LEDGER_HOME."""
