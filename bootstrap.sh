#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Leads from a fresh clone to a first experiment. Installs missing packages (Debian 12, Ubuntu
# 24.04), configures, builds, and then runs a training, tests, makes packages, opens the notebooks
# or makes the site. A second call skips finished work.
set -euo pipefail

# Packages that the program needs. 'a|b' means that either package will do; a is installed if
# both are missing.
packages=(
  g++ cmake ninja-build
  libeigen3-dev libyaml-cpp-dev libcli11-dev libfmt-dev nlohmann-json3-dev zlib1g-dev
  "libcurl4-openssl-dev|libcurl4-gnutls-dev"
)
test_packages=(libgtest-dev libgmock-dev python3)  # and those that the tests need
notebook_packages=(python3 python3-venv python3-dev)
package_packages=(dpkg-dev file patchelf)

usage() {
  cat <<'TEXT'
usage: ./bootstrap.sh run|test|build|package|site [--yes] [--preset NAME]
       ./bootstrap.sh notebooks [NOTEBOOK] [--no-browser] [--fresh] [--yes] [--preset NAME]

  run        build the program, then train the network of experiments/configs/quickstart.yaml
  test       build the program and the tests, then run all tests
  build      build the program
  package    build the program, then pack it: build/release/packages/*.deb and *.tar.gz
  site       build the program, then the pages about it: build/site/pages/index.html
  notebooks  build the program, then open the course in JupyterLab (`convscope help notebook`)

  --yes           install missing Debian packages without asking
  --preset NAME   a preset of CMakePresets.json (default: release)
TEXT
}

say() { echo "bootstrap: $*" >&2; }
stop() {
  say "$*"
  exit 1
}

command=""
assume_yes=0
preset=release
notebook_arguments=()
while (($# > 0)); do
  case $1 in
    run | test | build | package | site | notebooks)
      if [[ -n $command ]]; then
        say "expected one of run, test, build, package, site and notebooks, got '$command' and '$1'"
        usage >&2
        exit 2
      fi
      command=$1
      ;;
    --yes | -y)
      assume_yes=1
      notebook_arguments+=(--yes)
      ;;
    --preset)
      if (($# < 2)); then
        say "expected a name after --preset"
        usage >&2
        exit 2
      fi
      preset=$2
      shift
      ;;
    --help | -h)
      usage
      exit 0
      ;;
    --no-browser | --fresh | [!-]*)
      if [[ $command != notebooks ]]; then
        say "unknown argument '$1'"
        usage >&2
        exit 2
      fi
      notebook_arguments+=("$1")
      ;;
    *)
      say "unknown argument '$1'"
      usage >&2
      exit 2
      ;;
  esac
  shift
done
if [[ -z $command ]]; then
  usage >&2
  exit 2
fi
cd "$(dirname "${BASH_SOURCE[0]}")"

is_installed() {
  local status
  status=$(dpkg-query -W -f='${db:Status-Abbrev}' "$1" 2>/dev/null) && [[ $status == ii* ]]
}

missing_packages() {
  local choices name found
  for choices in "${packages[@]}"; do
    found=0
    for name in ${choices//|/ }; do
      if is_installed "$name"; then found=1; fi
    done
    if ((!found)); then echo "${choices%%|*}"; fi
  done
}

install_packages() {
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    say "this is neither Debian nor Ubuntu: please install what these Debian packages hold:" \
      "${packages[*]}. Going on with what is there."
    return
  fi
  local missing=()
  mapfile -t missing < <(missing_packages)
  if ((${#missing[@]} == 0)); then return; fi

  local as_root=()
  if ((EUID != 0)); then as_root=(sudo); fi
  say "missing packages: ${missing[*]}"
  if ((EUID != 0)) && ! command -v sudo >/dev/null; then
    stop "installing them needs root, and sudo is not there; as root, run:" \
      "apt-get install ${missing[*]}"
  fi
  if ((assume_yes)); then
    say "installing them (--yes)"
  elif [[ ! -t 0 ]]; then
    say "installing them without asking, because there is no terminal to answer on"
  else
    local answer
    read -r -p "Install them now with apt-get? [Y/n] " answer
    if [[ $answer == [nN]* ]]; then stop "nothing was installed; expected these packages"; fi
  fi
  "${as_root[@]}" apt-get update -qq || say "the package lists could not be updated; trying as is"
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "${missing[@]}"
}

# Tells whether a driver is installed. Without a driver, the program never opens libconvscope_cuda.
has_gpu() { [[ -e ${CONVSCOPE_DRIVER_FILE:-/dev/nvidiactl} || -e /dev/dxg ]]; }

# build TESTS TARGET: configures the build with or without the tests, unless it is already configured
# so, and builds.
build() {
  local tests=$1 target=$2 cache=build/$preset/CMakeCache.txt configured=""
  # ninja notices later changes of CMake files. If build.ninja is missing, the first configuration
  # has failed.
  if [[ -f build/$preset/build.ninja && ! CMakePresets.json -nt $cache ]]; then
    configured=$(<"$cache")
  fi
  if [[ $configured != *CONVSCOPE_TESTS:BOOL=$tests* && $configured != *CONVSCOPE_TESTS:BOOL=ON* ]]
  then
    cmake --preset "$preset" -DCONVSCOPE_TESTS="$tests"
    touch "$cache"
  fi
  export CMAKE_BUILD_PARALLEL_LEVEL=${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}
  cmake --build --preset "$preset" --target "$target"
}

build_program() {
  if has_gpu; then build OFF program_with_cuda; else build OFF program; fi
}

run_tests() {
  local results=build/$preset/test_results status=0
  rm -f "$results"/*.json "$results"/ctest.xml
  ctest --preset "$preset" --output-junit "test_results/ctest.xml" || status=$?
  python3 tests/repo/count_results.py "build/$preset" || status=1
  return "$status"
}

# Without dpkg only the .tar.gz is made.
make_packages() {
  local kinds=TGZ
  if command -v dpkg-shlibdeps >/dev/null; then kinds="DEB;TGZ"; fi
  rm -rf "build/$preset/packages"
  (cd "build/$preset" && cpack -G "$kinds") >&2
  rm -rf "build/$preset/packages/_CPack_Packages"
  say "packed:"
  (cd "build/$preset/packages" && du -h --apparent-size -- *.deb *.tar.gz 2>/dev/null) || true
}

if [[ $command == test ]]; then packages+=("${test_packages[@]}"); fi
if [[ $command == notebooks ]]; then packages+=("${notebook_packages[@]}"); fi
if [[ $command == package ]]; then packages+=("${package_packages[@]}"); fi
# The site's pages contain the executed notebooks; mandoc converts the manual.
if [[ $command == site ]]; then packages+=("${notebook_packages[@]}" mandoc); fi
install_packages
case $command in
  build)
    build_program
    say "built: build/$preset/bin/convscope"
    ;;
  test)
    build ON all
    run_tests
    ;;
  run)
    build_program
    exec "build/$preset/bin/convscope" run experiments/configs/quickstart.yaml
    ;;
  package)
    build OFF program
    make_packages
    ;;
  site)
    build_program
    exec python3 framework/docs/site/make_site.py "build/$preset/bin/convscope"
    ;;
  notebooks)
    build_program
    exec "build/$preset/bin/convscope" notebook "${notebook_arguments[@]}"
    ;;
esac
