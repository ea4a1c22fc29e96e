"""The only Airflow helpers: jobs as processes, gates, assets. DAG files put them in order; the work itself is in `spark_jobs`."""
