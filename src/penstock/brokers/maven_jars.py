"""The jars of a Kafka broker and of Spark's Kafka connector, fetched once with Maven and kept in the user's cache.

Maven's own settings determine the repositories.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from penstock.dataflow.errors import PenstockError

BROKER = ("org.apache.kafka:kafka_2.13:4.3.0", "org.slf4j:slf4j-simple:1.7.36")
# Some repositories lack the connector of the installed Spark or its dependencies. This set is complete and works with
# Spark 4.3.
OLDER_CONNECTOR = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.0",
)
_MAVEN_TIMEOUT_S = 600.0


class MavenError(PenstockError):
    """Maven is not installed, or it cannot fetch the jars."""


def connector_jars() -> list[Path]:
    """Return the jars of Spark's Kafka connector, of the installed Spark version if available, else of an older one.

    Raises:
        MavenError: The jars are not in the cache and cannot be fetched.
    """
    same_version = (f"org.apache.spark:spark-sql-kafka-0-10_2.13:{version('pyspark')}",)
    if not _folder(same_version).exists() and not _folder(OLDER_CONNECTOR).exists():
        try:
            _fetched(same_version)
        except MavenError:
            _fetched(OLDER_CONNECTOR, with_dependencies=False)
    folder = _folder(same_version) if _folder(same_version).exists() else _folder(OLDER_CONNECTOR)
    return sorted(folder.glob("*.jar"))


def broker_jars() -> Path:
    """Return the folder with the jars of a Kafka broker.

    Raises:
        MavenError: The jars are not in the cache and cannot be fetched.
    """
    return _fetched(BROKER)


def _fetched(artifacts: tuple[str, ...], *, with_dependencies: bool = True) -> Path:
    """Return the folder with these artifacts; fetch them if they are not in the cache."""
    folder = _folder(artifacts)
    if folder.exists():
        return folder
    maven = shutil.which("mvn")
    if maven is None:
        raise MavenError(
            "Kafka is fetched with Maven, but there is no 'mvn'; install it, for example with 'apt-get install maven'."
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".fetching-") as work:
        (Path(work) / "pom.xml").write_text(_pom(artifacts, with_dependencies=with_dependencies))
        command = [
            maven,
            "-q",
            "-B",
            "-U",  # otherwise Maven remembers a missing artifact for a day
            "dependency:copy-dependencies",
            "-DincludeScope=runtime",
            "-DoutputDirectory=jars",
        ]
        try:
            done = subprocess.run(command, cwd=work, capture_output=True, text=True, timeout=_MAVEN_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise MavenError(f"Maven did not finish within {_MAVEN_TIMEOUT_S:g} s; try again.") from None
        if done.returncode != 0:
            errors = [line for line in done.stdout.splitlines() if "ERROR" in line] or ["no error message"]
            raise MavenError(
                f"Maven cannot fetch {', '.join(artifacts)}: {errors[0]}; check that its repository can be reached."
            )
        if not folder.exists():  # another process may have been faster
            (Path(work) / "jars").rename(folder)
    return folder


def _folder(artifacts: tuple[str, ...]) -> Path:
    """Return the cache folder of these artifacts. A folder that exists is complete."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "penstock" / "-".join(":".join(artifact.split(":")[1:]) for artifact in artifacts).replace(":", "-")


def _pom(artifacts: tuple[str, ...], *, with_dependencies: bool = True) -> str:
    """Return a Maven project that only depends on these artifacts.

    >>> _pom(("a.b:c:1",)).count("<dependency>")
    1
    """
    exclusion = "" if with_dependencies else "<exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion>"
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{number}</version>"
        f"<exclusions>{exclusion}</exclusions></dependency>"
        for group, name, number in (artifact.split(":") for artifact in artifacts)
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>penstock</groupId><artifactId>artifacts</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )


if __name__ == "__main__":
    try:
        print(broker_jars())
        print(*connector_jars(), sep="\n")
    except MavenError as error:
        sys.exit(str(error))
