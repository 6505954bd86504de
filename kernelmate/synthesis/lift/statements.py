"""Symbolic execution of a kernel's statements for an arbitrary thread; loops are summarised or unrolled."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from kernelmate.synthesis.lift.arithmetic import ATOMICS, constant, converted, kind_of
from kernelmate.synthesis.lift.file import LocalArray, Node, Pointer, before_jump, condition_of, statements_of
from kernelmate.synthesis.lift.loops import LiftedLoop, read_loop, summarised, unrolled_values
from kernelmate.synthesis.lift.machine import ThreadMachine
from kernelmate.synthesis.lift.memory import kept_elements
from kernelmate.synthesis.lift.polynomials import NotLifted
from kernelmate.synthesis.lift.sharing import SharedArray
from kernelmate.synthesis.lift.values import FALSE, TRUE, Spread, negation, to_poly

MOST_ITERATIONS = 128
"""Maximum number of iterations of a loop that are executed one by one."""

_BARRIERS = ("__syncthreads", "__syncwarp", "__threadfence_block")


class KernelMachine(ThreadMachine):
    """A thread machine that also executes statements, so that it can call the file's functions."""

    def run(self) -> None:
        """Executes the kernel's body."""
        body = self.function.child_by_field_name("body")
        assert body is not None
        Statements(self).sequence(statements_of(body))

    def called(self, function: Node, given: Sequence[Node]) -> Any:
        """Returns the value of a call to a function of the file; None for a void function."""
        return Statements(self).called(function, given)


class Statements:
    """Executes statements on a machine."""

    def __init__(self, machine: ThreadMachine) -> None:
        self.machine, self.depth = machine, 0

    def sequence(self, nodes: Sequence[Node]) -> None:
        """Executes statements in order; those after a conditional return or continue are guarded by its negation."""
        for place, node in enumerate(nodes):
            if node.type in ("return_statement", "continue_statement"):
                return
            jump = before_jump(node)
            if jump is not None:
                self._leaving(node, jump, nodes[place + 1 :])
                return
            self.statement(node)

    def _leaving(self, node: Node, jump: list[Node], rest: Sequence[Node]) -> None:
        clause = node.child_by_field_name("condition")
        asked = self.machine.condition(condition_of(clause))
        kind = statements_of(node.child_by_field_name("consequence"))[-1].type
        if kind == "return_statement" and self.depth:
            raise NotLifted("a return within a loop or a block", self.machine.line(node))
        if kind == "continue_statement":
            self.branches(asked, lambda: self.sequence(jump), lambda: self.sequence(rest))
            return
        state = self.machine.state
        names, path = dict(state.names), state.path
        state.path = (*path, asked)
        self.sequence(jump)
        state.names, state.path = names, (*path, negation(asked))
        self.sequence(rest)

    def statement(self, node: Node) -> None:
        """Executes one statement.

        Raises:
            NotLifted: the statement is not supported; the error has its line.
        """
        try:
            reader = getattr(self, f"_{node.type}", None)
            if reader is None:
                raise NotLifted(f"`{self.machine.text(node).splitlines()[0][:60]}` is not read")
            reader(node)
        except NotLifted as reason:
            if reason.line is None:
                reason.line = self.machine.line(node)
            raise

    def _comment(self, _: Node) -> None:
        pass

    _preproc_call = _alias_declaration = _type_definition = _static_assert_declaration = _comment

    def _compound_statement(self, node: Node) -> None:
        self.depth += 1
        self.sequence(statements_of(node))
        self.depth -= 1

    def _if_statement(self, node: Node) -> None:
        asked = self.machine.condition(condition_of(node.child_by_field_name("condition")))
        first, second = node.child_by_field_name("consequence"), node.child_by_field_name("alternative")
        if second is not None and second.type == "else_clause":
            second = second.named_children[-1]
        self.depth += 1
        self.branches(asked, lambda: self.sequence(statements_of(first)), lambda: self.sequence(statements_of(second)))
        self.depth -= 1

    def branches(self, asked: Any, first: Callable[[], None], second: Callable[[], None]) -> None:
        """Executes both branches of a condition, and merges their values of each name."""
        if asked in (TRUE, FALSE):
            (first if asked == TRUE else second)()
            return
        state = self.machine.state
        before, path = dict(state.names), state.path
        state.path = (*path, asked)
        first()
        chosen, state.names, state.path = state.names, dict(before), (*path, negation(asked))
        second()
        other, state.path = state.names, path
        for name in chosen.keys() | other.keys():
            one, two = chosen.get(name), other.get(name)
            if one is two or one == two:
                state.names[name] = one
            elif name not in before or one is None or two is None:
                state.names[name] = None
            else:
                state.names[name] = self._merged(asked, one, two)

    def _merged(self, asked: Any, one: Any, two: Any) -> Any:
        if isinstance(one, LocalArray) and isinstance(two, LocalArray):
            pairs = zip(one.values, two.values, strict=True)
            return replace(
                one, values=tuple(None if None in (a, b) else self.machine.chosen(asked, a, b) for a, b in pairs)
            )
        if isinstance(one, Pointer | SharedArray | LocalArray):
            raise NotLifted("an address that depends on a condition")
        return self.machine.chosen(asked, one, two)

    # ------------------------------------------------------------------------------------ declarations, assignments

    def _declaration(self, node: Node) -> None:
        machine = self.machine
        shared = any(machine.text(one) == "__shared__" for one in node.children)
        type_text = machine.text(node.child_by_field_name("type"))
        for declarator in node.children_by_field_name("declarator"):
            value = declarator.child_by_field_name("value") if declarator.type == "init_declarator" else None
            inner = declarator.child_by_field_name("declarator") if declarator.type == "init_declarator" else declarator
            assert inner is not None
            self._declared(inner, value, type_text, shared=shared, outside="extern" in machine.text(node).split())

    def _declared(self, node: Node, value: Node | None, type_text: str, *, shared: bool, outside: bool) -> None:
        machine, pointer = self.machine, False
        sides: list[int | None] = []
        while node.type != "identifier":
            if node.type == "array_declarator":
                size = node.child_by_field_name("size")
                known = None if size is None else to_poly(machine.number(size)).constant
                if known is None and not outside:
                    raise NotLifted("an array whose size is not constant")
                sides.insert(0, known)
            elif node.type == "pointer_declarator":
                pointer = True
            inner = node.child_by_field_name("declarator") or (node.named_children[-1] if node.named_children else None)
            if inner is None:
                raise NotLifted(f"the declaration `{machine.text(node)[:60]}`")
            node = inner
        name, kind = machine.text(node), "" if pointer else kind_of(type_text)
        if shared:
            machine.state.names[name] = SharedArray(name, kind, tuple(sides))
        elif sides:
            self._own_array(name, kind, [side or 0 for side in sides], value)
        elif value is None:
            machine.state.names[name] = None
        else:
            found = machine.value(value)
            machine.set_place(node, found if isinstance(found, Pointer) else self._as_kind(found, kind))

    def _as_kind(self, value: Any, kind: str) -> Any:
        if isinstance(value, Spread):
            return value
        return converted(value, kind, self.machine.space)

    def _own_array(self, name: str, kind: str, sides: list[int], value: Node | None) -> None:
        amount = 1
        for side in sides:
            amount *= side
        given = [] if value is None else [self._as_kind(self.machine.number(one), kind) for one in value.named_children]
        zero = self._as_kind(constant(0), kind)
        values = tuple(given) + (zero if value is not None else None,) * (amount - len(given))
        self.machine.state.names[name] = LocalArray(kind, tuple(sides), values)

    def _expression_statement(self, node: Node) -> None:
        for inner in node.named_children:
            self.effect(inner)

    def effect(self, node: Node) -> None:
        """Executes an expression for its side effects."""
        machine = self.machine
        if node.type == "comma_expression":
            for one in node.named_children:
                self.effect(one)
        elif node.type == "parenthesized_expression":
            self.effect(node.named_children[0])
        elif node.type == "assignment_expression":
            self._assigned(node)
        elif node.type == "update_expression":
            target = node.child_by_field_name("argument")
            assert target is not None
            sign = machine.text(node).replace(machine.text(target), "")[0]
            value = machine.value(target)
            if isinstance(value, Pointer):
                self._put(target, replace(value, at=value.at + (1 if sign == "+" else -1)))
            else:
                self._put(target, machine.combined(sign, value, constant(1)))
        elif node.type == "call_expression":
            self._call(node)
        else:
            raise NotLifted(f"`{machine.text(node)[:60]}` is not read", machine.line(node))

    def _assigned(self, node: Node) -> None:
        machine = self.machine
        target, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        assert target is not None and right is not None  # noqa: PT018 -- the grammar has both
        sign = machine.text(node.child_by_field_name("operator"))[:-1]
        if right.type == "assignment_expression":
            self._assigned(right)
            right = right.child_by_field_name("left")
            assert right is not None
        value = machine.value(right)
        if sign:
            before = machine.value(target)
            if isinstance(before, Pointer):
                by = to_poly(machine.plain(value))
                value = replace(before, at=before.at + by if sign == "+" else before.at - by)
            else:
                value = machine.combined(sign, before, value)
                value = (
                    value
                    if isinstance(value, Spread)
                    else self._as_kind(value, before.kind if before.kind != "index" else "")
                )
        self._put(target, value)

    def _put(self, target: Node, value: Any) -> None:
        if target.type == "identifier" and not isinstance(value, Pointer | Spread):
            before = self.machine.state.names.get(self.machine.text(target))
            kind = getattr(before, "kind", "")
            value = self._as_kind(value, "float" if kind == "float" else "")
        self.machine.set_place(target, value)

    def _call(self, node: Node) -> None:
        machine = self.machine
        name = machine.text(node.child_by_field_name("function"))
        given = list((node.child_by_field_name("arguments") or node).named_children)
        if name in _BARRIERS:
            machine.state.epoch += 1
        elif name in ATOMICS:
            target = (
                machine.value(given[0])
                if given[0].type != "pointer_expression"
                else machine.place(given[0].named_children[-1])
            )
            if isinstance(target, SharedArray):
                target = (target, (to_poly(constant(0)),) * len(target.sides))
            machine.set_at(target, machine.plain(machine.number(given[1])), ATOMICS[name], node)
        elif name in machine.functions:
            self.called(machine.functions[name], given)
        else:
            raise NotLifted(f"the function `{name}` is not known")

    # -------------------------------------------------------------------------------------------- device functions

    def called(self, function: Node, given: Sequence[Node]) -> Any:
        """Returns the value of a call to a function of the file; None for a void function."""
        machine = self.machine
        parameters = list(machine.walk(function, "parameter_declaration"))
        if len(parameters) != len(given) or self.depth > 20:
            raise NotLifted("a call with another number of arguments")
        values = [machine.value(one) for one in given]
        names: dict[str, Any] = {
            key: value for key, value in machine.state.names.items() if isinstance(value, SharedArray)
        }
        for parameter, value in zip(parameters, values, strict=True):
            declarator = parameter.child_by_field_name("declarator")
            if declarator is None or declarator.type == "reference_declarator":
                raise NotLifted(f"the parameter `{machine.text(parameter)}`")
            name = machine.walk(declarator, "identifier")[0]
            kind = machine.text(parameter.child_by_field_name("type"))
            plain = declarator.type == "identifier" and not isinstance(value, SharedArray | Pointer)
            names[machine.text(name)] = (
                self._as_kind(value, kind_of(kind)) if plain and kind not in ("T", "auto") else value
            )
        before, machine.state.names = machine.state.names, names
        try:
            body = function.child_by_field_name("body")
            assert body is not None
            return Statements(machine).returned(statements_of(body))
        finally:
            machine.state.names = before

    def returned(self, nodes: Sequence[Node]) -> Any:
        """Executes a function's statements, and returns the value that they return."""
        for place, node in enumerate(nodes):
            if node.type == "return_statement":
                return self.machine.number(node.named_children[0]) if node.named_children else None
            if before_jump(node) is not None:
                return self._returned_either(node, nodes[place + 1 :])
            self.statement(node)
        return None

    def _returned_either(self, node: Node, rest: Sequence[Node]) -> Any:
        asked = self.machine.condition(condition_of(node.child_by_field_name("condition")))
        inside = statements_of(node.child_by_field_name("consequence"))
        held: list[Any] = []
        self.branches(asked, lambda: held.append(self.returned(inside)), lambda: held.append(self.returned(rest)))
        return held[0] if len(held) == 1 else self.machine.chosen(asked, held[0], held[1])

    # -------------------------------------------------------------------------------------------------------- loops

    def _for_statement(self, node: Node) -> None:
        machine = self.machine
        opening = node.child_by_field_name("initializer")
        if opening is not None:
            if opening.type == "declaration":
                self._declaration(opening)
            else:
                self.effect(opening)
        loop = read_loop(machine, node)
        self._loop(loop)
        if opening is not None and opening.type == "declaration":
            machine.state.names.pop(loop.name, None)

    def _while_statement(self, node: Node) -> None:
        self._loop(read_loop(self.machine, node))

    def _do_statement(self, node: Node) -> None:
        raise NotLifted("a do loop")

    def _loop(self, loop: LiftedLoop) -> None:
        kept = next(iter(kept_elements(self.machine, loop)), None)
        if kept is None:
            self._executed(loop)
        else:
            self._keeping(kept, loop)

    def _keeping(self, node: Node, loop: LiftedLoop) -> None:
        """Executes a loop with an element of an argument held in a local, which is stored after the loop."""
        machine = self.machine
        text, name = machine.text(node), f"@{machine.text(node)}"
        array = machine.text(node.child_by_field_name("argument"))
        same = [
            one
            for one in machine.walk(loop.body, "subscript_expression")
            if machine.text(one.child_by_field_name("argument")) == array
        ]
        if any(machine.text(one) != text for one in same):
            raise NotLifted(f"{array} is changed in a loop that also uses other elements of it", machine.line(node))
        machine.state.names[name] = machine.value(node)
        machine.state.kept[text] = name
        self._loop(loop)
        del machine.state.kept[text]
        value = machine.state.names.pop(name)
        if value is None:
            raise NotLifted(f"`{text}` may have no value after a loop", machine.line(node))
        machine.set_place(node, value)

    def _executed(self, loop: LiftedLoop) -> None:
        machine = self.machine
        body = statements_of(loop.body)
        for part in machine.walk(loop.body, "break_statement", "goto_statement"):
            raise NotLifted("a loop that ends on a value", machine.line(part))
        for part in machine.walk(loop.body, "return_statement"):
            raise NotLifted("a return within a loop", machine.line(part))
        body = body[:-1] if loop.counts_last else body
        values = unrolled_values(machine, loop, MOST_ITERATIONS)
        exchanging = any(
            machine.text(one).startswith(("__shfl", "__sync")) for one in machine.walk(loop.body, "identifier")
        )
        if values is not None and (loop.step.geometric or exchanging):
            self._unrolled(loop, values, body)
            return
        if loop.step.geometric:
            raise NotLifted("a loop that does not count", machine.line(loop.node))
        state, shared = copy.copy(machine.state), self._shared()
        kept = (dict(state.names), list(state.stores), list(state.loads))
        try:
            summarised(self, loop, body)
        except NotLifted:
            if values is None:
                raise
            machine.state = state
            state.names, state.stores, state.loads = kept
            for array, writes, reads in shared:
                array.writes, array.reads = writes, reads
            self._unrolled(loop, values, body)

    def _shared(self) -> list[tuple[SharedArray, list[Any], list[Any]]]:
        arrays = [one for one in self.machine.state.names.values() if isinstance(one, SharedArray)]
        return [(one, list(one.writes), list(one.reads)) for one in arrays]

    def _unrolled(self, loop: LiftedLoop, values: Sequence[int], body: Sequence[Node]) -> None:
        self.depth += 1
        for value in values:
            self.machine.state.names[loop.name] = constant(value)
            self.sequence(body)
        self.depth -= 1
        self.machine.state.names[loop.name] = None
