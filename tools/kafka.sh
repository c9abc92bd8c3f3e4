#!/bin/sh
# Fetches a Kafka broker and Spark's connector with Maven into the user's cache; where there is no Maven and one command can install it, installs it.
# Usage: kafka.sh PYTHON. Says in one line why, if it cannot.
if ! command -v mvn >/dev/null 2>&1 && command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" -eq 0 ]; then
    echo "No Maven was found: installing it with apt-get." >&2
    apt-get update -qq && apt-get install -y -qq --no-install-recommends maven >/dev/null 2>&1
fi
exec "$1" -m penstock.brokers.maven_jars
