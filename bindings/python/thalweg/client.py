"""The client: a socket for each plane, and the batches under way."""

import collections
import dataclasses
import secrets
import socket
import ssl
import struct
import time

import numpy

from .errors import ThalwegError
from .message import BIT, BYTE, Builder, read

TYPES = {"f64": (0, "<f8"), "i64": (1, "<i8"), "u64": (2, "<u8"), "bool": (3, None), "string": (4, None)}
IN_FLIGHT_BYTES_MAX = 16 << 20


class RegisterAgain(ThalwegError):
    """The tokens are from another data folder; batches under way are given up."""


@dataclasses.dataclass(frozen=True)
class Registered:
    """Tokens in the order of the request, and what stands for their groups' members."""

    tokens: numpy.ndarray
    measurement: int
    slots: numpy.ndarray
    types: tuple


@dataclasses.dataclass
class Block:
    """Rows of registered groups or series: a token and a timestamp (ns) for each row or one for all, and a column for each
    member. Nulls: a masked array, or None among texts."""

    registered: Registered
    tokens: object
    timestamps: object
    columns: list


@dataclasses.dataclass(frozen=True)
class Exception_:
    """A batch that was not simply written."""

    sequence: int
    duplicate: bool
    error: str
    stale_tokens: numpy.ndarray


class Connection:
    def __init__(self, address, plane, timeout, tls=None):
        self.socket = socket.create_connection(address, timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname=address[0])
        self.send(b"THALWEG" + plane + struct.pack("<II", 1, 0))

    def send(self, data):
        self.socket.sendall(data)

    def receive(self):
        (size, _) = struct.unpack("<II", self._take(8))
        return read(self._take(size))

    def _take(self, size):
        data = bytearray(size)
        view = memoryview(data)
        while view:
            count = self.socket.recv_into(view)
            if count == 0:
                raise ConnectionError("the server closed the connection")
            view = view[count:]
        return data

    def close(self):
        self.socket.close()


class Client:
    """Not shared between threads. `token` signs in where clients have to. `ca_file` names the authorities of a server that speaks TLS, or is True
    for those of the system; `client_cert` and `client_key` a certificate that signs in."""

    def __init__(
        self,
        control=("127.0.0.1", 7782),
        ingest=("127.0.0.1", 7783),
        producer=None,
        timeout=30.0,
        patience=60.0,
        token="",
        ca_file=None,
        client_cert=None,
        client_key=None,
    ):
        self.control_address, self.ingest_address, self.token = control, ingest, token
        self.tls = None
        if ca_file:
            self.tls = ssl.create_default_context(cafile=None if ca_file is True else ca_file)
            if client_cert:
                self.tls.load_cert_chain(client_cert, client_key)
        self.producer = secrets.randbits(63) + 1 if producer is None else producer
        self.timeout, self.patience = timeout, patience
        self.incarnation = 0
        self.sequence = 0
        self.waiting = collections.deque()
        self.waiting_bytes = 0
        self.unsent = 0
        self.sent_bytes = self.credit_bytes = self.message_bytes_max = 0
        self.exceptions = []
        self.control = self.data = None
        # How long connections were waited for that ended before anything was acknowledged, and the pause before the next one.
        self.setback = None
        self._reconnect()

    def register_series(self, series, database=""):
        """Tokens of lone series of floats, each a pair of metric and labels."""
        builder, root = self._request(database, 0)
        for place, (metric, labels) in zip(builder.structs(root + 24, len(series), 0, 2), series):
            builder.text(place, metric)
            _labels(builder, place + 8, labels)
        return self._ask(builder, ())

    def register_groups(self, measurement, members, groups, database=""):
        """Tokens of groups, each given by its labels, whose members are fields with their types: f64, i64, u64, bool, string."""
        builder, root = self._request(database, 1)
        body = builder.struct(root + 24, 0, 3)
        builder.text(body, measurement)
        for place, (field, kind) in zip(builder.structs(body + 8, len(members), 1, 2), members.items()):
            builder.number(place, "H", TYPES[kind][0])
            builder.text(place + 8, field)
        for place, labels in zip(builder.structs(body + 16, len(groups), 0, 1), groups):
            _labels(builder, place, labels)
        return self._ask(builder, tuple(members.values()))

    def send(self, blocks):
        """Sends a batch; its number. On disk it is after `flush`."""
        frame = self._batch(blocks)
        if len(frame) - 8 > self.message_bytes_max:
            raise ThalwegError(f"a batch of {len(frame)} bytes; the server takes {self.message_bytes_max}: send less at once")
        self.sequence += 1
        self.waiting.append((self.sequence, frame))
        self.waiting_bytes += len(frame)
        self.unsent += 1
        self._until(lambda: self.unsent == 0 and self.waiting_bytes <= IN_FLIGHT_BYTES_MAX)
        return self.sequence

    def flush(self):
        """Waits until all is on disk; what the server said of batches that were not simply written."""
        self._until(lambda: not self.waiting)
        exceptions, self.exceptions = self.exceptions, []
        return exceptions

    def close(self):
        for connection in (self.control, self.data):
            if connection:
                connection.close()
        self.control = self.data = None

    def _until(self, is_done):
        while True:
            if self.data is None:
                self._reconnect()
            try:
                self._send_all()
                if is_done():
                    return
                self._take_in(self.data.receive())
            except OSError:
                self.data = None
                self._wait_out()

    def _wait_out(self):
        """A server may take connections and no batches: each time it is waited for longer, but for the first; raises the last error after `patience`."""
        if self.setback is None:
            self.setback = 0.0, 0.01
            return
        waited, pause = self.setback
        if waited + pause > self.patience:
            self.setback = None
            raise
        time.sleep(pause)
        self.setback = waited + pause, min(2 * pause, 1.0)

    def _send_all(self):
        while self.unsent:
            _, frame = self.waiting[len(self.waiting) - self.unsent]
            if self.sent_bytes + len(frame) > self.credit_bytes:
                return
            self.data.send(frame)
            self.sent_bytes += len(frame)
            self.unsent -= 1

    def _reconnect(self):
        begun, pause = time.monotonic(), 0.01
        while True:
            try:
                connection = Connection(self.ingest_address, b"D", self.timeout, self.tls)
                connection.send(self._hello())
                self._take_in(connection.receive())
                self.data = connection
                return
            except ssl.SSLCertVerificationError:
                # It does not become trusted by trying again.
                raise
            except OSError:
                if time.monotonic() - begun + pause > self.patience:
                    raise
                time.sleep(pause)
                pause = min(2 * pause, 1.0)

    def _hello(self):
        builder = Builder()
        root = builder.struct(0, 1, 1)
        hello = builder.struct(root + 8, 2, 1)
        builder.number(hello, "Q", self.incarnation)
        builder.number(hello + 8, "Q", self.producer)
        builder.text(hello + 16, self.token)
        return builder.frame()

    def _take_in(self, answer):
        kind, body = answer.number(0, "H"), answer.struct(0)
        if kind == 0:
            self.incarnation, last = body.number(0, "Q"), body.number(8, "Q")
            self.message_bytes_max, self.credit_bytes = body.number(20, "I"), body.number(24, "Q")
            self.sent_bytes, self.unsent = 0, len(self.waiting)
            self.sequence = max(self.sequence, last)
            self._done(last)
        elif kind == 1:
            self.setback = None
            self.credit_bytes = max(self.credit_bytes, body.number(8, "Q"))
            for item in body.structs(0):
                stale = item.numbers(1, "<u8")
                self.exceptions.append(Exception_(item.number(0, "Q"), bool(item.number(8, "B") & 1), item.text(0), stale))
            self._done(body.number(0, "Q"))
        else:
            self._refused(body.number(0, "H"), body.text(0))

    def _refused(self, reason, message):
        if reason == 2:
            raise ConnectionError(message)
        self.data = None
        if reason == 1:
            self.incarnation = 0
            self.waiting.clear()
            self.waiting_bytes = self.unsent = 0
            raise RegisterAgain(message)
        raise ThalwegError(message)

    def _done(self, sequence):
        while self.waiting and self.waiting[0][0] <= sequence:
            self.waiting_bytes -= len(self.waiting.popleft()[1])
        self.unsent = min(self.unsent, len(self.waiting))

    def _request(self, database, kind):
        builder = Builder()
        root = builder.struct(0, 2, 3)
        builder.number(root, "Q", 1)
        builder.number(root + 8, "H", kind)
        builder.text(root + 16, database)
        builder.text(root + 32, self.token)
        return builder, root

    def _ask(self, builder, types):
        try:
            answer = self._ask_once(builder)
        except OSError:
            # The old connection had gone; a server that is not there says so now.
            self.control = None
            answer = self._ask_once(builder)
        body = answer.struct(0)
        if answer.number(16, "H") == 0:
            raise ThalwegError(answer.text(0))
        return Registered(body.numbers(0, "<u8"), body.number(0, "I"), body.numbers(1, "<u4"), types)

    def _ask_once(self, builder):
        if self.control is None:
            self.control = Connection(self.control_address, b"C", self.timeout, self.tls)
        self.control.send(builder.frame())
        return self.control.receive()

    def _batch(self, blocks):
        builder = Builder()
        root = builder.struct(0, 1, 1)
        builder.number(root, "H", 1)
        batch = builder.struct(root + 8, 1, 1)
        builder.number(batch, "Q", self.sequence + 1)
        for place, block in zip(builder.structs(batch + 8, len(blocks), 1, 4), blocks):
            _block(builder, place, block)
        return builder.frame()


def _labels(builder, pointer, labels):
    for place, (name, value) in zip(builder.structs(pointer, len(labels), 0, 2), labels.items()):
        builder.text(place, name)
        builder.text(place + 8, value)


def _block(builder, place, block):
    registered = block.registered
    builder.number(place, "I", registered.measurement)
    builder.numbers(place + 8, registered.slots, "<u4")
    builder.numbers(place + 16, numpy.atleast_1d(block.tokens), "<u8")
    builder.numbers(place + 24, numpy.atleast_1d(block.timestamps), "<i8")
    types = registered.types or ("f64",)
    if len(types) != len(block.columns):
        raise ThalwegError(f"{len(block.columns)} columns for {len(types)} members")
    for column, kind, values in zip(builder.structs(place + 32, len(types), 1, 2), types, block.columns):
        _column(builder, column, kind, values)


def _checked(values, present, kind, form):
    """Values as their type holds them; refuses what it would change. Those that are not present do not matter."""
    values = numpy.where(present, values, False) if not present.all() else numpy.asarray(values)
    if kind == "bool":
        if values.dtype == bool or all(isinstance(value, (bool, numpy.bool_)) for value in values.tolist()):
            return values.astype(bool)
        raise ThalwegError("a column of bools holds True and False; mask what is missing")
    if values.dtype == object and any(value is None or isinstance(value, str) for value in values):
        raise ThalwegError(f"a column of {kind} holds numbers; mask what is missing")
    if values.dtype.kind not in "biufO":
        raise ThalwegError(f"a column of {kind} holds numbers, not {values.dtype}")
    if kind == "f64":
        return values.astype(form)
    info = numpy.iinfo(form)
    for value in () if values.dtype == numpy.dtype(form) else values.tolist():
        if value != value or int(value) != value or not info.min <= value <= info.max:
            raise ThalwegError(f"{value!r} is no {kind}")
    return values.astype(form)


def _column(builder, place, kind, values):
    number, form = TYPES[kind]
    builder.number(place, "H", number)
    if kind == "string":
        present = numpy.array([text is not None for text in values], bool)
        if not all(text is None or isinstance(text, str) for text in values):
            raise ThalwegError("a column of strings holds str or None")
        builder.texts(place + 16, [text or "" for text in values])
    else:
        present = ~numpy.ma.getmaskarray(numpy.ma.asarray(values))
        plain = _checked(numpy.ma.getdata(values), present, kind, form)
        if kind == "bool":
            builder.bytes(place + 16, numpy.packbits(plain, bitorder="little").tobytes(), len(plain), BIT)
        else:
            builder.numbers(place + 16, plain, form)
    if not present.all():
        bits = numpy.packbits(present, bitorder="little").tobytes()
        builder.bytes(place + 8, bits, len(bits), BYTE)
