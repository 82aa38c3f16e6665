"""Lets the database refuse writes by former holders, with the fencing token.

A process may be paused between its last check and its write. But each row remembers the highest
token that wrote it, and the UPDATE itself carries the condition (`_guarded`). `claim` raises the
token in the row *before* it reads, so that no former holder can write between read and write. Let
one key guard a row: tokens of two keys, or of two ensembles, cannot be compared.
Source: Kleppmann, "How to do distributed locking"; Chubby's sequencers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from asgiref.sync import sync_to_async
from django.core import checks
from django.db import DatabaseError, Error, models, router, transaction

from .exceptions import StaleToken
from .owner.hold import Hold

_M = TypeVar("_M", bound="FencedModel")
_Rows = TypeVar("_Rows", bound="models.QuerySet[Any]")


def token_of(fence: Hold | int) -> int:
    """Return the fencing token of a hold, or the given token."""
    if isinstance(fence, Hold) and fence.shared:
        raise ValueError(
            f"The hold of {fence.key!r} is shared: others may hold the lock at the same time, so "
            "its token says nothing about whose write is the newer one. Take a lock of one holder "
            "to write: zk_lock(), or zk_rwlock(key).write in place of a reader's."
        )
    if isinstance(fence, Hold) and fence.superseded:  # it has the same token as the later one
        raise StaleToken(
            f"The hold of {fence.key!r} was released, and another thread or task of this process "
            f"has held the lock since, with the same token {fence.token}. Write before releasing.",
            token=fence.token,
            newer=fence.token,
        )
    token = fence.token if isinstance(fence, Hold) else fence
    if isinstance(token, bool) or not isinstance(token, int):
        raise TypeError(f"fence must be a Hold or its token (an int), not {fence!r:.80}.")
    return token


if TYPE_CHECKING:
    from typing_extensions import Self

    _BigIntegerField = models.BigIntegerField[int, int]
else:  # not generic at run time
    _BigIntegerField = models.BigIntegerField


class FenceField(_BigIntegerField):
    """The highest fencing token that has written the row, 0 without any."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("default", 0)
        kwargs.setdefault("editable", False)
        super().__init__(*args, **kwargs)


@contextmanager
def _refusals(rows: models.QuerySet[Any], token: int) -> Iterator[None]:
    """Write `rows` all or none, and raise `StaleToken` for an error that a newer token has caused.

    It uses a savepoint, since Django forbids queries after an error in a transaction. Above READ
    COMMITTED a transaction sees no newer token, so a serialization failure stays one.
    """
    try:
        with transaction.atomic(using=rows.db):
            yield
    except DatabaseError as error:
        try:
            newer = _newer_tokens(rows, token).first()
        except Error:  # the database does not answer: the caller gets the first error
            newer = None
        if newer is None:
            raise
        raise StaleToken.of(rows.model, token, newer=newer) from error


def _guarded(rows: _Rows, token: int) -> _Rows:
    """Return `rows` without newer tokens, a condition that an UPDATE has in its own WHERE.

    PostgreSQL waits for a row that another transaction has written, and then evaluates only the
    conditions on that row again, those of a subquery not (READ COMMITTED, ``EvalPlanQual``). With
    joins Django moves the whole WHERE into a subquery (``SQLUpdateCompiler.pre_sql_setup``). So we
    do that before it, and leave the fence outside.
    """
    guarded = rows.filter(fence__lte=token)
    if guarded.query.count_active_tables() > 1:
        guarded.query.clear_where()
        guarded.query.reset_refcounts({})  # no joins: Django sees one table
        guarded = guarded.filter(pk__in=rows.values("pk"), fence__lte=token)
    return guarded


def _newer_tokens(rows: models.QuerySet[Any], token: int) -> models.QuerySet[Any, int]:
    return rows.filter(fence__gt=token).values_list("fence", flat=True)


class FencedQuerySet(models.QuerySet[_M]):
    """A query set whose updates can be fenced."""

    _token: int | None = None

    def fenced(self, fence: Hold | int) -> FencedQuerySet[_M]:
        """Return a query set that refuses to overwrite the writes of a newer holder.

        :param fence: the `Hold`, or its token
        """
        fenced = self.all()
        fenced._token = token_of(fence)  # noqa: SLF001 - our own clone
        return fenced

    def claim(self, *args: Any, **lookup: Any) -> _M:
        """Raise the token of the one matching row, and return it: no former holder can write now.

        :raises StaleToken: a newer holder has claimed or written the row
        :raises MultipleObjectsReturned: more than one row matches; none has the token
        :raises DoesNotExist: no row matches
        """
        if self._token is None:
            raise TypeError("Claim a row with a token: objects.fenced(hold).claim(…).")
        row = self.filter(*args, **lookup)._for_writing()  # noqa: SLF001 - our own clone
        with _refusals(row, self._token):
            row._update_fenced(self._token)  # noqa: SLF001
            return row.get()

    def update(self, **values: Any) -> int:
        """Update the rows, all or none when fenced; return how many.

        :raises StaleToken: a newer holder has written at least one of the rows
        """
        token = self._token
        if token is None:
            return super().update(**values)
        with _refusals(self._for_writing(), token):
            return self._update_fenced(token, **values)

    update.alters_data = True  # type: ignore[attr-defined]

    def _update_fenced(self, token: int, **values: Any) -> int:
        rows = _guarded(self, token)
        count = super(FencedQuerySet, rows).update(**values, fence=token)
        # This only explains why rows were left alone: the UPDATE itself has refused them.
        newer = _newer_tokens(self, token).first()
        if newer is not None:
            raise StaleToken.of(self.model, token, newer=newer)
        return count

    def create(self, **values: Any) -> _M:
        """Create a row, with the token when fenced."""
        if self._token is not None:
            values["fence"] = self._token
        return super().create(**values)

    def bulk_update(self, *args: Any, **options: Any) -> int:
        """Update the rows of these objects, all or none when fenced."""
        # A savepoint, so that an outer transaction can go on after a refusal.
        with transaction.atomic(using=self._for_writing().db):
            return super().bulk_update(*args, **options)

    def _for_writing(self) -> FencedQuerySet[_M]:
        self._for_write = True  # as Django's own update does before it asks for the database
        return self

    def _clone(self) -> Any:
        clone = super()._clone()  # type: ignore[misc]
        clone._token = self._token  # noqa: SLF001 - our own clone
        return clone


if TYPE_CHECKING:

    class FencedManager(FencedQuerySet[_M], models.Manager[_M]):  # type: ignore[misc]
        """The manager that `as_manager` makes."""


def _never_fenced(name: str) -> Callable[..., Any]:
    """Return a query set's method that refuses a fence: its write could not carry the condition."""

    @wraps(getattr(models.QuerySet, name))
    def method(rows: FencedQuerySet[Any], *args: Any, **options: Any) -> Any:
        if rows._token is not None:  # noqa: SLF001 - a method of its class
            raise TypeError(
                f"A fenced query set has no {name}(): its write could not carry the condition. "
                "Use claim() and save(fence=hold), or a fenced update()."
            )
        return getattr(super(FencedQuerySet, rows), name)(*args, **options)

    return method


for _name in ("bulk_create", "get_or_create", "update_or_create", "delete"):
    setattr(FencedQuerySet, _name, _never_fenced(_name))


class FencedModel(models.Model):
    """A model whose writes can carry the fencing token of a lock.

    An unfenced `save` works as always, and leaves the token in the row alone.
    """

    # The database has a default for statements that do not know the column. It is set here and not
    # in the field: otherwise a migration without it would seem to have it.
    fence = FenceField(db_default=0)

    if TYPE_CHECKING:
        objects: ClassVar[FencedManager[Self]]
    else:
        objects = FencedQuerySet.as_manager()

    class Meta:
        abstract = True

    _token: int | None = None

    def save(self, *args: Any, fence: Hold | int | None = None, **options: Any) -> None:
        """Save, and with `fence` only if no newer holder has written the row: in the same UPDATE.

        :param fence: the `Hold`, or its token
        :raises StaleToken: a newer holder has written the row; nothing was written
        """
        if fence is None:
            super().save(*args, **options)
            return
        token = token_of(fence)
        before = self.fence, self._token
        self.fence = self._token = token
        try:
            self._save_fenced(token, *args, **options)
        except BaseException:
            self.fence = before[0]
            raise
        finally:
            self._token = before[1]

    async def asave(self, *args: Any, fence: Hold | int | None = None, **options: Any) -> None:
        """Save as `save` does."""
        await sync_to_async(self.save)(*args, fence=fence, **options)

    def _save_fenced(self, token: int, *args: Any, **options: Any) -> None:
        if options.get("update_fields") is not None:
            options["update_fields"] = {*options["update_fields"], "fence"}
        if options.get("force_insert") or (self._state.adding and self.pk is None):
            super().save(*args, **options)
            return
        if not self._state.adding:  # or Django would take a refused UPDATE for a missing row
            options["force_update"] = True
        using = options.get("using") or router.db_for_write(type(self), instance=self)
        rows = type(self)._base_manager.using(using)  # noqa: SLF001 - what save() uses
        with _refusals(rows.filter(pk=self.pk), token):
            super().save(*args, **options)

    def _do_update(
        self, base_qs: Any, using: Any, pk_val: Any, values: Any, *args: Any, **options: Any
    ) -> Any:
        if self._token is not None:
            base_qs = _guarded(base_qs, self._token)
        else:  # a token that was read long ago must not lower the one in the row
            values = [value for value in values if value[0].name != "fence"]
        return super()._do_update(base_qs, using, pk_val, values, *args, **options)

    @classmethod
    def check(cls, **kwargs: Any) -> list[checks.CheckMessage]:
        messages = super().check(**kwargs)
        if cls._meta.parents and not cls._meta.proxy:
            messages.append(
                checks.Error(
                    "A FencedModel cannot use multi-table inheritance: its row would be written "
                    "by more than one UPDATE.",
                    hint="Inherit from an abstract model.",
                    obj=cls,
                    id="distlock.E006",
                )
            )
        return messages
