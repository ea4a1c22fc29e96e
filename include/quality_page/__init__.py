"""The page "Quality" inside Airflow: the web application behind the plugin `include/plugins/quality.py`, what it reads and masks."""
