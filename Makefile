# On a machine that has only Python and make: `make demo` runs the main job, `make test` the tests.
PYTHON ?= python3
VENV ?= .venv
RUN = $(VENV)/bin/python
EXTRAS = test,report

.PHONY: demo test test-all lint bench env clean

env: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --disable-pip-version-check -e ".[$(EXTRAS)]"
	touch $@

$(VENV)/.demo: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --disable-pip-version-check -e ".[report]"
	touch $@

demo: $(VENV)/.demo
	$(RUN) examples/demo.py

test: env
	$(RUN) -m pytest -n auto -m "not large" --durations=15

test-all: env
	$(RUN) -m pytest -n auto -p tests.resume

lint: env
	$(RUN) -m pip install --quiet --disable-pip-version-check -e ".[lint]"
	$(RUN) -m ruff check .
	$(RUN) -m mypy

bench: env
	mkdir -p out/bench
	for suite in gemm ansor resnet50 mobilenet elementwise bert gpt2; do for threads in 1 2; do \
		$(RUN) -m benchmarks $$suite --threads $$threads --json out/bench/$$suite-$$threads.json || exit 1; \
	done; done
	$(RUN) -m benchmarks math --peers numpy,torch --json out/bench/math-1.json
	$(RUN) -m benchmarks lowprecision --peers torch --json out/bench/lowprecision-1.json
	$(RUN) -m benchmarks memory --json out/bench/memory.json
	$(RUN) -m benchmarks constants --json out/bench/constants-1.json
	$(RUN) -m benchmarks winograd --json out/bench/winograd-1.json
	$(RUN) -m benchmarks latency --json out/bench/latency.json
	$(RUN) -m benchmarks.tables out/bench > benchmarks/RESULTS.md

clean:
	rm -rf $(VENV) build dist out *.egg-info
