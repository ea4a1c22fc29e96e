"""Reading releases: all tables at one point, in Python or by SQL (`make sql`). Needs no Spark."""

from include.reader.catalogue import open_catalogue
from include.reader.release import ReleaseReader, open_release
from include.reader.statements import QueryError

__all__ = ["QueryError", "ReleaseReader", "open_catalogue", "open_release"]
