"""The topics, each declared as TOPIC in a file of its own here: to add one, no line of this file changes."""

import pkgutil
from importlib import import_module

from spark_jobs.lake.topic import Topic

_ORDER = ("transactions", "customers", "accounts")  # in which pages, reports and commands name them; others come after these


def _find() -> tuple[Topic, ...]:
    names = sorted(found.name for found in pkgutil.iter_modules(__path__))
    names.sort(key=lambda name: _ORDER.index(name) if name in _ORDER else len(_ORDER))
    return tuple(import_module(f"{__name__}.{name}").TOPIC for name in names)


TOPICS = _find()
BY_TOPIC = {topic.name: topic for topic in TOPICS}
EVENTS = tuple(topic for topic in TOPICS if not topic.has_versions)
VERSIONS = tuple(topic for topic in TOPICS if topic.has_versions)
