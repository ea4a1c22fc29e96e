"""The event producer: sends the bank's CSV files, or generated data of the same shape, to Kafka.

Tests and the demo use `plan_messages` (what would be sent, no broker needed) and `publish` (send it, count it).
"""

from include.producer.events import generated_sources
from include.producer.faults import INJECTED_HEADER
from include.producer.files import file_sources
from include.producer.plan import Disturbances, Source, plan_messages
from include.producer.publish import Counts, publish
from include.producer.records import TOPICS, Message

__all__ = [
    "INJECTED_HEADER",
    "TOPICS",
    "Counts",
    "Disturbances",
    "Message",
    "Source",
    "file_sources",
    "generated_sources",
    "plan_messages",
    "publish",
]
