# The plug-in for NVIDIA devices as it was built: it loads without a driver and says what is
# missing, and shows one name. Call: module.py COMMANDS [MODULE]; without MODULE it could not be
# built, which is a skipped test.
import shutil
import subprocess
import sys

SKIPPED = 77
EXPORTED = "spmd_device_plugin"


def exported(module):
    symbols = subprocess.run(
        ["nm", "-D", "--defined-only", module], capture_output=True, text=True, check=True
    ).stdout
    return sorted(line.split()[-1].split("@")[0] for line in symbols.splitlines())


def linked(module):
    lines = subprocess.run(
        ["readelf", "-d", module], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    return [line.split("[")[1].rstrip("]") for line in lines if "(NEEDED)" in line]


def main(commands, module=""):
    if not module:
        print("skipped: built without nvcc, cuBLASLt or NCCL (meson says which is missing)")
        return SKIPPED
    passed = failed = 0
    loaded = subprocess.run(
        [commands, "--load", module], capture_output=True, text=True, check=False
    )
    checks = [
        (
            "loads, and opens a device or says what is missing",
            loaded.returncode == 0,
            loaded.stdout + loaded.stderr,
        )
    ]
    if shutil.which("nm") and shutil.which("readelf"):
        names, libraries = exported(module), linked(module)
        checks += [
            ("shows one name", names == [EXPORTED], ", ".join(names)),
            (
                "does not link the driver",
                not any("libcuda.so" in name for name in libraries),
                ", ".join(libraries),
            ),
        ]
    for what, holds, text in checks:
        passed += holds
        failed += not holds
        print(f"{what}: {text.strip() if holds else 'FAILED: ' + text.strip()}")
    print(f"{passed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
