"""The declaration of a cluster: secrets are read when a client is created, and are stored nowhere else."""

from __future__ import annotations

import os
import pickle
import sys
from pathlib import Path

import pytest

import penstock
from penstock.brokers import broker
from penstock.brokers.cluster import KafkaCluster
from penstock.brokers.maven_jars import MavenError, broker_jars
from penstock.brokers.topics import Topic

OWNED = ("group.id", "transactional.id", "auto.offset.reset", "isolation.level", "enable.partition.eof", "acks")


def test_secrets_are_looked_up_and_kept_out_of_everything_else(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("from a file\n")
    monkeypatch.setenv("THE_PASSWORD", "from the environment")
    options = {"sasl.password": "env:THE_PASSWORD", "ssl.key.password": f"file:{tmp_path / 'key'}"}
    declared = penstock.kafka("t", bootstrap_servers="localhost:1", options=options)
    cluster = KafkaCluster(bootstrap_servers=declared.bootstrap_servers, options=declared.options)
    config = cluster.config()
    assert config["sasl.password"] == "from the environment" and config["ssl.key.password"] == "from a file"
    for kept in (repr(declared), repr(cluster), pickle.dumps(declared).decode("latin1")):
        assert "from the environment" not in kept and "from a file" not in kept


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"options": {"sasl.password": "hunter2"}}, "'sasl.password' is a secret and must not be written here"),
        ({"options": {"sasl.password": b"hunter2"}}, "'sasl.password' is of type bytes"),
        ({"options": {"sasl.oauthbearer.config": "hunter2"}}, "is a secret"),
        ({"options": {"sasl.oauthbearer.assertion.private.key.passphrase": "hunter2"}}, "is a secret"),
        ({"options": {"bootstrap.servers": "x"}}, "leave it out"),
        ({"options": {"sasl.username": "me", "sasl.password": "env:P"}}, "without 'sasl.mechanisms'; give a mechanism"),
        *(({"options": {name: "x"}}, f"'{name}' is set by Penstock") for name in OWNED),
        ({"format": "avro"}, "choose one of text, json, bytes"),
        ({"schema": "a int"}, "have the columns 'value string'"),
        ({"start": "yesterday"}, "choose one of earliest, latest"),
        ({"dead_letter": "t"}, "is the topic itself"),
    ],
)
def test_a_wrong_declaration_is_refused_in_one_sentence(how: dict[str, object], message: str) -> None:
    with pytest.raises(penstock.DataflowError, match=message) as refused:
        penstock.kafka("t", bootstrap_servers="localhost:1", **how)  # type: ignore[arg-type]
    assert "hunter2" not in str(refused.value)


def test_a_file_with_a_secret_is_found_from_any_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("key", "ca.pem"):
        (tmp_path / name).write_text("from a file")
    monkeypatch.chdir(tmp_path)
    options = {"sasl.password": "file:key", "ssl.ca.location": "ca.pem"}
    cluster = KafkaCluster.of("localhost:1", options)
    monkeypatch.chdir("/")
    assert cluster.config()["sasl.password"] == "from a file"
    assert cluster.config()["ssl.ca.location"] == str(tmp_path / "ca.pem")
    # A value of the client that is not a path:
    assert KafkaCluster.of("localhost:1", {"ssl.ca.location": "probe"}).config()["ssl.ca.location"] == "probe"


def test_json_needs_a_schema_to_be_read_and_none_to_be_written() -> None:
    topic = penstock.kafka("t", bootstrap_servers="localhost:1", format="json")
    flow = penstock.Dataflow("f")
    with pytest.raises(penstock.DataflowError, match="which needs a schema"):
        flow.source("in", topic)
    flow.source("in", penstock.kafka("t", bootstrap_servers="localhost:1")).sink("out", topic)


def test_a_missing_secret_is_named(tmp_path: Path) -> None:
    (tmp_path / "store.p12").write_bytes(b"\xff\xfe\x00")
    for value in ("env:NO_SUCH_VARIABLE", f"file:{tmp_path / 'nothing'}", f"file:{tmp_path / 'store.p12'}"):
        with pytest.raises(penstock.PenstockError, match="'sasl.password' is taken from"):
            KafkaCluster.of("localhost:1", {"sasl.password": value}).config()


def test_a_missing_maven_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MavenError, match="there is no 'mvn'"):
        broker_jars()


# Maven does not search again for a missing artifact for a day, unless an option requests it.
_MAVEN = """#!/bin/sh
case " $* " in *" -U "*) mkdir jars && touch jars/kafka.jar ;; *) echo "[ERROR] not reattempted"; exit 1 ;; esac
"""


def test_maven_searches_again_for_artifacts_that_were_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "mvn").write_text(_MAVEN)
    (tmp_path / "mvn").chmod(0o755)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert [jar.name for jar in broker_jars().iterdir()] == ["kafka.jar"]


def test_unknown_options_of_the_client_are_refused() -> None:
    with pytest.raises(penstock.PenstockError, match="refuses the options .*No such configuration property"):
        Topic(KafkaCluster.of("localhost:1", {"no.such.option": "1"}), "t").required("source 'lines'")


def test_a_missing_client_is_reported_with_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(penstock.PenstockError, match=r"pip install 'penstock\[kafka\]'"):
        KafkaCluster.of("localhost:1")


def test_a_wrong_java_home_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr(broker, "broker_jars", lambda: tmp_path)
    with pytest.raises(penstock.PenstockError, match="JAVA_HOME is '.*', which has no 'bin/java'"):
        broker.Broker(tmp_path / "broker").start()


def test_only_files_of_the_broker_are_deleted(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    mine = [tmp_path / "data" / "mine.csv", tmp_path / "server.properties"]
    for file in mine:
        file.write_text("years of work")
    assert broker.stop(tmp_path, delete_topics=True) is None
    assert [file.read_text() for file in mine] == ["years of work"] * 2


@pytest.mark.parametrize("name", ["größe", "a,b", "a\\b"])
def test_a_folder_name_that_kafka_cannot_use_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(penstock.PenstockError, match="Kafka cannot use the folder .*; give a path of ASCII"):
        broker.Broker(tmp_path / name).start()
    assert not (tmp_path / name).exists()


def test_a_folder_that_cannot_be_created_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(penstock.PenstockError, match=r"cannot be used for a broker \(Not a directory\); give another"):
        broker.Broker(tmp_path / "file" / "broker").start()


# Kafka prints this if another process uses its port. The end of the log does not mention it.
_JAVA = """#!/bin/sh
case "$*" in *StorageTool*) mkdir data && echo cluster.id=x > data/meta.properties ;; *)
echo "[main] ERROR kafka.network.DataPlaneAcceptor - Unable to start acceptor for PLAINTEXT"
echo "org.apache.kafka.common.KafkaException: Socket server failed to bind to 127.0.0.1:9: Address already in use."
echo "Caused by: java.net.BindException: Address already in use"
echo "[kafka-shutdown-hook] WARN Attempting to close NetworkClient that has already been closed." ;; esac
"""


def test_the_cause_of_a_broker_s_end_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").write_text(_JAVA)
    (tmp_path / "bin" / "java").chmod(0o755)
    (tmp_path / "broker.log").write_text("java.lang.OutOfMemoryError: of the day before\n")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr(broker, "broker_jars", lambda: tmp_path)
    monkeypatch.setattr(KafkaCluster, "id", lambda cluster, timeout_s: None)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        penstock.PenstockError, match="ended while it was started. .*failed to bind to 127.0.0.1:9: Address"
    ):
        broker.Broker(tmp_path).start()
