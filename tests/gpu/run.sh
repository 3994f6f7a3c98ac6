#!/usr/bin/env bash
# On a machine with an NVIDIA GPU: build with CUDA, run the tests marked `backend` there, and measure. Within 10 minutes
# on 16 cores. All that differs between machines is a variable:
#
#   DEVICE=CUDA0         the device; another one (Vulkan0, CPU) tries this script where there is no NVIDIA GPU
#   OUT=build/gpu        a folder for the environment, the build, logs and figures
#   CUDA_ARCHS=          compute capability, for example 90; by default that of the first GPU (nvidia-smi)
#   WHEELS=              a folder of wheels (`pip download '.[dev]'`), where there is no package index; NVIDIA's too
#                        (toolchains/cuda.py lists them) where no toolkit is installed
#   INSTALLED=           a Python that has causerie with that device and its test tools already: nothing is built
#   CAUSERIE_TOOLS_DIR=  llama.cpp's programs, where they are built already
#   JOBS=                jobs at a time while building; by default one for each core
set -euo pipefail
cd "$(dirname "$0")/../.."

DEVICE="${DEVICE:-CUDA0}"
OUT="${OUT:-build/gpu}"
JOBS="${JOBS:-$(nproc)}"
TOKENS="${TOKENS:-128}"
ROUNDS="${ROUNDS:-5}"
mkdir -p "$OUT"
export CMAKE_BUILD_PARALLEL_LEVEL="$JOBS"
[ -z "${WHEELS:-}" ] || export PIP_NO_INDEX=1 PIP_FIND_LINKS="$WHEELS"

say() { printf '== %s (%d s)\n' "$*" "$SECONDS"; }

# What the device is called: the card's own name.
card() {
    "$PY" -c 'import sys
from causerie.llama import devices
print(next(device.description for device in devices() if device.name == sys.argv[1]))' "$DEVICE"
}

options() {
    case "$DEVICE" in
        CUDA*)
            local archs="${CUDA_ARCHS:-$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d '. ')}"
            printf '%s\n' -DGGML_CUDA=ON -DGGML_CUDA_NO_VMM=ON -DGGML_CUDA_NCCL=OFF "-DCMAKE_CUDA_ARCHITECTURES=$archs"
            ;;
        Vulkan*) printf '%s\n' -DGGML_VULKAN=ON ;;
    esac
}

# An installed toolkit, or NVIDIA's wheels.
toolkit() {
    local root
    root="${CUDAToolkit_ROOT:-$(dirname "$(dirname "$(readlink -f "$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)")")")}"
    if ! [ -x "$root/bin/nvcc" ] || ! find -L "$root" -name libcublas.so | grep -q .; then
        root="$PWD/build/cuda/toolkit"
        "$OUT/venv/bin/python" toolchains/cuda.py "$root"
    fi
    export CUDAToolkit_ROOT="$root" CUDACXX="$root/bin/nvcc"
}

build() {
    local pip=("$OUT/venv/bin/python" -m pip --disable-pip-version-check install --quiet)
    [ -x "$OUT/venv/bin/python" ] || "${PYTHON:-python3}" -m venv "$OUT/venv"
    "${pip[@]}" "scikit-build-core>=0.11" "cffi>=1.17" "pycparser>=2.22" cmake ninja
    [[ "$DEVICE" != CUDA* ]] || toolkit
    local chosen
    chosen="$(options)"
    say "building with: ${chosen//$'\n'/ }"
    CMAKE_ARGS="${chosen//$'\n'/ } -DCAUSERIE_BUILD_TOOLS=ON" "${pip[@]}" --no-build-isolation \
        -C "build-dir=$OUT/cmake" ".[dev]" > "$OUT/build.log" 2>&1 || { tail -n 40 "$OUT/build.log"; return 1; }
    say "building llama.cpp's programs"
    "$OUT/venv/bin/cmake" --build "$OUT/cmake" --target llama-bench llama-completion test-llama-archs >> "$OUT/build.log" 2>&1
}

if [ -n "${INSTALLED:-}" ]; then
    PY="$INSTALLED"
else
    build
    PY="$PWD/$OUT/venv/bin/python"
    export CAUSERIE_TOOLS_DIR="$PWD/$OUT/cmake/bin"
fi

say "$(card)"
"$PY" -m causerie.cli doctor | tee "$OUT/doctor.txt"

say "tests marked backend on $DEVICE"
failed=0
CAUSERIE_TEST_DEVICE="$DEVICE" "$PY" -m pytest -q -m backend tests --durations=10 2>&1 | tee "$OUT/tests.txt" || failed=1

say "benchmark on $DEVICE"
"$PY" tests/gpu/measure.py "$DEVICE" --tokens "$TOKENS" --rounds "$ROUNDS" --out "$OUT/figures.json" | tee "$OUT/figures.txt"

say "done: $OUT/figures.txt, $OUT/tests.txt"
exit "$failed"
