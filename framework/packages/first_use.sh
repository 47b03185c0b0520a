#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# first_use.sh [PROGRAM]: runs the commands that a new user would run. They train, show the table and the figures,
# convolve files, and find configs, shapes, notebooks, headers, completions and the manual. Works in the current
# folder. Exits with 1 and a sentence at the first failure.
set -euo pipefail
program=${1:-convscope}
checks=0
fail() {
  echo "first use: $*" >&2
  exit 1
}
# expect NAME PATTERN TEXT
expect() {
  grep -Eq -- "$2" <<<"$3" || fail "$1: expected '$2', got: $3"
  checks=$((checks + 1))
}
expect_file() {
  [[ -s $1 ]] || fail "expected the file $1"
  checks=$((checks + 1))
}
path=$(command -v "$program") || fail "expected a program, got '$program', which is not there"
prefix=$(dirname "$(dirname "$(realpath "$path")")")

expect version '^convscope [0-9]+\.[0-9]+\.[0-9]+$' "$("$program" --version)"

begin=${FIRST_USE_BEGAN:-$(date +%s.%N)}
table=$("$program" run quickstart 2>run.log) || fail "run quickstart: $(cat run.log)"
took=$(awk -v begin="$begin" -v end="$(date +%s.%N)" 'BEGIN { printf "%.1f", end - begin }')
expect run '^\| [0-9T_-]+-s1 +\| quickstart ' "$table"
echo "$table"
echo "first use: first table after $took s"
expect report '^\| [0-9T_-]+-s1 +\| quickstart ' "$("$program" report runs/)"
figures=$("$program" plot runs/quickstart 2>plot.log)
expect plot '/curves\.svg$' "$figures"
expect plot '/report\.html$' "$figures"
while read -r file; do expect_file "$file"; done <<<"$figures"

# npy NAME SHAPE: writes a .npy file with an f32 array of ones.
npy() {
  local head="{'descr': '<f4', 'fortran_order': False, 'shape': ($2), }" count=$((${2//,/*}))
  printf '\223NUMPY\001\000\166\000%-117s\n' "$head" >"$1"
  while ((count-- > 0)); do printf '\000\000\200\077'; done >>"$1"
}
npy x.npy 1,3,9,9
npy w.npy 4,3,3,3
"$program" op conv2d --x x.npy --w w.npy --padding 1 --out-y y.npy 2>op.log ||
  fail "op: $(cat op.log)"
# All elements are 1, so y is the number of products: 3 channels times 4 taps that are inside the
# image at a corner (12), or times 6 taps at an edge (18).
expect op '^ +12 +18 +18 ' "$(od -A n -t f4 -j 128 -N 16 y.npy)"

expect 'bench by the name of its shapes' ' direct ' "$("$program" bench conv2d --shapes lenet \
  --algorithm direct --direction forward --threads 1 --min-time 0.001 --rounds 1 2>bench.log)"
expect 'config list' '^mnist_lenet5_baseline ' "$("$program" config list)"
expect 'notebook --list' '^01_what_a_convolution_is$' "$("$program" notebook --list)"
include=$("$program" notebook --paths | sed -n 's/^CPLUS_INCLUDE_PATH=//p')
expect_file "${include%%:*}/convscope/notebook.h"
expect_file "${include##*:}/framework/tensor.h"
expect completion 'completion words' "$("$program" completion bash)"
expect_file "$prefix/share/bash-completion/completions/convscope"
expect_file "$prefix/share/zsh/site-functions/_convscope"
expect_file "$prefix/share/fish/vendor_completions.d/convscope.fish"
page=$(ls "$prefix"/share/man/man1/convscope.1*)
expect 'manual page' '^\.TH CONVSCOPE 1 ' "$(gzip -cdf "$page")"

# An error must print a sentence and exit with the code of its kind.
status=0
"$program" run nosuchconfig 2>wrong.log || status=$?
((status == 3)) || fail "run nosuchconfig: expected exit code 3, got $status: $(cat wrong.log)"
status=0
"$program" data fetch mnist --mirror http://127.0.0.1:9 2>fetch.log || status=$?
case $status in
  4) ;;
  5)
    expect 'data fetch without libcurl' 'expected libcurl, .*apt-get install libcurl4' \
      "$(cat fetch.log)"
    ;;
  *) fail "data fetch, closed port: expected exit code 4, or 5 without libcurl, got $status" ;;
esac
found="opens libcurl"
if ((status == 5)); then found="says that libcurl is missing"; fi
echo "first use: $checks checks hold; data fetch $found"
