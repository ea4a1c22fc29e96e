"""What the runtime needs and no Spark job imports: the embedded stack, the event producer, the demo, DAG helpers."""
