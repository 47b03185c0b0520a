#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# in_clean_root.sh WAY: the commands of clean_root.sh that run as root inside the minimal system.
# WAY is the method of installation.
set -euo pipefail
way=$1
export DEBIAN_FRONTEND=noninteractive HOME=/root
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
cd /

say() { echo "clean root: $way: $*"; }
now() { date +%s.%N; }
since() { awk -v begin="$1" -v end="$(now)" 'BEGIN { printf "%.1f", end - begin }'; }
# Prints the KiB of programs, libraries and users' files, without package lists and /given.
disk() { du -skc /usr /home | tail -n 1 | cut -f 1; }
grown() { awk -v from="$1" -v to="$(disk)" 'BEGIN { printf "%.0f", (to - from) / 1024 }'; }
# as_user COMMAND...: runs as a user who is not root.
as_user() { runuser -u convscope -- env HOME=/home/convscope FIRST_USE_BEGAN="$began" "$@"; }

# tools_for_cpp: installs the compiler and tools for a C++ program that uses the library.
tools_for_cpp() {
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends g++ cmake make >/dev/null 2>&1
}

before=$(disk)
began=$(now)
case $way in
  deb)
    bash /given/install_deb.sh /given/*.deb >/tmp/apt.log 2>&1 || { cat /tmp/apt.log; exit 1; }
    bash /given/add_user.sh /work
    say "installed in $(since "$began") s, $(grown "$before") MiB on the disk with its libraries"
    cd /work
    as_user bash /given/first_use.sh
    ldd /usr/bin/convscope | grep -F 'not found' && exit 1
    tools_for_cpp
    as_user bash /given/use_from_cpp.sh /given/consumer
    apt-get remove -y -qq convscope >/dev/null
    left=$(find /usr -name '*convscope*')
    if [[ -n $left ]]; then say "expected nothing after apt-get remove, got: $left"; exit 1; fi
    say "removed: nothing is left in /usr"
    ;;
  tarball)
    bash /given/add_user.sh "/home/convscope/a folder"
    cd "/home/convscope/a folder"
    as_user tar -xf /given/convscope-*.tar.gz
    as_user mv convscope-* "moved here"
    say "unpacked in $(since "$began") s, $(grown "$before") MiB on the disk"
    as_user mkdir work
    cd work
    as_user bash /given/first_use.sh "/home/convscope/a folder/moved here/bin/convscope"
    tools_for_cpp
    as_user bash /given/use_from_cpp.sh /given/consumer "/home/convscope/a folder/moved here"
    ;;
  bootstrap-run)
    cd /given/source
    ./bootstrap.sh run --yes >/tmp/out 2>/tmp/err || { tail -n 50 /tmp/err /tmp/out; exit 1; }
    took=$(since "$began")
    grep -E '^(done|epoch| +5/5)' /tmp/err
    cat /tmp/out
    grep -Eq '^\| [0-9T_-]+-s1 +\| quickstart ' /tmp/out
    cd /
    say "first table after $took s, $(grown "$before") MiB of packages and" \
      "$(du -sm /given/source | cut -f 1) MiB of source and build"
    ;;
  bootstrap-test)
    cd /given/source
    ./bootstrap.sh test --yes >/tmp/out 2>&1 ||
      { grep -E 'FAILED|\*\*\*Failed' /tmp/out; tail -n 50 /tmp/out; exit 1; }
    tail -n 1 /tmp/out
    say "tested after $(since "$began") s"
    ;;
esac
