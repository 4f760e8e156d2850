#!/usr/bin/env bash
# deb.sh WHEEL FOLDER: a package for Debian and Ubuntu with what the wheel holds: the programs, the
# recorders, manual pages, completions, notices. It needs the C library that the tag of the wheel
# names, and Python for the recorders.
set -euo pipefail

wheel=$(realpath "$1") out=$(realpath -m "$2")
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
mkdir -p "$made"/{wheel,tree/usr/bin,tree/usr/lib/python3/dist-packages,tree/DEBIAN} "$out"
python3 -m zipfile -e "$wheel" "$made/wheel"

name=$(basename "$wheel" .whl)
IFS=- read -r package version _ <<<"$name"
[[ $name =~ manylinux_([0-9]+)_([0-9]+)_ ]] ||
  { echo "deb: $name has no manylinux tag: what does it need?" >&2 && exit 2; }
libc=${BASH_REMATCH[1]}.${BASH_REMATCH[2]}
metadata=$made/wheel/$package-$version.dist-info
python=$(sed -n 's/^Requires-Python: *>= *//p' "$metadata/METADATA")
summary=$(sed -n 's/^Summary: *//p' "$metadata/METADATA")

cd "$made/wheel/$package-$version.data"
install -m 755 scripts/* "$made/tree/usr/bin"
cp -r data/share "$made/tree/usr"
cp -r purelib/* "$made/tree/usr/lib/python3/dist-packages"
# The commands that pip makes of entry points.
sed -n '/^\[console_scripts\]/,/^$/s/^\([^ =]*\) *= *\([^:]*\):\(.*\)$/\1 \2 \3/p' \
  "$metadata/entry_points.txt" |
  while read -r command module function; do
    printf '#!/usr/bin/python3\nimport sys\n\nfrom %s import %s\n\nsys.exit(%s())\n' \
      "$module" "$function" "$function" \
      >"$made/tree/usr/bin/$command"
    chmod 755 "$made/tree/usr/bin/$command"
  done
find "$made/tree/usr/share/man" -type f -exec gzip -9n {} +
find "$made/tree" -type d -exec chmod 755 {} +

cat >"$made/tree/DEBIAN/control" <<CONTROL
Package: $package
Version: $version
Architecture: $(dpkg --print-architecture)
Maintainer: the authors of $package
Section: devel
Priority: optional
Depends: libc6 (>= $libc)
Recommends: python3 (>= $python)
Installed-Size: $(du -sk "$made/tree/usr" | cut -f 1)
Description: $summary
CONTROL
archive=$out/${package}_${version}_$(dpkg --print-architecture).deb
SOURCE_DATE_EPOCH=$(stat -c %Y "$wheel") dpkg-deb --build --root-owner-group "$made/tree" \
  "$archive" >/dev/null
printf '%s\n' "$archive"
