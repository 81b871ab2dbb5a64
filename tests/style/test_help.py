"""help() explains every field and every method of every public class."""

import dataclasses
import inspect
import pydoc
import re

import pytest

import seqcast

CLASSES = [value for name in seqcast.__all__ if inspect.isclass(value := getattr(seqcast, name))]
CLASSES += [seqcast.aio.Group, seqcast.aio.Joining]


def by_class(cls, name):
    """The docstring of the class, or of a base class, has a line ``name: ...``."""
    pages = [inspect.cleandoc(each.__doc__) for each in cls.__mro__[:-1] if each.__doc__]
    return any(re.search(rf"^ +([\w.]+, )*{name}(, [\w.]+)*: \S", page, re.M) for page in pages)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: f"{cls.__module__}.{cls.__name__}")
def test_help_explains_a_class_its_fields_and_its_methods(cls):
    assert cls.__doc__ and not (dataclasses.is_dataclass(cls) and cls.__doc__.startswith(f"{cls.__name__}("))
    names = {field.name for field in dataclasses.fields(cls)} if dataclasses.is_dataclass(cls) else set()
    names |= set(vars(cls).get("__annotations__", {}))
    for each in cls.__mro__[:-1]:
        if each.__module__.startswith("seqcast"):
            names |= {name for name, value in vars(each).items() if not name.startswith("_")}
    page = pydoc.plain(pydoc.render_doc(cls))
    # Other Cython modules find the methods of the two by a table that `help` shows.
    inside = r"_cython__" if cls in (seqcast.Batch, seqcast.Message) else r"__pyx\w*|_cython__"
    assert not (found := re.findall(rf"{inside}|\b(?:E|[A-Z]{{2,3}})-\d\d\b", page)), found
    for name in sorted(name for name in names if not name.startswith("_")):
        own = getattr(cls, name, None)
        text = None if isinstance(own, str | int | None) else getattr(own, "__doc__", None)
        if text and text.startswith(f"{cls.__name__}.{name}("):  # compiled: the signature comes first
            text = text.partition("\n")[2].strip()
        assert by_class(cls, name) or text, f"{cls.__name__}.{name} is not explained"
        assert name in page
