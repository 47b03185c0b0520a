#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run.sh [SECONDS [TARGET...]]: builds the fuzzers in build/fuzz, and runs each for SECONDS (60),
# JOBS (2) at the same time. It prints one line per target. If a fuzzer finds an error, the exit
# code is 1 and the input is kept in build/fuzz/findings. CXX names the clang to use.
set -eu
seconds=${1:-60}
[ $# -gt 0 ] && shift
targets=${*:-idx cifar npy npz npz_cloud ply safetensors tar config sweep bench run_folder run_page sweep_folder shapes checkpoint quantised baseline plugin}
cd "$(dirname "$0")/../.."
build=build/fuzz
for name in ${CXX:-} clang++-16 clang++-17 clang++-18 clang++-19 clang++; do
  if command -v "$name" >/dev/null; then compiler=$name; break; fi
done
: "${compiler:?expected clang++ 16 or newer, got none}"
cmake --preset fuzz -DCMAKE_CXX_COMPILER="$compiler" >/dev/null
cmake --build $build --target fuzzers -- -j "${JOBS:-2}" >$build/fuzzers.log 2>&1 || {
  tail -n 40 $build/fuzzers.log; exit 1; }
$build/bin/write_seeds $build/seeds
# Some targets read folders: in memory (/dev/shm) where possible.
if [ -w /dev/shm ]; then export TMPDIR=/dev/shm; fi
# Runs one target. Its line is written to a file, so that all lines can be printed in the order of
# the list.
run_target() {
  target=$1
  mkdir -p $build/corpus/$target $build/findings
  log=$build/fuzz_$target.log
  # Inputs are small. So only a parser that allocates the size which a header claims exceeds the
  # memory limit.
  if $build/bin/fuzz_$target -max_total_time="$seconds" -rss_limit_mb=2048 -malloc_limit_mb=512 \
    -timeout=20 -max_len=16384 -print_final_stats=1 -artifact_prefix=$build/findings/$target- \
    $build/corpus/$target $build/seeds/$target >$log 2>&1; then
    verdict=clean
  else
    verdict="FINDING, see $log"
  fi
  runs=$(sed -n 's/^stat::number_of_executed_units: *//p' $log)
  printf '%-12s %4s s  %10s runs  %s\n' "$target" "$seconds" "${runs:-?}" "$verdict" >$log.line
}
status=0 running=0 waiting=
# The oldest target that still runs.
finish_one() {
  set -- $waiting
  wait "${1%%:*}" || true
  line=$build/fuzz_${1#*:}.log.line
  cat "$line"
  case $(cat "$line") in *" clean") ;; *) status=1 ;; esac
  shift
  waiting=$* running=$((running - 1))
}
for target in $targets; do
  rm -f $build/fuzz_$target.log.line
  run_target $target &
  waiting="$waiting $!:$target" running=$((running + 1))
  [ $running -lt "${JOBS:-2}" ] || finish_one
done
while [ $running -gt 0 ]; do finish_one; done
exit $status
