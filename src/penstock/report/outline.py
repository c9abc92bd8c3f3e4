"""The outline of a dataflow, as a value and as a tree: operators, those replicated together, plan and cuts."""

from __future__ import annotations

import msgspec
from rich.markup import escape
from rich.tree import Tree

from penstock.dataflow import Dataflow, Kind, Operator, regions
from penstock.plan import Plan, pipelines, required_cuts


class OperatorOutline(msgspec.Struct, frozen=True, kw_only=True):
    operator: str
    kind: str
    inputs: tuple[str, ...]
    keys: tuple[str, ...]
    output_mode: str | None
    selectivity: float | None
    watermark: str | None


class GroupOutline(msgspec.Struct, frozen=True, kw_only=True):
    operators: tuple[str, ...]  # replicated together
    kind: str
    keys: tuple[str, ...]
    replicas: int | None  # None of a source


class CutOutline(msgspec.Struct, frozen=True, kw_only=True):
    after: str
    reason: str


class PipelineOutline(msgspec.Struct, frozen=True, kw_only=True):
    pipeline: str
    reads: tuple[str, ...]  # cuts
    operators: tuple[str, ...]


class Outline(msgspec.Struct, frozen=True, kw_only=True):
    dataflow: str
    operators: tuple[OperatorOutline, ...]
    groups: tuple[GroupOutline, ...]
    plan: Plan
    cuts: tuple[CutOutline, ...]
    pipelines: tuple[PipelineOutline, ...]


def outline(flow: Dataflow, plan: Plan) -> Outline:
    reasons = required_cuts(flow, plan.replicas)
    order = [one.name for one in flow.operators]
    return Outline(
        dataflow=flow.name,
        operators=tuple(_operator(one) for one in flow.operators),
        groups=tuple(
            GroupOutline(
                kind=one.kind.value,
                operators=one.operators,
                keys=one.keys,
                replicas=plan.replicas.get(one.name),
            )
            for one in regions(flow)
        ),
        plan=plan,
        cuts=tuple(
            CutOutline(after=name, reason=reasons.get(name, "chosen by the plan"))
            for name in sorted(plan.cuts, key=order.index)
        ),
        pipelines=tuple(
            PipelineOutline(
                pipeline=one.name, reads=tuple(edge.producer for edge in one.inputs), operators=one.operators
            )
            for one in pipelines(flow, plan)
        ),
    )


def tree(shown: Outline) -> Tree:
    root = Tree(f"[bold]{escape(shown.dataflow)}[/]", highlight=False)
    operators = root.add("operators")
    for one in shown.operators:
        details = [f"from {', '.join(one.inputs)}"] * bool(one.inputs)
        details += [f"keys {', '.join(one.keys)}"] * bool(one.keys)
        details += [f"output mode {one.output_mode}"] * (one.output_mode is not None)
        details += [f"watermark {one.watermark}"] * (one.watermark is not None)
        details += [f"selectivity {one.selectivity}"] * (one.selectivity is not None)
        operators.add(" · ".join([f"[bold]{one.operator}[/]: {one.kind}", *map(escape, details)]))
    together = root.add("replicated together")
    for group in shown.groups:
        keyed = f" by {', '.join(group.keys)}" * bool(group.keys)
        together.add(f"[bold]{', '.join(group.operators)}[/] ({group.kind}{escape(keyed)})")
    plan = root.add(
        f"default plan: {_many(shown.plan.slots, 'slot')}, {_many(len(shown.pipelines), 'query', 'queries')}"
    )
    replicas = {name: group.replicas for group in shown.groups for name in group.operators}
    kinds = {one.operator: one.kind for one in shown.operators}
    reasons = {cut.after: cut.reason for cut in shown.cuts}
    for pipeline in shown.pipelines:
        chain = [name if kinds[name] == Kind.SOURCE else f"{name} x{replicas[name]}" for name in pipeline.operators]
        reads = "".join(f"({name}) -> " for name in pipeline.reads)
        branch = plan.add(f"[bold]{pipeline.pipeline}[/]: {reads}{' -> '.join(chain)}")
        if pipeline.pipeline in reasons:
            branch.add(escape(f"cut: {reasons[pipeline.pipeline]}"))
    return root


def _operator(one: Operator) -> OperatorOutline:
    return OperatorOutline(
        operator=one.name,
        kind=one.kind.value,
        inputs=one.inputs,
        keys=one.keys,
        output_mode=None if one.output_mode is None else one.output_mode.value,
        selectivity=one.selectivity,
        watermark=None if one.watermark is None else f"{one.watermark.column}, {one.watermark.delay}",
    )


def _many(number: int, one: str, more: str | None = None) -> str:
    return f"{number} {one if number == 1 else more or one + 's'}"
