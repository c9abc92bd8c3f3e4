"""Hold a latency target while the load triples.

The operator waits 5 ms per row, as a call to an external service does. The policy `drs` adds replicas when the latency
target is missed, and releases them when fewer suffice.
"""

import time

import penstock


def call_service(row: dict[str, int]) -> dict[str, int]:
    time.sleep(0.005)
    return {"n": row["n"], "answer": row["n"] % 7}


flow = penstock.Dataflow("lookups")
requests = flow.source("requests", penstock.generate(lambda n: n, schema="n bigint", rows=12_000, rows_per_s=120))
answers = requests.rows("lookup", call_service, schema="n bigint, answer bigint")
answers.sink("out", penstock.noop())

if __name__ == "__main__":
    plan = penstock.default_plan(flow, slots=8, replicas={"lookup": 1})
    with penstock.run(
        flow,
        at="runs/lookups",
        master="local[8]",  # more slots than cores: the operator waits and does not compute
        plan=plan,
        policy="drs",
        mode="active",
        latency_s=3.0,
        cooldown_s=5,
        warm_up_s=4,
        windows=3,
    ) as run:
        time.sleep(10)
        run.set_rate("requests", 360)
        run.wait_until_idle()
        record = run.decisions(changes_only=True)
    for reason in record["reason"]:
        print(reason)
    print(run.windows()[["external_rows_per_s", "latency_p95_s", "backlog_rows"]].round(2).to_string())
