#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Packs the programs of a GPU check for a machine without a compiler.
#
#   experiments/bench/gpu_pack.sh FILE.tar.xz [--build build/cuda]   one file, as small as xz makes it
#   experiments/bench/gpu_pack.sh DIR         [--build build/cuda]   the same as a folder DIR/pack.tar.xz
#
# Contents: bin/convscope, bin/test_cuda, lib/libconvscope_cuda.so, and those of their shared libraries that a bare
# machine lacks. All files are stripped. The file pack.json holds the hash of the sources and the release of nvcc.
# cuBLAS is not packed: the programs use that of the toolkit or of pip (nvidia-cublas). On the other machine:
#
#   mkdir -p pack && tar -xJf FILE.tar.xz -C pack && experiments/bench/gpu_check.sh --programs pack ...
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

to="" build=build/cuda
while (($# > 0)); do
  case $1 in
    --build)
      build=${2:?--build needs a folder}
      shift
      ;;
    -*) to="" && break ;;
    *) to=$1 ;;
  esac
  shift
done
if [[ -z $to ]]; then
  sed -n '3,13s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
  exit 2
fi
if [[ $to != *.tar.xz ]]; then to=$to/pack.tar.xz; fi
mkdir -p "$(dirname "$to")"

files=(bin/convscope bin/test_cuda lib/libconvscope_cuda.so)
for file in "${files[@]}"; do
  if [[ ! -e $build/$file ]]; then
    echo "gpu_pack: expected $build/$file; build it first: cmake --build --preset cuda" >&2
    exit 1
  fi
done
# Without this check, the hash in pack.json might not belong to the code in the library.
newer=$(find framework layers optim quant sparsity datasets experiments \( -name '*.cu' -o -name '*.cuh' \) \
  -newer "$build/lib/libconvscope_cuda.so" -print -quit)
if [[ -n $newer ]]; then
  echo "gpu_pack: $newer is newer than $build/lib/libconvscope_cuda.so; if it was built since, touch that" >&2
  exit 1
fi

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/bin" "$folder/lib"
for file in "${files[@]}"; do cp -L "$build/$file" "$folder/$file"; done

# The C library and the driver's libraries are on every machine with a driver. cuBLAS and similar libraries are too
# large.
theirs='^(libc|libm|libpthread|libdl|librt|libresolv|libutil|libcuda|libnvidia.*|libcu(blas|blasLt|dnn|fft|rand|solver|sparse|pti)[_a-z]*|libnvrtc.*|libnvJitLink|libnccl|ld-linux.*|linux-vdso)\.so'
export LD_LIBRARY_PATH=$PWD/$build/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
if [[ $build == /* ]]; then LD_LIBRARY_PATH=$build/lib:$LD_LIBRARY_PATH; fi
needed=$(for file in "${files[@]}"; do ldd "$build/$file"; done | sort -u)
while read -r name arrow path _; do
  if [[ $arrow != "=>" || $name =~ $theirs || $name == libconvscope_cuda.so ]]; then continue; fi
  if [[ $path != /* ]]; then
    echo "gpu_pack: $name was not found" >&2
    exit 1
  fi
  cp -L "$path" "$folder/lib/$name"
done <<<"$needed"
chmod -R u+w "$folder"
strip --strip-unneeded "$folder"/bin/* "$folder"/lib/*

python3 - "$folder/pack.json" <<'PY'
import sys
sys.path.insert(0, "experiments/bench")
import gpu_record
gpu_record.write_json(sys.argv[1], {"sources_sha256": gpu_record.source_hash(),
                                    "source_files": len(gpu_record.device_sources()),
                                    "nvcc": gpu_record.nvcc_release()})
PY
tar -C "$folder" -cf - . | xz -T0 -9e >"$to"
ls "$folder/lib"
echo "gpu_pack: $to, $(stat -c %s "$to") bytes"
