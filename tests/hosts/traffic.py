#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What network.py runs on each host; times are seconds of the common clock.

    traffic.py stream MINE SECONDS PEER...   prints "ready", reads the time at which to start
                                and sends to all peers as fast as it can; prints the bits a
                                second received from each host in SECONDS, after half a second
    traffic.py answer MINE      sends a byte back for every message
    traffic.py ask PEER COUNT SIZE   prints the times from sending SIZE bytes to the answer

MINE and PEER are addresses; results are a line of JSON, times are seconds.
"""

import json
import os
import socket
import struct
import sys
import threading
import time

PORT = 5000
CHUNK = 1 << 18
ZEROS = bytes(CHUNK)


def sleep_until(moment):
    time.sleep(max(0, moment - time.time()))


def receive(connection, counts, peer):
    buffer = bytearray(CHUNK)
    while n := connection.recv_into(buffer):
        counts[peer] = counts.get(peer, 0) + n


def accept(listener, counts):
    while True:
        connection, address = listener.accept()
        threading.Thread(target=receive, args=(connection, counts, address[0]),
                         daemon=True).start()


def send(peer):
    with socket.create_connection((peer, PORT)) as s:
        while True:
            s.sendall(ZEROS)


def stream(mine, seconds, peers):
    counts = {}
    listener = socket.create_server((mine, PORT))
    threading.Thread(target=accept, args=(listener, counts), daemon=True).start()
    print("ready", flush=True)
    start = float(sys.stdin.readline())
    sleep_until(start)
    for peer in peers:
        threading.Thread(target=send, args=(peer,), daemon=True).start()
    sleep_until(start + 0.5)
    first, begin = dict(counts), time.time()
    sleep_until(start + 0.5 + seconds)
    last, end = dict(counts), time.time()
    print(json.dumps({peer: (last[peer] - first.get(peer, 0)) * 8 / (end - begin)
                      for peer in last}), flush=True)
    sleep_until(start + 1 + seconds)  # the others may still measure
    os._exit(0)  # threads still send


def receive_all(connection, size):
    while size:
        n = len(connection.recv(min(size, CHUNK)))
        if not n:
            return False
        size -= n
    return True


def answer(mine):
    connection, _ = socket.create_server((mine, PORT)).accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    head = connection.recv(8, socket.MSG_WAITALL)
    size, = struct.unpack("<Q", head)
    while receive_all(connection, size):
        connection.sendall(b"x")


def connect(peer):
    for _ in range(100):
        try:
            return socket.create_connection((peer, PORT))
        except ConnectionRefusedError:
            time.sleep(0.05)
    sys.exit(f"{peer} does not answer")


def ask(peer, count, size):
    times = []
    with connect(peer) as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        s.sendall(struct.pack("<Q", size))
        for _ in range(count):
            time.sleep(0.01)
            begin = time.perf_counter()
            s.sendall(bytes(size))
            s.recv(1)
            times.append(time.perf_counter() - begin)
    print(json.dumps(times))


if __name__ == "__main__":
    mode, words = sys.argv[1], sys.argv[2:]
    if mode == "stream":
        stream(words[0], float(words[1]), words[2:])
    elif mode == "answer":
        answer(words[0])
    else:
        ask(words[0], int(words[1]), int(words[2]))
