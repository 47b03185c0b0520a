#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Damages bytes as a faulty disk, an interrupted copy, or a person with a text editor does."""
import re

NUMBERS = ["0", "-1", "1", "3", "65", "4096", "100000", "1000000", "1e9", "1e18", "-1e-300", "nan", "inf", "99999999999999999999",
           "2147483648", "9223372036854775807", "0x10", "1.5", "007", "1e400",
           "1e-310", "4.9e-324", "1e-400", "0x1p-3", ".inf", "-.inf", ".nan", "-nan", "1e39", "1_000", "1:30"]
PIECES = ["null", "~", "true", "[]", "{}", "[[]]", "\"", "'", ":", "- ", "{a: 1", "&a [*a]", "*b",
          "!!binary x", "\t", "\r\n", "\u20ac", "\x1b[31m", "=1+1", "@", "<b>", "../..", "%s", "#",
          "|", ",", ",,,,", "{", "}", "[" * 200, "a" * 5000]
NUMBER = re.compile(rb"-?\d+(\.\d+)?([eE][-+]?\d+)?")


def flip_bits(data, random):
    out = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 8, 64))):
        out[random.randrange(len(out))] ^= 1 << random.randrange(8)
    return bytes(out)


def cut(data, random):
    return data[:random.randrange(len(data))]


def cut_tail(data, random):
    return data[:max(0, len(data) - random.randrange(1, 64))]


def remove_piece(data, random):
    at = random.randrange(len(data))
    return data[:at] + data[at + random.randrange(1, 40):]


def double_piece(data, random):
    at = random.randrange(len(data))
    end = min(len(data), at + random.randrange(1, 200))
    return data[:end] + data[at:end] * random.choice((1, 1, 2, 50)) + data[end:]


def zero_piece(data, random):
    at = random.randrange(len(data))
    length = min(len(data) - at, random.choice((1, 4, 8, 512, 4096)))
    return data[:at] + random.choice((b"\0", b"\xff")) * length + data[at + length:]


def random_bytes(data, random):
    at = random.randrange(len(data))
    return data[:at] + random.randbytes(random.randrange(1, 24)) + data[at:]


def all_random(data, random):
    return random.randbytes(random.randrange(len(data) + 1))


def empty(data, random):
    return b""


def beginning(data, random):
    """Changes bytes at the start of a file, where most formats have a small header with sizes."""
    head = data[:64]
    return random.choice((flip_bits, zero_piece, remove_piece, random_bytes))(head, random) + data[64:]


def other_number(data, random):
    found = list(NUMBER.finditer(data))
    if not found:
        return flip_bits(data, random)
    one = random.choice(found)
    return data[:one.start()] + random.choice(NUMBERS).encode() + data[one.end():]


def other_piece(data, random):
    words = list(re.finditer(rb"[A-Za-z_.]+|[0-9.]+", data))
    if not words:
        return random_bytes(data, random)
    one = random.choice(words)
    return data[:one.start()] + random.choice(PIECES).encode() + data[one.end():]


def put_piece(data, random):
    at = random.randrange(len(data))
    return data[:at] + random.choice(PIECES).encode() + data[at:]


def swap_lines(data, random):
    lines = data.split(b"\n")
    a, b = random.randrange(len(lines)), random.randrange(len(lines))
    lines[a], lines[b] = lines[b], lines[a]
    return b"\n".join(lines)


def drop_line(data, random):
    lines = data.split(b"\n")
    del lines[random.randrange(len(lines))]
    return b"\n".join(lines)


def indent_line(data, random):
    lines = data.split(b"\n")
    lines[random.randrange(len(lines))] = b"   " + lines[random.randrange(len(lines))]
    return b"\n".join(lines)


BYTES = [flip_bits, cut, cut_tail, remove_piece, double_piece, zero_piece, random_bytes, all_random,
         empty, beginning, beginning]
TEXT = [flip_bits, cut, cut_tail, remove_piece, double_piece, random_bytes, empty, other_number,
        other_number, other_number, other_piece, other_piece, put_piece, swap_lines, drop_line,
        indent_line]


def damaged(data, random, is_text):
    """Returns a damaged copy of `data` and a description of the damage."""
    for _ in range(20):
        how = random.choice(TEXT if is_text else BYTES)
        out = how(data, random)
        if random.random() < 0.2:
            second = random.choice(TEXT if is_text else BYTES)
            out = second(out, random) if out else out
        if out != data:
            return out, how.__name__
    return data + b"\0", "one more byte"
