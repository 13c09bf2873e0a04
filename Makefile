# Two commands do everything: `make train` and `make test`. Both set up .venv first.

PYTHON ?= python3
VENV := .venv
# Python keeps the bytecode that it compiles, whatever the environment says: tests start hundreds of processes.
export PYTHONDONTWRITEBYTECODE :=
EXTRAS ?= dev
comma := ,
STAMP := $(VENV)/.installed-$(subst $(comma),-,$(EXTRAS))

.PHONY: install lock train test test-fast test-cluster test-browser mutants bench figures check format fuzz wheel release docs clean

# LOCKED=1 takes every dependency as requirements.lock has it, held to its SHA-256. It knows the extra dev.
LOCKED ?=
PIP_INSTALL := $(VENV)/bin/pip install --quiet --disable-pip-version-check

install: $(STAMP)

# An editable install knows the modules that were there when it was made, so a new file (a newer folder) makes it anew.
FOLDERS := $(shell find src -type d ! -name __pycache__)

$(STAMP): pyproject.toml CMakeLists.txt $(wildcard native/*/*.cpp native/*/*.h) $(FOLDERS)
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Podium needs Python 3.11 or newer; set PYTHON=")'
	test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	$(if $(LOCKED),$(PIP_INSTALL) --require-hashes --requirement requirements.lock)
	$(PIP_INSTALL) $(if $(LOCKED),--no-deps) --editable '.[$(EXTRAS)]'
	$(VENV)/bin/python -m compileall -q src
	touch $(STAMP)

train: install
	$(VENV)/bin/podium train

# Two workers: more of them want more memory, and the simulated chips of each take several cores already.
WORKERS ?= 2
test: check
	$(VENV)/bin/python -m pytest -n $(WORKERS) --dist worksteal

# Under a minute: what starts no process, trains no run and compiles no whole step.
test-fast: install
	$(VENV)/bin/python -m pytest -n $(WORKERS) --dist worksteal -m 'not slow and not cluster and not browser'

# Mistakes made on purpose, and whether the tests notice (tests/mutants). The score of all of them goes to results/.
# A verdict is kept while code and tests stay as they are: MINUTES=5 judges some, and the next call the others.
ONLY ?=
MINUTES ?=
mutants: install
	$(VENV)/bin/python -m tests.mutants $(if $(ONLY),--only $(ONLY)) $(if $(MINUTES),--minutes $(MINUTES)) --out results/mutants/mutants.json

# A Slurm of four nodes and Open MPI's mpirun, on this machine. Without root the part that needs it is skipped, by name.
CLUSTER_PACKAGES := slurm-wlm munge openmpi-bin
test-cluster: install
	test $$(id -u) -ne 0 || dpkg -s $(CLUSTER_PACKAGES) >/dev/null 2>&1 || \
	  { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends $(CLUSTER_PACKAGES); }
	$(VENV)/bin/pip install --quiet --disable-pip-version-check --editable '.[cluster-test]'
	$(VENV)/bin/python -m pytest -m cluster tests/cluster -rs

# Pages in a real browser, light and dark, wide and narrow. Without root, Chromium must be there.
test-browser: install
	test $$(id -u) -ne 0 || dpkg -s chromium >/dev/null 2>&1 || \
	  { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends chromium; }
	$(VENV)/bin/python -m pytest -m browser tests/browser -rs

# One wheel for every Python, and the source archive that it was built from, in dist/.
RELEASE_TOOLS = $(VENV)/bin/pip install --quiet --disable-pip-version-check --editable '.[release]'
wheel: install
	$(RELEASE_TOOLS)
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" $(VENV)/bin/python -m release.wheel

# What goes out: checked, built, tried in an empty environment of every Python that is found, with the newest and the
# oldest dependencies that are allowed, with checksums and a bill of materials.
release: check wheel
	$(VENV)/bin/python -m release.try_wheel
	$(VENV)/bin/python -m release.try_wheel --lowest --python $(VENV)/bin/python
	$(VENV)/bin/python -m venv --clear build/bill && build/bill/bin/pip install --quiet dist/podium-*.whl
	$(VENV)/bin/cyclonedx-py environment --output-reproducible --output-file dist/podium.cdx.json build/bill
	cd dist && sha256sum podium-*.whl podium-*.tar.gz podium.cdx.json > SHA256SUMS

# Every benchmark in a short form → results/bench/DATE-MACHINE.json, and the page of all ratios. PARTS='step input'
# runs some of them.
PARTS ?=
bench: install
	$(VENV)/bin/python -c 'import torch, tensorflow, libtpu' 2>/dev/null || \
	  $(VENV)/bin/pip install --quiet --disable-pip-version-check --editable '.[bench,plan]'
	$(VENV)/bin/podium bench all $(PARTS)
	$(VENV)/bin/python -m docs.figures

# The figures of README and docs, from the newest results (docs/figures).
figures: install
	$(VENV)/bin/python -m docs.figures
	$(VENV)/bin/podium bench accuracy --page docs/accuracy.md

# The newest dependencies that pyproject.toml allows, with the hashes of all their files, for every Python and system.
lock: install
	$(RELEASE_TOOLS)
	$(VENV)/bin/uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 --upgrade --generate-hashes \
	  --no-emit-index-url --no-annotate --no-header --quiet --output-file requirements.lock

# The documentation as a site, in build/site. Any warning is an error.
docs: install
	$(VENV)/bin/python -c 'import furo, myst_parser' 2>/dev/null || \
	  $(VENV)/bin/pip install --quiet --disable-pip-version-check --editable '.[docs]'
	$(VENV)/bin/python docs/make_site.py build/site

# The checks stand beside each other: types take longer than all the others together.
CHECKS := check-types check-style check-imports check-native
.PHONY: $(CHECKS)
check: install
	@$(MAKE) --no-print-directory --jobs --output-sync $(CHECKS)
check-types:
	$(VENV)/bin/mypy
check-style:
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
check-imports:
	$(VENV)/bin/lint-imports
check-native:
	$(VENV)/bin/clang-format --dry-run -Werror native/*/*.cpp native/*/*.h

format: install
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .
	$(VENV)/bin/clang-format -i native/*/*.cpp native/*/*.h

# Mutated JPEGs and seek indexes through the decoder, against libjpeg, built with the address, undefined-behaviour and leak
# sanitizers. Mutants are shared out to all cores; `build/fuzz/fuzz K 1 1 build/fuzz/seeds/*` repeats mutant K.
FUZZ_MUTANTS ?= 100000
FUZZ_FILES ?=
FUZZ_FLAGS := -std=c++17 -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
fuzz: install
	mkdir -p build/fuzz && rm -f build/fuzz/*.o
	printf '%s\n' native/decode/*.cpp native/fuzz/*.cpp | xargs -P $$(nproc) -I FILE sh -c \
	  '$(CXX) $(FUZZ_FLAGS) -Inative/decode -c FILE -o build/fuzz/$$(basename FILE).o'
	$(CXX) $(FUZZ_FLAGS) build/fuzz/*.cpp.o -ljpeg -pthread -o build/fuzz/fuzz
	$(VENV)/bin/python native/fuzz/fuzz_seeds.py build/fuzz/seeds
	seq 0 1000 $$(($(FUZZ_MUTANTS) - 1)) | xargs -P $$(nproc) -I FIRST \
	  build/fuzz/fuzz FIRST 1000 1 build/fuzz/seeds/* $(FUZZ_FILES)

clean:
	rm -rf $(VENV) build .mypy_cache .ruff_cache .pytest_cache .hypothesis
