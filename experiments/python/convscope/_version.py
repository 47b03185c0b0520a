# SPDX-License-Identifier: Apache-2.0
"""The version, from the package's metadata."""
import importlib.metadata

try:
    __version__ = importlib.metadata.version("convscope")
except importlib.metadata.PackageNotFoundError:  # used from a build folder
    __version__ = "0.0.0"
