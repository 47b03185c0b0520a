#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# add_user.sh FOLDER: adds the user `convscope`, who may work only in FOLDER: data sets are fetched into FOLDER/data,
# and runs are written to FOLDER/runs. Run it as root.
set -euo pipefail
if (($# != 1)); then
  echo "add_user.sh: expected one folder, got '$*'" >&2
  exit 2
fi
useradd --create-home --uid 1000 convscope
mkdir -p "$1"
chown convscope: "$1"
