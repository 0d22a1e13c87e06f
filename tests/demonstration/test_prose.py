from __future__ import annotations

import inspect

import pytest

from foreword.demonstration.prose import is_prose, paragraphs, plain

NUMPY = """
    Return the mean of `x` along the :class:`~lib.Axis` that is given.

    The mean is the sum of the values divided by their number, as in [1]_.

    Parameters
    ----------
    x : array_like
        The values of which the mean is to be taken, in any order at all.

    Notes
    -----
    This is slower than the other one, but it is right for all of the inputs::

        This is the code that is shown to the reader, and it is not prose at all.

    Examples
    --------
    We can see what it does when it is given a list of two numbers.

    >>> mean([1, 2])
    1.5
    """
GOOGLE = """
    Opens the file that is named and gives back what is in it.

    Args:
        name: The name of the file that is to be opened and read to the end.

    The file is closed when all of it has been read, or if there is an error.

    - The first of the items is that the file is there at all.
    - The second of the items is that it can be read by us.
    """


def test_in_numpy_style_only_prose_is_kept() -> None:
    assert paragraphs(inspect.cleandoc(NUMPY)) == [
        "Return the mean of x along the lib.Axis that is given.",
        "The mean is the sum of the values divided by their number, as in.",
    ]


def test_in_google_style_prose_after_a_section_is_kept() -> None:
    assert paragraphs(inspect.cleandoc(GOOGLE)) == [
        "Opens the file that is named and gives back what is in it.",
        "The file is closed when all of it has been read, or if there is an error.",
        "The first of the items is that the file is there at all.",
        "The second of the items is that it can be read by us.",
    ]


def test_a_section_of_prose_under_a_heading_is_kept() -> None:
    text = "Notes\n-----\nThe order of the values is the one in which they were given."
    assert paragraphs(text) == ["The order of the values is the one in which they were given."]


def test_code_between_paragraphs_is_left_out() -> None:
    text = "\n\n".join(
        [
            ">>> This is the code that is in an example and it ends with a dot.",
            ".. note:: This is a directive with the text that it is made of on its line.",
            ":param x: This is the field of a table and it is not to be kept here.",
        ]
    )
    assert paragraphs(text) == []


@pytest.mark.parametrize(
    ("marked", "message"),
    [
        ("see ``x.y`` and `z`", "see x.y and z"),
        ("see :func:`~a.b` now", "see a.b now"),
        ("see [the guide](http://x.org/a) now", "see the guide now"),
        ("see `the guide <http://x.org>`_ now", "see the guide now"),
        ("*much* **more** , they\n  say", "much more, they say"),
        ("an array .dtype is", "an array .dtype is"),
    ],
)
def test_markup_is_removed(marked: str, message: str) -> None:
    assert plain(marked) == message


@pytest.mark.parametrize(
    "text",
    [
        "The mean of it.",  # short
        "the mean of the values is what is given back by this.",  # no capital
        "The mean of the values is what is given back by this",  # no end
        "The mean x = y of the values is what is given back by this.",
        "Numpy scipy pandas torch matplotlib sympy networkx pillow requests flask.",  # no English
        "The 12 34 56 78 90 12 34 56 78 90 of it is 12 34 56 78 90.",
    ],
)
def test_text_that_is_not_prose_is_recognised(text: str) -> None:
    assert not is_prose(text)
