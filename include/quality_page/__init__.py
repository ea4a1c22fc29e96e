"""The page "Quality" inside Airflow: an Airflow plugin (`plugins/`), the web application behind it, and what it reads and masks."""
