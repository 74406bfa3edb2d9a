# The short way in. `make demo` and `make test` install what is missing, build and run.
#
#   make demo           builds fp8q, makes a small model folder, converts it there and back and checks it
#   make test           builds everything and runs all tests
#   make bench          measures the arithmetic, and whole conversions against cp; minutes
#   make install        installs what `make` built (DESTDIR, CMAKE_FLAGS=-DCMAKE_INSTALL_PREFIX=...)
#   make format         formats the C sources; make check-format only looks
#   make clean          removes everything that was built
#
# PRESET=debug|asan|tsan|no-cuda|clang picks another build (see CMakePresets.json).

PRESET ?= release
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
CMAKE_FLAGS ?=
CLANG_FORMAT ?= clang-format-14

build_dir := build/$(PRESET)
# This make's flags and level are no business of the one that CMake runs.
build := env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL cmake --build --preset $(PRESET) --parallel $(JOBS)
c_sources = find lib formats kernels cmd tests -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh'

.PHONY: all configure demo test bench install format check-format clean

all: configure
	@$(build) --target fp8q

configure:
	@scripts/install_deps.sh
	@mkdir -p build
	@cmake --preset $(PRESET) $(CMAKE_FLAGS) >build/configure.log || { cat build/configure.log; exit 1; }

demo: configure
	@echo "Building in $(build_dir) ..."
	@$(build) --target fp8q mkmodel >build/build.log 2>&1 || { cat build/build.log; exit 1; }
	@scripts/demo.sh $(build_dir)

test: configure
	@$(build)
	@ctest --preset $(PRESET) --parallel $(JOBS)

bench: configure
	@$(build) --target fp8q
	@$(build_dir)/fp8q bench
	@$(build_dir)/fp8q bench convert --size 2G
	@FP8Q=$(build_dir)/fp8q PYTHONPATH=tests python3 -B tests/bench/metadata.py

install: all
	@cmake --install $(build_dir)

format:
	@$(c_sources) | xargs $(CLANG_FORMAT) -i

check-format:
	@$(c_sources) | xargs $(CLANG_FORMAT) --dry-run -Werror

clean:
	rm -rf build demo
