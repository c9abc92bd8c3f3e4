from __future__ import annotations

import msgspec
import pytest

from penstock.dataflow.errors import PenstockError
from penstock.models.flow import Flow
from penstock.planning.thread_schedule import schedule_threads
from penstock.planning.vms import VmSize
from penstock.report.thread_schedule import schedule_report
from tests.support.micro_dags import CURVES, DIAMOND, LINEAR, STAR

D = [VmSize(name=f"D{n}", slots=2 ** (n - 1), price_per_h=0.1 * 2 ** (n - 1)) for n in (1, 2, 3)]


@pytest.mark.parametrize("dag", [LINEAR, DIAMOND, STAR])
@pytest.mark.parametrize("method", ["lsa", "mba"])
@pytest.mark.parametrize("mapping", ["dsm", "rsm", "sam"])
def test_report_adds_up(dag: Flow, method: str, mapping: str) -> None:
    planned = schedule_threads(dag, 100, CURVES, method=method, mapping=mapping, sizes=D)
    report = schedule_report(planned, CURVES, D)
    assert report.threads == sum(operator.threads for operator in report.operators.values())
    assert {name: len(slots) for name, slots in report.placement.items()} == {
        name: operator.threads for name, operator in report.operators.items()
    }
    assert report.lower_bound <= report.slots <= report.slots + report.extra_slots <= report.vm_slots
    assert report.vm_slots == sum(vm.slots for vm in report.vms)
    assert report.price_per_h == pytest.approx(0.1 * report.vm_slots)
    assert report.cheapest_price_per_h == pytest.approx(0.1 * (report.slots + report.extra_slots))
    assert report.predicted_rows_per_s == report.predicted["shuffle"].rows_per_s
    for vm in report.vms:
        slots = [use for name, use in report.predicted["shuffle"].slots.items() if name.startswith(vm.name + "/")]
        assert len(slots) == vm.slots
        assert vm.cpu == pytest.approx(sum(use.cpu for use in slots))
    document = msgspec.json.decode(report.to_json())
    assert document["routes"][0].keys() == {"from", "to", "from_slot", "to_slot", "share"}


def test_published_linear_micro_dag_on_two_large_vms() -> None:
    report = schedule_report(schedule_threads(LINEAR, 100, CURVES, sizes=D), CURVES, D)
    assert (report.slots, report.extra_slots, [vm.size for vm in report.vms]) == (7, 0, ["D3", "D3"])
    assert report.operators["table"].threads == 160
    assert report.predicted["proportional"].rows_per_s == pytest.approx(100)
    assert report.predicted["shuffle"].rows_per_s == pytest.approx(80)
    assert report.predicted["shuffle"].binding == "table"


def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(PenstockError, match="'best' is not an allocation method. Choose one of: mba, lsa"):
        schedule_threads(LINEAR, 100, CURVES, method="best")
