#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the scalars of a TensorBoard event file, one `step tag value` per line.

The reader follows the description of the format and uses neither the TensorBoard package nor the
tested code. It computes the checksums of records bit by bit.
"""
import struct
import sys


def crc32c(data):
    rest = 0xFFFFFFFF
    for byte in data:
        rest ^= byte
        for _ in range(8):
            rest = rest >> 1 ^ (0x82F63B78 if rest & 1 else 0)
    return rest ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(file):
    while head := file.read(12):
        (size, crc) = struct.unpack("<QI", head)
        assert crc == masked(head[:8]), "checksum of the length"
        data = file.read(size)
        (crc,) = struct.unpack("<I", file.read(4))
        assert crc == masked(data), "checksum of the data"
        yield data


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift += 7
        at += 1
        if data[at - 1] < 128:
            return value, at


def fields(data):
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(data, at)
        elif kind == 2:
            size, at = varint(data, at)
            value, at = data[at:at + size], at + size
        else:
            size = {1: 8, 5: 4}[kind]
            value, at = data[at:at + size], at + size
        yield key >> 3, value
    assert at == len(data), "a field that ends after its message"


def main(path):
    with open(path, "rb") as file:
        for number, event in enumerate(records(file)):
            step = 0
            for field, value in fields(event):
                if field == 1:
                    assert struct.unpack("<d", value)[0] > 1e9, "wall time"
                elif field == 2:
                    step = value
                elif field == 3:
                    assert number == 0 and value == b"brain.Event:2", "version"
                elif field == 5:
                    for _, scalar in fields(value):
                        content = dict(fields(scalar))
                        print(step, content[1].decode(), "%.6g" % struct.unpack("<f", content[2]))


if __name__ == "__main__":
    main(sys.argv[1])
