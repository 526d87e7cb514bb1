# Listens on a port of its own, says which, and does what the first line of each connection tells it to.
import hashlib
import os
import socket
import struct
import sys
import threading

server = socket.socket()
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
memory = sys.argv[1] if len(sys.argv) > 1 else None   # a file: the port of the attempt before
port = int(open(memory).read()) if memory and os.path.exists(memory) else 0
server.bind(("127.0.0.1", port))
server.listen(512)
port = server.getsockname()[1]
if memory:
    with open(memory, "w") as file:
        file.write(str(port))
print(f"listens on {port}.", flush=True)


def serve(connection):
    file = connection.makefile("rb")
    word = file.readline().decode().strip()
    if word == "echo":   # all that comes, once it has ended
        data = file.read()
        connection.sendall(hashlib.sha256(data).hexdigest().encode() + b"\n" + data)
    elif word == "hello":
        connection.sendall(b"hello\n")
    elif word == "half":   # says nothing more, and hears all
        connection.sendall(b"half\n")
        connection.shutdown(socket.SHUT_WR)
        print(f"heard {hashlib.sha256(file.read()).hexdigest()}", flush=True)
    elif word == "pid":
        connection.sendall(f"{os.getpid()}\n".encode())
    elif word == "flood":   # to whoever does not read
        print("floods", flush=True)
        try:
            while True:
                connection.sendall(bytes(65536))
        except OSError:
            print("flood ended", flush=True)
    elif word == "deaf":   # to whoever goes on writing
        connection.sendall(b"deaf\n")
        threading.Event().wait()
    elif word == "wait":
        connection.sendall(b"waits\n")
        if not file.read():
            print("client gone", flush=True)
    elif word == "reset":
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    elif word == "leave":   # those that are there stay
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        connection.sendall(b"left\n")
    elif word.startswith("exit "):
        connection.sendall(b"the last words\n")
        os._exit(int(word[5:]))
    file.close()
    connection.close()


def accept_all():
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        threading.Thread(target=serve, args=(connection,), daemon=True).start()


threading.Thread(target=accept_all, daemon=True).start()
threading.Event().wait()
