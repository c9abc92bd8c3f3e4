"""Hold a latency target while the load rises fourfold.

The operator waits 20 ms per row, as a call to an external service does. One replica serves the low load but not the
high load. The policy `drs` computes how many replicas the target needs and applies the change.
"""

import time

import penstock

TARGET_S = 5.0


def call_service(row: dict[str, int]) -> dict[str, int]:
    time.sleep(0.02)
    return {"n": row["n"], "answer": row["n"] % 7}


flow = penstock.Dataflow("lookups")
requests = flow.source("requests", penstock.generate(lambda n: n, schema="n bigint", rows_per_s=0))
answers = requests.rows("lookup", call_service, "n bigint, answer bigint")
answers.sink("out", penstock.noop())

if __name__ == "__main__":
    with penstock.run(
        flow,
        at="runs/lookups",
        master="local[8]",  # more slots than cores: the operator waits and needs no core
        plan=penstock.default_plan(flow, slots=8, replicas={"lookup": 1}),
        policy="drs",
        mode="active",
        latency_s=TARGET_S,
        window_s=1.0,  # short times, so that the example ends soon
        batch_s=1.0,
        windows=2,
        warm_up_s=3.0,
        cooldown_s=4.0,
    ) as run:
        run.set_rate("requests", 20)  # rows arrive once the query runs
        time.sleep(10)
        run.set_rate("requests", 80)
        for second in range(60):  # until the policy has acted and the backlog is processed
            time.sleep(1)
            latency = run.windows(last=3)["latency_p95_s"].max()
            if second >= 15 and len(run.decisions(changes_only=True)) > 0 and latency < TARGET_S:
                break

    for reason in run.decisions(changes_only=True)["reason"]:
        print(reason)
    for number, windows in run.windows().groupby("plan_number"):
        latency = windows["latency_p95_s"].dropna()
        print(
            f"Plan {number}: backlog up to {windows['backlog_rows'].max():.0f} rows, "
            f"p95 latency {'unknown' if latency.empty else f'{latency.iloc[-1]:.1f} s'} at its end"
        )
    print("Report:", run.report())
