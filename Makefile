# Commands such as `make demo`, `make test` and `make docs`. Each sets itself up; nothing outside this folder is touched.
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do \
  $$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' 2>/dev/null && { echo $$p; break; }; done)
BIN = .venv/bin
# Without compiling all that is installed, of which a demo imports a tenth: half of the time.
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt

.PHONY: demo test test-all docs check gpu fuzz clean
demo: .venv/.ready
	$(BIN)/foreword demo --out demo

test: .venv/.dev
	$(BIN)/pytest -n auto -m "not gpu and not full"

test-all: .venv/.dev
	$(BIN)/pytest -n auto -m "not gpu"

docs: .venv/.docs
	$(BIN)/sphinx-build -q -W --keep-going docs docs/_build
	@echo docs/_build/index.html

gpu: .venv/.dev
	$(BIN)/pytest -m gpu

fuzz: .venv/.dev
	$(BIN)/python benchmarks/fuzz.py --minutes 5 --seed $(or $(SEED),1)

check: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

.venv/.ready: pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "Foreword needs Python 3.11, 3.12 or 3.13; none is on the PATH."; exit 2; }
	$(PYTHON) -m venv .venv
	$(INSTALL) -e .
	@touch $@

.venv/.dev: .venv/.ready
	$(INSTALL) -e ".[dev]"
	@$(BIN)/python -m compileall -qq -j 0 .venv/lib || true  # some files are of other Pythons
	@touch $@

.venv/.docs: .venv/.ready
	$(INSTALL) -e ".[docs]"
	@touch $@

clean:
	rm -rf docs/_build .venv demo .pytest_cache .mypy_cache .ruff_cache
