#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks and measures the CUDA code on this machine's GPU and writes a record of it.
#
#   experiments/bench/gpu_check.sh                  build, test, sanitize, benchmark, write a record
#   experiments/bench/gpu_check.sh --programs DIR   the same with programs built before (DIR/bin)
#   experiments/bench/gpu_check.sh --only tests,deform   some parts; no record. All of them are: tests,
#                                                   sanitizers, conv2d, deform, sparse, compressed, networks
#   experiments/bench/gpu_check.sh --verify-record  no GPU needed: is the newest record of today's
#                                                   sources, complete and clean?
#
# The record is left in --out DIR (default: experiments/bench/records).
# PyTorch and torchvision are the peers: their rows need a python3 that has them.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit

all=tests,sanitizers,conv2d,deform,sparse,compressed,networks
programs="" out=experiments/bench/records only=$all parts=""
while (($# > 0)); do
  case $1 in
    --verify-record) exec python3 experiments/bench/gpu_record.py verify ;;
    --programs) programs=$2 && shift ;;
    --out) out=$2 && shift ;;
    --parts) parts=$2 && shift ;; # keep the parts here, e.g. to make a record in several calls
    --only) only=$2 && shift ;;
    *)
      sed -n '3,14s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
      exit 2
      ;;
  esac
  shift
done
wanted() { [[ ,$only, == *,$1,* ]]; }

if ! nvidia-smi >/dev/null 2>&1; then
  echo "gpu_check: no GPU here (nvidia-smi failed)" >&2
  exit 5
fi
if [[ -z $programs ]]; then
  cmake --preset cuda -DCMAKE_CUDA_ARCHITECTURES=native && cmake --build --preset cuda || exit 1
  programs=build/cuda
fi
if [[ -z $parts ]]; then
  parts=$(mktemp -d)
  trap 'rm -rf "$parts"' EXIT
fi
mkdir -p "$parts" "$out"
test_cuda=$programs/bin/test_cuda convscope=$programs/bin/convscope
status=0

# Nothing is timed here, so the tests and the three tools of compute-sanitizer, which slow kernels
# down a hundredfold and therefore see small problems only, run side by side.
# The tests spend their time in the double reference on the CPU: one process for each second core.
shards=$(($(nproc) / 2 > 0 ? $(nproc) / 2 : 1))
huge='*Beyond31Bits*' # one after the other: two of them do not fit into the memory of every GPU
run_tests() { # NAME THREADS FILTER
  OMP_NUM_THREADS=$2 "$test_cuda" --gtest_filter="$3" \
    --gtest_output="json:$parts/gtest-$1.json" >"$parts/gtest-$1.log" 2>&1 || echo "tests, part $1: failed"
}
run_shard() { # INDEX
  GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$1 run_tests "$1" 2 "-$huge"
}
count_tests() {
  python3 - "$parts" "$shards" <<'PY'
import json, pathlib, sys
folder, shards = pathlib.Path(sys.argv[1]), int(sys.argv[2])
cases, broken = [], 0
for part in [*range(shards), "huge"]:
    path = folder / f"gtest-{part}.json"
    if not path.exists():  # it crashed or was stopped
        broken += 1
        continue
    for suite in json.loads(path.read_text())["testsuites"]:
        cases += [case for case in suite["testsuite"] if case["status"] == "RUN"]
skipped = sum(case["result"] == "SKIPPED" for case in cases)
failed = sum(bool(case.get("failures")) for case in cases) + broken
(folder / "tests.json").write_text(json.dumps(
    {"passed": len(cases) - skipped - failed, "failed": failed, "skipped": skipped}))
print(f"gpu_check: {len(cases) - skipped - failed} passed, {failed} failed, {skipped} skipped")
sys.exit(1 if failed else 0)
PY
}
sanitizer_filter=${CONVSCOPE_SANITIZER_FILTER:-'Conv2dOnCuda.AgreesWithTheReferenceOnRandomProblems:FewChannel*:LinearFused*:LinearTail*:HalfImages*:ChannelsLastOnCuda*:ImplicitGemmTmaOnCuda*:ImplicitGemmTmaHalvesOnCuda*:ForwardMoments*:GroupedGemmOnCuda.AFused*:GroupedGemmOnCuda.Gradients*:HalfFactorsOnCuda*:FactorsOfNormOnCuda*:HalfPlanOnCuda*:JointBackwardOnCuda*:JoinedUpdateOnCuda*:DepthwiseOnCuda*:TransformsOnCuda.Halves*:BatchNorm*:RecordedSteps*:Deform/SmallDeformOnCuda*:DeformLayerOnCuda.MakesTheSteps*:Int8OnCuda.*InEveryTile:CodesOnCuda*:BlockSparseOnCuda.*InEveryTile:IntegerExecutionOnCuda.SmallNetworks*:*/SparseOnCuda.IsExact*/plane:*/SparseOnCuda.*/strided_two:*/SparseOnCuda.IsExact*/inverse_plane:-LinearFusedOnCuda.MakesHalfCopiesOfLargeLayers'}
# Left out: large linear layers, whose products are cuBLAS's, in which racecheck reports hazards; and tiles of
# fft, which reads pairs of planes and drops the second one of the last pair.
# Each tool in some processes side by side, because racecheck takes many minutes in one.
sanitizer_parts=3
sanitize() { # TOOL
  local part jobs=()
  for ((part = 0; part < sanitizer_parts; ++part)); do
    sanitize_part "$1" "$part" &
    jobs+=($!)
  done
  wait "${jobs[@]}"
}
sanitize_part() { # TOOL INDEX
  CONVSCOPE_TEST_FLOPS=20000 CONVSCOPE_TEST_RANDOM_PROBLEMS=${CONVSCOPE_SANITIZER_PROBLEMS:-24} OMP_NUM_THREADS=2 \
    GTEST_TOTAL_SHARDS=$sanitizer_parts GTEST_SHARD_INDEX=$2 \
    timeout "${CONVSCOPE_SANITIZER_SECONDS:-600}" compute-sanitizer --tool "$1" --error-exitcode 9 \
    "$test_cuda" --gtest_filter="$sanitizer_filter" >"$parts/$1-$2.log" 2>&1
  echo $? >"$parts/$1-$2.code"
}
sanitizer_result() { # TOOL: one member of sanitizers.json
  local part log code worst=0 errors sum=0 tests=0
  for ((part = 0; part < sanitizer_parts; ++part)); do
    log=$parts/$1-$part.log code=$(cat "$parts/$1-$part.code")
    # 'ERROR SUMMARY: 0 errors', 'RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)'
    errors=$(sed -n 's/.*ERROR SUMMARY: \([0-9]*\) error.*/\1/p; s/.*SUMMARY: .*(\([0-9]*\) error.*/\1/p' \
      "$log" | tail -n 1)
    # Stopped before its summary, by a crash, a failed test or the clock: that is an error too.
    if ((code != 0)) && [[ ${errors:-0} == 0 ]]; then errors=1; fi
    if ((code > worst)); then worst=$code; fi
    sum=$((sum + ${errors:-1})) tests=$((tests + $(grep -c '^\[       OK' "$log")))
  done
  echo "\"$1\": {\"errors\": $sum, \"exit\": $worst, \"tests\": $tests}"
}

jobs_of_tests=()
if wanted tests; then
  echo "gpu_check: tests"
  rm -f "$parts"/gtest-*.json
  run_tests huge 4 "$huge" &
  jobs_of_tests+=($!)
  for ((i = 0; i < shards; ++i)); do
    run_shard "$i" &
    jobs_of_tests+=($!)
  done
fi
if wanted sanitizers; then
  echo "gpu_check: compute-sanitizer"
  for tool in memcheck racecheck initcheck; do sanitize $tool & done
fi
if wanted tests; then
  wait "${jobs_of_tests[@]}"
  grep -h -E 'FAILED|Which is:|rror' "$parts"/gtest-*.log | cut -c1-400 | head -n 60
  count_tests || status=1
fi
if wanted sanitizers; then
  wait
  {
    echo "{$(sanitizer_result memcheck),"
    echo "$(sanitizer_result racecheck),"
    echo "$(sanitizer_result initcheck)}"
  } >"$parts/sanitizers.json"
  cat "$parts/sanitizers.json"
  if grep -q '"errors": [1-9]' "$parts/sanitizers.json"; then
    status=1
    for tool in memcheck racecheck initcheck; do
      grep -m 12 -E '=========|FAILED' "$parts/$tool"-*.log | head -n 12
    done
  fi
fi

if wanted networks; then
  echo "gpu_check: networks"
  # torch.compile takes minutes; CONVSCOPE_PEER_KINDS='eager|CUDA graph' leaves it out.
  kinds=()
  if [[ -n ${CONVSCOPE_PEER_KINDS:-} ]]; then
    IFS='|' read -ra kinds <<<"$CONVSCOPE_PEER_KINDS"
    kinds=(--kinds "${kinds[@]}")
  fi
  python3 experiments/peers/lenet_step_gpu_vs_pytorch.py --program "$convscope" "${kinds[@]}" \
    --json "$parts/net_lenet5.json" || status=1
  python3 experiments/peers/net_gpu_vs_pytorch.py --program "$convscope" --json "$parts/net_whole.json" || status=1
  # With the folder of the four MNIST files: from start-up to 99 % of the test images.
  if [[ -n ${CONVSCOPE_MNIST:-} ]]; then
    python3 experiments/peers/mnist_to_99.py --device cuda --program "$convscope" \
      --data "$CONVSCOPE_MNIST" --seeds 1 | tee "$parts/mnist_to_99.log" || status=1
  fi
fi

if wanted conv2d; then
  "$convscope" info --measure --json >"$parts/info.json" 2>/dev/null
  python3 - "$parts" <<'PY' || status=1
import json, pathlib, sys
folder = pathlib.Path(sys.argv[1])
info = json.loads((folder / "info.json").read_text())
(folder / "ceilings.json").write_text(json.dumps(info["gpu_ceilings"]))
print("gpu_check: ceilings", json.dumps(info["gpu_ceilings"]))
PY
  peer=experiments/peers/conv2d_gpu_vs_pytorch.py
  # NAME SHAPES [OPTIONS...]; CONVSCOPE_COMPARE='dense_f32 depthwise_f32' leaves out the others.
  compare() {
    local name=$1 shapes=$2
    if [[ " ${CONVSCOPE_COMPARE:-$name} " != *" $name "* ]]; then return; fi
    shift 2
    echo "gpu_check: convolutions, $name"
    python3 "$peer" --program "$convscope" --shapes "experiments/shapes/$shapes.txt" "$@" \
      --json "$parts/conv2d_$name.json" || status=1
  }
  for batch in 32 1 128; do
    suffix=$([[ $batch == 32 ]] || echo "_n$batch")
    compare "dense_f32$suffix" gpu_dense --batch "$batch"
    compare "dense_tf32$suffix" gpu_dense --precision tf32 --batch "$batch"
    compare "dense_tf32_last$suffix" gpu_dense --precision tf32 --layout channels_last --batch "$batch"
    compare "dense_bf16$suffix" gpu_dense --precision bf16 --layout channels_last --batch "$batch"
    compare "dense_bf16_prepared$suffix" gpu_dense --precision bf16 --layout channels_last --weights often \
      --batch "$batch"
    compare "depthwise_f32$suffix" gpu_depthwise --batch "$batch"
    compare "depthwise_bf16$suffix" gpu_depthwise --precision bf16 --batch "$batch"
    if [[ $batch == 128 ]]; then continue; fi
    compare "grouped_tf32_last$suffix" gpu_grouped --precision tf32 --layout channels_last --batch "$batch"
    compare "grouped_bf16$suffix" gpu_grouped --precision bf16 --layout channels_last --batch "$batch"
  done
fi

if wanted deform; then
  # Deformable convolution beside torchvision: results of every card, then times in each type.
  echo "gpu_check: deformable convolution"
  python3 experiments/peers/deform_vs_torchvision.py --program "$convscope" --device cuda --problems 20 \
    --json "$parts/deform.json" || status=1
fi

if wanted sparse; then
  # Sparse convolution: every card on clouds, checked by a sample, and a network of six layers.
  for precision in f32 f16; do
    echo "gpu_check: sparse convolution, $precision"
    "$convscope" bench sparse_conv --shapes experiments/shapes/sparse.txt \
      --shapes experiments/shapes/sparse_other.txt --device cuda --precision "$precision" \
      --min-time 0.02 --json "$parts/sparse_$precision.json" | tail -n 1 || status=1
  done
  "$convscope" bench sparse_net --device cuda --precision f32,f16 --json "$parts/sparse_net.json" |
    grep '^|' || status=1
fi

if wanted compressed; then
  # Integers and block-sparse weights beside dense floating point, layers of whole networks.
  shapes=()
  for name in resnet18 resnet50 mobilenet_v2; do
    shapes+=(--shapes "experiments/shapes/$name.txt")
  done
  echo "gpu_check: convolutions, int8 and block-sparse"
  python3 experiments/peers/int8_gpu_vs_pytorch.py --program "$convscope" "${shapes[@]}" \
    --json "$parts/compressed_int8.json" || status=1
  python3 experiments/peers/int8_gpu_vs_pytorch.py --program "$convscope" --density 0.2,0.1 \
    --shapes experiments/shapes/resnet18.txt --shapes experiments/shapes/resnet50.txt \
    --json "$parts/compressed_int8_block_sparse.json" || status=1
  python3 experiments/peers/sparse_gpu_vs_pytorch.py --program "$convscope" \
    --shapes experiments/shapes/resnet18.txt --json "$parts/compressed_block_sparse.json" || status=1
  echo "gpu_check: whole networks, inference: f32, int8, block-sparse"
  # NAME_IN_THE_RECORD NETWORK BATCHES [OPTIONS...]
  inference() {
    local name=$1 network=$2 batches=$3 image=()
    shift 3
    if [[ $network != lenet5 ]]; then image=(--image 3x224x224 --classes 1000); fi
    "$convscope" bench net "$network" --batch "$batches" --mode inference --min-time 0.2 "${image[@]}" \
      --json "$parts/net_${name}.json" "$@" --device cuda | grep '^| inference' | cut -c1-60 || status=1
  }
  for network in lenet5 resnet18 mobilenet_v2; do
    batches=1,32
    if [[ $network == lenet5 ]]; then batches=1,64,1024; fi
    echo "$network: f32, int8"
    inference "${network}_f32" "$network" "$batches"
    inference "${network}_int8" "$network" "$batches" --execute int8
  done
  for zeros in 0.8 0.9; do
    echo "resnet18, $zeros of the 16x1 blocks out"
    inference "resnet18_block_sparse_$zeros" resnet18 1,32 \
      "sparsity={method: block, block: [16, 1], target: $zeros, execute: sparse, exclude: [fc]}"
  done
fi

if [[ $only == "$all" ]]; then
  record=$(python3 experiments/bench/gpu_record.py write "$parts") || exit 1
  [[ $(dirname "$record") -ef $out ]] || cp "$record" "$out/"
  echo "gpu_check: wrote $out/$(basename "$record")"
fi
exit "$status"
