"""Publish to a Waybill mesh and work for it, with nats-py and nothing else (Python 3.11 or later).

    mesh = await connect("nats://127.0.0.1:4222")
    mesh.work("run-1", "tasks", handler, concurrency=4)    # a queue, shared with all that work it
    mesh.observe("orders.created", handler, observer_id="billing")
    mesh.serve("text::upper", handler)                     # a function: calls of it, and jobs for it
    await mesh.start()
    await mesh.publish_queue("run-1", "tasks", b"...")
    await mesh.enqueue("turns", "text::upper", {"text": "a"})
    await mesh.stop(window=10)

A handler is a coroutine function that takes a Delivery. To return is to acknowledge; to raise is a failed try, or what
the exception says: Reject, Retry, Incomplete. What a function's handler returns is the answer of a call, as JSON, and
nobody's after a job. At the time limit the handler is cancelled. A handler must not block the
event loop: a worker that cannot answer for 15 s has vanished, and what it holds is delivered to others.
"""

import asyncio
import contextlib
import functools
import json
import logging
import os
import secrets
import socket
import string
import sys
import time
from dataclasses import dataclass

import nats
import nats.errors

log = logging.getLogger("waybill")

REQUEST_S = 10  # the limit of each request
MINUTE = 60  # how long an outcome is remembered
ERROR_BYTES = 8192  # the mesh keeps no more of an error
LOST = (nats.errors.Error, asyncio.TimeoutError, OSError)  # what the client raises when it could not say it now


class WaybillError(Exception):
    """The mesh said no. No answer at all has the code UNAVAILABLE too."""

    def __init__(self, code, message):
        super().__init__(f"{code}: {message}")
        self.code, self.message = code, message


class Reject(Exception):
    """The message can never succeed: a dead letter at once."""


class Retry(Exception):
    """Failed, and not to be tried before so many milliseconds."""

    def __init__(self, text="", after_ms=0):
        super().__init__(text)
        self.after_ms = after_ms


class Incomplete(Exception):
    """Neither done nor failed ("pending", ...): it comes again after a pause, and costs no try."""

    def __init__(self, outcome="pending", text=""):
        super().__init__(text)
        self.outcome = outcome


@dataclass
class Delivery:
    data: bytes
    headers: dict
    id: str  # the same through retries and redrives; empty in a call
    attempt: int
    max_retries: int
    timeout_ms: int
    generation: int


@dataclass
class Running:
    task: asyncio.Task = None
    expired: bool = False  # stopped for its time limit
    handed_back: bool = False  # already answered cancelled: what it says now is of no use


@dataclass
class Finished:
    at: float
    outcome: str
    error: str
    retry_after_ms: int


async def connect(url="nats://127.0.0.1:4222"):
    mesh = Mesh()
    # Short pings, since a connection that is dead without a sign must be noticed before the 15 s of silence are over.
    mesh.nc = await nats.connect(
        url, max_reconnect_attempts=-1, reconnect_time_wait=0.5, ping_interval=4, max_outstanding_pings=2,
        disconnected_cb=mesh._on_disconnected, reconnected_cb=mesh._on_reconnected, error_cb=mesh._on_error)
    return mesh


class Mesh:
    def __init__(self):
        self.worker_id = "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(22))
        # The name is stable over restarts (no pid): an observer's id is given back to who has the same name.
        self.name = f"{socket.gethostname()}/{os.path.basename(sys.argv[0]) or 'python'}"[:256]
        self.nc, self.revision, self.keepalive_s = None, 0, 5
        self.specs, self.handlers, self.slots = [], {}, {}  # what is declared; by ref the handlers and free slots
        self.functions, self.call_subs, self.calls = {}, [], set()  # by ref what is declared; calls under way
        self.subjects = set()  # deliver subjects that are subscribed to
        self.epochs = {}  # lane -> the highest epoch seen
        self.running, self.finished = {}, {}  # reply subject -> Running, Finished
        self.arrived = 0.0  # outcomes from before this time have reached the server
        self.losses = 0  # of the connection
        self.started = self.draining = self.handing_back = False
        self.hello_lock, self.tasks, self.inbox = asyncio.Lock(), set(), None

    # -- publishing

    async def publish_queue(self, execution, route, data, **more):
        return await self._publish(f"wb.v1.pub.queue.{execution}.{route}", data, **more)

    async def publish_topic(self, topic, data, **more):
        return await self._publish(f"wb.v1.pub.topic.{topic}", data, **more)

    async def define(self, queue, **config):
        """Defines a named queue, or changes it; says whether it was another before."""
        body = json.dumps({"queue": queue, "config": config}).encode()
        answer = await self._request("wb.v1.registry.define", body)
        for warning in answer.get("warnings", []):
            log.warning("the mesh warns: %s", warning)
        return answer["changed"]

    async def enqueue(self, queue, function, data, namespace="default", receipt=None, headers=None, dedup_id=None):
        """Leaves a job, with any JSON value as the function's input, until somebody who serves the function takes it."""
        headers = {**(headers or {}), "Waybill-Function": function, "Waybill-Namespace": namespace}
        if receipt:
            headers["Waybill-Receipt"] = receipt
        return await self._publish(f"wb.v1.pub.job.{queue}", json.dumps(data).encode(), headers, dedup_id)

    async def call(self, function, data, namespace="default"):
        """A function's answer to any JSON value. Nobody there is UNAVAILABLE."""
        return await self._request(f"wb.v1.fn.{namespace}.{function}", json.dumps(data).encode())

    async def _publish(self, subject, data, headers=None, dedup_id=None):
        # Always with an id, so that it can be said again when nobody knows whether it was heard.
        headers = {**(headers or {}), "Nats-Msg-Id": dedup_id or secrets.token_hex(16)}
        for pause in (0.25, 0.5, 1, 2, 4, None):
            try:
                return await self._request(subject, data, headers)
            except WaybillError as e:
                if e.code != "UNAVAILABLE" or pause is None:
                    raise
            await asyncio.sleep(pause)

    async def _request(self, subject, data, headers=None):
        """The answer's document. Nobody there, no answer and no connection are all UNAVAILABLE: to be asked again."""
        try:
            answer = await self.nc.request(subject, data, timeout=REQUEST_S, headers=headers)
        except nats.errors.MaxPayloadError as e:
            raise WaybillError("PAYLOAD_TOO_LARGE", str(e)) from e
        except (nats.errors.BadSubjectError, ValueError) as e:
            raise WaybillError("INVALID_NAME", subject) from e
        except LOST as e:
            raise WaybillError("UNAVAILABLE", repr(e)) from e
        body = json.loads(answer.data or b"{}")
        if isinstance(body, dict) and "code" in body and "error" in body:
            raise WaybillError(body["code"], body.get("message", ""))
        return body

    # -- declaring

    def work(self, execution, route, handler, **options):
        self._declare(handler, kind="work", execution=execution, route=route, **options)

    def observe(self, topic, handler, **options):
        self._declare(handler, kind="observe", topic=topic, **options)

    def listen(self, topic, handler, **options):
        self._declare(handler, kind="listen", topic=topic, **options)

    def serve(self, function, handler, namespace="default", concurrency=10):
        """Answers calls of a function, and takes jobs for it: so many at once of each queue that has some."""
        ref = f"{namespace}.{function}"
        self.functions[ref] = {"namespace": namespace, "id": function, "concurrency": concurrency}
        self.handlers[ref] = handler
        self.slots[ref] = float("inf")  # how many queues there are only the mesh knows

    def _declare(self, handler, **spec):  # options are the fields of a subscription, as the protocol names them
        ref = str(len(self.specs))
        self.specs.append({"ref": ref, **spec})
        self.handlers[ref] = handler
        self.slots[ref] = spec.get("concurrency", 10)

    async def start(self):
        """Returns when the declaration is in force. Raises WaybillError if the mesh refused it or any part of it."""
        await self.nc.subscribe(f"wb.v1.worker.{self.worker_id}.probe", cb=self._on_probe)
        await self.nc.subscribe(f"wb.v1.worker.{self.worker_id}.claims", cb=self._on_claims)
        self.inbox = self.nc.new_inbox()
        await self.nc.subscribe(self.inbox, cb=self._on_keepalive_reply)
        for ref in self.functions:
            on_call = functools.partial(self._on_call, ref)
            self.call_subs.append(await self.nc.subscribe(f"wb.v1.fn.{ref}", queue="fn", cb=on_call))
        refused = await self._hello()
        self.started = True
        for r in refused:
            await self.stop()
            raise WaybillError(r["error"]["code"], r["error"]["message"])
        self._spawn(self._keep_alive())

    async def _hello(self):
        """Says what we want until it is heard; returns what was refused."""
        async with self.hello_lock:
            pause = 0.25
            while True:
                self.revision += 1
                hello = {"worker_id": self.worker_id, "name": self.name, "revision": self.revision,
                         "subscriptions": [{**spec, "draining": self.draining} for spec in self.specs],
                         "functions": [] if self.draining else list(self.functions.values()), "jobs": not self.draining}
                try:
                    answer = await self._request("wb.v1.registry.hello", json.dumps(hello).encode())
                    break
                except WaybillError as e:
                    # CONFLICT: a later one was heard, or our bye; the next revision is newer.
                    if e.code not in ("UNAVAILABLE", "CONFLICT"):
                        raise
                    log.warning("hello: %s", e)
                await asyncio.sleep(pause)
                pause = min(pause * 2, 10)
            arrives = {got["deliver"]: got["ref"] for got in answer.get("subscriptions", [])}
            for got in answer.get("functions", []):
                if got.get("deliver"):  # a mesh that knows of no jobs gives none
                    arrives[got["deliver"]] = f"{got['namespace']}.{got['id']}"
            for deliver, ref in arrives.items():
                if deliver not in self.subjects:
                    self.subjects.add(deliver)
                    await self.nc.subscribe(deliver, cb=functools.partial(self._on_delivery, ref))
            for warning in answer.get("warnings", []):
                log.warning("the mesh warns: %s", warning)
            self.keepalive_s = answer["keepalive_ms"] / 1000
        await self._send_keepalive()
        return answer.get("refused", [])

    async def _hello_again(self):
        if self.hello_lock.locked():
            return  # one is on its way, and it says everything
        try:
            refused = await self._hello()
        except WaybillError as e:
            log.error("hello: %s", e)  # the next keepalive's answer makes us ask again
            return
        for r in refused:
            log.error("refused, asking again soon: %s", r)
        if refused:
            await asyncio.sleep(10)
            self._spawn(self._hello_again())

    # -- staying alive

    async def _keep_alive(self):
        while True:
            await asyncio.sleep(self.keepalive_s)
            await self._send_keepalive()

    async def _send_keepalive(self):
        now, losses = time.monotonic(), self.losses
        keepalive = json.dumps({"revision": self.revision, "in_flight": len(self.running)}).encode()
        try:
            await self.nc.publish(f"wb.v1.keepalive.{self.worker_id}", keepalive, reply=self.inbox)
            await self.nc.flush(REQUEST_S)
        except LOST:
            return
        if losses == self.losses:  # else the flush was answered on another connection than the outcomes went
            self.arrived = now
        for reply, f in list(self.finished.items()):
            if f.at < min(self.arrived, now - MINUTE):
                del self.finished[reply]

    async def _on_probe(self, msg):
        await msg.respond(b"")

    async def _on_keepalive_reply(self, msg):
        # NATS itself may answer too, with 503 and nothing: that only says that no registry is there at the moment.
        if msg.data and json.loads(msg.data).get("known") is False:
            self._spawn(self._hello_again())

    async def _on_error(self, e):  # what the client tries again by itself
        log.info("nats: %r", e)

    async def _on_disconnected(self):
        self.losses += 1

    async def _on_reconnected(self):
        if self.started:
            self._spawn(self._resume())

    async def _resume(self):
        """The client has subscribed again by itself; the rest is ours."""
        for reply, f in list(self.finished.items()):
            if f.at >= self.arrived:
                await self._say(reply, f)
        await self._hello_again()

    # -- deliveries

    async def _on_delivery(self, ref, msg):
        headers = dict(msg.headers or {})
        reply = msg.reply
        if not reply.startswith("wb.v1.outcome.") or "Waybill-Message-Id" not in headers:
            return
        if not self._is_current(reply.split(".")[3], int(headers.get("Waybill-Epoch", 0))):
            return  # from a router that has lost the lane
        if reply in self.running:
            return  # its outcome will do
        if self.handing_back:
            await self._finish(reply, "cancelled")
            return
        known = self.finished.get(reply)
        if known and known.outcome != "cancelled":
            await self._say(reply, known)
            return
        if self.slots[ref] <= 0:
            # The mesh keeps to the concurrency, but does not count handlers that outstay their time limit: we do. What
            # they leave no room for is not queued here, where its time would run, but handed back to come again.
            await self._finish(reply, "cancelled")
            return
        self.slots[ref] -= 1
        numbers = "x-delivery-attempt", "Waybill-Max-Retries", "Waybill-Timeout-Ms", "Waybill-Generation"
        delivery = Delivery(
            msg.data, headers, headers["Waybill-Message-Id"], *(int(headers.get(name, 0)) for name in numbers))
        self.finished.pop(reply, None)  # handed back once: claims name it as running alone
        run = self.running[reply] = Running()
        run.task = self._spawn(self._run(ref, reply, run, delivery))

    def _is_current(self, lane, epoch):
        if epoch < self.epochs.get(lane, 0):
            return False
        self.epochs[lane] = epoch
        return True

    async def _run(self, ref, reply, run, delivery):
        def expire():
            run.expired = True
            run.task.cancel()

        limit = asyncio.get_running_loop().call_later((delivery.timeout_ms or 1800000) / 1000, expire)
        try:
            await self.handlers[ref](delivery)
            outcome = "acknowledged", "", 0
        except Reject as e:
            outcome = "rejected", str(e), 0
        except Incomplete as e:
            outcome = e.outcome, str(e), 0
        except Retry as e:
            outcome = "failed", str(e), e.after_ms
        except asyncio.CancelledError:
            # The mesh has concluded a timeout by itself, or is about to: the same as to have failed.
            outcome = ("failed", "the time limit is over", 0) if run.expired else ("cancelled", "", 0)
        except Exception as e:
            outcome = "failed", f"{type(e).__name__}: {e}", 0
        finally:
            self.slots[ref] += 1  # before the outcome is said, since that brings the next delivery
            limit.cancel()
        if not run.handed_back:
            await self._finish(reply, *outcome)

    async def _finish(self, reply, outcome, error="", retry_after_ms=0):
        error = error.encode("utf-8", "replace")[:ERROR_BYTES].decode("utf-8", "ignore")
        f = self.finished[reply] = Finished(time.monotonic(), outcome, error, retry_after_ms)
        self.running.pop(reply, None)  # in one step with the line before: claims must find it in one of the two
        await self._say(reply, f)

    async def _say(self, reply, f):
        headers = None if f.outcome == "acknowledged" else {"Waybill-Outcome": f.outcome}
        if f.outcome == "failed" and f.retry_after_ms:
            headers["Waybill-Retry-After-Ms"] = str(int(f.retry_after_ms))
        try:
            await self.nc.publish(reply, f.error.encode(), headers=headers)
        except LOST as e:
            log.info("an outcome waits for the connection: %r", e)

    async def _on_claims(self, msg):
        """A router asks what we hold of a lane. The running ones first, if too many."""
        asked = json.loads(msg.data)
        self._is_current(asked["lane"], asked["epoch"])
        prefix = f"wb.v1.outcome.{asked['lane']}."
        room = self.nc.max_payload // 2 - 64  # the answer is to be under half of that
        held = [("running", reply.removeprefix(prefix)) for reply in self.running if reply.startswith(prefix)]
        for reply, f in reversed(self.finished.items()):  # the latest ones are the likeliest to be lost
            if reply.startswith(prefix):
                held.append(("finished", {"token": reply.removeprefix(prefix), "outcome": f.outcome, "error": f.error,
                                          "retry_after_ms": int(f.retry_after_ms)}))
        claims = {"running": [], "finished": []}
        for where, item in held:
            room -= len(json.dumps(item)) + 2
            if room < 0:
                break
            claims[where].append(item)
        await msg.respond(json.dumps(claims).encode())

    # -- calls

    async def _on_call(self, ref, msg):
        task = self._spawn(self._answer(ref, msg))
        self.calls.add(task)
        task.add_done_callback(self.calls.discard)

    async def _answer(self, ref, msg):
        headers = dict(msg.headers or {})
        limit = int(headers.get("Waybill-Timeout-Ms", 0))
        said = None
        try:
            async with asyncio.timeout(limit / 1000 if limit else None):
                body = json.dumps(await self.handlers[ref](Delivery(msg.data, headers, "", 1, 1, limit, 0)))
        except Exception as e:
            coded = e if isinstance(e, WaybillError) else WaybillError("FUNCTION_FAILED", f"{type(e).__name__}: {e}")
            said = {"Nats-Service-Error": coded.code, "Nats-Service-Error-Code": "502"}
            body = json.dumps({"code": coded.code, "message": coded.message,
                               "error": {"code": 502, "description": str(coded)}})
        with contextlib.suppress(*LOST):
            await self.nc.publish(msg.reply, body.encode(), headers=said)

    # -- stopping

    async def stop(self, window=10):
        """Takes nothing new, lets handlers finish for so many seconds, hands the others back, and says good-bye."""
        if self.started:
            end = time.monotonic() + window
            self.draining = True
            try:
                await asyncio.wait_for(self._hello(), max(window, 1))
            except (WaybillError, asyncio.TimeoutError) as e:
                log.warning("stopping, but the mesh was not told: %r", e)
            for sub in self.call_subs:
                with contextlib.suppress(*LOST):
                    await sub.unsubscribe()
            while (self.running or self.calls) and time.monotonic() < end:
                under_way = [run.task for run in self.running.values()] + list(self.calls)
                await asyncio.wait(under_way, timeout=max(0, end - time.monotonic()))
            self.handing_back = True
            for reply, run in list(self.running.items()):
                run.handed_back = True  # said now, since a handler need not heed its cancellation
                await self._finish(reply, "cancelled")
                run.task.cancel()
            bye = json.dumps({"worker_id": self.worker_id, "revision": self.revision}).encode()
            try:
                await self.nc.flush(5)
                await asyncio.wait_for(self._request("wb.v1.registry.bye", bye), 5)
            except (WaybillError, *LOST) as e:
                log.warning("no good-bye: %r", e)  # the mesh notices by our silence
        for task in self.tasks:
            task.cancel()
        with contextlib.suppress(*LOST):
            await self.nc.close()

    def _spawn(self, work):
        task = asyncio.create_task(work)
        self.tasks.add(task)  # the loop alone would not keep it
        task.add_done_callback(self.tasks.discard)
        return task
