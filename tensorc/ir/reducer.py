"""How a block that reduces updates its elements: written by the lowering, read off by those who reorder it.

An operation of one element is a plain store, `C[i] = C[i] + term`. Any other reducer, of one element or of several
at once, names its terms, computes all new values from the old ones, and only then stores them:

    let A.term: int64 = k
      let B.term: float32 = X[i, k]
        let A.next: int64 = select(B[i] > B.term, A[i], A.term)
          let B.next: float32 = select(B[i] > B.term, B[i], B.term)
            A[i] = A.next
            B[i] = B.next

Its block is annotated with the values that change nothing, `identity.0` and so on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tensorc.dtypes import DType
from tensorc.ir.expr import Add, And, Binary, Const, Expr, Load, Max, Min, Mul, Or, Var, const
from tensorc.ir.stmt import Annotations, Block, Let, Seq, Stmt, Store, annotation, seq
from tensorc.ir.walk import children, rewrite_top, variables, walk_expr

OPERATIONS: tuple[type, ...] = (Add, Mul, Min, Max, And, Or)  # associative and commutative


@dataclass(frozen=True, slots=True)
class Update:
    """What an instance of a block does: `elements` become `combined`, which reads them and the variables `new`.

    `terms` are the values of those variables. `identities` change nothing as terms; there are none where the block
    does not name them.
    """

    elements: tuple[Load, ...]
    terms: tuple[Expr, ...]
    new: tuple[Var, ...]
    combined: tuple[Expr, ...]
    identities: tuple[Const, ...]

    @property
    def operation(self) -> type | None:
        """The operation, if the reducer is just one."""
        return operation_of(self.combined, self.elements, self.new)

    def stmt(self, elements: Sequence[Load], terms: Sequence[Expr]) -> Stmt:
        """The statement that updates other elements by other terms."""
        return update(elements, terms, self.elements, self.new, self.combined)


def identity(operation: type, dtype: DType) -> Const:
    """What an operation leaves the other operand unchanged by."""
    if operation in (And, Or):
        return const(operation is And, dtype)
    if operation in (Add, Mul):
        return const(int(operation is Mul), dtype)
    return const(dtype.max if operation is Min else dtype.min, dtype)


def update(
    elements: Sequence[Load],
    terms: Sequence[Expr],
    old: Sequence[Expr],
    new: Sequence[Var],
    combined: Sequence[Expr],
) -> Stmt:
    """The statement that combines elements with terms; `combined` reads `old` (variables or loads) and `new`."""
    operation = operation_of(combined, old, new)
    if operation is not None:
        element = elements[0]
        return Store(element.buffer, element.indices, operation(element, terms[0]))
    names = [Var(f"{e.buffer.name}.term", e.dtype, wraps=True) for e in elements]
    values = [_replaced(e, old, elements, dict(zip(new, names))) for e in combined]
    if len(elements) == 1:
        body: Stmt = Store(elements[0].buffer, elements[0].indices, values[0])
    else:
        following = [Var(f"{e.buffer.name}.next", e.dtype, wraps=True) for e in elements]
        body = seq(*[Store(e.buffer, e.indices, var) for e, var in zip(elements, following)])
        for var, value in zip(reversed(following), reversed(values)):
            body = Let(var, value, body)
    for var, value in zip(reversed(names), reversed(terms)):
        body = Let(var, value, body)
    return body


def identity_annotations(operation: type | None, identities: Sequence[Const]) -> Annotations:
    """How a block names the identities of its reducer; those of an operation go without saying."""
    if operation is not None:
        return ()
    return tuple(sorted([(f"identity.{n}", const.value) for n, const in enumerate(identities)]))


def without_identities(annotations: Annotations) -> Annotations:
    """The annotations of a block that does not make the updates any more."""
    return tuple([(key, value) for key, value in annotations if not key.startswith("identity.")])


def update_of(block: Block) -> Update | None:
    """The update that a block makes, if it is one; its elements do not depend on what is reduced."""
    lets: list[Let] = []
    body = block.body
    while type(body) is Let:
        lets.append(body)
        body = body.body
    stmts = body.stmts if type(body) is Seq else (body,)
    stores = [s for s in stmts if type(s) is Store and s.mask is None]
    if not stores or len(stores) < len(stmts):
        return None
    elements = tuple([Load(s.buffer, s.indices) for s in stores])
    if not lets and len(stores) == 1:
        found = _of_operation(stores[0], elements)
    else:
        found = _of_lets(block, lets, stores, elements)
    reduced = {it.var for it in block.iters if it.kind == "reduce"}
    if found is None or any(variables(index) & reduced for e in elements for index in e.indices):
        return None
    return found


def operation_of(combined: Sequence[Expr], old: Sequence[Expr], new: Sequence[Var]) -> type | None:
    """The operation that combines old and new values, if it is just one of one value."""
    value = combined[0]
    if len(combined) > 1 or not isinstance(value, Binary) or type(value) not in OPERATIONS:
        return None
    if value.a == old[0] and value.b == new[0]:
        return type(value)
    return None


def _of_operation(store: Store, elements: tuple[Load, ...]) -> Update | None:
    value, element = store.value, elements[0]
    if not isinstance(value, Binary) or type(value) not in OPERATIONS:
        return None
    for mine, other in ((value.a, value.b), (value.b, value.a)):
        if mine == element and not _loads(other, {store.buffer}):
            new = Var(f"{store.buffer.name}.term", element.dtype)
            neutral = identity(type(value), element.dtype)
            return Update(elements, (other,), (new,), (type(value)(element, new),), (neutral,))
    return None


def _of_lets(block: Block, lets: list[Let], stores, elements: tuple[Load, ...]) -> Update | None:
    count = len(stores)
    own = {store.buffer for store in stores}
    if len(own) < count or len(lets) != (count if count == 1 else 2 * count):
        return None
    named, following = lets[:count], lets[count:]
    values = tuple([let.value for let in following]) or (stores[0].value,)
    if following and [store.value for store in stores] != [let.var for let in following]:
        return None
    new = tuple([let.var for let in named])
    if any(_loads(let.value, own) or variables(let.value) & set(new) for let in named):
        return None
    if not all(_is_closed(value, elements, new) for value in values):
        return None
    keys = [annotation(block, f"identity.{n}") for n in range(count)]
    if None in keys:
        identities: tuple[Const, ...] = ()
    else:
        identities = tuple([const(key, e.dtype) for key, e in zip(keys, elements)])
    return Update(elements, tuple([let.value for let in named]), new, values, identities)


def _is_closed(value: Expr, elements: tuple[Load, ...], new: tuple[Var, ...]) -> bool:
    """Whether an expression reads nothing but the elements and the new terms."""
    if type(value) is Load:
        return value in elements
    if type(value) is Var:
        return value in new
    return all(_is_closed(operand, elements, new) for operand in children(value))


def _loads(expr: Expr, buffers: set) -> bool:
    return any(type(e) is Load and e.buffer in buffers for e in walk_expr(expr))


def _replaced(expr: Expr, old: Sequence[Expr], elements: Sequence[Load], names) -> Expr:
    """A combined value with elements for `old`, and other names for the terms."""
    swapped = {**dict(zip(old, elements)), **names}
    return rewrite_top(expr, lambda e: swapped.get(e) if type(e) in (Var, Load) else None)
