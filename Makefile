# Everything runs from a fresh clone on a machine that has only python3 (>= 3.11, with venv) and make.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
# What only make check needs, so that a first try stays light: other libraries' frames, Spark, PostgreSQL's server, a browser's driver.
MORE   := $(VENV)/.installed-check
WORKERS ?= 2
# What waits for servers, browsers and Spark more than it computes.
WAITING ?= 3
# Neighbours stay together, as they share what takes long to make.
TESTS  := $(BIN)/python -m pytest --dist worksteal
# Offline, from scratch, and a warning (a link that leads nowhere, say) is an error.
SITE   := $(BIN)/python -m sphinx -b html -E -n -W --keep-going -q -d build/doctrees docs build/site

.PHONY: demo test test-times test-thorough test-all check bill lint types docs docs-check bench picture clean help

help:
	@echo "make demo      plan, randomize, shuffle and estimate on built-in data, with a live round; writes demo-output/report.html"
	@echo "make test      the tests (five to six minutes on two cores)"
	@echo "make test-all  the tests, the slow ones included"
	@echo "make test-times  the tests; one that computes for more than two seconds fails"
	@echo "make check     ruff, mypy --strict, the tests and some that take longer, generated documents up to date, the site builds"
	@echo "make bench     benchmarks: a table and benchmarks/results.json"
	@echo "make docs      regenerate the generated documents and the picture, and build the site into build/site"

demo: $(STAMP)
	$(BIN)/python -m examples.demo --live --output demo-output

test: $(STAMP)
	$(TESTS) -n $(WORKERS)

test-times: $(STAMP)
	MAX_TEST_CPU=2 $(TESTS) -n $(WORKERS)

# Servers and browsers beside each other on a busy machine: what failed is named, and runs once more, alone. What fails then is a failure.
test-thorough: $(MORE)
	$(TESTS) -n $(WAITING) -m "thorough and not slow" || { [ $$? -eq 1 ] && \
	echo "Some tests failed beside others; they run once more, alone." && \
	$(TESTS) -n 0 -m "thorough and not slow" --last-failed --last-failed-no-failures none; }

test-all: $(MORE)
	$(TESTS) -n $(WORKERS) -m "slow or not slow"

# What waits for others leaves processors idle: types and documents are checked meanwhile.
check: $(MORE) lint test
	$(MAKE) --jobs=2 test-thorough types docs-check bill

# What it is made of, in the format CycloneDX.
bill: $(MORE)
	$(BIN)/python -m tools.sbom build/metricshuffle.cdx.json

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

docs: $(STAMP)
	$(BIN)/python -m tools.documents --write .
	$(SITE)
	@echo "the site is in build/site/index.html"

docs-check: $(STAMP)
	$(BIN)/python -m tools.documents --check .
	$(SITE)

bench: $(STAMP)
	$(BIN)/python -m benchmarks --output benchmarks/results.json

$(STAMP): requirements.lock pyproject.toml packages/papers/pyproject.toml packages/places/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("metricshuffle needs Python 3.11 or newer, but $(PYTHON) is " + sys.version.split()[0] + "; try: make PYTHON=python3.12" if sys.version_info < (3, 11) else 0)'
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "$(PYTHON) cannot make virtual environments; install its venv module (on Debian: apt-get install python3-venv)."; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable . --editable packages/papers --editable packages/places
	@echo "compiling (once) ..."
	@$(BIN)/metricshuffle amplify --randomizer krr --options 10 --local-epsilon 1 --users 1000000 --delta 1e-6 --json > /dev/null
	@$(BIN)/metricshuffle amplify --randomizer metric --distance 1 --reach 2 --users 1000 --delta 1e-6 --json > /dev/null
	@touch $(STAMP)

$(MORE): requirements-check.lock $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-check.lock
	@touch $(MORE)

clean:
	rm -rf $(VENV) demo-output .pytest_cache .mypy_cache .ruff_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
