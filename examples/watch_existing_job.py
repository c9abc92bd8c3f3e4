"""Watch the streaming query of a plain PySpark program. Two lines are added: the import, and the call of `watch`."""

import tempfile
import time

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import penstock

spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.sql.shuffle.partitions", 2)
    .config("spark.ui.enabled", "false")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("ERROR")

watch = penstock.watch(spark, at="runs/watched", executors=(1, 4), window_s=2.0)

rows = spark.readStream.format("rate").option("rowsPerSecond", 200).load()
query = (
    rows.groupBy((F.col("value") % 10).alias("key"))
    .count()
    .writeStream.outputMode("update")
    .format("noop")
    .option("checkpointLocation", tempfile.mkdtemp())
    .start()
)
while query.lastProgress is None or query.lastProgress["batchId"] < 25:
    time.sleep(1)
watch.stop()
query.stop()
spark.stop()

record = penstock.open_run("runs/watched")
print(record)
print(record.windows()[["input_rows_per_s", "backlog_rows"]].tail(3).to_string(index=False))
print("Last decision:", record.decisions()["reason"].iloc[-1])
