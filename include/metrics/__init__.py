"""Metrics in Prometheus form: one exporter that reads what is there already (heartbeats, tables, counts of jobs) and asks no job."""
