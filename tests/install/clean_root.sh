#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tests the installation on an empty system. The script makes a minimal Debian (mmdebstrap),
# installs Convscope in it by the named method, uses the program, and prints time and disk space. At
# the end it deletes the system. It needs a network for Debian's packages and, without root rights,
# the package uidmap (user namespaces).
set -euo pipefail
source=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")

usage() {
  cat <<'TEXT'
usage: tests/install/clean_root.sh WAY... [--packages DIR] [--suite NAME] [--mirror URL]

  deb             installs the .deb, uses it as another user, builds a C++ program with it
  tarball         unpacks the .tar.gz into a folder with a space, moves it, and does the same there
  bootstrap-run   ./bootstrap.sh run in a copy of the working tree
  bootstrap-test  ./bootstrap.sh test there (takes as long as the tests)
  docker          builds every stage of the Dockerfile on such a base, by buildah (as root)

  --packages DIR  where ./bootstrap.sh package wrote them (default: build/release/packages)
  --suite NAME    the release (default: bookworm, Debian 12; noble with a --mirror of Ubuntu's)
  --mirror URL    the mirror (default: that of the machine's apt)

Skipped with exit code 77 where mmdebstrap, or buildah for docker, is not installed.
TEXT
}
stop() {
  echo "clean root: $1" >&2
  exit "${2:-2}"
}

ways=() packages=$source/build/release/packages suite=bookworm mirror=()
while (($# > 0)); do
  case $1 in
    deb | tarball | bootstrap-run | bootstrap-test | docker) ways+=("$1") ;;
    --packages | --suite | --mirror)
      if (($# < 2)); then stop "expected a value after $1, got nothing"; fi
      case $1 in
        --packages) packages=$2 ;;
        --suite) suite=$2 ;;
        --mirror) mirror=("$2") ;;
      esac
      shift
      ;;
    --help | -h)
      usage
      exit 0
      ;;
    *)
      usage >&2
      stop "expected one of the ways and options above, got '$1'"
      ;;
  esac
  shift
done
if ((${#ways[@]} == 0)); then
  usage >&2
  stop "expected a way, got none"
fi
command -v mmdebstrap >/dev/null ||
  stop "skipped: mmdebstrap is not installed; on Debian and Ubuntu: apt-get install mmdebstrap" 77

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# one_file PATTERN: the package that matches.
one_file() {
  local found=("$packages"/$1)
  if ((${#found[@]} != 1)) || [[ ! -f ${found[0]} ]]; then
    stop "expected one file $1 in $packages, got '${found[*]}'; ./bootstrap.sh package makes it" 1
  fi
  echo "${found[0]}"
}

# source_files TO: the working tree as git knows it, including changes.
source_files() {
  git -C "$source" ls-files -z --cached --others --exclude-standard |
    (cd "$source" && xargs -0 sh -c 'for f; do [ -e "$f" ] && printf "%s\0" "$f"; done' _) |
    tar -C "$source" --null -T - -c | tar -x -C "$1"
}

# Everything that a method may use is in /given.
give() {
  local given=$work/tree/given package=""
  case $1 in
    deb) package=$(one_file 'convscope_*.deb') ;;
    tarball) package=$(one_file 'convscope-*.tar.gz') ;;
  esac
  rm -rf "$work/tree"
  mkdir -p "$given"
  cp "$source/tests/install/in_clean_root.sh" "$source"/framework/packages/*.sh "$given"
  cp -r "$source/tests/install/consumer" "$given"
  if [[ -n $package ]]; then
    cp "$package" "$given"
  else
    mkdir "$given/source"
    source_files "$given/source"
  fi
  tar -C "$work/tree" -cf "$work/given.tar" --owner=0 --group=0 given
}

components=main
if [[ $suite == noble ]]; then components+=,universe; fi
minimal() { mmdebstrap --quiet --variant=minbase --components=$components "$@"; }

docker_way() {
  command -v buildah >/dev/null ||
    stop "skipped: buildah is not installed; on Debian and Ubuntu: apt-get install buildah" 77
  # The storage driver vfs and the isolation chroot need no kernel features, so the script also
  # works inside a container.
  local call=(buildah --root "$work/images" --runroot "$work/run" --storage-driver vfs)
  minimal "$suite" "$work/base.tar" "${mirror[@]}"
  printf 'FROM scratch\nADD base.tar /\n' >"$work/Basefile"
  "${call[@]}" bud -q -f "$work/Basefile" -t convscope-base "$work" >/dev/null
  rm "$work/base.tar"
  mkdir "$work/context"
  source_files "$work/context"
  local build=(bud --isolation chroot --pull=never --layers
    --build-arg BASE=localhost/convscope-base
    --ignorefile "$source/framework/packages/Dockerfile.dockerignore"
    -f "$source/framework/packages/Dockerfile")
  "${call[@]}" "${build[@]}" --target check -t convscope-check "$work/context"
  "${call[@]}" "${build[@]}" -t convscope "$work/context"
  local facts='user {{.OCIv1.Config.User}}, volumes {{.OCIv1.Config.Volumes}}'
  "${call[@]}" inspect --type image --format "$facts, {{.OCIv1.Config.Entrypoint}}" convscope
  local container
  container=$("${call[@]}" from --pull=never localhost/convscope)
  "${call[@]}" run --isolation chroot "$container" -- convscope run quickstart
}

for way in "${ways[@]}"; do
  load=$(cut -d ' ' -f 1 /proc/loadavg)
  echo "clean root: $way, $suite; load of the machine $load on $(nproc) cores"
  if [[ $way == docker ]]; then
    docker_way
  else
    give "$way"
    minimal --format=null --customize-hook="tar-in $work/given.tar /" \
      --customize-hook="chroot \"\$1\" bash /given/in_clean_root.sh $way" "$suite" /dev/null \
      "${mirror[@]}"
  fi
  echo "clean root: $way works"
done
