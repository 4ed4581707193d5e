"""Small changes to nodes that keep the layout around them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import libcst as cst

from kbtui.generate.tree.module import Kernel, KernelModule
from kbtui.generate.tree.nodes import Edit, Edits

Item = TypeVar("Item", cst.Arg, cst.Param)
Change = Callable[[cst.Call], cst.Call]


def to_integer(value: int) -> Edit:
    """The integer literal with another value; its brackets stay. A product of literals becomes one."""

    def edit(node: cst.CSTNode) -> cst.CSTNode:
        return node.with_changes(value=str(value)) if isinstance(node, cst.Integer) else cst.Integer(str(value))

    return edit


def to_expression(code: str) -> Edit:
    """Another expression in the node's place."""
    return lambda _node: cst.parse_expression(code)


def with_keyword(name: str, code: str) -> Change:
    """The call with keyword `name` set to `code`: changed where it stands, else added behind the last plain argument.

    A call with one argument a line gets one line more.
    """

    def change(call: cst.Call) -> cst.Call:
        value = cst.parse_expression(code)
        arguments = list(call.args)
        for index, argument in enumerate(arguments):
            if argument.keyword is not None and argument.keyword.value == name:
                arguments[index] = argument.with_changes(value=value)
                return call.with_changes(args=arguments)
        new = cst.Arg(
            value=value,
            keyword=cst.Name(name),
            equal=cst.AssignEqual(
                whitespace_before=cst.SimpleWhitespace(""), whitespace_after=cst.SimpleWhitespace("")
            ),
        )
        return call.with_changes(args=appended(arguments, new))

    return change


def without_keyword(name: str) -> Change:
    """The call without keyword `name`."""

    def change(call: cst.Call) -> cst.Call:
        kept = [a for a in call.args if a.keyword is None or a.keyword.value != name]
        if kept and len(kept) < len(call.args) and call.args[-1] not in kept:
            kept[-1] = kept[-1].with_changes(
                comma=call.args[-1].comma, whitespace_after_arg=call.args[-1].whitespace_after_arg
            )
        return call.with_changes(args=kept)

    return change


def replacing(written: cst.BaseExpression, new: int) -> Change:
    """The call with the integer literal `written`, somewhere in it, set to `new`."""

    def change(call: cst.Call) -> cst.Call:
        replaced = call.deep_replace(written, written.with_changes(value=str(new)))
        assert isinstance(replaced, cst.Call)
        return replaced

    return change


def call_edit(change: Change) -> Edit:
    """`change` as an edit of the call itself."""

    def edit(node: cst.CSTNode) -> cst.CSTNode:
        assert isinstance(node, cst.Call)
        return change(node)

    return edit


def appended(items: Sequence[Item], new: Item) -> list[Item]:
    """Arguments or parameters with one more at the end, on a line of its own where the others are."""
    if not items:
        return [new]
    space = "whitespace_after_arg" if isinstance(new, cst.Arg) else "whitespace_after_param"
    *before, last = items
    separator = before[-1].comma if before else cst.MaybeSentinel.DEFAULT
    between = _plain(separator.whitespace_after) if isinstance(separator, cst.Comma) else cst.SimpleWhitespace(" ")
    if isinstance(last.comma, cst.Comma):
        # A trailing comma: what stands behind it (a comment, the line end) stays with its line.
        behind = last.comma.whitespace_after
        if isinstance(behind, cst.ParenthesizedWhitespace) and isinstance(between, cst.ParenthesizedWhitespace):
            between = between.with_changes(first_line=behind.first_line)
        new = new.with_changes(comma=last.comma.with_changes(whitespace_after=_plain(behind)))
    new = new.with_changes(**{space: getattr(last, space)})
    last = last.with_changes(comma=cst.Comma(whitespace_after=between), **{space: cst.SimpleWhitespace("")})
    return [*before, last, new]


def _plain(space: cst.BaseParenthesizableWhitespace) -> cst.BaseParenthesizableWhitespace:
    """The same line break and indentation without comments and empty lines."""
    if isinstance(space, cst.ParenthesizedWhitespace):
        return space.with_changes(first_line=cst.TrailingWhitespace(newline=space.first_line.newline), empty_lines=[])
    return space


def vary_config(module: KernelModule, kernel: Kernel, config: cst.Call, change: Change) -> Edits | None:
    """Edits that give a tuned kernel a changed configuration.

    A list of one is changed in place. A longer list gets the varied configuration before its model, so that tuning can
    still choose what it chose before, and comments stay where they are. None when the list has it already.
    """
    varied = change(config)
    if any(module.code(varied) == module.code(other) for other in kernel.configs):
        return None
    if len(kernel.configs) == 1:
        return {config: call_edit(change)}
    element = module.above[config]
    listed = module.above[element]
    assert isinstance(element, cst.Element)
    assert isinstance(listed, cst.List)
    last = element is listed.elements[-1]
    comma = listed.elements[-2].comma if last and len(listed.elements) > 1 else element.comma
    if not isinstance(comma, cst.Comma):
        comma = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
    new = cst.Element(value=varied, comma=comma.with_changes(whitespace_after=_plain(comma.whitespace_after)))
    return {element: lambda node: [new, node]}
