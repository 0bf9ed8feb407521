"""Runs llama.cpp's own server on a free port of the loopback until its standard input ends.

    python serve.py MODEL.gguf KEY

It writes its address when it is ready. The package xllamacpp holds the C++ server as it is; the
threads are few, since the model is tiny and tests share the machine.
"""

import sys

import xllamacpp


def serve(model: str, key: str) -> None:
    """Load the model and answer until nobody holds the other end of standard input."""
    wanted = xllamacpp.CommonParams()
    wanted.model.path = model
    wanted.model_alias = {"tiny-random"}
    wanted.hostnames = ["127.0.0.1"]
    wanted.port = 0
    wanted.api_keys = [key]
    wanted.n_ctx = 8192
    wanted.n_parallel = 1
    wanted.n_predict = 400
    wanted.cpuparams.n_threads = 1
    wanted.cpuparams_batch.n_threads = 1
    wanted.sampling.seed = 3
    wanted.use_jinja = True
    wanted.warmup = False
    server = xllamacpp.Server(wanted)
    sys.stdout.write(f"listening on {server.listening_address}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    serve(*sys.argv[1:])
