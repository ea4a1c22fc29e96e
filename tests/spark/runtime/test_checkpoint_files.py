"""How streams write the files of their checkpoints."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_no_process_is_started_for_a_file_and_a_half_written_one_is_never_seen(spark: SparkSession, tmp_path: Path) -> None:
    """Spark's own choice for local folders asks the program `readlink` about every file."""
    java: Any = spark._jvm
    folder = java.org.apache.hadoop.fs.Path(str(tmp_path))
    session: Any = spark._jsparkSession
    files = java.org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager.create(
        folder, session.sessionState().newHadoopConf()
    )
    assert files.getClass().getSimpleName() == "FileSystemBasedCheckpointFileManager"
    target = java.org.apache.hadoop.fs.Path(str(tmp_path / "7"))
    stream = files.createAtomic(target, False)
    stream.write(b"abc")
    assert not (tmp_path / "7").exists()
    stream.close()
    assert (tmp_path / "7").read_bytes() == b"abc"
    cancelled = files.createAtomic(java.org.apache.hadoop.fs.Path(str(tmp_path / "8")), False)
    cancelled.write(b"abc")
    cancelled.cancel()
    assert not (tmp_path / "8").exists()
    second = files.createAtomic(target, False)
    second.write(b"x")
    with pytest.raises(Exception, match="already exists"):
        second.close()
    assert (tmp_path / "7").read_bytes() == b"abc"
