#!/bin/sh
# Finds the Chromium in which tests look at pages; where there is none and one command can install it, installs it.
# The tests say that they skipped where there is none: nothing else needs it.
for name in chromium chromium-browser google-chrome google-chrome-stable; do
    command -v "$name" >/dev/null 2>&1 && exit 0
done

if command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" -eq 0 ]; then
    echo "No Chromium was found: installing one with apt-get." >&2
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends chromium >/dev/null 2>&1 && command -v chromium >/dev/null 2>&1 && exit 0
fi
echo "There is no Chromium here, so no page will be looked at in a browser: install one (Debian: 'sudo apt-get install chromium') to have that tested too." >&2
