"""A target on S3, through Hadoop's file system: objects are copied from a hidden folder within the bucket.

S3 has no rename and no step for several objects. One object is replaced in one step, and so is the manifest `_SUCCESS`, which is
written last and names the files of its day: include/docs/export.md says what that means for readers.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from spark_jobs.export.days import STAGING, SUCCESS, Day, Part, named, read_day, read_days, to_day
from spark_jobs.runtime.errors import LedgerError, first_line
from spark_jobs.runtime.kill_points import kill_point

_WRITING = "_writing"  # the manifest of what a run is about to write, or to delete


class Bucket:
    """The objects of one table below a key of a bucket, and the hidden ones of a run. What S3 refuses is a LedgerError of one line."""

    at_once = 8  # days published side by side

    def __init__(self, spark: SparkSession, url: str, name: str, run: str) -> None:
        self.url, self.name, self.run = url, name, run
        self._bucket, _, self._key = url.removeprefix("s3a://").partition("/")
        session: Any = spark  # what is below Python's interface has no types
        self._jvm = session._jvm
        with self._failures():
            self._files = self._path("").getFileSystem(session._jsparkSession.sessionState().newHadoopConf())
            self._client = self._files.getS3AInternals().getAmazonS3Client("export")
        self._requests = self._jvm.software.amazon.awssdk.services.s3.model

    @property
    def staging(self) -> str:
        """Where Spark writes."""
        return f"{self.url}/{STAGING}{self.run}/staged"

    def begin(self) -> None:
        """Remove what runs that died have left: hidden objects, unfinished uploads, files of days that were never finished."""
        self.end()
        for day, names in self._found().items():
            if _WRITING in names:
                read = {
                    name: read_day(day, self._read(f"{day}/{name}"), self.name, f"{self.url}/{day}") for name in names & {_WRITING, SUCCESS}
                }
                kept = read[SUCCESS].names if SUCCESS in read else set()
                self._delete(day, *sorted(read[_WRITING].names - kept), _WRITING)

    def days(self) -> dict[date, Day]:
        """The date folders that are there; raises LedgerError where one has objects that no export of this table wrote."""
        return read_days(self.name, self.url, self._found(), self._read)

    def publish(self, day: Day, parts: Iterable[Part], before: Day | None) -> Day:
        """Copy a day's staged files into its folder, name them in `_SUCCESS`, then delete what it named before."""
        chosen = named(parts, self.run)
        done = replace(day, files=tuple(replace(part, path=name) for part, name in chosen))
        self._write(f"{day.day}/{_WRITING}", done.to_json())
        for part, name in chosen:
            self._copy(f"{STAGING}{self.run}/staged/{part.path}", f"{day.day}/{name}")
            kill_point("between two files of an export")
        kill_point("before a day of an export")
        self._write(f"{day.day}/{SUCCESS}", done.to_json())
        kill_point("after a day of an export")
        self._delete(day.day, *sorted(before.names - done.names if before else ()), _WRITING)
        return done

    def remove(self, day: Day) -> None:
        """Delete a date folder, its manifest first."""
        self._write(f"{day.day}/{_WRITING}", day.to_json())
        self._delete(day.day, SUCCESS, *sorted(day.names), _WRITING)

    def end(self) -> None:
        """Delete the hidden objects and unfinished uploads of this run and of any before it."""
        with self._failures():
            for folder in self._files.globStatus(self._path(f"{STAGING}*")) or ():
                self._files.delete(folder.getPath(), True)
            for upload in self._files.listMultipartUploads(self._key):
                if upload.key().startswith(f"{self._key}/{STAGING}"):
                    self._files.abortMultipartUpload(upload)

    def _found(self) -> dict[date, set[str]]:
        """The names of the objects in each date folder."""
        found: dict[date, set[str]] = {}
        for folder, _, name in (key.partition("/") for key in self._list()):
            if name and (day := to_day(folder)):
                found.setdefault(day, set()).add(name)
        return found

    def _path(self, key: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"{self.url}/{key}")

    def _list(self) -> list[str]:
        """The keys below the table's."""
        keys = []
        with self._failures():
            found = self._files.listFiles(self._path(""), True) if self._files.exists(self._path("")) else None
            while found and found.hasNext():
                keys.append(str(found.next().getPath().toString()).removeprefix(f"{self.url}/"))
        return keys

    def _read(self, key: str) -> str:
        with self._failures():
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(self._files.open(self._path(key)), "UTF-8"))

    def _write(self, key: str, text: str) -> None:
        with self._failures():
            output = self._files.create(self._path(key), True)
            output.write(text.encode())
            output.close()

    # Hadoop's file system replaces no object by the copy of another, and leaves a marker where it deletes the last one of a folder.
    def _copy(self, source: str, target: str) -> None:
        request = self._requests.CopyObjectRequest.builder().sourceBucket(self._bucket).sourceKey(f"{self._key}/{source}")
        with self._failures():
            self._client.copyObject(request.destinationBucket(self._bucket).destinationKey(f"{self._key}/{target}").build())

    def _delete(self, day: date, *names: str) -> None:
        for name in names:
            request = self._requests.DeleteObjectRequest.builder().bucket(self._bucket).key(f"{self._key}/{day}/{name}").build()
            with self._failures():
                self._client.deleteObject(request)

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except Py4JError as error:
            advice = "check the bucket, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_ENDPOINT_URL and AWS_REGION"
            raise LedgerError(f"{self.url}: {first_line(error)}: {advice}") from error
