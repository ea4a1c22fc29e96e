"""Kafka's topics, the Delta tables and the release as Airflow assets, and what each is made from.

An asset belongs to the gate that judged the table, not to the job that wrote it. A gate's inlets are the tables that its own were made
from, so Airflow's asset graph leads from the topics to the release.
"""

from collections.abc import Iterable
from functools import cache
from importlib import import_module
from typing import Any

from airflow.sdk import Asset

from spark_jobs.lake.tables import BY_NAME, GOLD, LAYERS, Table
from spark_jobs.runtime.settings import read_settings

_DESCRIPTIONS = {
    "bronze": "Every Kafka record of the topic, unchanged.",
    "quarantine": "Records that break a rule, with every rule they break.",
    "duplicates": "Valid rows whose id came before.",
    "late": "Rows that came after the watermark; they are in the table too.",
}
RELEASE = Asset(
    name="release",
    uri="delta://control/releases",
    group="release",
    extra={"description": "What readers see: one judged version of every table."},
)


def topic_assets() -> list[Asset]:
    """One asset for each Kafka topic that bronze takes."""
    return [
        Asset(name=f"kafka.{table.topic}", uri=f"kafka://topics/{table.topic}", group="kafka", extra={"description": "A topic of Kafka."})
        for table in LAYERS["bronze"]
    ]


def layer_assets(layer: str) -> list[Asset]:
    """One asset for each table of a layer: name `silver.transactions`, URI `delta://silver/transactions`."""
    return [
        Asset(name=table.name, uri=f"delta://{table.name.replace('.', '/')}", group=layer, extra={"description": describe(table)})
        for table in LAYERS[layer]
    ]


def tell_release(events: Any, assets: Iterable[Asset]) -> None:
    """Add to the events of assets what readers see of them: release, rows and version; of the asset `release` its number and all rows."""
    from spark_jobs.releases.releases import latest_release  # not needed to parse a DAG

    if release := latest_release(read_settings()):
        facts = {"release": release.release_id, "released_at": release.released_at.isoformat()}
        for asset in assets:
            own = {"rows": release.rows.get(asset.name), "version": release.versions.get(asset.name)}
            events[asset].extra = facts | ({"rows": sum(release.rows.values())} if asset == RELEASE else own)


@cache
def describe(table: Table) -> str:
    """One sentence about a table of bronze, silver or gold; of gold, the first line of the file that declares it."""
    layer, name = table.name.split(".")
    kind = layer if layer == "bronze" else name.rpartition("_")[2]
    if table.description or layer == "gold":
        text = table.description or (import_module(f"spark_jobs.gold.tables.{name}").__doc__ or "").partition(": ")[2].splitlines()[0]
        return text[:1].upper() + text[1:]
    return _DESCRIPTIONS.get(kind) or f"The valid records of {table.topic}; one row for each {' and '.join(table.keys)}."


def sources_of(name: str) -> tuple[str, ...]:
    """The names of the assets that another is made from: topics, bronze, silver, gold, and `release`, which has no further use."""
    if name == RELEASE.name:
        return tuple(table.name for table in GOLD)  # it names the tables of bronze and silver, too
    table = BY_NAME.get(name)
    if table is None:
        return ()
    if table.layer == "gold":
        return tuple(followed.name for followed in table.follows)
    return (f"{'kafka' if table.layer == 'bronze' else 'bronze'}.{table.topic}",)
