"""Rows of a release, or of a Postgres table, as Parquet in date folders."""
