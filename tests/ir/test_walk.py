from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tensorc.dtypes import float32, int64
from tensorc.ir import (
    Add,
    Alloc,
    Block,
    Buffer,
    Check,
    Const,
    For,
    If,
    Let,
    Load,
    Mul,
    Seq,
    Store,
    Var,
    While,
    equal,
    index,
    parse,
    seq,
    show,
)
from tensorc.ir import walk as walking_module_is_not_hidden
from tensorc.ir.walk import (
    all_exprs,
    children,
    copy_nest,
    map_substmts,
    rebuild,
    replace_body,
    replace_buffers,
    rewrite,
    rewrite_exprs,
    rewrite_stmts,
    rewrite_top,
    substitute,
    substitute_stmt,
    uses,
    variables,
    walk,
    walk_expr,
)
from tests.ir.programs import exprs, functions, matmul

QUICK = settings(max_examples=60, deadline=None)
I, J, X = Var("i"), Var("j"), Var("x", "float32")
A = Buffer("A", (4, 5), "float32")


def test_the_package_does_not_hide_the_module():
    assert walking_module_is_not_hidden.walk is walk


@QUICK
@given(exprs(float32, (I, J, X), (A,), 4))
def test_a_rewrite_that_changes_nothing_returns_the_same_expression(e):
    assert rewrite(e, lambda _: None) is e
    assert rewrite_top(e, lambda _: None) is e
    assert substitute(e, {Var("z"): index(1)}) is e
    for inner in walk_expr(e):
        assert rebuild(inner, children(inner)) is inner


@QUICK
@given(functions())
def test_a_rewrite_that_changes_nothing_returns_the_same_statement(f):
    assert rewrite_exprs(f.body, lambda _: None) is f.body
    assert rewrite_stmts(f.body, lambda _: None) is f.body
    assert replace_buffers(f.body, {Buffer("Z", (1,), "float32"): A}) is f.body
    for inner in walk(f.body):
        assert map_substmts(inner, lambda s: s) is inner


@QUICK
@given(exprs(int64, (I, J), (A,), 4))
def test_substitution_there_and_back(e):
    k = Var("k")
    there = substitute(e, {I: k})
    assert not uses(there, {I}) and variables(there) == {k if v is I else v for v in variables(e)}
    assert substitute(there, {k: I}) == e


def test_rewrite_is_bottom_up_and_rewrite_top_is_final():
    e = (I + 1) * (J + 1)
    seen = []
    rewrite(e, lambda n: seen.append(type(n).__name__))
    assert seen == ["Var", "Const", "Add", "Var", "Const", "Add", "Mul"]
    swapped = rewrite_top(e, lambda n: Mul(n.b, n.a) if type(n) is Mul else None)
    assert swapped == (J + 1) * (I + 1)
    grown = rewrite(e, lambda n: Const(n.value + 1, n.dtype) if type(n) is Const else None)
    assert grown == (I + 2) * (J + 2)


def test_walking_visits_everything_once():
    f = matmul()
    kinds = [type(s).__name__ for s in walk(f.body)]
    assert kinds == ["For", "For", "For", "Block", "Store", "Store"]
    loads = [e.buffer.name for e in all_exprs(f.body) if type(e) is Load]
    assert loads == ["C", "A", "B"]


@QUICK
@given(st.data())
def test_a_copy_has_fresh_variables_and_means_the_same(data):
    f = data.draw(functions())
    if any(type(s) is Alloc for s in walk(f.body)):
        return
    copy = copy_nest(f.body)
    assert equal(copy, f.body)
    assert not bound(copy) & bound(f.body)


def bound(stmt):
    found = set()
    for s in walk(stmt):
        if isinstance(s, (For, Let)):
            found.add(s.var)
        if type(s) is Block:
            found |= {it.var for it in s.iters}
    return found


def test_a_copy_takes_values_for_free_variables():
    loop = For(J, index(0), I, "serial", Store(A, (I, J), X))
    assert show(copy_nest(loop, {I: index(3)})) == "for j in 0 .. 3\n  A[3, j] = x"


def test_substitution_reaches_every_expression_of_a_statement():
    f = parse(
        "function f(out A: float32[4, 5], n: int64)\n"
        "  for i in n .. n + n\n"
        "    block A\n"
        "      spatial u: n = i + n\n"
        "      where i < n\n"
        "      init\n"
        "        A[u, n] = float32(0.0)\n"
        "      A[u, n] = A[u, n] mask n < 3\n"
        "  if n < 1\n"
        "    let y: int64 = n\n"
        "      while y < n\n"
        '        check y < n, n, "n"\n'
        "  else\n"
        "    evaluate exp(A[0, n])"
    )
    n = f.scalars[0]
    body = substitute_stmt(f.body, {n: index(2)})
    assert not any(e is n for e in all_exprs(body))
    assert (
        sum(e == index(2) for e in all_exprs(body)) == sum(e is n for e in all_exprs(f.body)) == 15
    )
    assert substitute_stmt(body, {}) is body


def test_buffers_are_replaced_where_read_written_and_allocated():
    other = A.with_(name="B")
    body = Alloc((A,), seq(Store(A, (I, J), Load(A, (J, I))), Check(I < J, I, "x")))
    assert show(replace_buffers(body, {A: other})) == (
        'alloc B: float32[4, 5]\n  B[i, j] = B[j, i]\n  check i < j, i, "x"'
    )


def test_seq_flattens_and_unwraps():
    store = Store(A, (I, J), X)
    assert seq(store) is store
    assert seq(seq(store, store), store) == Seq((store, store, store))
    assert seq(Seq(()), store) is store and seq() == Seq(())


def test_replace_body():
    store, nothing = Store(A, (I, J), X), Seq(())
    for s in (
        For(J, index(0), I, "serial", store),
        Let(J, I, store),
        Alloc((A,), store),
        While(I < J, store),
    ):
        assert replace_body(s, nothing).body is nothing
    assert type(If(I < J, store, None).then) is Store and type(Add(I, J)) is Add
