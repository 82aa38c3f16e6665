"""What the harness of chaos reads from a Redis server."""

from __future__ import annotations

from distlock.engine.redis.client import RedisClient
from distlock_chaos.redis_site import RedisSite
from tests.testing.sides import Side, configuration


def test_chaos_counts_the_watches_that_are_left() -> None:
    with RedisSite() as site:
        side = Side(RedisClient, configuration(site.hosts))
        assert site.watches() == 0
        side.ask(lambda make: make.reading("/", side.hear("root")))
        side.ask(lambda make: make.listing("/", side.hear("names")))
        assert site.watches() == 2
        side.client.say_goodbye(1)
        assert site.watches() == 0
