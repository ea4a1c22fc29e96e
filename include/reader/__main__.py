"""`make sql`, `python -m include.reader [--release N] [--query SQL]`: SQL over a release, at a prompt, from a file or as one query.

`--views spark` (or `duckdb`) prints the release's tables as views instead, as a script of that engine.

Commands of the prompt: `\\tables`, `\\releases`, `\\release [N]`, `\\help`, `\\q`. A query ends with a semicolon.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TextIO

from include.reader.layout import lay_out
from include.reader.release import ReleaseReader, open_release
from include.reader.statements import QueryError, split
from spark_jobs.lake import schema
from spark_jobs.releases import archive, retention, views
from spark_jobs.releases.releases import newest_release, times_of_releases
from spark_jobs.runtime.command import run_command
from spark_jobs.runtime.errors import LedgerError, SettingsError
from spark_jobs.runtime.settings import Settings, read_settings

HELP = r"""\tables        the tables of this release, their versions and rows
\releases      the releases that can be opened
\release [N]   go to release N, or to the newest
\q             leave (also: end of input)
A query ends with a semicolon: select * from gold.daily_totals limit 5;
Also: show columns from gold.daily_totals; describe silver.transactions; explain select ...;"""
VIEWS = {"duckdb": views.in_duckdb, "spark": views.in_spark}
MOST_ROWS, WIDEST = 1000, 100  # what a person reads


def main(arguments: Sequence[str] | None = None, source: TextIO | None = None) -> int:
    """Answer one query, those of a script on standard input, or those of a person; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m include.reader", description=__doc__.splitlines()[0])
    parser.add_argument("--release", metavar="N", help="the number of a release; without it, the newest")
    parser.add_argument("--query", metavar="SQL", help="answer this and leave")
    parser.add_argument("--views", choices=VIEWS, help="print a script of this engine that makes the release's tables as views, and leave")
    options = parser.parse_args(arguments)
    source = source or sys.stdin
    return run_command("sql", lambda: _answer_all(options, source))


def _answer_all(options: argparse.Namespace, source: TextIO) -> int:
    try:
        prompt = Prompt(read_settings(), options.release, is_person=source.isatty() and options.query is None)
        if options.views is not None:
            print(VIEWS[options.views](prompt.settings, prompt.reader.release), end="")
        elif options.query is not None:
            prompt.answer(options.query)
        elif prompt.is_person:
            prompt.talk()
        else:
            prompt.follow(source)
    except BrokenPipeError:  # the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


class Prompt:
    """A prompt, which stays on its release until `\\release`."""

    def __init__(self, settings: Settings, release: str | None = None, is_person: bool = False) -> None:
        schema.refuse_newer(settings)
        self.settings = settings
        self.is_person = is_person
        self.reader = self._open(release)
        self._announced = self.reader.release_id

    def talk(self) -> None:
        """Read from a person, who may continue after an error. History is kept for this session only."""
        import readline

        readline.set_auto_history(True)
        print(f"{self._described()}. \\help lists the commands; a query ends with a semicolon.")
        text = ""
        while True:
            if not text:
                self._announce_newer()
            try:
                text = self.take(text + input("     ...> " if text else f"release {self.reader.release_id}> ") + "\n")
            except EOFError:
                print()
                return
            except KeyboardInterrupt:
                print()
                text = ""
            except LedgerError as error:
                print(f"sql: {error}", file=sys.stderr)
                text = ""

    def follow(self, script: TextIO) -> None:
        """Read a script; the first error ends it. Its last statement needs no semicolon."""
        text = ""
        try:
            for line in script:
                text = self.take(text + line.rstrip("\n") + "\n")
            if text:
                self.answer(text)
        except EOFError:  # \q
            return

    def take(self, text: str) -> str:
        """Answer the statements that are complete, and return what is not; a command is a line of its own."""
        if text.startswith("\\"):
            self.obey(text.split())
            return ""
        *complete, rest = split(text)
        for statement in complete:
            self.answer(statement)
        return rest if rest.strip() else ""

    def obey(self, words: list[str]) -> None:
        """Do what a command says; raises EOFError for the one to leave."""
        match words:
            case ["\\q" | "\\quit"]:
                raise EOFError
            case ["\\help" | "\\h" | "\\?"]:
                print(HELP)
            case ["\\tables" | "\\d"]:
                release = self.reader.release
                for name in self.reader.tables:
                    print(f"{name:34} version {release.versions[name]:>6} {release.rows[name]:>14,} rows")
            case ["\\releases"]:
                times, copies = times_of_releases(self.settings), archive.archived(self.settings)
                for each in retention.offered(self.settings, datetime.now(UTC)):
                    print(f"release {each} of {times[each]:%Y-%m-%d %H:%M:%S} UTC{', archived' if each in copies else ''}")
            case ["\\release", *number] if len(number) < 2:
                self.reader = self._open(number[0] if number else None)
                print(f"{self._described()}.")
            case _:
                raise QueryError(f"found {words[0]}, expected \\tables, \\releases, \\release [N], \\help or \\q")

    def answer(self, query: str) -> None:
        """Print the answer to a query."""
        schema, batches = self.reader.batches(query)
        limits = (MOST_ROWS, WIDEST) if self.is_person else (None, None)
        for line in lay_out(schema, batches, *limits):
            print(line)
        sys.stdout.flush()

    def _open(self, release: str | None) -> ReleaseReader:
        if release is not None and not (release.isascii() and release.isdigit()):
            raise SettingsError(f"release: found {release!r}, expected a number such as 3")
        return open_release(self.settings, None if release is None else int(release))

    def _described(self) -> str:
        release = self.reader.release
        return f"Release {release.release_id} of {release.released_at:%Y-%m-%d %H:%M:%S} UTC, {len(release.versions)} tables"

    def _announce_newer(self) -> None:
        newest = newest_release(self.settings).release_id
        if newest > self._announced:
            print(f"Release {newest} is out: \\release goes there.")
            self._announced = newest


if __name__ == "__main__":
    sys.exit(main())
