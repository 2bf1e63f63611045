"""Nests as text: the same string everywhere, with highlighted places in terminals and notebooks."""

from __future__ import annotations

import sys

import pytest

import tensorc as tc
from tensorc import te


def schedule():
    X = te.placeholder((100,), name="X")
    return tc.schedule([X, te.compute((100,), lambda i: X[i] * 2, name="Y")])


class Terminal:
    def __init__(self):
        self.text = ""

    def write(self, text):
        self.text += text

    def isatty(self):
        return True


def test_what_the_last_step_changed_is_new():
    s = schedule()
    assert s.show().places == {}
    s.split("Y.i", (None, 16))
    listing = s.show()
    new = [line.strip() for number, line in enumerate(listing.split("\n")) if number in listing.places]
    assert new == [
        'for Y.i.0 in 0 .. 7 {tail = "cut"}',
        "for Y.i.1 in 0 .. 16",
        "spatial i: 100 = Y.i.0 * 16 + Y.i.1",
        "where Y.i.0 * 16 + Y.i.1 < 100",
    ]
    s.vectorize("Y.i.1")
    assert list(s.show().places) == [2]


def test_a_terminal_shows_colours_and_the_value_stays_plain(monkeypatch):
    s = schedule()
    s.parallel("Y.i")
    terminal = Terminal()
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(sys, "stdout", terminal)
    print(s.show())
    coloured, value = terminal.text, f"{s.show()}"
    monkeypatch.setenv("NO_COLOR", "1")
    print(s.show())
    monkeypatch.undo()
    assert "\x1b[32m  for Y.i in 0 .. 100 parallel\x1b[0m\n" in coloured
    assert "\x1b" not in terminal.text[len(coloured) :] and "\x1b" not in s.show() + value
    assert s.show() == str(s.show())


def test_a_notebook_shows_html():
    s = schedule()
    s.parallel("Y.i")
    html = s._repr_html_()
    assert html.startswith("<code>parallel(loop=&#x27;Y.i&#x27;)</code><pre>function main")
    assert '<span style="background:#e6ffec">  for Y.i in 0 .. 100 parallel</span>' in html
    assert "<code>" not in schedule()._repr_html_()


def test_a_refusal_underlines_what_it_names():
    A = te.placeholder((8, 4), name="A")
    k = te.reduce_axis(4, name="k")
    s = tc.schedule([A, te.compute((8,), lambda i: te.sum(A[i, k], axis=k), name="C")])
    with pytest.raises(tc.ScheduleError) as caught:
        s.parallel("C.k")
    error = caught.value
    assert "\n".join(error.__notes__) == error.nest
    assert """
  for C.i in 0 .. 8
>     for C.k in 0 .. 4
          ^^^
        block C
              ^
          spatial i: 8 = C.i
""".replace("\n  for C.i", "\n    for C.i") in error.nest
    assert set(error.nest.places.values()) == {"fault", "related"}
    html = error._repr_html_()
    assert html.startswith("<b>ScheduleError</b>: parallel(loop &#x27;C.k&#x27;)")
    assert '<span style="background:#ffd7d5">&gt;     for C.k in 0 .. 4</span>' in html
    assert tc.ScheduleError("plain")._repr_html_() == "<b>ScheduleError</b>: plain"
