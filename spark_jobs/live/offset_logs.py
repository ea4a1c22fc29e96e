"""The number of state partitions in Spark's offset logs.

Spark 4.2 leaves it out of logs of version 2, which named sources need, in the first run of a query. Without it a query that died within a
batch never starts again (SPARK-59662), and one that is started with fewer shuffle partitions loses the state of the others in silence.
"""

import json
from pathlib import Path

from spark_jobs.runtime.atomic_files import write_whole

PARTITIONS = "spark.sql.shuffle.partitions"


def record_partitions(checkpoint: Path, partitions: str) -> None:
    """Write into the offset logs of a query that does not run how many partitions its state has, where they lack it.

    That is `partitions` where it has none, or none yet. A log that cannot be read is left to Spark, which says so.
    """
    found = checkpoint / "state" / "0" / "_metadata" / "metadata"
    if found.exists():
        (store, *_) = json.loads(found.read_text().splitlines()[1])["stateStoreInfo"]
        partitions = str(store["numPartitions"])
    for file in (checkpoint / "offsets").glob("[0-9]*"):
        try:
            version, planned, *sources = file.read_text().split("\n")
            facts = json.loads(planned)
        except ValueError:
            continue
        if version == "v2" and PARTITIONS not in facts["conf"]:
            facts["conf"][PARTITIONS] = partitions
            file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
            write_whole(file, "\n".join([version, json.dumps(facts, separators=(",", ":")), *sources]))
