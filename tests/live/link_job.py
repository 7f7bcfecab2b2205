"""A job on two nodes: rank 1 sends so many MB to rank 0, which prints the rate; `link_job.py MB`."""

import os
import socket
import struct
import sys
import time

_TIME = struct.Struct("=q")
rank, where = int(os.environ["RANK"]), (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
size, chunk = int(sys.argv[1]) << 20, bytearray(1 << 20)
if rank == 0:
    with socket.create_server(where) as listening:
        listening.settimeout(300)
        connection, _ = listening.accept()
    with connection, connection.makefile("rb") as file:
        # When the other began, by a clock that both have: bytes that wait here to be read are not for nothing.
        (began_ns,) = _TIME.unpack(file.read(_TIME.size))
        received = 0
        while count := file.readinto(chunk):
            received += count
    took_s = (time.monotonic_ns() - began_ns) / 1e9
    assert received == size, received
    print(f"epoch 1 mbit={received * 8 / took_s / 1e6:.1f}", flush=True)
else:
    until_s = time.monotonic() + 300
    while True:
        try:
            connection = socket.create_connection(where, 300)
            break
        except OSError:
            assert time.monotonic() < until_s
            time.sleep(0.02)
    with connection:
        connection.sendall(_TIME.pack(time.monotonic_ns()))
        for _ in range(size >> 20):
            connection.sendall(chunk)
