# Every target bootstraps .venv from a lock file; after one setup nothing touches the network.
PYTHON ?= python3
PORT ?= 8080
DATA ?= ./data
SEEDS ?= 0:2000
FUZZ ?= 10
SEED ?= 1
MINUTES ?= 10
NEMESIS ?= all
KILLS ?= 20
CLUSTERS ?= 6
LEDGER ?= build/chaos-ledger.jsonl
SLOWEST := --durations=30 --durations-min=1
VENV := .venv
BIN := $(VENV)/bin
export PYTHONHASHSEED ?= 0
# tests start hundreds of processes: each would compile all modules anew, which takes 0.8 s of CPU
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup setup-dev run check test test-unit test-mutants test-cluster test-upgrade test-wheels wheels test-prometheus test-sim test-console test-deploy test-pods check-image image setup-deploy setup-pipeline test-pipeline pipeline-kills test-terraform setup-terraform screenshots programs lint lint-mypy lint-pyright sim mutants fuzz damage chaos \
	chaos-release chaos-elastic chaos-sum chaos-kills directory-kills chaos-queue chaos-transfers \
	chaos-groups chaos-rolling bench clean-data lock protos

help:
	@sed -n 's/^## //p' $(MAKEFILE_LIST)

## setup         install what a node and the CLI need into .venv (runtime only)
setup: $(VENV)/.runtime
$(VENV)/.runtime: requirements/server.lock pyproject.toml client/pyproject.toml
	@$(PYTHON) scripts/bootstrap.py $(VENV) requirements/server.lock --and-this
	@touch $@

## setup-dev     add the test and lint tools
setup-dev: $(VENV)/.dev
$(VENV)/.dev: requirements/dev.lock $(VENV)/.runtime
	@$(PYTHON) scripts/bootstrap.py $(VENV) requirements/dev.lock
	@touch $@

## setup-deploy  add the Helm engine and the schemas of Kubernetes' objects
setup-deploy: $(VENV)/.deploy
$(VENV)/.deploy: requirements/deploy.lock $(VENV)/.dev
	@$(PYTHON) scripts/bootstrap.py $(VENV) requirements/deploy.lock
	@touch $@

## setup-pipeline  add Spark and what the data pipeline's tests need; they also need Java 17
setup-pipeline: $(VENV)/.pipeline
$(VENV)/.pipeline: requirements/pipeline.lock $(VENV)/.dev
	@$(PYTHON) scripts/bootstrap.py $(VENV) requirements/pipeline.lock
	@touch $@

## run           a three-node cluster on this machine, serving on PORT (8080), data in DATA (./data)
run: setup
	@$(BIN)/goqueue-cli dev --nodes 3 --port $(PORT) --data $(DATA)

## check         before each commit: lint, types, and the unit tests of what changed since main, or since BASE=rev
check: setup-dev
	@$(BIN)/python scripts/check.py $(if $(BASE),--base $(BASE))

## test          everything CI runs: lint, unit tests, simulation, cluster tests
test: programs test-unit
	@$(MAKE) --no-print-directory -j 3 -O TEST_LINES=1 test-wheels test-pipeline test-beside
# real processes mostly wait: two lines of them go on at once, and what only computes gives way to them
ifdef TEST_LINES
test-upgrade: test-cluster
test-wheels: test-upgrade
test-deploy: test-console
test-pipeline: test-deploy
$(VENV)/.pipeline: | $(VENV)/.deploy
test-beside: | $(VENV)/.pipeline
endif
test-beside: setup-dev
	@nice -n 19 $(MAKE) --no-print-directory TEST_LINES= lint test-sim test-mutants

## test-unit     fast tests of every floor
test-unit: setup-dev
	$(BIN)/python -m pytest tests/unit tests/check tests/chaos tests/fuzz tests/kubernetes tests/protocols -q -n 3 --dist worksteal $(SLOWEST)

## test-sim      500 seeds of the cluster simulation; `make sim` has 2,000, and counts rare paths
test-sim: setup-dev
	$(BIN)/python -m tests.sim --seeds 0:500

## test-mutants  the simulation's own tests, and that bugs which are planted are found
test-mutants: setup-dev
	$(BIN)/python -m pytest tests/sim tests/plants -q -n 2

## fuzz          FUZZ (10) minutes of fuzzing: formats, raw HTTP, frames of streams and HTTP/2, Redis' commands, calls of gRPC, requests that expand, the OpenAPI document
fuzz: setup-dev
	$(BIN)/python -m tests.fuzz --minutes $(FUZZ) --seed $(SEED)

## damage        each kind of damage to each kind of file of one of three nodes, 3 times over; every bit of a log
damage: setup-dev
	GOQUEUE_DAMAGE=all $(BIN)/python -m pytest tests/unit/node/storage/repair/test_damaged_files.py tests/unit/log/store/test_damage.py -q -n 2

## test-cluster  real processes, killed for real
test-cluster: setup-dev
	$(BIN)/python -m pytest tests/cluster -q $(SLOWEST)

## test-upgrade  three nodes rolled between the release and this tree under load; 0.1.0's data opened
test-upgrade: setup-dev
	$(BIN)/python -m pytest tests/upgrade -q

## test-wheels   the wheels, installed into an environment of their own, beside modules of the same names
test-wheels: setup-dev
	$(BIN)/python -m pytest tests/wheels -q

## wheels        the wheels that upgrades are tested from, of the commit that is checked out
wheels: setup-dev
	$(BIN)/python scripts/upgrade_wheels.py

## test-prometheus  every panel and alert asked of a real Prometheus; writes build/prometheus.md
test-prometheus: setup-dev programs
	GOQUEUE_PROMETHEUS_REPORT=build/prometheus.md $(BIN)/python -m pytest tests/cluster/test_prometheus.py -q -s

## programs      Debian's prometheus, chromium, shellcheck, nftables, Java, PostgreSQL, clients of Redis, curl and what faults of networks and disks need, for tests; only as root, with apt-get, and only if missing
programs:
	@$(PYTHON) scripts/programs.py prometheus=prometheus promtool=prometheus chromium=chromium shellcheck=shellcheck java=openjdk-17-jre-headless \
	  nft=nftables ip=iproute2 mkfs.ext4=e2fsprogs cc=gcc+libc6-dev pg_ctlcluster=postgresql redis-cli=redis-tools redis-benchmark=redis-tools curl=curl

## setup-terraform  moto and checkov, in a virtual environment of their own
setup-terraform: $(VENV)-terraform/.done
$(VENV)-terraform/.done: requirements/terraform.lock
	@$(PYTHON) scripts/bootstrap.py $(VENV)-terraform requirements/terraform.lock
	@touch $@

## test-terraform  fmt, validate, test, apply + empty second plan + destroy on moto, checkov; writes build/terraform.md
test-terraform: setup-terraform
	$(VENV)-terraform/bin/python -m tests.terraform --report build/terraform.md

## test-console  the web console in headless Chromium, over three nodes; GOQUEUE_CONSOLE=all takes longer
test-console: setup-dev programs
	$(BIN)/python -m pytest tests/console -q

## test-deploy   the chart, rendered by the Helm engine and validated; writes build/deploy.md
test-deploy: setup-deploy
	GOQUEUE_DEPLOY_REPORT=build/deploy.md $(BIN)/python -m pytest tests/deploy -q

## test-pipeline the data pipeline: one Spark session, over a three-node cluster with kills
test-pipeline: setup-pipeline programs
	$(BIN)/python -m pytest tests/pipeline -q

## pipeline-kills KILLS (20) of Spark queries, their workers, executors and brokers, on two paths, and of the archive's job; every row is counted
pipeline-kills: setup-pipeline
	$(BIN)/python -m tests.pipeline.kills --kills $(KILLS) --seed $(SEED)
	$(BIN)/python -m tests.pipeline.kills --executors --kills $(KILLS) --seed $(SEED)
	GOQUEUE_ARCHIVE_KILLS=$(KILLS) GOQUEUE_ARCHIVE_SEED=$(SEED) $(BIN)/python -m pytest tests/pipeline/test_archive.py -q -k killed

## test-pods     the chart's StatefulSet as local processes, scaled and rolled for longer; as root
test-pods: setup-deploy
	GOQUEUE_PODS=long $(BIN)/python -m pytest tests/deploy/test_pods.py -q -s

## check-image   the Dockerfile's commands in a bare root of Debian packages, and its node run; as root
check-image: setup-dev
	@$(PYTHON) scripts/programs.py mmdebstrap=mmdebstrap
	$(BIN)/python scripts/check_image.py

## image         the image, by docker, podman or buildah, and its bill of materials in build/; RELEASE=1 BASE=12.12-slim@sha256:... for a release
image: setup-deploy
	$(BIN)/python scripts/image.py $(if $(TAG),--tag $(TAG)) $(if $(BASE),--base $(BASE)) $(if $(RELEASE),--release)

## screenshots   a picture of every page of the console, light and dark, in build/screenshots
screenshots: setup-dev programs
	$(BIN)/python -m tests.console

## lint          format, lint, types, floors
lint: setup-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	@$(MAKE) --no-print-directory -j 2 -O lint-mypy lint-pyright
	$(BIN)/lint-imports
lint-mypy:
	$(BIN)/mypy
lint-pyright:
	$(BIN)/basedpyright

## sim           simulate SEEDS (0:2000) schedules; a release takes SEEDS=100000
sim: setup-dev
	$(BIN)/python -m tests.sim --seeds $(SEEDS)

## mutants       plant each known bug in turn: how many of SEEDS (0:2000) it takes to find it
mutants: setup-dev
	$(BIN)/python -m tests.sim --mutants --seeds $(SEEDS)
	$(BIN)/python -m tests.plants

## chaos         MINUTES (10) of every fault that this machine can make, under load of every protocol, checked
chaos: setup-dev
	$(BIN)/python -m tests.chaos --nemesis $(NEMESIS) --minutes $(MINUTES) --protocols redis,h2,grpc,stream

## chaos-release 200 faults of each kind over 1,000,000 acked sends, on CLUSTERS (6) at once (as root)
chaos-release: setup-dev
	$(BIN)/python -m tests.chaos --nemesis all --each 200 --acked 1000000 \
		--clusters $(CLUSTERS) --rate 80 --ledger $(LEDGER)

## chaos-elastic 50 times from three nodes to five and back, a kill and a partition in each move (as root)
chaos-elastic: setup-dev
	$(BIN)/python -m tests.chaos --elastic 50 --clusters 2 --rate 600 --ledger $(LEDGER)

## chaos-sum     what the runs of LEDGER (build/chaos-ledger.jsonl) add up to
chaos-sum: setup-dev
	$(BIN)/python -m tests.chaos --sum $(LEDGER)

## directory-kills a directory's owner killed 100 times under four other processes, and power cuts after each step of a queue
directory-kills: setup-dev
	GOQUEUE_DIRECTORY_KILLS=100 $(BIN)/python -m pytest tests/cluster/test_directory.py -q -k killed
	GOQUEUE_POWER_CUTS=1 $(BIN)/python -m pytest tests/cluster/test_power_cuts.py tests/unit/goqueue/everyday/test_power_cuts.py -q

## chaos-kills   100 kill -9 of partition leaders under load, checked over HTTP
chaos-kills: setup-dev
	$(BIN)/python -m tests.chaos --kills 100

## chaos-queue   a leader killed every 5 s for two minutes, under queue work, checked over HTTP
chaos-queue: setup-dev
	$(BIN)/python -m tests.chaos --queue --minutes 2

## chaos-transfers 100 partitions handed over by planned stops under load: how long without an ack
chaos-transfers: setup-dev
	$(BIN)/python -m tests.chaos --transfers 100

## chaos-groups  100 joins, leaves and kill -9 of a group's members under load: who waits, for how long
chaos-groups: setup-dev
	$(BIN)/python -m tests.chaos --groups --changes 100

## chaos-rolling the three brokers restarted one by one under a group's load
chaos-rolling: setup-dev
	$(BIN)/python -m tests.chaos --rolling

## bench         rewrite docs/reference/benchmarks.md from measurements on this machine
bench: setup-dev
	$(BIN)/python -m benchmarks

## protos        make the gRPC listener's messages of its .proto, after it has changed
protos: setup-dev
	$(BIN)/python scripts/protos.py

## clean-data    delete DATA (./data), the files of `make run`
clean-data:
	rm -rf $(DATA)

## lock          resolve requirements/*.in again, with hashes (needs uv)
lock:
	cd requirements && for f in server image dev deploy pipeline terraform; do \
	  uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	    --no-emit-index-url --no-emit-find-links $$f.in -o $$f.lock; done
