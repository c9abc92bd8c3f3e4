"""Watch the streaming queries of a plain PySpark program. Two lines are added; nothing else changes."""

import tempfile
import time

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import penstock

spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("ERROR")

watch = penstock.watch(spark, at="runs/watched", executors=(1, 4), every_s=2.0)  # the added line

rows = spark.readStream.format("rate").option("rowsPerSecond", 200).load()
query = (
    rows.groupBy((F.col("value") % 10).alias("key"))
    .count()
    .writeStream.outputMode("update")
    .format("noop")
    .option("checkpointLocation", tempfile.mkdtemp())
    .start()
)
time.sleep(20)
query.stop()
watch.stop()
spark.stop()

record = penstock.open_run("runs/watched")
print(record)
print(record.decisions()[["kind", "reason_code", "reason"]].tail(3).to_string())
