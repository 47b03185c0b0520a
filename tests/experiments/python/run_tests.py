#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the tests of the package `convscope` that this Python imports: run_tests.py [PATTERN...]

The last line is 'N passed, N failed, N skipped'. A test is skipped if it needs a package or a GPU
that is missing.
"""
import pathlib
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent


class Counted(unittest.TextTestResult):
    """Counts a test case with failing subtests as one failure."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.wrong = set()

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.wrong.add(test.id())

    def addError(self, test, error):
        super().addError(test, error)
        self.wrong.add(test.id())

    def addSubTest(self, test, subtest, error):
        super().addSubTest(test, subtest, error)
        if error is not None:
            self.wrong.add(test.id())


def main():
    sys.path.insert(0, str(HERE))
    loader = unittest.TestLoader()
    loader.testNamePatterns = [f"*{word}*" for word in sys.argv[1:]] or None
    suite = loader.discover(str(HERE), pattern="*_test.py", top_level_dir=str(HERE))
    result = unittest.TextTestRunner(resultclass=Counted, verbosity=1).run(suite)
    skipped, failed = len(result.skipped), len(result.wrong)
    for test, reason in result.skipped:
        print(f"skipped: {test.id()}: {reason}")
    passed = result.testsRun - failed - skipped
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
