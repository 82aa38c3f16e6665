"""Writes the signatures of docs/reference/api.md from the source: `make api`.

A comment of the page names the objects of a part, as `.. autoclass::` would: brackets behind the
name of a class hide its constructor, and with names in them all other members, too. The block below
the comment has their signatures, and of their docstrings the first sentence and the fields. The
site shows the complete docstrings in its place.
"""

from __future__ import annotations

import ast
import inspect
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from textwrap import dedent, indent
from typing import TYPE_CHECKING, Any

import django
from django.dispatch import Signal

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = Path(__file__).parents[1] / "reference/api.md"

_PART = re.compile(r"(<!-- api:\n(.*?)-->\n).*?(<!-- api: end -->)", re.DOTALL)
_FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)


def filled(page: str) -> str:
    """Return the page with the signatures of today."""

    def block(names: list[str]) -> str:
        stubs = _formatted("\n\n".join(stub(name) for name in names))
        return f"<!-- not run: signatures -->\n```python\n{stubs}```\n"

    return _with(block, page)


def with_directives(page: str) -> str:
    """Return the page with directives of Sphinx in the place of the signatures."""

    def block(names: list[str]) -> str:
        directives = "".join(_directive(name) for name in names)
        return f"```{{eval-rst}}\n{directives}```\n"

    return _with(block, page)


def names_in(page: str) -> list[str]:
    """Return the dotted names of the objects that the page shows."""
    names = " ".join(part[1] for part in _PART.findall(page))
    return re.sub(r"\(.*?\)", "", names).split()


def stubs(page: str) -> dict[str, str]:
    """Return the source of the objects that the page shows, as it shows them, by their names."""
    names = [name for part in _PART.findall(page) for name in part[1].split()]
    return {name.partition("(")[0]: stub(name) for name in names}


def _page() -> str:
    return PAGE.read_text(encoding="utf-8")


def _with(block: Callable[[list[str]], str], page: str) -> str:
    return _PART.sub(lambda part: part[1] + block(part[2].split()) + part[3], page)


def _object(name: str) -> Any:
    module, _, attribute = name.partition("(")[0].rpartition(".")
    return getattr(import_module(module), attribute)


def _directive(name: str) -> str:
    found = _object(name)
    if isinstance(found, Signal):
        return f".. autodata:: {_home(name)}\n   :no-value:\n"
    if not inspect.isclass(found):
        return f".. autofunction:: {name}\n"
    methods = ", ".join(each for each in _members(found, name) if each != "__init__")
    hides = "()" if "(" in name else ""
    text = f".. autoclass:: {name.partition('(')[0]}{hides}\n"
    return text + (f"   :members: {methods}\n" if methods else "")


def stub(name: str) -> str:
    """Return the source of an object as the page shows it."""
    found = _object(name)
    if isinstance(found, Signal):
        module, _, attribute = _home(name).rpartition(".")
        source = inspect.getsource(import_module(module))
        return f"{_comment_above(attribute, source)}{attribute}: Signal"
    node = _parsed(inspect.getsource(found))
    if not inspect.isclass(found):
        return _of_function(node)
    bases = ", ".join(base.__name__ for base in _shown_bases(found))
    body = "\n".join([_docstring(node), *_members(found, name).values()])
    return f"class {node.name}({bases}):\n{indent(body, '    ')}"


def _home(name: str) -> str:
    """Return the name of a signal in the module that makes it, where its comment is."""
    module, _, attribute = name.rpartition(".")
    return f"{'distlock.signals' if module == 'distlock' else module}.{attribute}"


def _shown_bases(found: type) -> list[type]:
    """Return the bases of a class that its users can name."""
    shown = [_object(name) for name in names_in(_page())]
    return [
        base
        for base in found.__bases__
        if base in shown or base.__module__.partition(".")[0] not in {"abc", "distlock", "typing"}
        if base is not object
    ]


def _members(found: type, name: str) -> dict[str, str]:
    """Return the attributes and methods of a class, with those of bases that are not shown.

    :param name: the name of the class, as the page has it
    """
    _, brackets, chosen = name.rstrip(")").partition("(")
    shown = {each for base in _shown_bases(found) for each in base.__mro__}
    attributes: dict[str, str] = {}
    methods: dict[str, str] = {}
    for base in found.__mro__:
        if base in shown or not base.__module__.startswith(("distlock.", "distlock_chaos.")):
            continue
        source = dedent(inspect.getsource(base))
        for node in _parsed(source).body:
            # A method without a docstring is an override, which users do not call.
            if isinstance(node, _FUNCTION) and (node.name == "__init__" or ast.get_docstring(node)):
                methods.setdefault(node.name, _of_function(node))
            elif isinstance(node, ast.AnnAssign):
                target = ast.unparse(node.target)
                attributes.setdefault(target, _comment_above(target, source) + ast.unparse(node))
    return {
        each: text
        for each, text in [*attributes.items(), *methods.items()]
        if not each.startswith("_") or (each == "__init__" and not brackets)
        if ":meta private:" not in text and each in (chosen.split(",") if chosen else [each])
    }


def _parsed(source: str) -> Any:
    return ast.parse(dedent(source)).body[0]


def _comment_above(name: str, source: str) -> str:
    comment = re.search(rf"(?m)((?:^ *#: .*\n)+) *{name}\b", source)
    return dedent(comment[1]).replace("#:", "#") if comment else ""


def _of_function(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    docstring = _docstring(node)
    node.body = [ast.Expr(ast.Constant(...))]
    return f"{ast.unparse(node).removesuffix('...').rstrip()}\n{indent(docstring, '    ')}"


def _docstring(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> str:
    """Return the first paragraph of a docstring and its fields, or dots if there is none."""
    text = ast.get_docstring(node)
    if not text:
        return "..."
    first, fields = text.partition("\n\n")[0], re.search(r"(?ms)^:\w.*", text)
    return f'"""{first}' + (f'\n\n{fields[0]}\n"""' if fields else '"""')


def _formatted(source: str) -> str:
    ruff = [sys.executable, "-m", "ruff", "format", "--isolated", "--line-length", "100", "-"]
    run = subprocess.run(ruff, input=source, capture_output=True, text=True, check=True)
    return run.stdout


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "example_project.settings")
    django.setup()
    PAGE.write_text(filled(_page()), encoding="utf-8")


if __name__ == "__main__":
    main()
