"""Spark's functions, loaded when one is first used: processes that never start Spark import the modules that declare gold's tables."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import Window as Window, functions as F
else:

    class _Late:
        """Stands for a module, or for something in it, that is imported when an attribute of it is wanted."""

        def __init__(self, module: str, name: str = "") -> None:
            self._module, self._name = module, name

        def __getattr__(self, attribute: str) -> Any:
            module = import_module(self._module)
            return getattr(getattr(module, self._name) if self._name else module, attribute)

    F, Window = _Late("pyspark.sql.functions"), _Late("pyspark.sql", "Window")

__all__ = ["F", "Window"]
