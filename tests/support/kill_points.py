"""Kill points as tests use them: all modules reach one function, wherever a write has its place."""

import sys
from collections.abc import Callable

import pytest

from spark_jobs.runtime import kill_points


def reach(patch: pytest.MonkeyPatch, function: Callable[[str], object]) -> None:
    """Let every kill point of the jobs call a function with its name, until the patch is undone."""
    for name, module in list(sys.modules.items()):
        if name.startswith("spark_jobs.") and module is not kill_points and hasattr(module, "kill_point"):
            patch.setattr(module, "kill_point", function)
