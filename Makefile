# Needs Python 3.11 or newer, and make. Each target sets up .venv itself; start with `make demo` and `make test`.

# Skips names on the PATH that do not run, such as the shims of a version manager. Override: make PYTHON=/path/to/python
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3.14 python3; do \
	  if $$p -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then echo $$p; break; fi; done)
VENV ?= .venv
BIN := $(VENV)/bin
JOBS ?= 2
# Each process takes whole files, in the order that conftest.py gives them.
SPREAD := -n $(JOBS) --dist loadfile --no-loadscope-reorder

.PHONY: help demo test check lint metrics bench docs plans auto format clean fuzz processes ecosystem
.DELETE_ON_ERROR:

help:
	@echo "make demo    train a byte-level language model over a 4x2 mesh of 8 virtual devices"
	@echo "make test    run every test (JOBS: number of processes, ARGS: arguments for pytest)"
	@echo "make check   lint, formatting, import layers, types and the quick tests (make lint: without the tests)"
	@echo "make metrics figures of the library's language and order, beside their targets"
	@echo "make bench   measure Phalanx beside JAX in one run"
	@echo "make fuzz    fuzz the reader of exported programs, and compare random programs over meshes (SECONDS_OF_FUZZING=600, each)"
	@echo "make processes  install Slurm and Open MPI (Debian, as root) and Ray, and start a training run with each"
	@echo "make ecosystem  run 20 libraries that import jax, without it, beside JAX (ARGS: --libraries optax,equinox)"
	@echo "make docs    build the documentation into site/"
	@echo "make plans   plan the demo's step for CPU devices, GPUs and a TPU pod, before and after AUTO: build/plans/index.html"
	@echo "make auto    measure the shardings that AUTO chooses for five training steps on four meshes"

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "Phalanx needs Python 3.11 or newer with venv; found none on the PATH." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=24"

# One stamp file per set of extras, so that pip does not resolve an installed set again.
$(VENV)/installed-%: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[$(subst +,$(,),$*)]"
	@touch $@

, := ,

demo: $(VENV)/installed-demo
	PHALANX_NUM_CPU_DEVICES=$${PHALANX_NUM_CPU_DEVICES:-8} $(BIN)/python -m phalanx demo $(ARGS)

test: $(VENV)/installed-dev+peer
	@$(BIN)/python -m pytest $(SPREAD) $(ARGS)

check: lint
	@$(BIN)/python -m pytest $(SPREAD) -q -m "not slow" tests $(ARGS)

lint: $(VENV)/installed-dev+peer
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	PYTHONPATH=src $(BIN)/lint-imports
	$(BIN)/mypy

metrics: $(VENV)/installed-dev+peer
	@PYTHONPATH=src $(BIN)/python tools/metrics.py

bench: $(VENV)/installed-bench
	$(BIN)/python -m benchmarks $(ARGS)

fuzz: $(VENV)/installed-fuzz
	PYTHONPATH=. $(BIN)/python -m tests.export.fuzz $${SECONDS_OF_FUZZING:-600} $(ARGS)
	PYTHONPATH=. PHALANX_NUM_CPU_DEVICES=8 $(BIN)/python -m tests.spmd.random_programs $${SECONDS_OF_FUZZING:-600} $(ARGS)

processes: $(VENV)/installed-launchers
	which srun slurmctld slurmd munged mpirun >/dev/null || { apt-get update && \
	  apt-get install --yes --no-install-recommends slurmctld slurmd slurm-client munge openmpi-bin; }
	$(BIN)/python -m pytest tests/launchers/launcher_checks.py $(ARGS)

# Makes one virtual environment without jax and one with it; takes an hour or more.
ecosystem: | $(BIN)/python
	$(BIN)/python -m tools.ecosystem build/ecosystem $(ARGS)

docs: $(VENV)/installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# The compilers for GPUs and TPUs are 270 MB; takes some minutes.
plans: $(VENV)/installed-demo+plan-gpu+plan-tpu
	PHALANX_PLATFORMS=cpu $(BIN)/python -m tools.plan_pages build/plans

auto: $(VENV)/installed-demo
	PHALANX_PLATFORMS=cpu PHALANX_NUM_CPU_DEVICES=8 $(BIN)/python -m tools.auto_table $(ARGS)

format: $(VENV)/installed-dev+peer
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) site build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
