#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks and measures the CUDA code on this machine's GPU, and writes the results to a record.
#
#   experiments/bench/gpu_check.sh                  build, test, sanitize, benchmark, write a record
#   experiments/bench/gpu_check.sh --programs DIR   the same with existing programs: a build folder, or what
#                                                   gpu_pack.sh packed
#   experiments/bench/gpu_check.sh --only tests,deform   some parts, without a record. All parts: tests, huge
#                                                   (beyond 2^31 elements), sanitizers, networks, conv2d,
#                                                   deform, sparse, compressed
#   experiments/bench/gpu_check.sh --seconds 540 --parts DIR   stops after 540 seconds. The same command
#                                                   continues with the rest, on any machine that has DIR
#   experiments/bench/gpu_check.sh --verify-record  needs no GPU: checks that the newest record holds results of all tests
#                                                   and sanitizers for today's sources, and no failure
#
# --jobs N: parallel test processes. --out DIR: folder of the record (default: experiments/bench/records). --base FILE:
# the results of parts that were not run are copied from this record (default: the newest record). Without --parts, the
# results of the parts are stored in build/gpu_check, which is emptied first. Exit code 1: something failed; 5: no GPU;
# 75: stopped, and some parts are not done. The baselines are PyTorch and torchvision: their rows need a python3 that
# has them. gpu_parts.py and gpu_sanitize.py list the environment variables. framework/cuda/README.md, "On a machine
# that is lent for minutes", describes a check in several short calls.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit

programs="" parts="" options=() shown=()
while (($# > 0)); do
  case $1 in
    --verify-record) exec python3 experiments/bench/gpu_record.py verify ;;
    --programs | --parts | --out | --base | --only | --jobs | --seconds)
      if (($# < 2)); then
        echo "gpu_check: $1 needs a value" >&2
        exit 2
      fi
      case $1 in
        --programs) programs=$2 ;;
        --parts) parts=$2 ;;
        *) options+=("$1" "$2") ;;
      esac
      [[ $1 == --parts ]] || shown+=("$1" "$2")
      shift
      ;;
    *)
      sed -n '3,22s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
      exit 2
      ;;
  esac
  shift
done

if ! nvidia-smi >/dev/null 2>&1; then
  echo "gpu_check: no GPU here (nvidia-smi failed)" >&2
  exit 5
fi
if [[ -z $programs ]]; then
  cmake --preset cuda -DCMAKE_CUDA_ARCHITECTURES=native && cmake --build --preset cuda || exit 1
  programs=build/cuda
fi
if [[ -z $parts ]]; then
  parts=build/gpu_check
  rm -rf "$parts"
fi

# The programs' own libraries, the toolkit's libraries, and those installed by pip.
programs=$(cd "$programs" && pwd) || exit
paths=$programs/lib
for folder in "${CUDA_HOME:-/usr/local/cuda}/lib64" "${CUDA_PATH:-/usr/local/cuda}/lib64"; do
  if [[ -d $folder && :$paths: != *:$folder:* ]]; then paths+=:$folder; fi
done
export PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin # compute-sanitizer
pip=$(python3 -c 'import glob, sys; print(*(f for p in sys.path for f in glob.glob(f"{p}/nvidia/*/lib")), sep=":")')
export LD_LIBRARY_PATH=$paths${pip:+:$pip}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export CONVSCOPE_SOURCE_DIR=${CONVSCOPE_SOURCE_DIR:-$PWD}
if [[ -e $programs/lib/libconvscope_cuda.so ]]; then
  export CONVSCOPE_CUDA_LIBRARY=${CONVSCOPE_CUDA_LIBRARY:-$programs/lib/libconvscope_cuda.so}
fi

# The folder of the parts also stores the measured peaks of this GPU, which `auto` uses.
mkdir -p "$parts" || exit
CONVSCOPE_CACHE_DIR=${CONVSCOPE_CACHE_DIR:-$(cd "$parts" && pwd)/cache}
export CONVSCOPE_CACHE_DIR

printf -v again '%q ' "${BASH_SOURCE[0]}" "${shown[@]}" --parts "$parts"
exec python3 experiments/bench/gpu_parts.py --programs "$programs" --parts "$parts" --again "$again" "${options[@]}"
