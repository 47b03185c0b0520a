# SPDX-License-Identifier: Apache-2.0
# Functions that .ci/run and .ci/nightly share: stages with a log and counts, and the time limit. Both scripts source
# this file from the root of the repository. The stages' commands are in jobs.sh.
logs=build/ci-logs
mkdir -p "$logs"
export CMAKE_BUILD_PARALLEL_LEVEL=${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}
export JOBS=$CMAKE_BUILD_PARALLEL_LEVEL # tests/fuzz/run.sh
export PYTHONDONTWRITEBYTECODE=1
passed=0 failed=0 skipped=0

# note STATUS SECONDS NAME REMARK
note() { printf 'ci: %-10s %4d s  %-12s %s\n' "$1" "$2" "$3" "$4"; }

skip() { # NAME REASON
  skipped=$((skipped + 1))
  note skipped 0 "$1" "$2"
}

# count_of LOG: reads the counts of a stage whose last line is '... passed, ... failed, ... skipped'.
count_of() { # sets `counts`
  counts=$(tail -n 1 "$1")
  [[ $counts =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed,\ ([0-9]+)\ skipped$ ]] || counts=""
}

# stage NAME COMMAND...: runs a stage. Its output goes to a log, which is printed when the stage fails. The counts are
# read from the last line of the log; without such a line, the stage counts as one case.
stage() {
  local name=$1 log=$logs/$1.log start=$SECONDS status=0 counts
  shift
  "$@" >"$log" 2>&1 </dev/null || status=$?
  count_of "$log"
  if [[ -n $counts ]]; then
    passed=$((passed + BASH_REMATCH[1]))
    failed=$((failed + BASH_REMATCH[2]))
    skipped=$((skipped + BASH_REMATCH[3]))
    # No counted case has failed, but the command has.
    if ((status != 0 && BASH_REMATCH[2] == 0)); then failed=$((failed + 1)); fi
  elif ((status == 0)); then passed=$((passed + 1)); else failed=$((failed + 1)); fi
  if [[ $counts == "0 passed, 0 failed, "* ]]; then
    note skipped $((SECONDS - start)) "$name" "$(tail -n 2 "$log" | head -n 1)"
  elif ((status == 0)); then
    note passed $((SECONDS - start)) "$name" "$counts"
  else
    note FAILED $((SECONDS - start)) "$name" "$counts (exit status $status, whole log: $log)"
    tail -n 60 "$log"
  fi
}

# The time limit exists because a slow machine must not reject a good change. `long_stage` replaces `stage` for optional
# stages. Such a stage does not begin after `begin_until` seconds, and is stopped after `end_at` seconds. In both cases
# it counts as skipped, and a line is printed. A test that failed before the stop still counts as failed.
begin_until=${CONVSCOPE_CI_BEGIN_UNTIL:-3600}
end_at=${CONVSCOPE_CI_END_AT:-4500}
long_stage() {
  local name=$1 log=$logs/$1.log
  if ((SECONDS >= begin_until)); then
    skip "$name" "the clock: $SECONDS s are over, and no long stage begins after $begin_until s; .ci/nightly runs it"
    return
  fi
  cut_off=""
  stage "$name" until_end "$@"
}
# until_end NAME COMMAND...: runs the command under `timeout`, which starts a new shell. That shell
# gets the functions of this one.
until_end() {
  local name=$1 status=0
  shift
  timeout --kill-after=20 $((end_at - SECONDS)) bash -c '"$@"' "$name" "$@" || status=$?
  if ((status != 124 && status != 137)); then return "$status"; fi
  echo "the clock: ended after $SECONDS s of .ci/run; .ci/nightly runs the whole of it"
  if grep -aqE '\*\*\*(Failed|Exception)|ERROR: (Address|Leak)Sanitizer|WARNING: ThreadSanitizer|runtime error:' "$logs/$name.log"; then
    echo "0 passed, 1 failed, 1 skipped"
    return 1
  fi
  echo "0 passed, 0 failed, 1 skipped"
}

finish() {  # prints the totals, and sets the exit status
  note total "$SECONDS" "" ""
  echo "$passed passed, $failed failed, $skipped skipped"
  ((failed == 0))
}
