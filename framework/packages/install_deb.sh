#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# install_deb.sh FILE.deb: installs the package with its dependencies and nothing else. Run it as root. The Dockerfile
# and tests/install/clean_root.sh call this file.
set -euo pipefail
if (($# != 1)) || [[ ! -f $1 ]]; then
  echo "install_deb.sh: expected one file, the .deb of \`./bootstrap.sh package\`, got '$*'" >&2
  exit 2
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
# ca-certificates: `convscope data fetch` downloads over https.
apt-get install -y -qq --no-install-recommends "$(realpath "$1")" ca-certificates
rm -rf /var/lib/apt/lists/*
