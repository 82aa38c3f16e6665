"""The private names of others that distlock uses exist in the installed releases.

No release is bounded from above, which would block a user's upgrade of Django: the newest of all is
in the matrix (`newest` in `pyproject.toml`), and this test says there what has changed.
"""

from __future__ import annotations

import ast
import concurrent.futures.thread
import inspect
import platform
import re
import threading
from importlib.metadata import version
from pathlib import Path
from textwrap import dedent
from types import CodeType, ModuleType
from typing import Final

import celery.app.autoretry
import celery.worker.request
import django.db.models.base
import django.db.models.query
import django.db.transaction
import django.utils.connection
import kombu.asynchronous.timer
import kombu.transport.virtual.base
import pytest
import redis.connection
from asgiref.sync import AsyncToSync, SyncToAsync

import distlock
from distlock.engine.kazoo import PRIVATE

PACKAGE: Final = Path(distlock.__file__).parent

#: Names of Django, Celery and Python, by the module that has them. `connections.all()` is public
#: and would do for `_connections`; it costs each acquire six more calls. redis-py greets the server
#: and checks TLS; our loop then serves its socket, `_sock`.
OTHERS: Final[dict[ModuleType, set[str]]] = {
    django.db.models.base: {"_do_update"},
    django.db.models.query: {"_clone"},
    django.db.transaction: {"_from_testcase", "_non_atomic_requests"},
    django.utils.connection: {"_connections"},
    celery.app.autoretry: {"_orig_run"},
    celery.worker.request: {"_context", "_eta"},
    concurrent.futures.thread: {"_WorkItem", "_worker"},
    kombu.asynchronous.timer: {"_queue"},
    kombu.transport.virtual.base: {"_delivered", "_lookup", "_size"},
    redis.connection: {"_sock"},
    threading: {"_MainThread"},
}
#: These are documented, in spite of their underscore.
DOCUMENTED: Final = {
    "_asdict",
    "_base_manager",
    "_current_frames",
    "_exit",
    "_get_current_object",
    "_get_running_loop",
    "_getframe",
    "_make",
    "_meta",
    "_replace",
}
#: asgiref's functions, and the local variables that `call_stack` reads on the stack.
ASGIREF: Final[list[tuple[CodeType, set[str]]]] = [
    (SyncToAsync.__call__.__code__, {"task_context"}),
    (SyncToAsync.thread_handler.__code__, {"task_context", "loop"}),
    (AsyncToSync.__call__.__code__, {"call_result"}),
    (AsyncToSync.main_wrap.__code__, {"call_result"}),
]


def attributes_in(source: str) -> set[str]:
    """The private attributes that some code names."""
    nodes = ast.walk(ast.parse(dedent(source)))
    return private({node.attr for node in nodes if isinstance(node, ast.Attribute)})


def definitions_in(source: str) -> set[str]:
    """The private functions, classes and attributes that some code defines."""
    names = set()
    for node in ast.walk(ast.parse(dedent(source))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.id if isinstance(node, ast.Name) else node.attr)
    return private(names)


def names_in(source: str) -> set[str]:
    return attributes_in(source) | definitions_in(source)


def private(names: set[str]) -> set[str]:
    return {name for name in names if re.match("_[^_]", name)}


@pytest.mark.parametrize("owner", PRIVATE, ids=lambda owner: owner.__name__)
def test_kazoo_has_the_private_names_that_we_use(owner: type) -> None:
    missing = PRIVATE[owner].keys() - names_in(inspect.getsource(owner))
    assert not missing, f"kazoo {version('kazoo')} has changed {owner.__name__}: no {missing}"


def test_the_list_of_kazoos_names_is_complete() -> None:
    theirs = set.union(*(names_in(inspect.getsource(owner)) for owner in PRIVATE))
    uses = {
        path.name: found
        for path in (PACKAGE / "engine/serving.py", *PACKAGE.glob("engine/zookeeper/*.py"))
        if (found := names_in(path.read_text()) & theirs)
    }
    listed = set[str]().union(*PRIVATE.values())
    assert {name: found - listed for name, found in uses.items() if found - listed} == {}
    assert listed <= set.union(*uses.values()), "a listed name is used no more"


def test_one_module_imports_kazoo() -> None:
    importing = [
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if re.search(r"^\s*(from|import) kazoo\b", path.read_text(), re.MULTILINE)
    ]
    assert importing == ["engine/kazoo.py"]


@pytest.mark.parametrize("module", OTHERS, ids=lambda module: module.__name__)
def test_others_have_the_private_names_that_we_use(module: ModuleType) -> None:
    missing = OTHERS[module] - definitions_in(inspect.getsource(module))
    release = f"Python {platform.python_version()}, Django {version('Django')}, "
    release += f"Celery {version('celery')}"
    assert not missing, f"{module.__name__} has changed ({release}): no {missing}"


def test_the_list_of_others_names_is_complete() -> None:
    sources = [path.read_text() for path in PACKAGE.rglob("*.py")]
    ours = set.union(*map(definitions_in, sources))
    listed = set.union(DOCUMENTED, *map(set, PRIVATE.values()), *OTHERS.values())
    assert set.union(*map(attributes_in, sources)) - ours - listed == set()


@pytest.mark.parametrize(("code", "names"), ASGIREF, ids=lambda one: getattr(one, "co_name", ""))
def test_asgiref_has_the_local_variables_that_we_read(code: CodeType, names: set[str]) -> None:
    found = {*code.co_varnames, *code.co_cellvars, *code.co_freevars}
    assert names <= found, f"asgiref {version('asgiref')} has changed {code.co_name}"
