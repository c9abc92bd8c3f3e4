"""Try two policies on the load of a day, compressed to two hours. This example does not start Spark."""

import csv
import math
from pathlib import Path

import penstock

flow = penstock.Dataflow("orders")
orders = flow.source("orders", penstock.generate(lambda n: n, schema="n bigint", rows_per_s=100))
scored = orders.rows("score", lambda row: row, schema="n bigint")
scored.keyed("totals", lambda df: df.groupBy("n").count(), keys=["n"]).sink("out", penstock.noop())

BEHAVIOUR = """{
  "operators": {
    "score":  {"service_s": {"kind": "exponential", "mean": 0.004}},
    "totals": {"service_s": {"kind": "exponential", "mean": 0.001}}
  }
}"""

if __name__ == "__main__":
    Path("behaviour.json").write_text(BEHAVIOUR)
    with Path("day.csv").open("w", newline="") as file:  # a quiet night and a busy day, one value per 50 s
        rows = csv.writer(file)
        rows.writerow(["time_s", "rate"])
        rows.writerows([50 * step, 1.1 - math.cos(2 * math.pi * step / 144)] for step in range(144))
    for policy in ("drs", "ds2"):
        result = penstock.simulate(
            flow,
            trace="day.csv",
            peak=2_000,
            behaviour="behaviour.json",
            engine="fluid",
            policy=policy,
            latency_s=0.1,
            slots=32,
            window_s=30,
        )
        print(result)
    print("All 32 slots for two hours would be 64.00 slot-hours.")
