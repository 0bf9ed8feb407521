# Every habit of this project has its command here; `make help` lists them.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Compiling thousands of files that are never imported would double the time of an install.
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
LABEXTENSION := agent_magics/labextension
LABEXTENSION_SOURCES := labextension/package.json $(wildcard labextension/package-lock.json \
	labextension/tsconfig.json labextension/src/* labextension/src/*/* labextension/style/* \
	labextension/schema/*)
# The extension's bundler wants this; an older Node, or none, is made up for by a package.
NODE_WILL_DO := { command -v npm && node -e 'const [a, b] = process.versions.node.split("."); \
	process.exit(a > 22 || (a == 22 && b >= 12) || (a == 20 && b >= 19) ? 0 : 1)'; } >/dev/null 2>&1
SERVERS := $(patsubst %,build/servers/%.stamp,litellm_proxy llama_server typescript) \
	$(patsubst %,build/mcp/%.stamp,npm python)
# Kernels of this environment only, whatever else is installed on the machine.
ISOLATED := env -u JUPYTER_PATH JUPYTER_PREFER_ENV_PATH=1
# Workers are forks of the process that has collected the tests. One file is one worker's, so that
# what its tests share is started once. A worker often waits for a kernel or a page, so there are two
# more than there are processors.
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 2)
PYTEST = $(ISOLATED) $(BIN)/python make/watched.py $(BIN)/python -m pytest -p tests.support.workers \
	--workers $(WORKERS)
NOTEBOOKS := --nbval --nbval-current-env --nbval-sanitize-with notebooks/sanitize.cfg \
	--nbval-cell-timeout 120
# Folders whose tests start commands, servers or pools, or wait as a person does.
SLOW := unit/elsewhere unit/exec unit/mcp unit/rows unit/symbols unit/tools/commands \
	turns/approvals turns/commands turns/hostile turns/symbols
# nbval's imports take each worker a second.
FAST := -p no:nbval tests/unit tests/turns $(SLOW:%=--ignore=tests/%) \
	-m "not long and not soak and not hypothesis"

export PATH := $(CURDIR)/$(BIN):$(PATH)
# Packages are installed uncompiled, so the first run must be allowed to keep what it compiles:
# without that every run pays for it again (13 s of a demo instead of 6).
unexport PYTHONDONTWRITEBYTECODE
# The extension is built by its own target, not by each install.
export AGENT_MAGICS_LABEXTENSION := skip

.PHONY: help
help:  ## Show this list.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# -- the main job, and working with it ---------------------------------------------------------

.PHONY: demo
demo: $(VENV)/demo.stamp  ## Run the main job: execute the first notebook offline, print the answer.
	@$(ISOLATED) $(BIN)/python make/demo.py notebooks/00_first_cell.ipynb build/demo

.PHONY: lab
lab: $(VENV)/test.stamp labextension  ## Open JupyterLab on the notebooks.
	@$(BIN)/jupyter lab --notebook-dir=notebooks --YDocExtension.disable_rtc=True

# -- checks ------------------------------------------------------------------------------------

.PHONY: test
test: $(VENV)/test.stamp  ## Install what tests need and run all of them.
	@$(BIN)/python make/system.py
	@$(MAKE) --keep-going --jobs=2 servers || [ -z "$${CI:-}" ]
	@$(MAKE) labextension
	@cd labextension && npm --silent test
	@$(PYTEST) -m "not long" $(NOTEBOOKS) tests notebooks $(PYTEST_ARGS)

.PHONY: test-fast
test-fast: $(VENV)/test.stamp labextension  ## Run in a minute what is quick in tests/unit and tests/turns: no server, no pool, nothing random.
	@$(PYTEST) $(FAST) $(PYTEST_ARGS)

.PHONY: test-long
test-long: $(VENV)/test.stamp labextension kernels $(SERVERS)  ## Run what is long by nature: random kills, soaks, matrices, other versions and front ends, Binder.
	@$(PYTEST) --apart -m long tests $(PYTEST_ARGS)

.PHONY: explore
explore: $(VENV)/test.stamp labextension  ## Run the tests of random examples with new ones; `make test` repeats the same.
	@$(PYTEST) --hypothesis-profile=explore -m "hypothesis and not long" tests $(PYTEST_ARGS)

.PHONY: test-changed
test-changed: $(VENV)/test.stamp labextension  ## Run the tests of what has changed since main.
	@tests=$$($(BIN)/python make/changed.py) || exit; [ -z "$$tests" ] || exec $(PYTEST) $(PYTEST_ARGS) $$tests

.PHONY: pytest
pytest: $(VENV)/test.stamp labextension  ## Run the tests that PYTEST_ARGS names.
	@$(PYTEST) -m "not long" $(PYTEST_ARGS)

.PHONY: unstable
unstable:  ## Run the few tests that failed again, alone: broken, or unstable?
	@$(ISOLATED) $(BIN)/python make/unstable.py $(BIN)/python make/watched.py \
		$(BIN)/python -m pytest -p no:randomly $(NOTEBOOKS)

.PHONY: kernels
kernels: $(VENV)/test.stamp  ## Run the tests of live code with other versions of ipykernel.
	@$(ISOLATED) $(BIN)/python make/watched.py $(BIN)/python make/kernels.py $(PYTEST_ARGS)

.PHONY: attacks
attacks: $(VENV)/test.stamp  ## Attack the sandbox; print what was tried, stopped and is open.
	@$(BIN)/python make/system.py
	@$(PYTEST) $(PYTEST_ARGS) tests/attacks tests/launcher/test_everyday.py

.PHONY: lint
lint: $(VENV)/lint.stamp  ## Check style, types, the layers of imports and the generated pages.
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/mypy
	@$(BIN)/python docs/make_events.py --check
	@$(BIN)/python docs/make_settings.py --check

.PHONY: fmt
fmt: $(VENV)/lint.stamp  ## Put the code into its format and write the generated pages anew.
	@$(BIN)/ruff check --fix-only .
	@$(BIN)/ruff format .
	@$(BIN)/python docs/make_events.py
	@$(BIN)/python docs/make_settings.py

.PHONY: check
check: lint test  ## What CI runs: lint and test.

.PHONY: bench
bench: $(VENV)/test.stamp  ## Measure against the floors; prints ratios of one run.
	@$(BIN)/python benchmarks/run.py

# -- things to build ---------------------------------------------------------------------------

.PHONY: docs
docs: $(VENV)/docs.stamp  ## Build the documentation into build/docs.
	@$(BIN)/python docs/make_events.py
	@$(BIN)/python docs/make_settings.py
	@$(BIN)/sphinx-build --fail-on-warning --quiet docs build/docs
	@echo "build/docs/index.html"

.PHONY: pictures
pictures: $(VENV)/test.stamp labextension  ## Take the pictures of the guides anew, in a real browser.
	@$(BIN)/python docs/make_pictures.py

.PHONY: labextension
labextension: $(VENV)/test.stamp  ## Build the JupyterLab extension and link it into the environment.
	@$(NODE_WILL_DO) || $(MAKE) $(VENV)/node.stamp
	@$(MAKE) $(LABEXTENSION)/package.json

$(LABEXTENSION)/package.json: $(LABEXTENSION_SOURCES)
	@echo "building the JupyterLab extension"
	@cd labextension && npm ci --silent --no-audit --no-fund && npm run --silent build
	@touch $@
	@mkdir -p $(VENV)/share/jupyter/labextensions
	@rm -rf $(VENV)/share/jupyter/labextensions/agent-magics
	@ln -s ../../../../$(LABEXTENSION) $(VENV)/share/jupyter/labextensions/agent-magics

.PHONY: servers
servers: $(SERVERS)  ## Install the servers that tests start, in environments of their own.
	@:

build/servers/typescript.stamp: tests/servers/typescript/package.json tests/servers/typescript/package-lock.json
build/servers/%.stamp: tests/servers/%/requirements.txt make/servers.py | $(VENV)/made.stamp
	@echo "installing the server $* into build/servers/$* (once; a minute or two)"
	@mkdir -p build/servers
	@rm -f $@
	@$(BIN)/python make/servers.py tests/servers/$* build/servers/$*
	@touch $@

build/mcp/npm.stamp: tests/mcp/npm/package.json tests/mcp/npm/package-lock.json
build/mcp/%.stamp: tests/mcp/%/requirements.txt make/servers.py | $(VENV)/made.stamp
	@echo "installing MCP servers ($*) into build/mcp/$* (once; half a minute)"
	@mkdir -p build/mcp
	@rm -f $@
	@$(BIN)/python make/servers.py tests/mcp/$* build/mcp/$*
	@touch $@

.PHONY: clean
clean:  ## Remove everything that make made.
	rm -rf $(VENV) build dist $(LABEXTENSION) labextension/lib labextension/node_modules
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	rm -rf .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache

# -- the environment ---------------------------------------------------------------------------
# A stamp is as old as the last install of its extras; only a change of pyproject.toml renews it.
# Today's pip installs in half the time of the one that Python brings, so it is renewed first.

$(VENV)/made.stamp:
	@rm -rf $(VENV)
	@command -v $(PYTHON) >/dev/null \
		|| { echo "$(PYTHON) not found: install Python 3.11 or later"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or later is needed and $(PYTHON) is $$($(PYTHON) -V 2>&1);" \
		"name another: make $(or $(MAKECMDGOALS),demo) PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
		|| { echo "$(PYTHON) cannot make environments: install python3-venv"; exit 1; }
	@echo "making $(VENV) with $$($(PYTHON) -V)"
	@$(PYTHON) -m venv $(VENV)
	@$(PIP_INSTALL) --upgrade pip
	@touch $@

$(VENV)/%.stamp: pyproject.toml | $(VENV)/made.stamp
	@echo "installing agent-magics[$*] into $(VENV) (once; a minute or so)"
	@$(PIP_INSTALL) --editable '.[$*]'
	@touch $@
