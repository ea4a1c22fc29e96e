"""What each kind of Kafka client is given so that it logs in: librdkafka's settings, and the options of Spark's source."""

from confluent_kafka import KafkaException

from spark_jobs.kafka.logins import check_login
from spark_jobs.runtime.kafka_config import REGISTRY_LOGIN, SASL, Broker, read_kafka_config

Config = dict[str, str | int | float | bool]
_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def client_config(broker: Broker) -> Config:
    """The settings of a client of librdkafka for a broker."""
    config: Config = {"bootstrap.servers": broker.servers}
    if broker.login:
        values = read_kafka_config(broker.login)
        config |= {
            **{name: value for name, value in values.items() if name != REGISTRY_LOGIN},
            "ssl.endpoint.identification.algorithm": "https",
        }
        if "ssl.certificate.location" in values:
            config["ssl.key.location"] = values["ssl.certificate.location"]
    return config


def spark_options(broker: Broker) -> dict[str, str]:
    """The options of Spark's Kafka source. They hold no secret: Kafka's own client reads these from the file, in driver and executors."""
    options = {"bootstrap.servers": broker.servers}
    if file := broker.login:
        values = read_kafka_config(file)
        options |= {
            "security.protocol": values["security.protocol"],
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": values["ssl.ca.location"],
            "config.providers": "file",
            "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
        }
        if values["security.protocol"] == SASL:
            login = f'username="${{file:{file}:sasl.username}}" password="${{file:{file}:sasl.password}}"'
            options["sasl.mechanism"] = values["sasl.mechanism"]
            options["sasl.jaas.config"] = f"{_MODULES[values['sasl.mechanism']]} required {login};"
        if "ssl.certificate.location" in values:
            options |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": values["ssl.certificate.location"]}
    return {f"kafka.{name}": value for name, value in options.items()}


def reason(error: KafkaException, broker: Broker) -> str:
    """What a client says of its failure. Raises SettingsError where the login is what the broker, or we, refuse."""
    check_login(broker)
    return str(error.args[0].str())
