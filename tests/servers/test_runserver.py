"""Django's runserver: a reload ends the old process in order, and with it its session."""

from __future__ import annotations

from distlock_chaos.ports import free_ports
from tests.kit.helpers import alive, eventually
from tests.servers.site import Site


def test_a_reload_frees_the_locks_at_once(site: Site) -> None:
    (port,) = free_ports(1)
    name = site.database.make_counter()
    watched = site.folder / "watched_settings.py"
    watched.write_text("from tests.testproject.settings import *\n")
    environment = site.environment(SESSION_TIMEOUT=20)
    environment |= {"DJANGO_SETTINGS_MODULE": "watched_settings", "PYTHONUNBUFFERED": "1"}
    command = ["-m", "django", "runserver", "--skip-checks", f"127.0.0.1:{port}"]
    listening = r"development server at http://127\.0\.0\.1:(\d+)"
    with site.run(*command, environment=environment, listening=listening) as server:
        before = server.post(f"/hold/{name}/")[1]["pid"]
        assert site.pid_of_holder(f"counter:{name}") == before

        def ended() -> bool:
            # The reloader misses a change that comes before its first look.
            watched.touch()
            return not alive(before)

        eventually(ended, timeout=60, message="The old process has ended")
        assert site.nodes(f"counter:{name}") == []
        starts = "development server at"
        eventually(lambda: server.log.count(starts) > 1, timeout=60, message="A second start")
        eventually(server.serves, timeout=60, message="The new process serves")
        status, said = server.post(f"/function/{name}/")
        assert status == 200
        assert said["pid"] != before
