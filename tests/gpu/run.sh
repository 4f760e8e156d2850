#!/usr/bin/env bash
# ./dev gpu [--compile]: the plug-in for NVIDIA devices on a machine that has nvcc and g++, and need
# not have meson, LLVM or a network. Builds the plug-in, its command tests and the bare loop;
# without --compile also runs them, under the sanitizers of CUDA too, and programs on several ranks
# of one device. The last line is the count; exit code 1: a step failed, 77: what is needed is not
# here.
#   SPMD_GPU_ROOT  the CUDA toolkit (where nvcc on PATH is, else /usr/local/cuda)
#   SPMD_GPU_ARCH  the compute capability to build for (that of the device here, else 90)
#   SPMDRUN        the runtime to run programs with (build/runtime/spmdrun)
# shellcheck disable=SC2317 # functions that `step` calls
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 2

made=build/gpu
passed=0 failed=0 skipped=0

# --- what is here
# -----------------------------------------------------------------------------------

unavailable() {
  printf 'skipped: %s\n0 passed, 0 failed, 1 skipped\n' "$*"
  exit 77
}
skip() {
  skipped=$((skipped + 1))
  printf '=== skipped: %s\n' "$*"
}
# folder_of NAME FOLDER...: the first folder that has it.
folder_of() {
  local name=$1 folder
  shift
  for folder in "$@"; do
    if compgen -G "$folder/$name" >/dev/null; then
      echo "$folder"
      return
    fi
  done
  return 1
}
# Packages of pip have a part of the toolkit each; they lie beside one another.
pip_packages() {
  python3 -c 'import nvidia; print(*nvidia.__path__, sep="\n")' 2>/dev/null | head -n 1
}

find_toolkit() {
  local nvcc pip
  root=${SPMD_GPU_ROOT:-}
  if [[ -z $root ]]; then
    nvcc=$(command -v nvcc) && root=$(dirname "$(dirname "$(readlink -f "$nvcc")")") ||
      root=/usr/local/cuda
  fi
  [[ -x $root/bin/nvcc ]] || unavailable "no nvcc, neither on PATH nor in $root/bin (SPMD_GPU_ROOT)"
  command -v g++ >/dev/null || unavailable "no g++"
  pip=$(pip_packages)
  local headers=("$root/include" /usr/include /usr/local/include)
  local libraries=("$root/lib64" "$root/lib" /usr/lib/x86_64-linux-gnu /usr/lib/aarch64-linux-gnu
    /usr/local/lib)
  if [[ -n $pip ]]; then
    headers+=("$pip"/{nccl,cu13,cublas}/include)
    libraries+=("$pip"/{nccl,cu13,cublas}/lib)
  fi
  includes=(-I.)
  library_files=()
  needed 'nccl.h' 'libnccl.so.2'
  needed 'cublasLt.h' 'libcublasLt.so.*'
  folder_of nvrtc.h "${headers[@]}" >/dev/null || unavailable "no nvrtc.h in ${headers[*]}"
  includes+=(-isystem "$root/include")
}
# needed HEADER LIBRARY, of the lists of find_toolkit
needed() {
  local header library
  header=$(folder_of "$1" "${headers[@]}") || unavailable "no $1 in ${headers[*]}"
  library=$(folder_of "$2" "${libraries[@]}") || unavailable "no $2 in ${libraries[*]}"
  # The compiler's own headers look for those of /usr/include behind them: it is not to be named
  # again.
  [[ $header == /usr/include ]] || includes+=(-isystem "$header")
  library_files+=("$(compgen -G "$library/$2" | head -n 1)")
  LD_LIBRARY_PATH=$library${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  export LD_LIBRARY_PATH
}
architecture() {
  [[ -z ${SPMD_GPU_ARCH:-} ]] || { echo "$SPMD_GPU_ARCH" && return; }
  nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null |
    head -n 1 | tr -d . | grep -E '^[0-9]+$' || echo 90
}

# --- steps
# ------------------------------------------------------------------------------------------

# step NAME COMMAND...: its output, and whether it passed.
step() {
  local name=$1 start=$SECONDS code=0
  shift
  printf '=== %s\n' "$name"
  "$@" || code=$?
  if ((code == 0)); then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    printf 'failed: %s, exit code %d after %d s\n' "$name" "$code" $((SECONDS - start))
  fi
  return "$code"
}
finish() {
  printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
  exit $((failed > 0))
}

# --- compile
# ----------------------------------------------------------------------------------------

# The lines of a list of sources, as meson reads them.
sources() { grep -vE '^(#|$)' "$1"; }

# Prints a line per object: the object, then the command.
compile_commands() {
  local source options
  while read -r source options; do
    case $source in
      *.cu)
        printf '%s %s\n' "$made/${source%.cu}.o" \
          "$root/bin/nvcc -std=c++17 -O3 $options -arch=sm_$arch \
-Xcompiler=-fPIC,-fvisibility=hidden,-Wall,-Wextra -I. -c runtime/nccl/$source"
        ;;
      *) printf '%s %s\n' "$made/${source%.cc}.o" \
        "$cxx -fPIC -fvisibility=hidden -c runtime/nccl/$source" ;;
    esac
  done < <(sources runtime/nccl/sources.txt)
  while read -r source options; do
    printf '%s %s\n' "$made/test_${source%.cc}.o" "$cxx $options -c tests/gpu/$source"
  done < <(sources tests/gpu/sources.txt)
}

compile_objects() {
  local object command
  compile_commands | while read -r object command; do
    printf '%s -o %s || { echo "cannot compile: %s"; exit 255; }\0' "$command" "$object" "$object"
  done | xargs -0 -n 1 -P "${SPMD_JOBS:-$(nproc)}" bash -c
}
link_plugin() {
  local objects=() source
  while read -r source _; do
    objects+=("$made/${source%.c[cu]}.o")
  done < <(sources runtime/nccl/sources.txt)
  "$root/bin/nvcc" -shared -cudart static -o "$made/spmd_nccl.so" "${objects[@]}" \
    -Xlinker --version-script=runtime/nccl/plugin.map "${library_files[@]/#/-Xlinker=}"
}
link_commands() {
  g++ -o "$made/commands" "$made"/test_*.o -ldl
}
compile_bare_loop() {
  "$root/bin/nvcc" -std=c++17 -O3 -arch="sm_$arch" "${includes[@]}" tests/gpu/bare_loop.cu \
    -o "$made/bare_loop" \
    "${library_files[@]/#/-Xlinker=}"
}

compile_all() {
  rm -rf "$made"
  mkdir -p "$made"
  arch=$(architecture)
  cxx="g++ -std=c++20 -O2 -Wall -Wextra -Wno-missing-field-initializers -fno-exceptions -fno-rtti"
  cxx+=" -Wa,-I. ${includes[*]}"
  printf 'nvcc of %s, sm_%s, %s\n' "$root" "$arch" "${library_files[*]}"
  step 'compile the plug-in and its tests' compile_objects || finish
  step 'link the plug-in' link_plugin || finish
  step 'link the tests' link_commands || finish
  step 'compile the bare loop' compile_bare_loop || finish
  step 'the plug-in loads, or says what is missing' \
    timeout 60 "$made/commands" --load "$made/spmd_nccl.so"
}

# --- run
# --------------------------------------------------------------------------------------------

run_commands() {
  step 'commands on the device' timeout 150 "$made/commands" "$made/spmd_nccl.so"
  step 'giving up' timeout 60 "$made/commands" "$made/spmd_nccl.so" stop
  step 'bare loop' timeout 90 "$made/bare_loop"
  step 'speed of commands' timeout 90 "$made/commands" --speed "$made/spmd_nccl.so"
}

run_sanitizers() {
  local tool
  for tool in memcheck racecheck; do
    if command -v compute-sanitizer >/dev/null; then
      # NCCL asks which of its kernels a device has, and is told of some that it has not.
      step "$tool" timeout 90 compute-sanitizer --error-exitcode 1 --report-api-errors no \
        --tool "$tool" \
        "$made/commands" "$made/spmd_nccl.so" 'nest: a'
    else
      skip "$tool: no compute-sanitizer on PATH"
    fi
  done
}

run_programs() {
  local spmdrun=${SPMDRUN:-build/runtime/spmdrun} program options call
  if [[ ! -x $spmdrun ]]; then
    skip "programs: there is no $spmdrun (SPMDRUN)"
    return
  fi
  export SPMD_PLUGIN_DIR=$PWD/$made
  call=(tests/gpu/ranks_on_one_gpu.sh)
  step 'one rank' timeout 60 "${call[@]}" 1 "$spmdrun" --backend=nccl tests/gpu/one_rank.spmd
  # The number in the name of a program is that of its ranks.
  for program in tests/cluster/{collectives2,rows4,axes8}.spmd; do
    for options in '' '--graphs --check=outputs --seeds=4' '--deterministic'; do
      run_program "${program//[^0-9]/}" "$program" "$options" || return
    done
  done
  run_program 2 tests/cases/run/added_products.spmd --check=all || return
  for program in examples/megatron_gpt/sp examples/torchtitan/llama3_fsdp_tp_sp; do
    run_program 4 "$program.spmd.json" '--scale-down --check=all' || return
  done
}
# run_program RANKS FILE OPTIONS: false if it did not end, so that others would not either.
run_program() {
  local code=0
  # shellcheck disable=SC2086
  step "$2 $3" timeout 40 "${call[@]}" "$1" "$spmdrun" --backend=nccl $3 "$2" || code=$?
  ((code == 124)) || return 0
  skip 'other programs on several ranks: the last one did not end'
  return 1
}

case ${1:-} in
  '' | --compile) ;;
  *)
    echo "gpu: unknown option: $1 (see ./dev --help)" >&2
    exit 2
    ;;
esac
find_toolkit
compile_all
if [[ ${1:-} != --compile ]]; then
  if nvidia-smi -L; then
    run_commands
    run_programs
    run_sanitizers
  else
    skip 'all that runs on a device: nvidia-smi lists none'
  fi
fi
finish
