"""Publish to a Waybill mesh and work for it, with nats-py and nothing else (Python 3.11 or later).

Written from docs/protocol.md; the section that a piece of code keeps is named there.
"""

import asyncio
import json
import logging
import os
import secrets
import socket
import string
import sys
import time
from dataclasses import dataclass, field

import nats
from nats.errors import Error as NATSError, NoRespondersError, TimeoutError as NATSTimeout

ANSWER_TIME = 10  # seconds, for every request
REMEMBER = 60  # seconds, outcomes
MAX_ERROR = 8 << 10  # bytes, of an error's text

log = logging.getLogger("waybill")


class WaybillError(Exception):
    """A refusal, with its code; TIMEOUT and UNAVAILABLE may be tried again."""

    def __init__(self, code, message):
        super().__init__(f"{code}: {message}")
        self.code = code


class Reject(Exception):
    """Raised by a handler: the message can never succeed."""


class RetryAfter(Exception):
    """Raised by a handler: the message has failed, and is not tried again before that."""

    def __init__(self, text, seconds):
        super().__init__(text)
        self.milliseconds = int(seconds * 1000)


@dataclass
class Delivery:
    """One attempt at one message."""

    id: str
    attempt: int
    max_retries: int
    generation: int
    headers: dict
    data: bytes


@dataclass
class Subscription:
    spec: dict  # as it stands in hello
    handler: object  # async def handler(delivery)
    deliver: str = ""
    refused: dict = None


@dataclass
class Memory:
    """What a worker knows of its deliveries, by their reply subjects."""

    running: dict = field(default_factory=dict)  # reply subject: task
    finished: dict = field(default_factory=dict)  # reply subject: Finished, oldest first
    epochs: dict = field(default_factory=dict)  # lane: the highest that was seen

    def is_former(self, lane, epoch):
        """Whether a lane's owner is a former one; otherwise the epoch is noted."""
        if epoch < self.epochs.get(lane, 0):
            return True
        self.epochs[lane] = epoch
        return False

    def forget_old(self):
        for reply, end in list(self.finished.items()):
            if time.monotonic() - end.at < REMEMBER:
                return
            del self.finished[reply]


@dataclass
class Finished:
    outcome: str
    text: str = ""
    retry_after_ms: int = 0
    at: float = field(default_factory=time.monotonic)
    sent: bool = False  # the server is known to have it


async def connect(url="nats://127.0.0.1:4222", name=None, **options):
    """A Mesh, which reconnects for ever. Options are those of nats.connect."""
    mesh = Mesh(name or f"{socket.gethostname()}/{os.path.basename(sys.argv[0]) or 'python'}")
    mesh.nc = await nats.connect(
        url, name=mesh.name, max_reconnect_attempts=-1, reconnect_time_wait=0.1, reconnected_cb=mesh._reconnected, **options)
    return mesh


class Mesh:
    """A connection: publish(), and work() and observe() followed by start()."""

    def __init__(self, name):
        self.name = name
        self.nc = None
        alphabet = string.ascii_letters + string.digits
        self.worker_id = "".join(secrets.choice(alphabet) for _ in range(22))
        self.subscriptions = {}  # ref: Subscription
        self.memory = Memory()
        self.revision = 0
        self.draining = False
        self._keepalive_s = 5
        self._talking = asyncio.Lock()
        self._inbox = None
        self._beating = None
        self._renewing = None

    # Publish

    async def publish_queue(self, execution, route, data, **options):
        """Publishes to a route of an execution; returns the answer once it is stored."""
        return await self._publish(f"wb.v1.pub.queue.{execution}.{route}", data, **options)

    async def publish_topic(self, topic, data, **options):
        """Publishes to everybody who subscribes to a topic."""
        return await self._publish(f"wb.v1.pub.topic.{topic}", data, **options)

    async def _publish(self, subject, data, headers=None, dedup_id=None, delay_ms=None, group=None, priority=None):
        headers = dict(headers or {})
        for name, value in (("Nats-Msg-Id", dedup_id), ("Waybill-Delay-Ms", delay_ms), ("Waybill-Group", group), ("Waybill-Priority", priority)):
            if value is not None:
                headers[name] = str(value)
        return await self._request(subject, data, headers or None)

    async def _request(self, subject, data, headers=None):
        try:
            answer = await self.nc.request(subject, data, timeout=ANSWER_TIME, headers=headers)
        except NoRespondersError:
            raise WaybillError("UNAVAILABLE", f"nobody answers {subject}; nothing was done") from None
        except (NATSTimeout, asyncio.TimeoutError):
            raise WaybillError("TIMEOUT", f"no answer from {subject}; it may have been done") from None
        body = json.loads(answer.data or b"{}")
        if "error" in body and "code" in body:
            raise WaybillError(body["code"], body.get("message", ""))
        return body

    # Work

    def work(self, execution, route, handler, **policy):
        """Handles a route's messages from start() on. policy: concurrency, max_retries, backoff_ms, timeout_ms, type, …"""
        self._add({"execution": execution, "route": route, **policy}, handler)

    def observe(self, topic, handler, **policy):
        """Handles a topic's messages from a durable queue; policy also: observer_id, group, filters."""
        self._add({"kind": "observe", "topic": topic, **policy}, handler)

    def listen(self, topic, handler, **policy):
        """Handles what is published to a topic from now on, in one attempt each."""
        self._add({"kind": "listen", "topic": topic, **policy}, handler)

    def _add(self, spec, handler):
        ref = str(len(self.subscriptions) + 1)
        self.subscriptions[ref] = Subscription({"ref": ref, **spec}, handler)

    async def start(self):
        """Returns when the mesh knows this worker. Raises what the mesh refuses."""
        me = f"wb.v1.worker.{self.worker_id}"
        self._inbox = self.nc.new_inbox()
        await self.nc.subscribe(me + ".probe", cb=self._probed)
        await self.nc.subscribe(me + ".claims", cb=self._claims)
        await self.nc.subscribe(self._inbox, cb=self._keepalive_answered)
        await self._hello()
        for s in self.subscriptions.values():
            if s.refused:
                raise WaybillError(s.refused["code"], s.refused["message"])
        self._beating = asyncio.create_task(self._beat())

    async def _hello(self):
        async with self._talking:
            self.revision += 1
            answer = await self._request("wb.v1.registry.hello", json.dumps({
                "worker_id": self.worker_id, "name": self.name, "sdk": "example-python", "revision": self.revision,
                "subscriptions": [{**s.spec, "draining": self.draining} for s in self.subscriptions.values()],
            }).encode())
            self._keepalive_s = answer["keepalive_ms"] / 1000
            for warning in answer.get("warnings") or []:
                log.warning("the registry warns: %s", warning)
            for refused in answer.get("refused") or []:
                self.subscriptions[refused["ref"]].refused = refused["error"]
            for registered in answer.get("subscriptions") or []:
                s = self.subscriptions[registered["ref"]]
                s.refused = None
                if s.deliver != registered["deliver"]:
                    s.deliver = registered["deliver"]
                    await self.nc.subscribe(s.deliver, cb=self._receiver(s))
            await self._say_alive()

    async def _say_alive(self):
        """A keepalive. Outcomes that went before it on the connection have reached the server when it is flushed."""
        before = list(self.memory.finished.values())
        beat = json.dumps({"revision": self.revision, "in_flight": len(self.memory.running)}).encode()
        await self.nc.publish(f"wb.v1.keepalive.{self.worker_id}", beat, reply=self._inbox)
        await self.nc.flush(ANSWER_TIME)
        for end in before:
            end.sent = True
        self.memory.forget_old()

    async def _beat(self):
        while True:
            await asyncio.sleep(self._keepalive_s)
            try:
                await self._say_alive()
            except (NATSError, asyncio.TimeoutError) as e:
                log.info("no keepalive: %s", e)

    async def _keepalive_answered(self, msg):
        if not msg.headers and json.loads(msg.data).get("known") is False:
            self._renew()

    async def _reconnected(self):
        if not self._inbox:
            return  # nothing but publishes
        for reply, end in list(self.memory.finished.items()):
            if not end.sent:
                await self._tell(reply, end)
        self._renew()

    def _renew(self):
        """Says hello again until it is taken."""
        if self._renewing is None or self._renewing.done():
            self._renewing = asyncio.create_task(self._hello_until_taken())

    async def _hello_until_taken(self):
        wait = 0.25
        while True:
            try:
                return await self._hello()
            except (WaybillError, NATSError, asyncio.TimeoutError) as e:
                log.warning("hello was not taken: %s", e)
            await asyncio.sleep(wait)
            wait = min(2 * wait, 10)

    # Handle deliveries

    def _receiver(self, subscription):
        async def receive(msg):
            lane, token = lane_and_token(msg.reply)
            memory = self.memory
            if not token or memory.is_former(lane, number(msg.headers, "Waybill-Epoch")):
                return
            if msg.reply in memory.running:
                return  # its outcome will do
            end = memory.finished.get(msg.reply)
            if end and end.outcome != "cancelled":
                await self._tell(msg.reply, end)
            elif self.draining:
                await self._finish(msg.reply, Finished("cancelled", "the worker is shutting down"))
            else:
                memory.finished.pop(msg.reply, None)
                memory.running[msg.reply] = asyncio.create_task(self._run(subscription, msg))
        return receive

    async def _run(self, subscription, msg):
        limit = number(msg.headers, "Waybill-Timeout-Ms") / 1000 or None
        clock = asyncio.timeout(limit)
        try:
            async with clock:
                await subscription.handler(delivery_of(msg))
            end = Finished("acknowledged")
        except Reject as e:
            end = Finished("rejected", str(e))
        except RetryAfter as e:
            end = Finished("failed", str(e), e.milliseconds)
        except asyncio.CancelledError:
            end = Finished("cancelled", "the worker is shutting down")
        except Exception as e:  # whatever a handler raises
            end = Finished("failed", f"the time limit of {limit} s has passed" if clock.expired() else f"{type(e).__name__}: {e}")
        await self._finish(msg.reply, end)

    async def _finish(self, reply, end):
        self.memory.running.pop(reply, None)
        self.memory.finished[reply] = end
        await self._tell(reply, end)

    async def _tell(self, reply, end):
        headers = None if end.outcome == "acknowledged" else {"Waybill-Outcome": end.outcome}
        if end.retry_after_ms:
            headers["Waybill-Retry-After-Ms"] = str(end.retry_after_ms)
        try:
            await self.nc.publish(reply, end.text.encode()[:MAX_ERROR], headers=headers)
        except NATSError as e:
            log.info("an outcome waits for the connection: %s", e)

    async def _probed(self, msg):
        await msg.respond(b"")

    async def _claims(self, msg):
        question = json.loads(msg.data)
        self.memory.is_former(question["lane"], question["epoch"])
        self.memory.forget_old()
        running = [token for lane, token in map(lane_and_token, self.memory.running) if lane == question["lane"]]
        finished = []
        for reply, end in self.memory.finished.items():
            lane, token = lane_and_token(reply)
            if lane == question["lane"]:
                finished.append({"token": token, "outcome": end.outcome, "error": end.text, "retry_after_ms": end.retry_after_ms})
        await msg.respond(json.dumps({"running": running, "finished": finished[-1000:]}).encode())

    # Stop

    async def stop(self, window=25):
        """Lets handlers finish, hands back what they do not finish within window seconds, and disconnects."""
        self.draining = True
        if self._inbox:
            try:
                await self._hello()
            except (WaybillError, NATSError, asyncio.TimeoutError) as e:
                log.info("the end is not announced: %s", e)
            tasks = list(self.memory.running.values())
            if tasks:
                _, late = await asyncio.wait(tasks, timeout=window)
                for task in late:
                    task.cancel()
                await asyncio.gather(*late, return_exceptions=True)
            for task in (self._beating, self._renewing):
                if task:
                    task.cancel()
            try:
                await self.nc.flush(ANSWER_TIME)
                await self._request("wb.v1.registry.bye", json.dumps({"worker_id": self.worker_id}).encode())
            except (WaybillError, NATSError, asyncio.TimeoutError) as e:
                log.info("no goodbye: %s", e)
        await self.nc.close()


def lane_and_token(reply):
    """The last two parts of wb.v1.outcome.<lane>.<token>; empty for anything else."""
    parts = reply.split(".")
    if len(parts) == 5 and parts[:3] == ["wb", "v1", "outcome"]:
        return parts[3], parts[4]
    return "", ""


def number(headers, name):
    value = (headers or {}).get(name, "0")
    return int(value) if value.isdigit() else 0


def delivery_of(msg):
    own = {k: v for k, v in (msg.headers or {}).items() if not k.startswith("Waybill-") and k != "x-delivery-attempt"}
    return Delivery(
        id=msg.headers["Waybill-Message-Id"], attempt=number(msg.headers, "x-delivery-attempt"),
        max_retries=number(msg.headers, "Waybill-Max-Retries"), generation=number(msg.headers, "Waybill-Generation"),
        headers=own, data=msg.data)
