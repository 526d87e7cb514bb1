"""Where the parameters live: on parameter servers, each holding one slice of the flat array.

What travels over TCP is frames: one byte that says what it is, four bytes of length, the payload.
Floats travel as little-endian doubles.

    worker -> server   INIT  values          sets the slice, unless somebody did before
    worker -> server   PULL                  asks for the slice
    worker -> server   PUSH  rate, gradient  slice -= rate * gradient, at once, whoever else is at work
    server -> worker   SLICE updates, values answers all three; no values before the first INIT
"""
import array
import socket
import socketserver
import struct
import sys
import threading
import time

INIT, PULL, PUSH, SLICE = 1, 2, 3, 4
HEADER = struct.Struct("<BI")
MAX_PAYLOAD = 64 << 20


def to_bytes(values):
    if sys.byteorder == "big":
        values = values[:]
        values.byteswap()
    return values.tobytes()


def from_bytes(data):
    values = array.array("d")
    values.frombytes(data)
    if sys.byteorder == "big":
        values.byteswap()
    return values


def send_frame(connection, kind, payload=b""):
    connection.sendall(HEADER.pack(kind, len(payload)) + payload)


def receive_frame(stream):
    """(kind, payload), or None at the end of the stream."""
    header = stream.read(HEADER.size)
    if len(header) < HEADER.size:
        return None
    kind, length = HEADER.unpack(header)
    if length > MAX_PAYLOAD:
        raise ConnectionError("a frame of %d bytes" % length)
    payload = stream.read(length)
    if len(payload) < length:
        return None
    return kind, payload


class Server(socketserver.ThreadingTCPServer):
    """One parameter server. It never ends by itself: it can't know who may still come."""
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address):
        self.lock = threading.Lock()
        self.values = array.array("d")
        self.updates = 0
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, Connection)

    def answer(self, kind, payload):
        with self.lock:
            if kind == INIT and not self.values:
                self.values = from_bytes(payload)
            elif kind == PUSH:
                rate, = struct.unpack_from("<d", payload)
                gradient = from_bytes(payload[8:])
                self.values = array.array(
                    "d", [value - rate * slope for value, slope in zip(self.values, gradient)])
                self.updates += 1
            return struct.pack("<Q", self.updates) + to_bytes(self.values)


class Connection(socketserver.StreamRequestHandler):
    disable_nagle_algorithm = True

    def handle(self):
        while True:
            try:
                frame = receive_frame(self.rfile)
                if frame is None:
                    return
                send_frame(self.connection, SLICE, self.server.answer(*frame))
            except ConnectionError:
                return  # a worker that went away takes nothing with it


class RemoteParameters:
    """All slices, seen from a worker: pull() and push() talk to every server."""

    def __init__(self, addresses, size, patience_s=60):
        self.bounds = [size * index // len(addresses) for index in range(len(addresses) + 1)]
        self.links = []
        for address in addresses:
            connection = connect(address, patience_s)
            self.links.append((connection, connection.makefile("rb")))
        self.updates = 0

    def initialise(self, values):
        self.exchange(INIT, [to_bytes(values[low:high]) for low, high in self.slices()])

    def pull(self):
        """The whole array, waiting until somebody has initialised it."""
        while True:
            values = self.exchange(PULL, [b""] * len(self.links))
            if len(values) == self.bounds[-1]:
                return values
            time.sleep(0.05)

    def push(self, gradient, rate):
        """Hands over a gradient; what comes back is the newest array, so no pull is needed."""
        head = struct.pack("<d", rate)
        return self.exchange(
            PUSH, [head + to_bytes(gradient[low:high]) for low, high in self.slices()])

    def slices(self):
        return zip(self.bounds, self.bounds[1:])

    def exchange(self, kind, payloads):
        for (connection, _), payload in zip(self.links, payloads):
            send_frame(connection, kind, payload)
        values = array.array("d")
        for _, stream in self.links:
            frame = receive_frame(stream)
            if frame is None:
                raise ConnectionError("a parameter server went away")
            values.extend(from_bytes(frame[1][8:]))
            self.updates, = struct.unpack_from("<Q", frame[1])
        return values


class LocalParameters:
    """The same face without servers, for a run in a single process."""

    def __init__(self, size):
        self.values = array.array("d", bytes(8 * size))
        self.updates = 0

    def initialise(self, values):
        self.values = values

    def pull(self):
        return self.values

    def push(self, gradient, rate):
        self.values = array.array(
            "d", [value - rate * slope for value, slope in zip(self.values, gradient)])
        self.updates += 1
        return self.values


def split_address(address):
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def connect(address, patience_s):
    """Peers start in any order: a server that does not listen yet is tried again."""
    deadline = time.monotonic() + patience_s
    pause_s = 0.02
    while True:
        try:
            connection = socket.create_connection(split_address(address), timeout=10)
            connection.settimeout(None)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection
        except OSError as error:
            if time.monotonic() > deadline:
                raise ConnectionError("%s does not answer: %s" % (address, error))
            time.sleep(pause_s)
            pause_s = min(1.0, pause_s * 2)
