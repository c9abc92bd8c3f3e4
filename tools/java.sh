#!/bin/sh
# Finds the Java 17+ that Spark needs; where there is none and one command can install it, installs it.
version() {
    "$1" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1
}

good() {
    command -v "$1" >/dev/null 2>&1 && [ "$(version "$1")" -ge 17 ] 2>/dev/null
}

if [ -n "$JAVA_HOME" ]; then
    good "$JAVA_HOME/bin/java" && exit 0
    echo "JAVA_HOME is '$JAVA_HOME', which holds no Java 17 or newer: unset it or point it at one." >&2
    exit 1
fi
good java && exit 0

if command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" -eq 0 ]; then
    echo "No Java 17 or newer was found: installing one with apt-get." >&2
    apt-get update -qq
    for package in openjdk-21-jre-headless openjdk-17-jre-headless default-jre-headless; do
        apt-get install -y -qq --no-install-recommends "$package" >/dev/null 2>&1 && good java && exit 0
    done
fi
echo "Spark needs Java 17 or newer: install one (Debian and Ubuntu: 'sudo apt-get install openjdk-17-jre-headless', macOS: 'brew install openjdk@17') and run this again." >&2
exit 1
