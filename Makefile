PYTHON ?= python3
BIN := .venv/bin
.PHONY: demo test lint bench bench-core bench-forecaster bench-scale bench-short bench-speed bench-recipe bench-serve bench-peers prior paper clean

demo: .venv/installed
	$(BIN)/itocast demo

test: .venv/installed-test .venv/browser lint
	$(BIN)/pytest -n 2

lint: .venv/installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: bench-core bench-forecaster bench-scale bench-short bench-speed bench-recipe bench-peers

DATA ?= data

bench-core: .venv/installed
	$(BIN)/python benchmarks/solvers.py
	$(BIN)/python benchmarks/metro.py

bench-forecaster: .venv/installed
	$(BIN)/python benchmarks/practical.py --data-dir $(DATA)
	$(BIN)/python benchmarks/abstention.py --data-dir $(DATA)
	$(BIN)/python benchmarks/uci.py --data-dir $(DATA)/uci
	$(BIN)/python benchmarks/digits.py

bench-scale: .venv/installed-parquet .venv/installed-onnx
	$(BIN)/python benchmarks/scale.py
	$(BIN)/python benchmarks/latency.py

bench-speed: .venv/installed
	$(BIN)/python benchmarks/speed.py

bench-recipe: .venv/installed
	$(BIN)/python benchmarks/recipe.py --data-dir $(DATA)
	$(BIN)/python benchmarks/recipe.py --data-dir $(DATA) --table recipe-24
	$(BIN)/python benchmarks/recipe.py --data-dir $(DATA) --table recipe-several
	$(BIN)/python benchmarks/recipe.py --data-dir $(DATA) --table recipe-newest
	$(BIN)/python benchmarks/noise.py --data-dir $(DATA)

bench-serve: .venv/installed-serve
	$(BIN)/python benchmarks/serve.py

bench-peers: .venv/installed-bench
	$(BIN)/python benchmarks/peers.py --data-dir $(DATA)
	$(BIN)/python benchmarks/peers.py --page

bench-short: .venv/installed
	$(BIN)/python benchmarks/short.py tasks --data-dir $(DATA)
	$(BIN)/python benchmarks/short.py tasks --data-dir $(DATA) --model prior --missing
	$(BIN)/python benchmarks/short.py generators
	$(BIN)/python benchmarks/short.py months
	$(BIN)/python benchmarks/short.py ladder
	$(BIN)/python benchmarks/short.py zero-shot
	$(BIN)/python benchmarks/prior.py
	$(BIN)/python benchmarks/fine_tuning.py --data-dir $(DATA)

PRIOR ?= benchmarks/prior
HOURS ?= 4

prior: .venv/installed  # goes on from the checkpoint in the folder, if there is one
	$(BIN)/python -m itocast.prior.pretraining --folder $(PRIOR) --hours $(HOURS)
	$(BIN)/python -m itocast.prior.pretraining --folder $(PRIOR) --export 2000

paper: .venv/installed-dgp
	$(BIN)/itocast paper all --data-dir $(DATA)
	$(BIN)/itocast paper page --reading docs/results/reading.md

clean:
	rm -rf .venv build demo demo-quick model *-model paper paper-quick src/itocast.egg-info .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/installed: pyproject.toml constraints.txt | .venv/bin/python
	$(BIN)/pip install --quiet -c constraints.txt -e .
	touch $@

.venv/installed-%: .venv/installed  # an extra of pyproject.toml
	$(BIN)/pip install --quiet -c constraints.txt -e '.[$*]'
	touch $@

.venv/browser: | .venv/bin/python
	test -n "$$CHROMIUM" || command -v chromium >/dev/null || { apt-get update -qq && apt-get install -y -qq chromium >/dev/null; }
	touch $@
