# One command for each job. `make demo` and `make test` do all set-up on a fresh machine.
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
# The first interpreter that is new enough; PYTHON=... overrides.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python; do \
  $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { command -v $$p; break; }; done)

# Without bytecode files, every process that a test starts would compile the package again: 1.8 of the 4.4 s of a small verdict.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test editor-test train-tools gpu-test extension extension-test lint format types imports bench docs diagrams clean

help:  ## what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

$(VENV)/.python:
	@test -n "$(PYTHON)" || { echo "error: KernelMate needs Python 3.11 or newer and found none. Install it, or name it: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; exit 3; }
	@"$(PYTHON)" -c 'import venv, ensurepip' 2>/dev/null || { echo "error: $(PYTHON) has no venv module. Install it (Debian, Ubuntu: apt install python3-venv) and run make again" >&2; exit 3; }
	@"$(PYTHON)" -m venv $(VENV)
	@touch $@

$(VENV)/.installed-report: pyproject.toml $(VENV)/.python
	@echo "Installing KernelMate into $(VENV) (about 360 MB of wheels the first time: the compiler, and llama.cpp for the model that comes with it) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[report,local]' || { echo "error: the installation failed; the lines above say why. Check the network and run make again" >&2; exit 3; }
	@touch $@

$(VENV)/.installed-dev: pyproject.toml training/pyproject.toml $(VENV)/.python
	@echo "Installing KernelMate and its test tools into $(VENV) (about 320 MB of compiler wheels the first time) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]' -e ./training || { echo "error: the installation failed; the lines above say why. Check the network and run make again" >&2; exit 3; }
	@touch $@ $(VENV)/.installed-report

# The CPU build of torch: from the configured package indexes, else from PyTorch's own.
$(VENV)/.installed-train: pyproject.toml training/pyproject.toml $(VENV)/.installed-dev
	@echo "Installing torch's CPU build (190 MB) and what training takes into $(VENV) (1.4 GB there, two to three minutes) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check 'torch==2.13.0+cpu' 2>/dev/null || $(BIN)/python -m pip install --quiet --disable-pip-version-check --index-url https://download.pytorch.org/whl/cpu 'torch>=2.6'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev,triton,numba]' -e './training[train]'
	@touch $@

$(VENV)/.installed-bench: pyproject.toml $(VENV)/.installed-dev
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev,bench]'
	@touch $@

demo: $(VENV)/.installed-report  ## the main job: two prompts on two kernels, with verdicts, diffs and charts
	@$(BIN)/python examples/demo.py

# The editor tests wait for changes on the screen, so they run last and alone.
EDITOR_TESTS := tests/extension/test_editor.py tests/extension/test_editor_moments.py tests/extension/test_editor_screens.py
# A random sample of the exhaustive and slow tests; pytest prints its seed. SHARES=0.6 is CI's, SHARES=1 runs all slow tests; SAMPLE=all runs all
# tests, which takes over an hour on two cores.
SAMPLE ?= random
SHARES ?= 0.15
# Seconds after which a test counts as hung: the longest one takes a third of that on an idle machine.
TEST_TIMEOUT ?= 300
PYTEST := $(BIN)/python -m pytest --timeout $(TEST_TIMEOUT)
test: $(VENV)/.installed-dev  ## every test that needs no GPU, and a sample of the exhaustive and slow ones; SAMPLE=all for all
ifeq ($(strip $(PYTEST_ARGS)),)
	@$(PYTEST) -n auto --dist worksteal --sample $(SAMPLE) --shares $(SHARES) $(addprefix --ignore=,$(EDITOR_TESTS))
	@$(MAKE) --no-print-directory editor-test
else
	@$(PYTEST) -n auto --dist worksteal $(PYTEST_ARGS)
endif

# Failed editor tests run once more, and both results are printed: an unsteady test passes, but is reported. Four failures mean that
# the editor does not work: the run then ends (status 2, by tests/extension/conftest.py) without a second try.
editor-test: $(VENV)/.installed-dev  ## those in a real VS Code alone; skipped where `make extension-test` has not installed it
	@$(PYTEST) $(EDITOR_TESTS) --maxfail 4 || { \
	  status=$$?; test $$status = 1 || exit $$status; \
	  echo; echo "==== FIRST RUN: tests in the editor failed, as above. What failed is run once more. ===="; echo; \
	  if $(PYTEST) $(EDITOR_TESTS) --last-failed --last-failed-no-failures none; then \
	    echo; echo "==== FIRST RUN failed, SECOND RUN passed: tests in the editor are not steady on this machine. The first run's failures are above. ===="; \
	  else \
	    echo; echo "==== FIRST RUN failed, SECOND RUN failed: tests in the editor. ===="; exit 1; \
	  fi; }

train-tools: $(VENV)/.installed-train  ## torch and what else training takes; `make test` then tests training too

gpu-test: $(VENV)/.installed-dev  ## the tests that need an NVIDIA GPU and CuPy
	@$(BIN)/python -m pytest -m gpu tests/gpu --ignore=tests/gpu/test_parity.py $(PYTEST_ARGS)
	@$(BIN)/python -m pytest -m gpu -n 8 tests/gpu/test_parity.py $(PYTEST_ARGS)

extension/node_modules/.installed: extension/package-lock.json
	@command -v npm >/dev/null || { echo "error: the extension is built with Node 20 or newer and npm, which are not installed. Install them and run make again" >&2; exit 3; }
	@cd extension && npm ci --silent --ignore-scripts
	@touch $@

extension: extension/node_modules/.installed  ## the VS Code extension as extension/kernelmate.vsix
	@cd extension && npm run --silent package
	@echo "Built extension/kernelmate.vsix. Install it: code --install-extension extension/kernelmate.vsix"

# code-server builds native modules: this takes some minutes, 800 MB, a C++ compiler and Kerberos' headers. Node's own
# headers come with the node package, so that node-gyp need not download them.
tests/extension/editor/node_modules/.installed: tests/extension/editor/package-lock.json
	@command -v chromium chromium-browser google-chrome >/dev/null || { echo "error: there is no Chromium. Install it (Debian, Ubuntu: apt install chromium) and run make again" >&2; exit 3; }
	@test -e /usr/include/gssapi/gssapi.h || { echo "error: Kerberos' headers are missing. Install them (Debian, Ubuntu: apt install libkrb5-dev) and run make again" >&2; exit 3; }
	@echo "Installing code-server for the tests into tests/extension/editor (some minutes the first time) ..."
	@cd tests/extension/editor/node && $(call npm_ci,Node)
	@cd tests/extension/editor && headers=$$(dirname "$$(find node/node_modules -path '*/include/node/node_api.h' 2>/dev/null | head -1)") && \
	  PATH="$$PWD/node/node_modules/node/bin:$$PATH" && export PATH && \
	  if test "$$headers" != .; then npm_config_nodedir="$$PWD/$${headers%/include/node}" && export npm_config_nodedir; fi && \
	  $(call npm_ci,code-server)
	@touch $@

# Shows npm's output if it fails; otherwise make would print only "Error 1".
npm_ci = { npm ci --loglevel error >install.log 2>&1 || { tail -n 40 install.log >&2; \
	  echo "error: npm could not install $(1) for the tests; the lines above, and $$PWD/install.log, say why. Check the network and the C++ compiler and run make again" >&2; exit 3; }; }

extension-test: $(VENV)/.installed-dev extension tests/extension/editor/node_modules/.installed  ## the extension in a real VS Code under Chromium
	@$(BIN)/python -m pytest tests/extension $(PYTEST_ARGS)

lint: $(VENV)/.installed-dev types imports  ## ruff, mypy, import-linter
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

format: $(VENV)/.installed-dev  ## let ruff lay the code out
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

types: $(VENV)/.installed-dev
	@$(BIN)/mypy

imports: $(VENV)/.installed-dev
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/lint-imports --no-cache tests/import_cycles.toml

bench: $(VENV)/.installed-bench  ## figures of docs/performance.md for start-up, check and the emulator
	@$(BIN)/python -m benchmarks

$(VENV)/.installed-docs: pyproject.toml training/pyproject.toml $(VENV)/.python
	@echo "Installing KernelMate and the generator of its documentation into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[docs]' -e ./training || { echo "error: the installation failed; the lines above say why. Check the network and run make again" >&2; exit 3; }
	@touch $@

# NO_MKDOCS_2_WARNING silences the theme's notice about its successor, Zensical, which is not a warning of the build.
docs: $(VENV)/.installed-docs  ## the documentation as a site in build/site; warnings are errors
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict
	@echo "Built build/site. Open build/site/index.html"

MERMAID := build/mermaid/node_modules/mermaid/dist/mermaid.min.js
$(MERMAID):
	@mkdir -p build/mermaid && cd build/mermaid && npm install --silent --no-save --ignore-scripts mermaid@11.17.2

diagrams: $(VENV)/.installed-dev $(MERMAID)  ## draw the diagrams of the documentation again (npm and Chromium)
	@PYTHONPATH=docs $(BIN)/python -m kernelmate_docs.diagrams $(MERMAID)

clean:  ## remove the virtual environment and what tools left
	@rm -rf $(VENV) build dist demo-out .mypy_cache .ruff_cache .pytest_cache .import_linter_cache *.egg-info
