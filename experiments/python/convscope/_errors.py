# SPDX-License-Identifier: Apache-2.0
"""The exceptions of Convscope. Their texts are the sentences that the command line prints."""


class Error(Exception):
    """The base class; derived classes also inherit from Python's class for that kind of error."""


class InvalidError(Error, ValueError):
    """An argument has an unsupported shape, element type or size."""


class ArgumentError(Error, TypeError):
    """An argument that is not an array, or has a type that the function does not accept."""


class ConfigError(Error, ValueError):
    """A config that cannot be used."""


class DataError(Error):
    """Data that are missing or damaged."""


class UnavailableError(Error, RuntimeError):
    """A device or an algorithm that does not exist, or an algorithm that refuses the problem."""


class FileError(Error, OSError):
    """A file or folder that cannot be read or written."""


class RunError(Error, RuntimeError):
    """Work that failed: two algorithms that disagree (algorithm="check:a,b"), a device failure."""


class OutOfMemoryError(RunError, MemoryError):
    """There is not enough memory for an array."""


for _class in (Error, InvalidError, ArgumentError, ConfigError, DataError, UnavailableError, FileError,
               RunError, OutOfMemoryError):
    _class.__module__ = "convscope"  # tracebacks show the public name
