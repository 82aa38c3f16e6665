"""What the harness of chaos reads from a Redis server."""

from __future__ import annotations

from typing import Any

from redis import Redis

from distlock_chaos.redis_site import RedisSite
from tests.testing.sides import Side, configuration


def test_chaos_counts_the_watches_that_are_left() -> None:
    with RedisSite() as site:
        side = Side(configuration(site.hosts))
        assert site.watches() == 0
        side.ask(lambda make: make.reading("/", side.hear("root")))
        side.ask(lambda make: make.listing("/", side.hear("names")))
        assert site.watches() == 2
        side.client.say_goodbye(1)
        assert site.watches() == 0


def test_a_replica_takes_the_name_of_the_primary_and_its_data() -> None:
    with RedisSite(3) as site:
        client: Any = Redis(port=site.servers[0].port, decode_responses=True)
        with client:
            client.set("key", "value")
            assert client.execute_command("WAIT", 2, 5000) == 2
            former = site.promote()
            client.connection_pool.disconnect()
            client.set("key", client.get("key") + ", moved")
            assert former.ask("GET", "key") == "value"
            former.kill()
            site.demote(former)
            assert former.ask("GET", "key") == "value, moved"


def test_a_replica_that_is_parted_from_its_primary_keeps_what_that_deletes() -> None:
    with RedisSite(2) as site:
        client: Any = Redis(port=site.servers[0].port, decode_responses=True)
        with client:
            client.set("key", "value")
            assert client.execute_command("WAIT", 1, 5000) == 1
            site.part_from_replicas()
            client.delete("key")
            former = site.promote()
            client.connection_pool.disconnect()
            assert client.get("key") == "value"
            former.kill()
            site.demote(former)
