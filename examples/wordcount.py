"""Count words, change the number of replicas while the dataflow runs, and print the most frequent words.

Run it with `python wordcount.py`, or use the dataflow from the command line:

    penstock show wordcount.py
    penstock run wordcount.py --at runs/wordcount --until-idle
"""

from pyspark.sql import functions as F

import penstock

LINES = ["the quick brown fox", "jumps over the lazy dog", "the dog sleeps"]

flow = penstock.Dataflow("wordcount")
lines = flow.source(
    "lines", penstock.generate(lambda n: LINES[n % len(LINES)], schema="value string", rows=6_000, rows_per_s=1_000)
)
words = lines.stateless("split", lambda df: df.select(F.explode(F.split("value", " ")).alias("word")))
counts = words.keyed("count", lambda df: df.groupBy("word").count(), keys=["word"])
counts.sink("out", penstock.memory())

if __name__ == "__main__":
    with penstock.run(flow, at="runs/wordcount") as run:
        print(run.rescale(count=3).text)
        run.wait_until_idle()
        latest = {
            row["word"]: row["count"] for row in run.rows("out")
        }  # update mode: the last count of a word is its total
        for word, count in sorted(latest.items(), key=lambda item: -item[1])[:3]:
            print(f"{word}: {count}")
        print("Report:", run.report())
