"""A target on S3, through the client of Hadoop's own file system: objects are copied from a hidden place within the bucket.

S3 has no rename and no step for several objects. One object appears and is replaced in one step, and so is `_SUCCESS`, which names
the files of its day: include/docs/export.md says what follows for readers.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import date
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from spark_jobs.export.days import STAGING, SUCCESS, Day, Part, named, read_day
from spark_jobs.runtime.errors import LedgerError, first_line
from spark_jobs.runtime.kill_points import kill_point

AT_ONCE = 8
_WRITING = "_writing"  # what a run is about to put into a date folder, in the form of `_SUCCESS`
_MOST_DELETED = 1000  # in one request


class Bucket:
    """The objects of one table below a key of a bucket, and the hidden ones of a run."""

    at_once = AT_ONCE

    def __init__(self, spark: SparkSession, url: str, name: str, run: str) -> None:
        self.url, self.name, self.run = url, name, run
        self._bucket, _, key = url.removeprefix("s3a://").partition("/")
        self._prefix = f"{key}/"
        session: Any = spark  # what is below Python's interface has no types
        self._jvm = session._jvm
        with self._failures():
            root = self._jvm.org.apache.hadoop.fs.Path(f"s3a://{self._bucket}/")
            files = root.getFileSystem(session._jsparkSession.sessionState().newHadoopConf())
            self._client = files.getS3AInternals().getAmazonS3Client("export")
        self._requests = self._jvm.software.amazon.awssdk.services.s3.model

    @property
    def staging(self) -> str:
        """Where Spark writes."""
        return f"{self.url}/{STAGING}{self.run}/staged"

    def begin(self) -> None:
        """Remove what runs that died have left: hidden objects, unfinished uploads, files of days that were never finished."""
        self.end()
        for day, objects in self._days().items():
            if _WRITING in objects:
                folder = f"{day.isoformat()}/"
                wanted = read_day(day, self._get(folder + _WRITING), self.name, self._url(folder))
                kept = read_day(day, self._get(folder + SUCCESS), self.name, self._url(folder)).names if SUCCESS in objects else set()
                self._delete(folder + name for name in (*sorted(wanted.names - kept), _WRITING))

    def days(self) -> dict[date, Day]:
        """The date folders that are there; raises LedgerError where one has objects that no export of this table wrote."""
        found = {}
        for day, objects in self._days().items():
            place = self._url(f"{day.isoformat()}/")
            text = self._get(f"{day.isoformat()}/{SUCCESS}") if SUCCESS in objects else None
            found[day] = read_day(day, text, self.name, place)
            if strange := sorted(name for name in objects - found[day].names if not name.startswith(("_", "."))):
                raise LedgerError(f"{place} holds {strange[0]}, which {SUCCESS} does not name: export to another folder or move it")
        return found

    def publish(self, day: Day, parts: Iterable[Part], before: Day | None) -> Day:
        """Copy a day's staged files into its folder, name them in `_SUCCESS`, then delete what it named before."""
        folder, chosen = f"{day.day.isoformat()}/", named(parts, self.run)
        done = Day(day.day, day.source, day.ranges, tuple(Part(name, part.rows, part.bytes) for part, name in chosen))
        self._put(folder + _WRITING, done.to_json())
        for part, name in chosen:
            self._copy(f"{STAGING}{self.run}/staged/{part.path}", folder + name)
            kill_point("between two files of an export")
        kill_point("before a day of an export")
        self._put(folder + SUCCESS, done.to_json())
        kill_point("after a day of an export")
        old = before.names - done.names if before else set()
        self._delete(folder + name for name in (*sorted(old), _WRITING))
        return done

    def remove(self, day: Day) -> None:
        """Delete a date folder, in one request."""
        folder = f"{day.day.isoformat()}/"
        self._put(folder + _WRITING, day.to_json())
        self._delete(folder + name for name in (*sorted(day.names), SUCCESS, _WRITING))

    def end(self) -> None:
        """Delete the hidden objects and unfinished uploads of this run and of any before it."""
        self._delete(self._list(STAGING))
        for upload in self._uploads(STAGING):
            request = self._requests.AbortMultipartUploadRequest.builder().bucket(self._bucket).key(upload.key())
            self._call("abortMultipartUpload", request.uploadId(upload.uploadId()).build())

    def _days(self) -> dict[date, set[str]]:
        """The names of the objects in each date folder."""
        found: dict[date, set[str]] = {}
        for key in self._list(""):
            folder, _, name = key.partition("/")
            try:
                if date.fromisoformat(folder).isoformat() == folder and name:
                    found.setdefault(date.fromisoformat(folder), set()).add(name)
            except ValueError:
                continue
        return found

    def _url(self, key: str) -> str:
        return f"{self.url}/{key}".rstrip("/")

    def _list(self, start: str) -> list[str]:
        """The keys that begin like this, below the table's."""
        keys, token = [], None
        while True:
            request = self._requests.ListObjectsV2Request.builder().bucket(self._bucket).prefix(self._prefix + start)
            answer = self._call("listObjectsV2", (request.continuationToken(token) if token else request).build())
            keys += [found.key().removeprefix(self._prefix) for found in answer.contents()]
            token = answer.nextContinuationToken()
            if not answer.isTruncated():
                return keys

    def _uploads(self, start: str) -> list[Any]:
        """Uploads that were begun and not finished; at most 1000, the others come with the next run."""
        request = self._requests.ListMultipartUploadsRequest.builder().bucket(self._bucket).prefix(self._prefix + start)
        return list(self._call("listMultipartUploads", request.build()).uploads())

    def _get(self, key: str) -> str:
        request = self._requests.GetObjectRequest.builder().bucket(self._bucket).key(self._prefix + key).build()
        return str(self._call("getObjectAsBytes", request).asUtf8String())

    def _put(self, key: str, text: str) -> None:
        request = self._requests.PutObjectRequest.builder().bucket(self._bucket).key(self._prefix + key).build()
        self._call("putObject", request, self._jvm.software.amazon.awssdk.core.sync.RequestBody.fromString(text))

    def _copy(self, source: str, target: str) -> None:
        request = self._requests.CopyObjectRequest.builder().sourceBucket(self._bucket).sourceKey(self._prefix + source)
        self._call("copyObject", request.destinationBucket(self._bucket).destinationKey(self._prefix + target).build())

    def _delete(self, keys: Iterable[str]) -> None:
        wanted = [self._requests.ObjectIdentifier.builder().key(self._prefix + key).build() for key in keys]
        for first in range(0, len(wanted), _MOST_DELETED):
            objects = self._jvm.java.util.ArrayList()
            for each in wanted[first : first + _MOST_DELETED]:
                objects.add(each)
            chosen = self._requests.Delete.builder().objects(objects).quiet(True).build()
            answer = self._call("deleteObjects", self._requests.DeleteObjectsRequest.builder().bucket(self._bucket).delete(chosen).build())
            if answer.hasErrors():
                raise LedgerError(f"{self.url}: {answer.errors()[0].code()} while deleting: check the rights of the key, and run it again")

    def _call(self, method: str, *arguments: Any) -> Any:
        with self._failures():
            return getattr(self._client, method)(*arguments)

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """What S3 refuses, as one line."""
        try:
            yield
        except Py4JError as error:
            advice = "check the bucket, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_ENDPOINT_URL and AWS_REGION"
            raise LedgerError(f"{self.url}: {first_line(error)}: {advice}") from error
