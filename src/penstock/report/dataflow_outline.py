"""The outline of a dataflow, as a value and as a tree: operators, those replicated together, plan and cuts."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from rich.markup import escape
from rich.tree import Tree

from penstock.dataflow import Dataflow, Kind, Operator, regions
from penstock.plan import Plan, pipelines, required_cuts
from penstock.report.formatting import plural


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
    replicas: int | None  # None for a source


class CutOutline(msgspec.Struct, frozen=True, kw_only=True):
    after: str
    reason: str


class PipelineOutline(msgspec.Struct, frozen=True, kw_only=True):
    pipeline: str
    reads: tuple[str, ...]  # the cuts that it reads from
    operators: tuple[str, ...]


class DataflowOutline(msgspec.Struct, frozen=True, kw_only=True):
    dataflow: str
    operators: tuple[OperatorOutline, ...]
    groups: tuple[GroupOutline, ...]
    plan: Plan
    cuts: tuple[CutOutline, ...]
    pipelines: tuple[PipelineOutline, ...]


def dataflow_outline(flow: Dataflow, plan: Plan) -> DataflowOutline:
    """Describe a dataflow under a plan."""
    reasons = required_cuts(flow, plan.replicas)
    order = [operator.name for operator in flow.operators]
    return DataflowOutline(
        dataflow=flow.name,
        operators=tuple(_operator(operator) for operator in flow.operators),
        groups=tuple(
            GroupOutline(
                kind=group.kind.value,
                operators=group.operators,
                keys=group.keys,
                replicas=plan.replicas.get(group.name),
            )
            for group in regions(flow)
        ),
        plan=plan,
        cuts=tuple(
            CutOutline(after=name, reason=reasons.get(name, "chosen by the plan"))
            for name in sorted(plan.cuts, key=order.index)
        ),
        pipelines=tuple(
            PipelineOutline(
                pipeline=pipeline.name,
                reads=tuple(edge.producer for edge in pipeline.inputs),
                operators=pipeline.operators,
            )
            for pipeline in pipelines(flow, plan)
        ),
    )


def outline_tree(outline: DataflowOutline) -> Tree:
    """Return the outline as a tree for a terminal."""
    root = Tree(f"[bold]{escape(outline.dataflow)}[/]", highlight=False)
    operators = root.add("operators")
    for operator in outline.operators:
        details = [f"from {', '.join(operator.inputs)}"] * bool(operator.inputs)
        details += [f"keys {', '.join(operator.keys)}"] * bool(operator.keys)
        details += [f"output mode {operator.output_mode}"] * (operator.output_mode is not None)
        details += [f"watermark {operator.watermark}"] * (operator.watermark is not None)
        details += [f"selectivity {operator.selectivity}"] * (operator.selectivity is not None)
        operators.add(" · ".join([f"[bold]{operator.operator}[/]: {operator.kind}", *map(escape, details)]))
    together = root.add("replicated together")
    for group in outline.groups:
        keyed = f" by {', '.join(group.keys)}" * bool(group.keys)
        together.add(f"[bold]{', '.join(group.operators)}[/] ({group.kind}{escape(keyed)})")
    plan = root.add(
        f"default plan: {plural(outline.plan.slots, 'slot')}, {plural(len(outline.pipelines), 'query', 'queries')}"
    )
    replicas = {name: group.replicas for group in outline.groups for name in group.operators}
    threads = {name: f" ({plural(max(outline.plan.bundles(name, 1)), 'thread')} each)" for name in outline.plan.threads}
    kinds = {operator.operator: operator.kind for operator in outline.operators}
    inputs = {operator.operator: operator.inputs for operator in outline.operators}
    reasons = {cut.after: cut.reason for cut in outline.cuts}
    for pipeline in outline.pipelines:
        labels = {
            name: name if kinds[name] == Kind.SOURCE else f"{name} x{replicas[name]}{threads.get(name, '')}"
            for name in pipeline.operators
        }
        branch = plan.add(f"[bold]{pipeline.pipeline}[/]: {_chain(pipeline, inputs, labels)}")
        if pipeline.pipeline in reasons:
            branch.add(escape(f"cut: {reasons[pipeline.pipeline]}"))
    return root


def _chain(pipeline: PipelineOutline, inputs: Mapping[str, tuple[str, ...]], labels: Mapping[str, str]) -> str:
    """Return the operators of a query in one line. Operators that do not follow each other are separated by commas.

    >>> join = PipelineOutline(pipeline="join", reads=("ads",), operators=("clicks", "join"))
    >>> _chain(join, {"clicks": (), "join": ("ads", "clicks")}, {"clicks": "clicks", "join": "join x2"})
    '(ads), clicks -> join x2'
    """
    text, latest = ", ".join(f"({name})" for name in pipeline.reads), set(pipeline.reads)
    for name in pipeline.operators:
        follows = not latest.isdisjoint(inputs[name])
        text += (" -> " if follows else ", ") * bool(text) + labels[name]
        latest = {name} if follows else {*latest, name}
    return text


def _operator(operator: Operator) -> OperatorOutline:
    return OperatorOutline(
        operator=operator.name,
        kind=operator.kind.value,
        inputs=operator.inputs,
        keys=operator.keys,
        output_mode=None if operator.output_mode is None else operator.output_mode.value,
        selectivity=operator.selectivity,
        watermark=None if operator.watermark is None else f"{operator.watermark.column}, {operator.watermark.delay}",
    )
