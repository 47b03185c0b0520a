#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that the packages made by ./bootstrap.sh package are complete, relocatable, and declare
their dependencies: check_packages.py FOLDER

Inspects the .deb and the .tar.gz, unpacks each into a folder whose name has a space, and starts the
program there. tests/install/clean_root.sh installs and uses the packages in a minimal system.
"""

import hashlib
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

NEEDED_FILES = [
    "bin/convscope",
    "lib/libconvscope.so",
    "lib/libconvscope.so.0",
    "lib/cmake/convscope/convscopeConfig.cmake",
    "include/convscope/notebook.h",
    "include/convscope/framework/tensor.h",
    "include/convscope/layers/plugin/plugin.h",
    "share/convscope/configs/quickstart.yaml",
    "share/convscope/shapes/edge_cases.txt",
    "share/convscope/notebooks/set_up.py",
    "share/convscope/notebooks/01_what_a_convolution_is.ipynb",
    "share/bash-completion/completions/convscope",
    "share/zsh/site-functions/_convscope",
    "share/fish/vendor_completions.d/convscope.fish",
    "share/doc/convscope/README.md",
    "share/doc/convscope/licences/libeigen3-dev.txt",
    "share/doc/convscope/licences/libcli11-dev.txt",
    "share/doc/convscope/licences/nlohmann-json3-dev.txt",
]
NEEDED_IN = {
    "deb": ["share/man/man1/convscope.1.gz", "share/doc/convscope/copyright"],
    "tar": ["share/man/man1/convscope.1", "share/doc/convscope/LICENSE"],
}
# Packages that a minimal Debian or Ubuntu already has.
OF_THE_SYSTEM = re.compile(
    r"^(ld-linux-x86-64|ld-linux-aarch64|lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s|z))\.so"
)


def runpath_problems(name, listing):
    """Returns the RUNPATH entries (output of `readelf -d`) that do not begin with $ORIGIN, the
    folder of the file."""
    return [
        f"{name}: RUNPATH [{path}] has '{entry}', which does not begin with $ORIGIN"
        for path in re.findall(r"Library (?:runpath|rpath): \[(.*)\]", listing)
        for entry in path.split(":")
        if not re.match(r"\$ORIGIN(/|$)", entry)
    ]


def needed_problems(listings):
    """Returns libraries that neither the .tar.gz nor a minimal system contains."""
    brought = {pathlib.PurePosixPath(name).name for name in listings}
    return [
        f"{name}: needs {one}, which is neither in the package nor part of every system"
        for name, listing in listings.items()
        for one in re.findall(r"\(NEEDED\).*\[(.*)\]", listing)
        if one not in brought and not OF_THE_SYSTEM.match(one)
    ]


def file_problems(names, kind):
    return [
        f"expected the file {name}" for name in NEEDED_FILES + NEEDED_IN[kind] if name not in names
    ]


def depends_problems(control, listings):
    """Checks that the declared dependencies cover every needed library that the package does not
    include."""
    depends = re.search(r"(?m)^Depends: (.*)$", control)
    found = [] if depends else ["expected Depends, computed from the libraries"]
    asked = depends[1] if depends else ""
    for word in ("libc6", "libstdc++6", "libgomp1", "libfmt", "libyaml-cpp", "zlib1g", "libcurl4"):
        if word not in asked:
            found.append(f"Depends: expected {word}, got {asked}")
    brought = {pathlib.PurePosixPath(name).name for name in listings}
    if any(name.startswith(("libfmt", "libgomp")) for name in brought):
        found.append("expected the libraries of the system, got copies of them")
    return found


def readelf(path):
    return subprocess.run(
        ["readelf", "-dW", str(path)], capture_output=True, text=True, check=True
    ).stdout


def elf_files(root):
    return {
        path.relative_to(root).as_posix(): readelf(path)
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.read_bytes()[:4] == b"\x7fELF"
    }


def symlink_names(root):
    return {path.relative_to(root).as_posix() for path in root.rglob("*")}


def text_problems(root, build):
    """No text file contains a path of the build folder."""
    return [
        f"{path.relative_to(root)}: names the build folder {build}"
        for path in sorted(root.rglob("*"))
        if path.suffix in (".cmake", ".h", ".1", ".fish", ".py")
        and path.is_file()
        and str(build) in path.read_text(errors="replace")
    ]


def run_problems(root, folder, version):
    """Calls the program of the unpacked tree from another folder."""
    found = []

    def call(expected, *words):
        done = subprocess.run(
            [str(root / "bin/convscope"), *words],
            cwd=folder,
            capture_output=True,
            text=True,
            env={"PATH": "/usr/bin:/bin", "HOME": str(folder), "CONVSCOPE_MEASURE": "off"},
        )
        if done.returncode != 0 or not re.search(expected, done.stdout):
            found.append(
                f"convscope {' '.join(words)}: expected '{expected}', got exit code "
                f"{done.returncode}: {(done.stdout + done.stderr)[:300]}"
            )

    here = re.escape(str(root))
    call(rf"^convscope {re.escape(version)}$", "--version")
    call(rf"# {here}/share/convscope/configs/quickstart\.yaml:", "config", "show", "quickstart")
    call(rf"CPLUS_INCLUDE_PATH={here}/include:{here}/include/convscope\n", "notebook", "--paths")
    call(r"(?m)^01_what_a_convolution_is$", "notebook", "--list")
    call(
        r" direct ",
        "bench",
        "conv2d",
        "--shapes",
        "lenet",
        "--algorithm",
        "direct",
        "--direction",
        "forward",
        "--threads",
        "1",
        "--min-time",
        "0.001",
        "--rounds",
        "1",
    )
    return found


def newest_glibc(root):
    """Returns the newest version of the C library that any symbol requires."""
    found = {(0,)}
    for name in elf_files(root):
        text = subprocess.run(
            ["readelf", "-VW", str(root / name)], capture_output=True, text=True
        ).stdout
        found |= {tuple(map(int, one.split("."))) for one in re.findall(r"GLIBC_([\d.]+)", text)}
    return ".".join(map(str, max(found)))


def common_problems(root, kind, build, version, folder):
    listings = elf_files(root)
    found = file_problems(symlink_names(root), kind)
    for name, listing in listings.items():
        found += runpath_problems(name, listing)
    return found + text_problems(root, build) + run_problems(root, folder, version), listings


def deb_problems(path, folder, build):
    root = folder / "of the deb"
    subprocess.run(["dpkg-deb", "-x", str(path), str(root)], check=True)
    control = subprocess.run(
        ["dpkg-deb", "-f", str(path)], capture_output=True, text=True, check=True
    ).stdout
    version = re.search(r"(?m)^Version: ([\d.]+)-", control)[1]
    found, listings = common_problems(root / "usr", "deb", build, version, folder)
    outside = [one.name for one in root.iterdir() if one.name != "usr"]
    if outside:
        found.append(f"expected files below /usr alone, got {outside}")
    return found + depends_problems(control, listings)


def tar_problems(path, folder, build):
    with tarfile.open(path) as archive:
        tops = {name.split("/")[0] for name in archive.getnames()}
        if len(tops) != 1 or any(name.startswith(("/", "..")) for name in archive.getnames()):
            return [f"expected one folder in the archive, got {sorted(tops)[:5]}"]
        (
            archive.extractall(folder / "first", filter="tar")
            if hasattr(tarfile, "tar_filter")
            else archive.extractall(folder / "first")
        )
    root = folder / "moved to here"
    shutil.move(folder / "first" / tops.pop(), root)
    version = re.search(r"convscope-([\d.]+)-", path.name)[1]
    found, listings = common_problems(root, "tar", build, version, folder)
    print(f"{path.name}: asks for glibc {newest_glibc(root)} or newer")
    return found + needed_problems(listings)


def sum_problems(path):
    kept = path.with_name(path.name + ".sha256")
    if not kept.is_file():
        return [f"expected {kept.name} beside it"]
    return (
        []
        if hashlib.sha256(path.read_bytes()).hexdigest() in kept.read_text()
        else [f"{kept.name}: expected the SHA-256 of the file"]
    )


def main():
    folder = pathlib.Path(sys.argv[1]).resolve()
    passed = failed = skipped = 0
    for pattern, problems in (
        ("convscope_*.deb", deb_problems),
        ("convscope-*.tar.gz", tar_problems),
    ):
        paths = sorted(folder.glob(pattern))
        if not paths and pattern.endswith("deb") and not shutil.which("dpkg-deb"):
            print("skipped: no .deb, because dpkg is not here")
            skipped += 1
            continue
        if len(paths) != 1:
            print(
                f"expected one {pattern} in {folder}, got {len(paths)}; ./bootstrap.sh package "
                "makes it"
            )
            failed += 1
            continue
        with tempfile.TemporaryDirectory(prefix="a folder ") as name:
            found = sum_problems(paths[0]) + problems(paths[0], pathlib.Path(name), folder.parent)
        for one in found:
            print(f"{paths[0].name}: {one}")
        failed += bool(found)
        passed += not found
        print(f"{paths[0].name}: {paths[0].stat().st_size / 2**20:.1f} MiB, {len(found)} problems")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
