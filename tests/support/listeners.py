"""What alerts are sent to in tests: a real HTTP server and a real mail server on this machine, which keep what they receive."""

import email
import email.policy
import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

HOST = "127.0.0.1"


class Webhook(ThreadingHTTPServer):
    """Answers every POST with `status`; `received` holds path and JSON body of each."""

    def __init__(self, status: int = 200) -> None:
        super().__init__((HOST, 0), _Post)
        self.status = status
        self.received: list[tuple[str, Any]] = []


class _Post(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        server = cast("Webhook", self.server)
        server.received.append((self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
        self.send_response(server.status)
        self.end_headers()
        self.wfile.write(f"you asked for {self.path}".encode())  # as many servers do

    def log_request(self, *_: object) -> None:
        """Say nothing."""


class MailServer(socketserver.ThreadingTCPServer):
    """Takes every message; `received` holds sender, recipients and message of each."""

    def __init__(self) -> None:
        super().__init__((HOST, 0), _Smtp)
        self.received: list[tuple[str, list[str], EmailMessage]] = []


class _Smtp(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        sender, recipients = "", list[str]()
        self._say("220 ready")
        while line := self.rfile.readline().decode().strip():
            word = line[:4].upper()
            if word == "MAIL":
                sender = line.partition("<")[2].partition(">")[0]
            elif word == "RCPT":
                recipients.append(line.partition("<")[2].partition(">")[0])
            elif word == "DATA":
                self._say("354 end with a dot")
                message = email.message_from_bytes(b"".join(self._body()), policy=email.policy.default)
                cast("MailServer", self.server).received.append((sender, recipients, message))
            self._say("221 bye" if word == "QUIT" else "250 done")
            if word == "QUIT":
                return

    def _body(self) -> Iterator[bytes]:
        while (line := self.rfile.readline()) not in (b".\r\n", b""):
            yield line.removeprefix(b".") if line.startswith(b"..") else line

    def _say(self, line: str) -> None:
        self.wfile.write(f"{line}\r\n".encode())


@contextmanager
def listening(*servers: socketserver.TCPServer) -> Iterator[None]:
    """Serve until the block ends."""
    threads = [threading.Thread(target=server.serve_forever, args=(0.05,)) for server in servers]
    try:
        for thread in threads:
            thread.start()
        yield
    finally:
        for server, thread in zip(servers, threads, strict=True):
            server.shutdown()
            thread.join()
            server.server_close()


def port_of(server: socketserver.TCPServer) -> int:
    """The port that the system chose."""
    return int(server.server_address[1])
