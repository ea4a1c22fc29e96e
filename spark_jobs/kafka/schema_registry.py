"""The schema registry of LEDGER_SCHEMA_REGISTRY_URL: schemas by their ids, by Confluent's client. The registry must speak its API."""

from json import JSONDecodeError
from typing import NamedTuple

import httpx2
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from spark_jobs.runtime.errors import LedgerError, first_line
from spark_jobs.runtime.kafka_config import REGISTRY_LOGIN, read_kafka_config
from spark_jobs.runtime.masking import mask_url
from spark_jobs.runtime.settings import Settings

_SECONDS = 10
_MOST_REFERENCES = 100
_LARGEST_ID = 2**31 - 1
_NOT_THERE = (40401, 40402, 40403)  # subject, version, schema: an address at which there is no registry has another code
_REFUSED = (400, 403, 422)  # of this schema alone: whoever writes to a topic must not stop it by a number


class Registered(NamedTuple):
    """A schema: its kind (`AVRO`, `JSON`, `PROTOBUF`), its text, and the texts of those that it names, each after what it names itself."""

    kind: str
    text: str
    references: tuple[str, ...]


class Registry:
    """A client of the registry; it repeats a request that fails by three times."""

    def __init__(self, settings: Settings) -> None:
        """Log in as the file of LEDGER_KAFKA_CONFIG says, if it says anything of the registry."""
        self._url = settings.schema_registry_url or ""
        config: dict[str, object] = {"url": self._url, "timeout": _SECONDS}
        values = read_kafka_config(settings.kafka_config) if settings.kafka_config else {}
        if REGISTRY_LOGIN in values:
            config["basic.auth.user.info"] = values[REGISTRY_LOGIN]
        if self._url.startswith("https:") and "ssl.ca.location" in values:
            config["ssl.ca.location"] = values["ssl.ca.location"]
        self._client = SchemaRegistryClient(config)

    def find(self, schema_id: int) -> Registered | None:
        """The schema of an id; None where the registry knows none, or does not give it.

        Raises LedgerError where it does not answer or lets nobody in, ValueError for an answer that is no schema.
        """
        if schema_id > _LARGEST_ID:
            return None
        try:
            schema = self._client.get_schema(schema_id)
            texts: dict[str, str | None] = {}
            self._add_references(schema, texts, set())
        except SchemaRegistryError as error:
            if error.error_code in _NOT_THERE or error.http_status_code in _REFUSED:
                return None
            raise self._failed(schema_id, f"found HTTP {error.http_status_code}: {first_line(error)}") from None
        except (httpx2.HTTPError, OSError) as error:
            raise self._failed(schema_id, f"found {type(error).__name__}: {first_line(error)}") from None
        except JSONDecodeError:
            raise self._failed(schema_id, "found an answer that is no JSON") from None
        except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
            raise ValueError(f"found {type(error).__name__} in the registry's answer, expected a schema") from None
        if not isinstance(schema.schema_str, str):
            raise ValueError("found no text in the registry's answer, expected a schema")
        return Registered(schema.schema_type or "AVRO", schema.schema_str, tuple(text or "" for text in texts.values()))

    def _add_references(self, schema: Schema, texts: dict[str, str | None], asked: set[str]) -> None:
        """Add the texts of all that a schema names, by subject and version, in the order in which they can be parsed."""
        for each in schema.references or []:
            name = f"{each.subject}/{each.version}"
            if name not in asked:
                asked.add(name)
                if len(asked) > _MOST_REFERENCES:
                    raise ValueError(f"found more than {_MOST_REFERENCES} schemas that it names")
                other = self._client.get_version(each.subject or "", each.version or 0, deleted=True).schema
                self._add_references(other, texts, asked)
                texts[name] = other.schema_str

    def _failed(self, schema_id: int, found: str) -> LedgerError:
        return LedgerError(
            f"schema registry {mask_url(self._url)}: {found}, expected schema {schema_id}, which new records name. None of them was taken: "
            "run it again when the registry answers. Without LEDGER_SCHEMA_REGISTRY_URL such records go to quarantine"
        )
