"""Dimension histories (SCD2): a function of all valid messages of a key, however they were batched. Pure."""

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window, functions as F

from expectations.row_rules import RuleSet
from spark_jobs.lake.tables import ARRIVAL
from spark_jobs.silver.judge import detail, is_valid, judge
from spark_jobs.silver.parse import parse_fields, time_of


@dataclass(frozen=True)
class Dimension:
    """One dimension: its topic, its key column, and the JSON fields behind its other columns."""

    topic: str
    key: str
    texts: dict[str, str]  # column -> JSON name
    dates: dict[str, str]

    @property
    def content(self) -> list[str]:
        """The columns that make two versions differ."""
        return [*self.texts, "district_id", *self.dates, "is_deleted"]

    @property
    def fields(self) -> list[str]:
        """The JSON names of the topic."""
        return [_camel(self.key), *self.texts.values(), *self.dates.values(), "districtId", "updateTime"]


CUSTOMERS = Dimension(
    "customers",
    "customer_id",
    texts={
        "sex": "sex",
        "social": "social",
        "full_name": "fullName",
        "phone": "phone",
        "email": "email",
        "address1": "address1",
        "address2": "address2",
        "city": "city",
        "state": "state",
        "zipcode": "zipcode",
    },
    dates={"birth_date": "birthDate"},
)
ACCOUNTS = Dimension("accounts", "account_id", texts={"frequency": "frequency"}, dates={"creation_date": "creationDate"})


def judge_messages(bronze: DataFrame, dimension: Dimension, rules: RuleSet) -> DataFrame:
    """Bronze rows of a dimension's topic with broken_rules, and `_key`, `is_deletion` and the parsed fields beside them."""
    return judge(parse_messages(bronze, dimension), rules)


def parse_messages(bronze: DataFrame, dimension: Dimension) -> DataFrame:
    """Bronze rows of a dimension's topic with `_key`, `is_deletion` and the parsed fields beside them."""
    texts = [_camel(dimension.key), *dimension.texts.values(), *dimension.dates.values()]
    keyed = bronze.withColumn("_key", F.col("key").cast("string")).withColumn("is_deletion", F.col("value").isNull())
    return parse_fields(keyed, texts, ["districtId", "updateTime"])


def quarantined(judged: DataFrame, dimension: Dimension, rules: RuleSet) -> DataFrame:
    """The rows that break a rule, as the quarantine table has them."""
    return judged.where(~is_valid()).withColumn("detail", detail(rules, dimension.fields))


def typed_messages(parsed: DataFrame, dimension: Dimension) -> DataFrame:
    """Parsed messages that are known to be valid, typed: key, content, valid_from, is_deleted, arrival. No rule is asked.

    A deletion's time is its Kafka timestamp, and its fields are null.
    """
    typed: dict[str, Column] = {column: F.col(f"{name}.text") for column, name in dimension.texts.items()}
    typed |= {"district_id": F.col("districtId.text").try_cast("int")}
    typed |= {column: F.col(f"{name}.text").try_cast("date") for column, name in dimension.dates.items()}
    return parsed.select(
        F.col("_key").alias(dimension.key),
        *(F.when(~F.col("is_deletion"), value).alias(name) for name, value in typed.items()),
        update_time().alias("valid_from"),
        F.col("is_deletion").alias("is_deleted"),
        *ARRIVAL,
    )


def update_time() -> Column:
    """When a parsed message holds from: its update time, of a deletion its Kafka timestamp; null where there is none to be read."""
    return F.when(F.col("is_deletion"), F.col("_timestamp")).otherwise(time_of("updateTime"))


def classify_messages(judged: DataFrame, dimension: Dimension) -> DataFrame:
    """Every valid message of judged rows, typed, with what became of it in `outcome`; see `with_outcomes`."""
    return with_outcomes(typed_messages(judged.where(is_valid()), dimension), dimension)


def with_outcomes(messages: DataFrame, dimension: Dimension) -> DataFrame:
    """Add `outcome` to typed messages, all there are of their keys: version, superseded or no_change.

    Per key and update time the last arrival stays, the others are superseded. In order of update time, neighbours that are
    equal in all other fields collapse into the earliest; a deletion of an unknown or deleted key makes no change.
    """
    same_time = Window.partitionBy(dimension.key, "valid_from").orderBy(*(F.desc(name) for name in ARRIVAL))
    in_time = Window.partitionBy(dimension.key, "_stays").orderBy("valid_from")
    content = F.struct(*dimension.content)
    is_first_deletion = F.col("_previous").isNull() & F.col("is_deleted")
    return (
        messages.withColumn("_stays", F.row_number().over(same_time) == 1)
        .withColumn("_previous", F.lag(content).over(in_time))
        .withColumn("_is_equal", content.eqNullSafe(F.col("_previous")) | is_first_deletion)
        .withColumn("outcome", F.when(~F.col("_stays"), "superseded").when(F.col("_is_equal"), "no_change").otherwise("version"))
        .drop("_stays", "_previous", "_is_equal")
    )


def versions(classified: DataFrame, dimension: Dimension) -> DataFrame:
    """The history: each version is valid from its update time to that of the next; the last one is current."""
    in_time = Window.partitionBy(dimension.key).orderBy("valid_from")
    return (
        classified.where("outcome = 'version'")
        .withColumn("valid_to", F.lead("valid_from").over(in_time))
        .withColumn("is_current", F.col("valid_to").isNull())
        .drop("outcome")
    )


def _camel(column: str) -> str:
    first, *others = column.split("_")
    return first + "".join(word.title() for word in others)
