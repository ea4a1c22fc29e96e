"""What a `read_committed` consumer finds in a topic."""

import time

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition


def committed_messages(bootstrap: str, *topics: str) -> list[Message]:
    """Every committed message of the topics, in order within a partition.

    A commit is acknowledged before each partition has its marker, and a reader's end lies before an open transaction: the end that
    counts is the one of a reader that minds no transactions.
    """
    config = {"bootstrap.servers": bootstrap, "group.id": "reader", "enable.partition.eof": True}
    consumer, found = Consumer(config | {"isolation.level": "read_committed"}), list[Message]()
    ends = _ends(Consumer(config | {"isolation.level": "read_uncommitted"}), topics)
    consumer.assign([TopicPartition(topic, number, 0) for topic, number in ends])
    deadline = time.monotonic() + 60
    try:
        while ends:
            assert time.monotonic() < deadline, f"within a minute no end of {ends}"
            message = consumer.poll(1)
            if message is None:
                continue
            place = (str(message.topic()), int(message.partition() or 0))
            if error := message.error():
                assert error.code() == KafkaError._PARTITION_EOF, error
                if int(message.offset() or 0) >= ends.get(place, 0):
                    ends.pop(place, None)
            else:
                found.append(message)
    finally:
        consumer.close()
    return found


def _ends(consumer: Consumer, topics: tuple[str, ...]) -> dict[tuple[str, int], int]:
    try:
        known = consumer.list_topics(timeout=15).topics
        places = [(topic, number) for topic in topics for number in known[topic].partitions]
        return {place: int(consumer.get_watermark_offsets(TopicPartition(*place), 15)[1]) for place in places}
    finally:
        consumer.close()
