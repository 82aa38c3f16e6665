"""`manage.py sale`: a hundred buyers, several server processes, a stock of ten."""

from __future__ import annotations

import json
import signal
import sys
import time
from argparse import ArgumentTypeError
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import Any
from uuid import uuid4

from django.core.management.base import BaseCommand, CommandError, CommandParser

from example_project.shop.buyers import Crowd, Visit
from example_project.shop.models import Payment, Product
from example_project.shop.nemesis import Kill, Nemesis, Pause
from example_project.shop.reports import Report, account_of, percentile, summary, table, title
from example_project.shop.runner import (
    NoServer,
    WebServer,
    backing,
    postgresql_backing,
    redis_backing,
    sigterm_as_exit,
)
from example_project.shop.strategies import LOCKED, STRATEGIES

STANDSTILL_SECONDS = 300
"""gunicorn's own patience with a worker that stands still, where one is stopped on purpose."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One sale to hold; `kills` and `pauses` count the workers that it costs."""

    strategy: str
    kills: int = 0
    pauses: int = 0

    @property
    def title(self) -> str:
        return title(self.strategy, killed=bool(self.kills), stopped=bool(self.pauses))


DEMO = (
    Run(strategy="naive"),
    Run(strategy="conditional"),
    Run(strategy="zk"),
    Run(strategy="zk", kills=1),
    Run(strategy="zk_fenced", pauses=1),
    Run(strategy="redis"),
    Run(strategy="redis", kills=1),
    Run(strategy="postgresql"),
    Run(strategy="postgresql", kills=1),
)


def strategies(text: str) -> list[str]:
    names = list(STRATEGIES) if text == "all" else text.split(",")
    if unknown := [name for name in names if name not in STRATEGIES]:
        known = ", ".join([*STRATEGIES, "all"])
        raise ArgumentTypeError(f"there is no strategy {unknown[0]!r}; there is {known}")
    return names


def number(least: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise ArgumentTypeError(f"{text!r} is not a whole number from {least} up")
        return int(text)

    return parse


class Command(BaseCommand):
    help = (
        "Hold a flash sale over HTTP and show who got what. Starts gunicorn, a temporary SQLite "
        "database (unless DATABASE_URL is set), ZooKeeper (unless DISTLOCK_HOSTS is set), Redis "
        "(unless DISTLOCK_REDIS is set) and PostgreSQL (unless DISTLOCK_POSTGRESQL is set), each "
        "only if a strategy needs it, and ends them. "
        "Without an installed ZooKeeper it starts the embedded server. A buyer who is refused with "
        "423 comes back after Retry-After until the patience ends; 'refused' counts these "
        "answers, 'errors' the buyers who left with neither a piece nor 'sold out'. 'stale "
        "refused' counts the writes that the database refused for their fencing token. The exit "
        "status is 1 if a strategy with a lock sold anything but exactly the stock; with --pause "
        "this holds for zk_fenced only, since a lock alone cannot promise it. PAYMENT_SECONDS "
        "(0.1) and LOCK_SECONDS (2) in the environment set how long a payment takes and how long a "
        "request waits."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--stock", type=number(0), default=10, help="pieces for sale (10)")
        parser.add_argument("--buyers", type=number(1), default=100, help="how many want one (100)")
        parser.add_argument(
            "--processes", type=number(1), default=4, help="gunicorn worker processes (4)"
        )
        parser.add_argument("--threads", type=number(1), default=4, help="threads of each (4)")
        parser.add_argument(
            "--strategy",
            type=strategies,
            action="extend",
            help=f"{', '.join(STRATEGIES)}, a comma list of them, or all; may be repeated (without "
            "it: all, redis and postgresql only if such a server can be had)",
        )
        parser.add_argument(
            "--demo",
            action="store_true",
            help="instead of --strategy, --kill and --pause: naive, conditional, zk, zk with a "
            "killed worker, zk_fenced with a stopped one and, if such a server can be had, redis "
            "and postgresql, each also with a killed worker",
        )
        parser.add_argument(
            "--kill",
            type=number(0),
            default=0,
            metavar="N",
            help="SIGKILL N worker processes, each while it is inside the critical section",
        )
        parser.add_argument(
            "--pause",
            type=number(0),
            default=0,
            metavar="N",
            help="SIGSTOP N worker processes, each between its read and its write, until its "
            "session has ended and somebody else has bought; then let it go on",
        )
        parser.add_argument(
            "--patience", type=number(1), default=60, help="seconds a buyer keeps asking (60)"
        )
        parser.add_argument("--preload", action="store_true", help="gunicorn --preload")
        parser.add_argument("--json", action="store_true", help="one JSON document for each run")

    def handle(self, *_: Any, **options: Any) -> None:
        runs = DEMO if options["demo"] else runs_of(options)
        if options["processes"] < 2 and any(run.pauses for run in runs):
            raise CommandError("--pause needs --processes 2 or more: one stops, another sells.")
        try:
            sales = self.hold_sales(runs, options)
        except KeyboardInterrupt:
            raise SystemExit(128 + signal.SIGINT) from None
        if not options["json"]:
            reports = [report for _, report in sales]
            self.stdout.write(f"\n{table(reports, self.styled)}\n\n{summary(reports)}")
        for run, report in sales:
            if run.strategy in LOCKED:
                require(report, kills=run.kills, pauses=run.pauses)

    def hold_sales(self, runs: Sequence[Run], options: dict[str, Any]) -> list[tuple[Run, Report]]:
        """Start what is needed, hold one sale after the other, and end what was started."""
        sales: list[tuple[Run, Report]] = []
        with ExitStack() as stack:
            stack.enter_context(sigterm_as_exit())
            aliases = {LOCKED.get(run.strategy) for run in runs}
            stack.enter_context(backing(temporary_database=True, zookeeper="default" in aliases))
            for alias, serve in (("redis", redis_backing), ("postgresql", postgresql_backing)):
                if alias not in aliases:
                    continue
                try:
                    stack.enter_context(serve())
                except NoServer as error:
                    if options["strategy"]:  # asked for by name
                        raise
                    self.stderr.write(f"The sales on {alias} are left out. {error}")
                    runs = [run for run in runs if LOCKED.get(run.strategy) != alias]
            server = stack.enter_context(
                WebServer(
                    processes=options["processes"],
                    threads=options["threads"],
                    preload=options["preload"],
                    standstill=STANDSTILL_SECONDS if any(run.pauses for run in runs) else None,
                )
            )
            for run in runs:
                if not (options["json"] or sys.stderr.isatty()):  # which has the progress bar
                    self.stderr.write(f"{run.title}: the sale begins")
                report = self.hold_sale(run, server, options)
                sales.append((run, report))
                if options["json"]:
                    self.stdout.write(json.dumps({**asdict(report), "exact": report.exact}))
                else:
                    self.tell(report)
        return sales

    def hold_sale(self, run: Run, server: WebServer, options: dict[str, Any]) -> Report:
        product = Product.objects.create(
            sku=f"sale-{run.strategy}-{uuid4().hex[:8]}",
            name="Flash sale",
            quantity=options["stock"],
            strategy=run.strategy,
        )
        try:
            crowd = Crowd(
                server.port,
                product.get_absolute_url(),
                size=options["buyers"],
                patience=options["patience"],
            )
            nemesis = Nemesis(product, crowd, server)
            # The crowd goes home before the thread is waited for: it may be waiting for the bell.
            with ThreadPoolExecutor(1) as thread, crowd:
                struck = thread.submit(nemesis.strike, kills=run.kills, pauses=run.pauses)
                bar = ProgressBar(run.title, options["buyers"])
                try:
                    visits = crowd.rush(bar.show)
                finally:
                    bar.clear()
            for detail in {visit.detail for visit in visits} - {""}:
                self.stderr.write(f"A buyer was answered {detail}")
            return self.report(product, crowd, visits, struck.result(), options)
        finally:
            Payment.objects.filter(sku=product.sku).delete()
            product.delete()

    def report(
        self,
        product: Product,
        crowd: Crowd,
        visits: list[Visit],
        misfortunes: tuple[list[Kill], list[Pause]],
        options: dict[str, Any],
    ) -> Report:
        seconds = time.monotonic() - crowd.rang_at
        kills, pauses = misfortunes
        product.refresh_from_db()
        sold = product.orders.count()
        waits = sorted(visit.waited for visit in visits)
        return Report(
            strategy=product.strategy,
            stock=options["stock"],
            buyers=options["buyers"],
            processes=options["processes"],
            sold=sold,
            left=product.quantity,
            oversold=max(0, sold - options["stock"]),
            refused=sum(visit.refused for visit in visits),
            errors=sum(visit.result in ("error", "gave up") for visit in visits),
            unavailable=sum(visit.unavailable for visit in visits),
            reconnected=sum(visit.reconnected for visit in visits),
            stale=sum(visit.stale for visit in visits),
            lost=sum(visit.lost for visit in visits),
            charged=Payment.objects.filter(sku=product.sku, status=Payment.Status.CHARGED).count(),
            p50=percentile(waits, 50),
            p95=percentile(waits, 95),
            max=round(waits[-1], 3),
            seconds=round(seconds, 3),
            sales_per_second=round(sold / seconds, 2),
            kills=kills,
            pauses=pauses,
        )

    def styled(self, text: str, report: Report) -> str:
        style = self.style.SUCCESS if report.exact else self.style.ERROR
        return str(style(text))

    def tell(self, report: Report) -> None:
        """Say what became of the workers that were struck."""
        for kill in report.kills:
            where = "inside" if kill.held else "just after it left"
            self.stdout.write(f"worker {kill.pid} was killed {where} the critical section")
        for pause in report.pauses:
            self.stdout.write(f"worker {pause.pid} {account_of(pause, report)}")
        self.stdout.flush()


def runs_of(options: dict[str, Any]) -> list[Run]:
    names = options["strategy"] or STRATEGIES
    return [Run(strategy=one, kills=options["kill"], pauses=options["pause"]) for one in names]


def require(report: Report, *, kills: int, pauses: int) -> None:
    """Fail where a strategy with a lock broke its promise, or nothing was put to the test."""
    lock_alone = report.pauses and report.strategy != Product.Strategy.ZK_FENCED
    if not report.exact and not lock_alone:
        raise CommandError(
            f"{report.strategy} broke its promise: sold {report.sold}, left {report.left}, "
            f"charged {report.charged}, of a stock of {report.stock}."
        )
    if sum(kill.held for kill in report.kills) < kills:
        raise CommandError(
            "The sale ended before a worker could be killed inside the critical section. "
            "Use more stock, or a longer PAYMENT_SECONDS."
        )
    stopped = sum(pause.held for pause in report.pauses)
    if stopped < pauses:
        raise CommandError(
            "The sale ended before a worker could be stopped between its read and its write while "
            "somebody else bought. Use more stock, more buyers, or a longer PAYMENT_SECONDS."
        )
    if report.stale < stopped and not lock_alone:
        raise CommandError(
            f"{stopped} workers were stopped past their session's end while somebody else bought, "
            f"and only {report.stale} of their writes were refused."
        )


class ProgressBar:
    """How many buyers have their answer; drawn only when stderr is a terminal."""

    WIDTH = 30

    def __init__(self, title: str, total: int) -> None:
        self._title = title
        self._total = total
        self._visible = sys.stderr.isatty()

    def show(self, done: int) -> None:
        if self._visible:
            filled = self.WIDTH * done // self._total
            bar = "█" * filled + "░" * (self.WIDTH - filled)
            sys.stderr.write(f"\r{self._title:<24} {bar} {done}/{self._total} buyers")
            sys.stderr.flush()

    def clear(self) -> None:
        if self._visible:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()
