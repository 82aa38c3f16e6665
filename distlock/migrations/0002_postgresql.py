"""The tables and functions for locks in a PostgreSQL database; nothing on others.

It runs the ``tree.sql`` that is installed. After a release, whoever changes that file adds a
migration that brings older databases to the same.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from django.db import migrations

import distlock

if TYPE_CHECKING:
    from django.db.backends.base.schema import BaseDatabaseSchemaEditor
    from django.db.migrations.operations.base import Operation

_REMOVE = r"""
DO $$
DECLARE
  one regprocedure;
BEGIN
  FOR one IN SELECT oid FROM pg_proc
      WHERE proname LIKE 'distlock\_%' AND pronamespace = current_schema()::regnamespace LOOP
    EXECUTE format('DROP FUNCTION %s', one);
  END LOOP;
END $$;
DROP TABLE distlock_volatile, distlock_node, distlock_family, distlock_session, distlock_watch,
  distlock_event, distlock_state;
"""


def _on_postgresql(schema: BaseDatabaseSchemaEditor, sql: str) -> None:
    if schema.connection.vendor == "postgresql":
        schema.execute(sql, params=None)


def _make(_: Any, schema: BaseDatabaseSchemaEditor) -> None:
    engine = Path(distlock.__file__).parent / "engine/postgresql"
    _on_postgresql(schema, (engine / "tree.sql").read_text())


def _remove(_: Any, schema: BaseDatabaseSchemaEditor) -> None:
    _on_postgresql(schema, _REMOVE)


class Migration(migrations.Migration):
    dependencies: ClassVar[list[tuple[str, str]]] = [("distlock", "0001_initial")]

    operations: ClassVar[list[Operation]] = [migrations.RunPython(_make, _remove)]
