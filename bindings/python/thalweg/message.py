"""Messages in Cap'n Proto's encoding, as far as Thalweg's schema needs it: one segment out, any number in."""

import struct

import numpy

BIT, BYTE, FOUR_BYTES, EIGHT_BYTES, POINTER, COMPOSITE = 1, 2, 4, 5, 6, 7


class Builder:
    """A message that grows at its end. Places are byte offsets; a pointer's place is where the pointer itself stands."""

    def __init__(self):
        self.pieces = [bytearray(8)]
        self.end = 8

    def _place(self, size):
        place = self.end
        self.pieces.append(bytearray((size + 7) // 8 * 8))
        self.end += len(self.pieces[-1])
        return place

    def _write(self, place, data):
        for start, piece in self._starts():
            if start <= place < start + len(piece):
                piece[place - start : place - start + len(data)] = data
                return

    def _starts(self):
        """Pieces from the newest back: what is written lies near the end, but for a few pointers."""
        start = self.end
        for piece in reversed(self.pieces):
            start -= len(piece)
            yield start, piece

    def struct(self, pointer, data_words, pointers):
        place = self._place(8 * (data_words + pointers))
        self._write(pointer, struct.pack("<iHH", (place - pointer - 8) // 8 << 2, data_words, pointers))
        return place

    def number(self, place, form, value):
        self._write(place, struct.pack("<" + form, value))

    def structs(self, pointer, count, data_words, pointers):
        """A list of structs; the place of each."""
        words = data_words + pointers
        place = self._place(8 + 8 * words * count)
        self._write(pointer, struct.pack("<iI", (place - pointer - 8) // 8 << 2 | 1, words * count << 3 | COMPOSITE))
        self._write(place, struct.pack("<iHH", count << 2, data_words, pointers))
        return [place + 8 + 8 * words * number for number in range(count)]

    def bytes(self, pointer, data, count, size):
        place = self._place(len(data))
        self.pieces[-1][: len(data)] = data
        self._write(pointer, struct.pack("<iI", (place - pointer - 8) // 8 << 2 | 1, count << 3 | size))

    def text(self, pointer, text):
        data = text.encode() + b"\0"
        self.bytes(pointer, data, len(data), BYTE)

    def numbers(self, pointer, values, kind):
        values = numpy.ascontiguousarray(values, dtype=kind)
        size = EIGHT_BYTES if values.itemsize == 8 else FOUR_BYTES
        self.bytes(pointer, memoryview(values).cast("B"), len(values), size)

    def texts(self, pointer, texts):
        place = self._place(8 * len(texts))
        self._write(pointer, struct.pack("<iI", (place - pointer - 8) // 8 << 2 | 1, len(texts) << 3 | POINTER))
        for number, text in enumerate(texts):
            self.text(place + 8 * number, text)

    def frame(self):
        """The message with its segment table, in a frame."""
        return b"".join([struct.pack("<IIII", self.end + 8, 0, 0, self.end // 8), *self.pieces])


class Struct:
    """A struct that was read."""

    def __init__(self, segments, segment, place, data_bytes, pointers):
        self.segments, self.segment, self.place = segments, segment, place
        self.data_bytes, self.pointers = data_bytes, pointers

    def number(self, offset, form):
        if offset + struct.calcsize(form) > self.data_bytes:
            return 0
        return struct.unpack_from("<" + form, self.segments[self.segment], self.place + offset)[0]

    def _pointer(self, number):
        if number >= self.pointers:
            return None
        return follow(self.segments, self.segment, self.place + self.data_bytes + 8 * number)

    def struct(self, number):
        found = self._pointer(number)
        return Struct(self.segments, *found[1:]) if found and found[0] == "struct" else Struct(self.segments, 0, 0, 0, 0)

    def text(self, number):
        found = self._pointer(number)
        if not found or found[4] == 0:
            return ""
        _, segment, place, _, count = found
        return bytes(self.segments[segment][place : place + count - 1]).decode()

    def numbers(self, number, kind):
        found = self._pointer(number)
        if not found:
            return numpy.zeros(0, kind)
        _, segment, place, _, count = found
        return numpy.frombuffer(self.segments[segment], kind, count, place).copy()

    def structs(self, number):
        found = self._pointer(number)
        if not found:
            return []
        _, segment, place, _, _ = found
        count, data_words, pointers = struct.unpack_from("<iHH", self.segments[segment], place)
        size = 8 * (data_words + pointers)
        starts = (place + 8 + size * item for item in range(count >> 2))
        return [Struct(self.segments, segment, start, 8 * data_words, pointers) for start in starts]


def follow(segments, segment, at):
    """What a pointer points at: a struct with its sizes, or a list with its element size and count."""
    low, high = struct.unpack_from("<iI", segments[segment], at)
    if low == 0 and high == 0:
        return None
    kind = low & 3
    if kind == 2:
        place = (low & 0xFFFFFFFF) >> 3 << 3
        if not low & 4:
            return follow(segments, high, place)
        # Two hops: where the content is, and what it is.
        far, content = struct.unpack_from("<II", segments[high], place)
        tag_low, tag_high = struct.unpack_from("<iI", segments[high], place + 8)
        return described(tag_low & 3, tag_high, content, far >> 3 << 3)
    return described(kind, high, segment, at + 8 + (low >> 2) * 8)


def described(kind, high, segment, place):
    if kind == 0:
        return ("struct", segment, place, (high & 0xFFFF) * 8, high >> 16)
    return ("list", segment, place, high & 7, high >> 3)


def read(message):
    """The root struct of a message."""
    (count,) = struct.unpack_from("<I", message, 0)
    count += 1
    sizes = struct.unpack_from(f"<{count}I", message, 4)
    start = (4 + 4 * count + 7) // 8 * 8
    segments = []
    for words in sizes:
        segments.append(memoryview(message)[start : start + 8 * words])
        start += 8 * words
    found = follow(segments, 0, 0)
    if not found or found[0] != "struct":
        raise ValueError("the message has no root")
    return Struct(segments, *found[1:])
