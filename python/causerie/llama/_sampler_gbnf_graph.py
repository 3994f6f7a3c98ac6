"""Whether llama.cpp can work with a grammar that is well-formed (pure Python).

Before each character llama.cpp expands the rules that may come next until it meets terminals
(`llama_grammar_advance_stack`); before that it looks for left recursion (`llama_grammar_detect_left_recursion`), and
recurses itself. A grammar for which either would not end, or not within the stack or a sane time, is refused here.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from causerie.errors import GrammarError
from causerie.llama._sampler_gbnf import TERMINAL

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from causerie.llama._sampler_gbnf import Alternative, Rules

__all__ = ["require_usable"]

# llama.cpp's search takes about 100 bytes of stack per rule that begins with another one.
_MAX_DEPTH = 5_000
_MAX_SEARCH = 10_000_000
# llama.cpp compares each way to begin with all others.
_MAX_STARTS = 50_000


class _Edge(NamedTuple):
    """A rule may begin with the rule `target`."""

    target: int
    seen: bool  # by llama.cpp's search for left recursion, which takes only directly empty rules for empty
    grows: bool  # something is left to do behind `target`: a cycle of such steps never ends


def require_usable(rules: Rules) -> None:
    """Check that llama.cpp can expand these rules.

    Raises:
        GrammarError: left recursion, a rule that cannot begin, or too many ways to begin; `.rule` is its name, `.line`
            and `.column` are its place.
    """
    bodies = [alternatives or [] for alternatives in rules.alternatives]
    empty = _may_be_empty(bodies)
    edges = [list(_edges(body, bodies, empty)) for body in bodies]
    _require_search(rules, [[e.target for e in found if e.seen] for found in edges])
    _require_expansion(rules, bodies, empty, edges)


def _may_be_empty(bodies: Sequence[Sequence[Alternative]]) -> list[bool]:
    """Per rule, whether it matches the empty text."""
    empty = [False] * len(bodies)
    users: defaultdict[int, list[list[int]]] = defaultdict(list)  # rule -> [user, uses left] for each alternative
    todo = []
    for rule, body in enumerate(bodies):
        for alternative in body:
            if TERMINAL in alternative:
                continue
            state = [rule, len(alternative)]
            for item in alternative:
                users[item].append(state)
            if not alternative:
                todo.append(rule)
    while todo:
        rule = todo.pop()
        if empty[rule]:
            continue
        empty[rule] = True
        for state in users[rule]:
            state[1] -= 1
            if not state[1]:
                todo.append(state[0])
    return empty


def _edges(
    body: Sequence[Alternative], bodies: Sequence[Sequence[Alternative]], empty: Sequence[bool]
) -> Iterator[_Edge]:
    for alternative in body:
        seen = True
        for i, item in enumerate(alternative):
            if item == TERMINAL:
                break
            yield _Edge(item, seen, i + 1 < len(alternative))
            seen = seen and [] in bodies[item]
            if not empty[item]:
                break


def _require_search(rules: Rules, targets: Sequence[Sequence[int]]) -> None:
    """llama.cpp's own search: no left recursion, and neither too deep nor too long."""
    calls, depth = [1] * len(targets), [1] * len(targets)
    for component in _components(targets):
        first = component[0]
        if len(component) > 1 or first in targets[first]:
            raise _left_recursion(rules, component)
        for target in targets[first]:
            calls[first] = min(calls[first] + calls[target], _MAX_SEARCH + 1)
            depth[first] = max(depth[first], depth[target] + 1)
        if depth[first] > _MAX_DEPTH:
            raise rules.error(first, f"more than {_MAX_DEPTH} rules begin with one another")
    total, visited = 0, [False] * len(targets)
    for rule in range(len(targets)):
        total += 0 if visited[rule] else calls[rule]
        todo = [rule]
        while todo:
            i = todo.pop()
            if not visited[i]:
                visited[i] = True
                todo.extend(targets[i])
    if total > _MAX_SEARCH:
        raise GrammarError("rules begin with one another in too many ways: write common beginnings only once")


def _require_expansion(
    rules: Rules, bodies: Sequence[Sequence[Alternative]], empty: Sequence[bool], edges: Sequence[Sequence[_Edge]]
) -> None:
    """What may come next is always something, and never too much."""
    component_of = [-1] * len(bodies)
    starts: list[int] = []  # by component: most ways to begin
    begins: list[bool] = []  # by component: whether any of them is a terminal
    for number, component in enumerate(_components([[e.target for e in found] for found in edges])):
        for rule in component:
            component_of[rule] = number
        terminals = sum(_begins_with_terminal(body, empty) for rule in component for body in bodies[rule])
        total, first = terminals + sum(empty[rule] for rule in component), terminals > 0
        for edge in (e for rule in component for e in edges[rule]):
            if (target := component_of[edge.target]) != number:
                total += starts[target]
                first = first or begins[target]
            elif edge.grows:
                raise _left_recursion(rules, component)
        rule = component[0]
        if not first and not all(empty[rule] for rule in component):
            raise rules.error(rule, f"nothing matches the rule {rules.name(rule)!r}: it leads only to itself")
        if total > _MAX_STARTS:
            raise rules.error(rule, f"the rule {rules.name(rule)!r} can begin in more than {_MAX_STARTS} ways")
        starts.append(total)
        begins.append(first)


def _begins_with_terminal(alternative: Alternative, empty: Sequence[bool]) -> bool:
    for item in alternative:
        if item == TERMINAL:
            return True
        if not empty[item]:
            return False
    return False


def _left_recursion(rules: Rules, component: Iterable[int]) -> GrammarError:
    first = min(component, key=lambda rule: (rules.name(rule), rules.places[rule]))
    names = sorted({rules.name(rule) for rule in component})
    return rules.error(
        first,
        f"left recursion: {', '.join(names[:5])} may begin with itself; put what must come first in front, "
        "or write a repetition such as item (sep item)*",
    )


def _components(targets: Sequence[Sequence[int]]) -> Iterator[list[int]]:  # noqa: C901 - one well-known algorithm
    """Strongly connected components, each behind all that it leads to (Tarjan's algorithm, without recursion)."""
    order = [0] * len(targets)  # 0: not visited
    low = [0] * len(targets)
    on_path: list[int] = []
    done = [False] * len(targets)
    count = 0
    for root in range(len(targets)):
        if order[root]:
            continue
        work = [(root, iter(targets[root]))]
        count += 1
        order[root] = low[root] = count
        on_path.append(root)
        while work:
            node, remaining = work[-1]
            for target in remaining:
                if not order[target]:
                    count += 1
                    order[target] = low[target] = count
                    on_path.append(target)
                    work.append((target, iter(targets[target])))
                    break
                if not done[target]:
                    low[node] = min(low[node], order[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == order[node]:
                    component = []
                    while True:
                        component.append(on_path.pop())
                        done[component[-1]] = True
                        if component[-1] == node:
                            break
                    yield component
