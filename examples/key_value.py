"""A replicated key-value store over HTTP: each process serves all keys, and survives the loss of a minority.

python examples/key_value.py a 8001        and in two more terminals: b 8002, c 8003
curl -X PUT -d red localhost:8001/color ;  curl localhost:8002/color
"""

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import seqcast.blocks

name, port, store = sys.argv[1], int(sys.argv[2]), seqcast.blocks.ReplicatedDict()


class Handler(BaseHTTPRequestHandler):
    def answer(self, status, text=""):
        self.send_response(status)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def do_GET(self):
        try:
            value = store.get(self.path)
            self.answer(404 if value is None else 200, value or "")
        except seqcast.SeqcastError as error:
            self.answer(503, str(error))

    def do_PUT(self):
        try:
            store.set(self.path, self.rfile.read(int(self.headers["Content-Length"])).decode())
            self.answer(204)
        except seqcast.SeqcastError as error:
            self.answer(503, str(error))  # may be stored or not: the client may repeat the PUT


server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
with seqcast.replicate("key-value", store, name=name, found=2) as replica:
    replica.on_failed(lambda error: server.shutdown())
    server.serve_forever()
