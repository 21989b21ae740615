"""A server on loopback that speaks OpenAI's completions as an engine with a known law of its passes does, in time of its own.

Chunks say at which moment of that time they came (`at`), and `StubServer.clock` reads it, so what a client measures does not depend
on the machine: only the order in which requests come does.
"""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

STEP, RUNNING, LONGEST, CACHE = 512, 8, 4096, 40_960
"""Limits of the server: tokens of a pass, requests at once, tokens of one, tokens of the cache."""

FRONT = 0.012
"""s, of its own time, by which every token comes later than its pass ends."""

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 256, "intermediate_size": 512,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 1024,
    "torch_dtype": "bfloat16", "max_position_embeddings": LONGEST, "rms_norm_eps": 1e-5, "hidden_act": "silu",
}  # fmt: skip


def law(prompt: float, chunks: float, pairs: float, decodes: float, cached: float) -> float:
    """Seconds of a pass."""
    tokens = prompt + decodes
    seconds = 4e-3 + 20e-6 * min(tokens, 128.0) + 60e-6 * max(tokens - 128.0, 0.0)
    return seconds + 1e-3 * chunks + 3e-4 * decodes + 5e-9 * pairs + 4e-7 * cached


class _Request:
    def __init__(self, prompt: int, tokens: int) -> None:
        self.prompt, self.tokens, self.computed, self.made = prompt, tokens, 0, 0
        self.chunks: list[float] = []
        self.ready = threading.Condition()


class StubServer:
    """The server; `fault`: what it does wrong (key, words, whole, short, model, others, error, garbled), `url`: where it is;
    `watched`: whether `clock` is the client's, so that a pass can wait until the tokens of the one before are read."""

    def __init__(
        self, fault: str = "", pause: float = 0.002, full: float = 0.03, engine: str = "vllm", watched: bool = True
    ) -> None:
        self.engine, self.watched = engine, watched
        self.fault, self.pause, self.full, self.now = fault, pause, full, 0.0
        self.waiting: list[_Request] = []
        self.running: list[_Request] = []
        self.come, self.unread, self.closed, self.served = threading.Condition(), 0, False, 0
        stub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 30

            def log_message(self, *words: Any) -> None:
                return

            def do_GET(self) -> None:
                stub.answer(self)

            def do_POST(self) -> None:
                stub.complete(self)

        class Server(ThreadingHTTPServer):
            request_queue_size, daemon_threads = 128, True

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        for work in (self.server.serve_forever, self._run):
            threading.Thread(target=work, daemon=True).start()

    def clock(self, line: bytes) -> float:
        """The moment at which a line came, in the server's time."""
        if not line:
            return self.now
        said = json.loads(line[5:])
        if "at" not in said:
            return self.now
        with self.come:
            self.unread -= 1
            self.come.notify_all()
        return float(said["at"])

    def close(self) -> None:
        self.closed = True
        with self.come:
            self.come.notify_all()
        self.server.shutdown()
        self.server.server_close()

    def answer(self, to: Any) -> None:
        """What it says of itself, as vLLM or SGLang does."""
        if self.fault == "key" and to.headers.get("Authorization") != "Bearer open":
            return _say(to, 401, {"error": "Unauthorized"})
        busy = 3 if self.fault == "others" else 0
        metrics = f'vllm:cache_config_info{{block_size="16",num_gpu_blocks="{CACHE // 16}"}} 1.0\n'
        metrics += f'# TYPE x gauge\nvllm:num_requests_running{{model_name="tiny"}} {busy}.0\nvllm:num_requests_waiting 0.0\n'
        pages: dict[str, Any] = {
            "/v1/models": {"data": [{"id": "tiny", "root": "/nowhere/tiny", "owned_by": "vllm", "max_model_len": LONGEST}]},
            "/version": {"version": "0.32.0"}, "/metrics": metrics, "/health": "",
        }  # fmt: skip
        if self.engine == "sglang":
            limits = {"chunked_prefill_size": STEP, "max_running_requests": RUNNING, "disable_overlap_schedule": False}
            pages |= {
                "/metrics": f'sglang:max_total_num_tokens{{model_name="tiny"}} {CACHE}.0\nsglang:num_running_reqs 0.0\n',
                "/get_server_info": {"version": "0.5.9", **limits}, "/version": None,
            }  # fmt: skip
        page = pages.get(to.path)
        return _say(to, 404 if page is None else 200, page if page is not None else {"error": "nothing here"})

    def complete(self, to: Any) -> None:
        """A completion, streamed."""
        asked = json.loads(to.rfile.read(int(to.headers["Content-Length"])))
        faults: dict[str, tuple[int, Any]] = {
            "words": (400, {"error": {"message": "prompt: Input should be a valid string"}}),
            "whole": (200, {"choices": [{"text": "a"}]}),
            "model": (404, {"error": {"message": "The model `tiny` does not exist."}}),
        }
        if self.fault in faults:
            return _say(to, *faults[self.fault])
        one = _Request(len(asked["prompt"]), asked["max_tokens"])
        with self.come:
            self.waiting.append(one)
            self.served += 1
            self.come.notify_all()
        to.send_response(200)
        to.send_header("Content-Type", "text/event-stream; charset=utf-8")
        to.send_header("Transfer-Encoding", "chunked")
        to.end_headers()
        try:
            for number in range(one.tokens if self.fault != "short" else 1):
                with one.ready:
                    one.ready.wait_for(lambda number=number: len(one.chunks) > number)
                said: Any = {"choices": [{"text": ""}], "usage": {"completion_tokens": number + 1}, "at": one.chunks[number]}
                said = {"error": {"message": "out of memory"}} if self.fault == "error" else said
                said = [number] if self.fault == "garbled" else said
                _chunk(to, f"data: {json.dumps(said)}\n\n".encode())
            _chunk(to, b"data: [DONE]\n\n")
            _chunk(to, b"")
        except OSError:
            one.tokens = 0  # the client has gone
        return None

    def _run(self) -> None:
        """The engine: passes of all requests that decode, and of prompts as long as there is room, cut where there is not."""
        while True:
            with self.come:
                self.come.wait_for(lambda: self.closed or self.waiting or self.running)
                self.come.wait_for(lambda: self.unread <= 0, 0.2)
            if self.closed:
                return
            time.sleep(self.pause)
            with self.come:
                while self.waiting and len(self.running) < RUNNING:
                    self.running.append(self.waiting.pop(0))
            self._pass()

    def _pass(self) -> None:
        left, sizes, ends = STEP, [0.0] * 5, []
        for one in self.running:
            if one.made:
                sizes[3] += 1
                sizes[4] += one.prompt + one.made
                left -= 1
                ends.append(one)
        for one in self.running:
            count = min(left, one.prompt - one.computed)
            if one.made or not count:
                continue
            sizes[0] += count
            sizes[1] += 1
            sizes[2] += count * one.computed + count * (count + 1) / 2
            one.computed += count
            left -= count
            if one.computed == one.prompt:
                ends.append(one)
        if not left:
            time.sleep(self.full)  # what shall wait for a full pass comes meanwhile
        self.now += law(*sizes)
        with self.come:
            self.unread += len(ends) if self.watched else 0
        for one in ends:
            one.made += 1
            with one.ready:
                one.chunks.append(self.now + FRONT)
                one.ready.notify_all()
        self.running = [one for one in self.running if one.made < one.tokens]


def _say(to: Any, status: int, page: Any) -> None:
    body = (page if isinstance(page, str) else json.dumps(page)).encode()
    to.send_response(status)
    to.send_header("Content-Type", "text/plain" if isinstance(page, str) else "application/json")
    to.send_header("Content-Length", str(len(body)))
    to.end_headers()
    to.wfile.write(body)


def _chunk(to: Any, body: bytes) -> None:
    to.wfile.write(f"{len(body):x}\r\n".encode() + body + b"\r\n")
    to.wfile.flush()
