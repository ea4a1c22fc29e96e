"""What good data is: the rules a row must keep (rules/), and the expectations a table must meet (suites/), judged by Great Expectations.

Imports nothing of the pipeline: tables come in as paths and as functions that answer SQL.
"""
