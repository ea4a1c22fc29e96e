"""The Delta tables as Airflow assets. An asset belongs to the gate that judged the table, not to the job that wrote it."""

from airflow.sdk import Asset

from spark_jobs.lake.tables import LAYERS


def layer_assets(layer: str) -> list[Asset]:
    """One asset for each table of a layer: name `silver.transactions`, URI `delta://silver/transactions`."""
    return [Asset(name=table.name, uri=f"delta://{table.name.replace('.', '/')}", group=layer) for table in LAYERS[layer]]
