"""The jars of a Kafka broker and of Spark's own connector, resolved with Maven once and kept in the user's cache.

Which repositories are asked is for Maven's own settings to say.
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
# Not every repository has the connector of every Spark and all that it needs. This one is whole, and Spark 4.3 runs it.
OLDER_CONNECTOR = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.0",
)
_PATIENCE_S = 600.0


class ArtifactsError(PenstockError):
    """The jars cannot be had."""


def connector() -> list[Path]:
    """The jars of Spark's Kafka connector: of the Spark that is installed where they can be had, else older ones."""
    same = (f"org.apache.spark:spark-sql-kafka-0-10_2.13:{version('pyspark')}",)
    if not cached(same).exists() and not cached(OLDER_CONNECTOR).exists():
        try:
            resolved(same)
        except ArtifactsError:
            resolved(OLDER_CONNECTOR, alone=True)
    return sorted((cached(same) if cached(same).exists() else cached(OLDER_CONNECTOR)).glob("*.jar"))


def resolved(wanted: tuple[str, ...] = BROKER, *, alone: bool = False) -> Path:
    """The folder with these artifacts and, unless `alone`, what they depend on; fetched if it is not there yet."""
    folder = cached(wanted)
    if folder.exists():
        return folder
    maven = shutil.which("mvn")
    if maven is None:
        raise ArtifactsError("Kafka is fetched with Maven, and there is no 'mvn'; install it ('apt-get install maven')")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".fetching-") as work:
        (Path(work) / "pom.xml").write_text(_pom(wanted, alone=alone))
        command = [
            maven,
            "-q",
            "-B",
            "-U",  # else what was not there once is not asked for again for a day
            "dependency:copy-dependencies",
            "-DincludeScope=runtime",
            "-DoutputDirectory=jars",
        ]
        try:
            done = subprocess.run(command, cwd=work, capture_output=True, text=True, timeout=_PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise ArtifactsError(f"Maven took longer than {_PATIENCE_S:g} s; try again") from None
        if done.returncode != 0:
            said = [line for line in done.stdout.splitlines() if "ERROR" in line] or ["it said nothing"]
            raise ArtifactsError(f"Maven cannot fetch {', '.join(wanted)}: {said[0]}; is its repository in reach?")
        if not folder.exists():  # somebody else may have been faster
            (Path(work) / "jars").rename(folder)
    return folder


def cached(wanted: tuple[str, ...] = BROKER) -> Path:
    """Where these artifacts are kept; a folder that exists is whole."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "penstock" / "-".join(":".join(one.split(":")[1:]) for one in wanted).replace(":", "-")


def _pom(wanted: tuple[str, ...], *, alone: bool = False) -> str:
    """A project that depends on them and is nothing else.

    >>> _pom(("a.b:c:1",)).count("<dependency>")
    1
    """
    none = "<exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion>" if alone else ""
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{number}</version>"
        f"<exclusions>{none}</exclusions></dependency>"
        for group, name, number in (one.split(":") for one in wanted)
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>penstock</groupId><artifactId>artifacts</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )


if __name__ == "__main__":
    try:
        print(resolved())
        print(*connector(), sep="\n")
    except ArtifactsError as error:
        sys.exit(str(error))
