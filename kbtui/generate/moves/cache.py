"""Access and layout: what the caches are told about each load and store.

Data read once should not push out data that is read again: the streamed accesses are marked to leave early
(`evict_first`, `.cg`, `.cs`), the shared ones to stay (`evict_last`). PTX takes a cache operator or an eviction
priority on one instruction, not both, so neither move is offered where the other was made.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from kbtui.generate.moves.move import Move, Site
from kbtui.generate.tree.access import Access, accesses
from kbtui.generate.tree.edits import call_edit, with_keyword, without_keyword
from kbtui.generate.tree.flow import KernelFlow, flow_of
from kbtui.generate.tree.module import KernelModule, bind
from kbtui.generate.tree.nodes import Edit
from kbtui.state.records import Strategy

EVICTION, MODIFIER = "eviction_policy", "cache_modifier"
_PLAIN_ARGUMENTS = 3
"""Pointer, mask and other (or value): more positional arguments could be these options in old spellings."""


class EvictionPolicy(Move):
    name = "eviction_policy"
    strategy: Strategy = "access_layout"
    kind = "parameter"
    summary = "evict_first on what is read or written once, evict_last on what other programs or later loads read again"

    def sites(self, module: KernelModule) -> list[Site]:
        found: list[Site] = []
        for kernel in module.launched:
            flow = flow_of(module, kernel)
            every = accesses(flow)
            streamed: dict[cst.CSTNode, Edit] = {}
            for access in every:
                policy = _policy(access, every)
                if policy is None:
                    continue
                edit = call_edit(with_keyword(EVICTION, f'"{policy}"'))
                found.append(_site(module, flow, access, policy, {access.call: edit}))
                if policy == "evict_first":
                    streamed[access.call] = edit
            if len(streamed) > 1:
                title = f"all {len(streamed)} streamed accesses evict_first"
                found.append(
                    Site(title, kernel.name, module.line(kernel.node), streamed, f"loads and stores of {kernel.name}")
                )
            found.extend(_removals(module, flow, every, EVICTION))
        return found


class CacheModifier(Move):
    name = "cache_modifier"
    strategy: Strategy = "access_layout"
    kind = "parameter"
    summary = ".cg (past L1) on loads of what is read once, .cs (streaming) on stores of what is not read back"

    def sites(self, module: KernelModule) -> list[Site]:
        found: list[Site] = []
        for kernel in module.launched:
            flow = flow_of(module, kernel)
            every = accesses(flow)
            for access in every:
                if _policy(access, every) != "evict_first":
                    continue
                modifier = ".cg" if access.kind == "load" else ".cs"
                edit = call_edit(with_keyword(MODIFIER, f'"{modifier}"'))
                found.append(_site(module, flow, access, modifier, {access.call: edit}))
            found.extend(_removals(module, flow, every, MODIFIER))
        return found


def _policy(access: Access, every: list[Access]) -> str | None:
    """What an unmarked access should be told; None for a marked one, or one whose pointer cannot be followed."""
    bound, _ = bind(access.call, [])
    positional = sum(a.keyword is None for a in access.call.args)
    if not access.base or positional > _PLAIN_ARGUMENTS or EVICTION in bound or MODIFIER in bound:
        return None
    if access.kind == "store":
        read = any(other.kind == "load" and other.base == access.base for other in every)
        return None if read or access.shared else "evict_first"
    return "evict_first" if access.last and not access.shared else "evict_last"


def _site(module: KernelModule, flow: KernelFlow, access: Access, value: str, edits: dict[cst.CSTNode, Edit]) -> Site:
    if access.kind == "store":
        why = "written once and not read back"
    elif access.shared:
        why = "read by several programs"
    else:
        why = "read once" if access.last else "read again further down"
    return Site(f"{access.title} {value}", flow.kernel.name, module.line(access.call), edits, why)


def _removals(module: KernelModule, flow: KernelFlow, every: list[Access], keyword: str) -> Iterator[Site]:
    for access in every:
        bound, _ = bind(access.call, [])
        written = bound[keyword].value if keyword in bound else None
        if isinstance(written, cst.SimpleString) and isinstance(old := written.evaluated_value, str) and old:
            edits: dict[cst.CSTNode, Edit] = {access.call: call_edit(without_keyword(keyword))}
            title = f"{access.title} {old} → none"
            yield Site(title, flow.kernel.name, module.line(access.call), edits, f"drops {keyword}")
