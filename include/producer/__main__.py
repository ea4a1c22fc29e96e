"""Send the bank's CSV files (`replay`) or generated data of the same shape (`generate`) to Kafka."""

import argparse
import logging
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from tqdm import tqdm

from include.producer.events import MOST_TRANSACTIONS, generated_sources
from include.producer.faults import CONFLICTING, DUPLICATE, LATE, MALFORMED
from include.producer.files import file_sources
from include.producer.plan import Disturbances, Source, plan_messages
from include.producer.publish import Counts, Part, publish
from include.producer.records import BANK, TOPICS
from spark_jobs.kafka.topics import ensure_topics
from spark_jobs.runtime.command import run_command
from spark_jobs.runtime.errors import LedgerError, SettingsError
from spark_jobs.runtime.option_types import some_of, within
from spark_jobs.runtime.settings import Settings, read_settings


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise SettingsError(f"{message} (see {self.prog} --help)")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0 everything acknowledged, 1 not, 2 unusable arguments or settings."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")

    def command() -> int:
        options = _parse(arguments)
        sources = _sources(options)
        settings = read_settings()
        ensure_topics(settings.broker())
        return _send(settings, sources, options)

    return run_command("producer", command)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = _Parser(prog="python -m include.producer", description=__doc__, allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True, metavar="replay|generate")
    replay = commands.add_parser("replay", help="send the files of a folder, such as transactions.csv", allow_abbrev=False)
    replay.add_argument("--data", required=True, type=Path, metavar="DIR", help="the folder of the files")
    generate = commands.add_parser("generate", help="send generated data, the same for the same seed", allow_abbrev=False)
    most = f"a whole number from 1 to {MOST_TRANSACTIONS}"
    generate.add_argument("--transactions", required=True, type=within(range(1, MOST_TRANSACTIONS + 1)), metavar="N", help=most)
    for command, topics in ((replay, TOPICS), (generate, BANK)):
        add = command.add_argument
        add("--only", type=some_of(topics), metavar="TOPICS", help=f"some of {','.join(topics)}; by default all that there are")
        add("--rate", type=_not_negative, default=0.0, metavar="N", help="messages a second; 0: as fast as the broker takes")
        add("--event-time", choices=("file", "now"), default="file", help="now: the time of sending")
        add("--duplicates", type=_share, default=0.0, metavar="P", help="share 0..1 of the rows that are sent once more")
        add("--malformed", type=_share, default=0.0, metavar="P", help="share 0..1 of the rows of which a broken copy is sent too")
        add("--late", type=_share, default=0.0, metavar="P", help="share 0..1 of the rows that are sent after all others")
        add("--shuffle-seconds", type=_not_negative, default=0.0, metavar="S", help="events are out of order by up to S seconds")
        add("--seed", type=within(range(2**63)), default=0, metavar="K", help="the same seed gives the same messages")
    return parser.parse_args(arguments)


def _sources(options: argparse.Namespace) -> list[Source]:
    if options.command == "replay":
        return file_sources(options.data, options.only)
    return generated_sources(options.transactions, options.seed, options.only or BANK)


def _send(settings: Settings, sources: Sequence[Source], options: argparse.Namespace) -> int:
    disturb = Disturbances(
        duplicates=options.duplicates,
        malformed=options.malformed,
        late=options.late,
        shuffle_seconds=options.shuffle_seconds,
        event_time=options.event_time,
        seed=options.seed,
    )
    plan = plan_messages(sources, disturb, clock=lambda: time.time_ns() // 1_000_000)
    expected = round(sum(source.rows for source in sources) * (1 + disturb.duplicates + disturb.malformed))
    counts = Counts()
    try:
        with tqdm(total=expected, unit=" messages", unit_scale=True, disable=not sys.stderr.isatty()) as bar:
            publish(settings.broker(), plan, options.rate, bar.update, counts)
    finally:
        sys.stdout.write("".join(f"{line}\n" for line in summary(counts)))
    if counts.is_delivered:
        return 0
    lost = counts.sent.total() - counts.acknowledged.total()
    reasons = ", ".join(f"{reason}: {times}" for reason, times in counts.errors.most_common(3))
    rest = "" if counts.is_complete else "; the rest was not sent"
    place = settings.broker()
    raise LedgerError(f"{lost} of {counts.sent.total()} messages were not acknowledged by Kafka at {place} ({reasons}){rest}")


def summary(counts: Counts) -> list[str]:
    """What was sent and acknowledged, as lines: each topic, each injected kind, all. Conflicting ones are duplicates too."""
    topics = [topic for topic in TOPICS if any(part[0] == topic for part in counts.sent)]
    kinds = {"duplicates": DUPLICATE, "of these conflicting": CONFLICTING, "malformed": MALFORMED, "late": LATE}
    return [
        *(_line(topic, counts, [part for part in counts.sent if part[0] == topic]) for topic in topics),
        *(_line(name, counts, [part for part in counts.sent if (part[1] or "").startswith(start)]) for name, start in kinds.items()),
        _line("total", counts, list(counts.sent)),
    ]


def _line(name: str, counts: Counts, parts: Sequence[Part]) -> str:
    sent, acknowledged = (sum(counter[part] for part in parts) for counter in (counts.sent, counts.acknowledged))
    return f"{name}: sent {sent}, acknowledged {acknowledged}"


def _share(text: str) -> float:
    value = _float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected a share from 0 to 1")
    return value


def _not_negative(text: str) -> float:
    value = _float(text)
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected a number >= 0")
    return value


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan  # is in no range


if __name__ == "__main__":
    sys.exit(main())
