"""A stand-in for Spark's own launcher."""

from pathlib import Path
from typing import Any


class FakeSparkSubmit:
    """A Spark home whose launcher writes down its arguments in place of starting a JVM."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def prepare(self, task: Any, ending: str) -> Any:
        launcher = self.home / "bin" / "spark-class"
        launcher.parent.mkdir(exist_ok=True)
        launcher.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > "{self.home}/arguments"\n{ending}\n')
        launcher.chmod(0o755)
        task.env_vars["SPARK_HOME"] = str(self.home)
        return task

    def arguments(self) -> list[str]:
        return (self.home / "arguments").read_text().splitlines()
