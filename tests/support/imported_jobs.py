"""What jobs import, for the process from which tests fork them."""

import os
from importlib import import_module

# No thread of a library: what is forked of a process with others may wait for one that it does not have.
os.environ |= dict.fromkeys(("JE_ARROW_MALLOC_CONF", "_RJEM_MALLOC_CONF"), "background_thread:false") | {"OPENBLAS_NUM_THREADS": "1"}

import_module("expectations.context").import_great_expectations()  # before Spark, which it then does without, as in a gate
for name in ("spark_jobs.run", "pyspark.sql.functions", "pyspark.sql.streaming", "delta.tables"):
    import_module(name)
