#!/usr/bin/env bash
# bundle.sh BUILD ARCHIVE: spmdlint, spmdrun and its plug-ins from a build folder, with the
# libraries that they need, in one archive that runs where nothing of that is installed. NCCL,
# cuBLASLt, MPI and the driver come from the machine that it runs on, since they have to match it.
# Needs patchelf.
set -euo pipefail

build=$1 archive=$2
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
name=spmdrun
folder=$made/$name
mkdir -p "$folder"/{bin,lib,compiler}

# What the machine provides: the libraries of its compiler, unless they are older than ours, and
# what belongs to devices and launchers. A plug-in that is built on the machine needs those of its
# compiler.
of_compiler='^(ld-linux.*|lib(c|m|dl|rt|pthread|resolv|util|mvec|anl|stdc\+\+|gcc_s))\.so'
is_of_compiler() { [[ $1 =~ $of_compiler ]]; }
is_of_machine() { [[ $1 =~ ^lib(nccl|cublas|cublasLt|cuda|mpi|open-pal|open-rte|nvidia)[.-] ]]; }

# Prints the libraries of a binary, each with its path.
libraries_of() {
  ldd "$1" | sed -n -E 's/^\s*(\S+) => (\/\S+) .*/\1 \2/p; s/^\s*(\/\S+) \(.*/\1 \1/p'
}

add_libraries() {
  local library path
  while read -r library path; do
    library=${library##*/}
    if is_of_compiler "$library"; then
      cp -Lf "$path" "$folder/compiler/$library"
    elif ! is_of_machine "$library"; then
      [[ -e $folder/lib/$library ]] ||
        { cp -L "$path" "$folder/lib/$library" && add_libraries "$path"; }
    fi
  done < <(libraries_of "$1")
}

for binary in checker/spmdlint runtime/spmdrun runtime/spmd_mpi.so runtime/spmd_nccl.so; do
  [[ -e $build/$binary ]] || continue
  cp "$build/$binary" "$folder/bin/"
  [[ $binary == */spmd_mpi.so ]] || add_libraries "$build/$binary"
done
[[ -x $folder/bin/spmdrun ]] || { echo "bundle: there is no $build/runtime/spmdrun" >&2 && exit 2; }
strip "$folder"/bin/*
# set_folder FILE FOLDER: where its libraries are. In two steps, since patchelf writes over a path
# that is there, even where the linker lets a symbol share its letters.
set_folder() {
  patchelf --remove-rpath "$1"
  patchelf --set-rpath "$2" "$1"
}
for file in "$folder"/bin/*; do
  set_folder "$file" '$ORIGIN/../lib'
done
for file in "$folder"/lib/*; do
  set_folder "$file" '$ORIGIN'
done

# With the C and C++ libraries of the machine; with those of the bundle where the machine has none,
# or older ones than the binaries were linked with. The program that the system runs is the loader
# then, so where the binaries lie is given by variables.
for binary in spmdlint spmdrun; do
  cat >"$folder/$binary" <<'SCRIPT'
#!/bin/sh
here=$(cd "$(dirname "$(readlink -f "$0")")" && pwd)
binary=$here/bin/${0##*/}
if "$binary" --version >/dev/null 2>&1; then
  exec "$binary" "$@"
fi
export SPMD_PLUGIN_DIR="${SPMD_PLUGIN_DIR:-$here/bin}" SPMD_EXECUTABLE="$here/${0##*/}"
exec "$here"/compiler/ld-linux-* --library-path "$here/compiler:$here/lib:$LD_LIBRARY_PATH" \
  "$binary" "$@"
SCRIPT
  chmod +x "$folder/$binary"
done

# Every symbol is found, with the libraries of this machine and with those of the bundle.
loader=$(echo "$folder"/compiler/ld-linux-*)
for call in "$folder/bin/spmdrun" \
  "$loader --library-path $folder/compiler:$folder/lib $folder/bin/spmdrun"; do
  # shellcheck disable=SC2086
  LD_BIND_NOW=1 $call --version >/dev/null
done

tar -C "$made" --sort=name --owner=0 --group=0 --numeric-owner -czf "$archive" "$name"
printf '%s: %d bytes\n' "$archive" "$(stat -c %s "$archive")"
