# SPDX-License-Identifier: Apache-2.0
"""The exceptions of Convscope. The text of each is the sentence that the command line prints."""


class Error(Exception):
    """All of them; the others are beside it what Python calls such a mistake."""


class InvalidError(Error, ValueError):
    """An argument that does not fit: a shape, a type of elements, a size."""


class ArgumentError(Error, TypeError):
    """An argument that is no array, or none of what the function takes."""


class ConfigError(Error, ValueError):
    """A config that cannot be used."""


class DataError(Error):
    """Data that are missing or damaged."""


class UnavailableError(Error, RuntimeError):
    """A device or an algorithm that is not there, or an algorithm that refuses the problem."""


class FileError(Error, OSError):
    """A file or folder that cannot be read or written."""


class RunError(Error, RuntimeError):
    """Work that failed: two algorithms that disagree (algorithm="check:a,b"), a device that broke."""


class OutOfMemoryError(RunError, MemoryError):
    """There is no room for an array."""


for _class in (Error, InvalidError, ArgumentError, ConfigError, DataError, UnavailableError, FileError,
               RunError, OutOfMemoryError):
    _class.__module__ = "convscope"  # tracebacks name what callers write
