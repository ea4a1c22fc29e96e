"""The pipeline: Kafka to bronze, silver, gold and releases. Entry point: `python -m spark_jobs.run <job>`."""
