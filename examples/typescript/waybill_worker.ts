// Publish to a Waybill mesh and work for it, with @nats-io/transport-node and
// nothing else. Written from docs/protocol.md.

import { randomInt } from "node:crypto";
import { hostname } from "node:os";
import {
  connect as connectNats, errors, headers as newHeaders, type Msg, type MsgHdrs, type NatsConnection, type NodeConnectionOptions,
} from "@nats-io/transport-node";

const answerTime = 10_000; // ms, for every request
const remember = 60_000; // ms, outcomes
const maxError = 8 << 10; // bytes, of an error's text

// WaybillError is a refusal, with its code; TIMEOUT and UNAVAILABLE may be tried again.
export class WaybillError extends Error {
  constructor(readonly code: string, message: string) {
    super(`${code}: ${message}`);
  }
}

// Reject is thrown by a handler: the message can never succeed.
export class Reject extends Error {}

// Delivery is one attempt at one message. Its signal aborts at the time limit,
// and when the worker shuts down and does not wait any longer.
export interface Delivery {
  id: string;
  attempt: number;
  maxRetries: number;
  generation: number;
  headers: MsgHdrs;
  data: Uint8Array;
  text: string;
  signal: AbortSignal;
}

// Handler returns: acknowledged. It throws Reject: rejected. It throws anything
// else: failed.
export type Handler = (d: Delivery) => Promise<void>;

// Policy is what a subscription says beside its name, as it stands in hello.
export interface Policy {
  concurrency?: number;
  max_retries?: number;
  backoff_ms?: number;
  timeout_ms?: number;
  type?: "concurrent" | "fifo";
  observer_id?: string;
  group?: string;
  filters?: unknown;
}

export interface PublishOptions {
  headers?: Record<string, string>;
  dedupId?: string;
  delayMs?: number;
  group?: string;
  priority?: number;
}

export interface PublishAck {
  seq: number;
  message_id: string;
  duplicate?: boolean;
  durability: string;
  listeners: number;
}

interface Refused { ref: string; error: { code: string; message: string } }
interface Registered {
  keepalive_ms: number;
  subscriptions?: { ref: string; deliver: string }[];
  refused?: Refused[];
  warnings?: string[];
}
interface Subscription { spec: Record<string, unknown>; handler: Handler; deliver: string; refused?: Refused["error"] }
interface Running { done: Promise<void>; abort: AbortController }
interface Finished { outcome: string; text: string; at: number; sent: boolean }

const pause = (ms: number) => new Promise<void>((done) => setTimeout(done, ms).unref());

// connect connects, and reconnects for ever.
export async function connect(servers = "nats://127.0.0.1:4222", options: NodeConnectionOptions = {}): Promise<Mesh> {
  const name = options.name ?? `${hostname()}/${process.argv[1]?.split("/").pop() ?? "node"}`;
  const nc = await connectNats({ ...options, servers, name, maxReconnectAttempts: -1, reconnectTimeWait: 100 });
  return new Mesh(nc, name);
}

// Mesh is a connection: publish, and work, observe and listen followed by start.
export class Mesh {
  private readonly workerId = Array.from({ length: 22 }, () =>
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"[randomInt(62)]).join("");
  private readonly subscriptions = new Map<string, Subscription>(); // by ref
  // Deliveries by their reply subjects, and the highest epoch of each lane.
  private readonly running = new Map<string, Running>();
  private readonly finished = new Map<string, Finished>(); // oldest first
  private readonly epochs = new Map<string, number>();
  private revision = 0;
  private draining = false;
  private keepaliveMs = 5000;
  private talking: Promise<unknown> = Promise.resolve();
  private renewing = false;
  private inbox = "";
  private beat?: NodeJS.Timeout;

  constructor(private readonly nc: NatsConnection, private readonly name: string) {}

  // Publish

  publishQueue(execution: string, route: string, data: string | Uint8Array, o: PublishOptions = {}): Promise<PublishAck> {
    return this.publish(`wb.v1.pub.queue.${execution}.${route}`, data, o);
  }

  publishTopic(topic: string, data: string | Uint8Array, o: PublishOptions = {}): Promise<PublishAck> {
    return this.publish(`wb.v1.pub.topic.${topic}`, data, o);
  }

  private publish(subject: string, data: string | Uint8Array, o: PublishOptions): Promise<PublishAck> {
    const h = newHeaders();
    for (const [name, value] of Object.entries(o.headers ?? {})) h.set(name, value);
    if (o.dedupId !== undefined) h.set("Nats-Msg-Id", o.dedupId);
    if (o.delayMs !== undefined) h.set("Waybill-Delay-Ms", String(o.delayMs));
    if (o.group !== undefined) h.set("Waybill-Group", o.group);
    if (o.priority !== undefined) h.set("Waybill-Priority", String(o.priority));
    return this.request(subject, data, h);
  }

  private async request<T>(subject: string, data: string | Uint8Array, h?: MsgHdrs): Promise<T> {
    let answer: Msg;
    try {
      answer = await this.nc.request(subject, data, { timeout: answerTime, headers: h });
    } catch (e) {
      const cause = e instanceof Error && e.cause ? e.cause : e;
      if (cause instanceof errors.NoRespondersError) throw new WaybillError("UNAVAILABLE", `nobody answers ${subject}; nothing was done`);
      throw new WaybillError("TIMEOUT", `no answer from ${subject}; it may have been done: ${cause}`);
    }
    const body = JSON.parse(answer.string() || "{}");
    if (body.error && body.code) throw new WaybillError(body.code, body.message);
    return body as T;
  }

  // Work

  // work handles a route's messages from start on.
  work(execution: string, route: string, handler: Handler, policy: Policy = {}) {
    this.add({ execution, route, ...policy }, handler);
  }

  // observe handles a topic's messages from a durable queue.
  observe(topic: string, handler: Handler, policy: Policy = {}) {
    this.add({ kind: "observe", topic, ...policy }, handler);
  }

  // listen handles what is published to a topic from now on, in one attempt each.
  listen(topic: string, handler: Handler, policy: Policy = {}) {
    this.add({ kind: "listen", topic, ...policy }, handler);
  }

  private add(spec: Record<string, unknown>, handler: Handler) {
    const ref = String(this.subscriptions.size + 1);
    this.subscriptions.set(ref, { spec: { ref, ...spec }, handler, deliver: "" });
  }

  // start returns when the mesh knows this worker; it throws what is refused.
  async start(): Promise<void> {
    const me = `wb.v1.worker.${this.workerId}`;
    this.inbox = `_INBOX.${this.workerId}`;
    this.nc.subscribe(`${me}.probe`, { callback: (_e, m) => void m.respond() });
    this.nc.subscribe(`${me}.claims`, { callback: (_e, m) => this.answerClaims(m) });
    this.nc.subscribe(this.inbox, { callback: (_e, m) => {
      if (!m.headers?.code && m.json<{ known?: boolean }>().known === false) void this.renew();
    } });
    void this.watch();
    await this.hello();
    for (const s of this.subscriptions.values()) {
      if (s.refused) throw new WaybillError(s.refused.code, s.refused.message);
    }
    this.beat = setInterval(() => void this.sayAlive().catch(() => undefined), this.keepaliveMs);
  }

  // hello declares everything, one declaration after another.
  private hello(): Promise<void> {
    const said = this.talking.then(() => this.sayHello());
    this.talking = said.catch(() => undefined);
    return said;
  }

  private async sayHello(): Promise<void> {
    this.revision++;
    const r = await this.request<Registered>("wb.v1.registry.hello", JSON.stringify({
      worker_id: this.workerId, name: this.name, sdk: "example-typescript", revision: this.revision,
      subscriptions: [...this.subscriptions.values()].map((s) => ({ ...s.spec, draining: this.draining })),
    }));
    this.keepaliveMs = r.keepalive_ms;
    for (const warning of r.warnings ?? []) console.error("the registry warns:", warning);
    for (const { ref, error } of r.refused ?? []) this.subscriptions.get(ref)!.refused = error;
    for (const { ref, deliver } of r.subscriptions ?? []) {
      const s = this.subscriptions.get(ref)!;
      s.refused = undefined;
      if (s.deliver !== deliver) {
        s.deliver = deliver;
        this.nc.subscribe(deliver, { callback: (_e, m) => this.receive(s, m) });
      }
    }
    await this.sayAlive();
  }

  // sayAlive sends a keepalive. Outcomes that went before it on the connection
  // have reached the server when it is flushed.
  private async sayAlive(): Promise<void> {
    const before = [...this.finished.values()];
    this.nc.publish(`wb.v1.keepalive.${this.workerId}`, JSON.stringify({ revision: this.revision, in_flight: this.running.size }), { reply: this.inbox });
    await this.nc.flush();
    for (const end of before) end.sent = true;
    this.forgetOld();
  }

  private forgetOld() {
    for (const [reply, end] of this.finished) {
      if (Date.now() - end.at < remember) return;
      this.finished.delete(reply);
    }
  }

  // watch tells the mesh again what it may have missed when a lost connection is back.
  private async watch(): Promise<void> {
    for await (const s of this.nc.status()) {
      if (s.type !== "reconnect") continue;
      for (const [reply, end] of this.finished) if (!end.sent) this.tell(reply, end);
      void this.renew();
    }
  }

  // renew says hello again until it is taken.
  private async renew(): Promise<void> {
    if (this.renewing) return;
    this.renewing = true;
    for (let wait = 250; !this.nc.isClosed(); wait = Math.min(2 * wait, 10_000)) {
      try {
        await this.hello();
        break;
      } catch (e) {
        console.error("hello was not taken:", e instanceof Error ? e.message : e);
        await pause(wait);
      }
    }
    this.renewing = false;
  }

  // Handle deliveries

  private receive(s: Subscription, m: Msg) {
    const reply = m.reply ?? "";
    const { lane, token } = laneAndToken(reply);
    if (!token || this.isFormer(lane, number(m, "Waybill-Epoch")) || this.running.has(reply)) return;
    const end = this.finished.get(reply);
    if (end && end.outcome !== "cancelled") return this.tell(reply, end);
    if (this.draining) return this.finish(reply, "cancelled", "the worker is shutting down");
    this.finished.delete(reply);
    const abort = new AbortController();
    this.running.set(reply, { abort, done: this.run(s, m, reply, abort) });
  }

  // isFormer says whether a lane's owner is a former one; otherwise it notes the epoch.
  private isFormer(lane: string, epoch: number): boolean {
    if (epoch < (this.epochs.get(lane) ?? 0)) return true;
    this.epochs.set(lane, epoch);
    return false;
  }

  private async run(s: Subscription, m: Msg, reply: string, abort: AbortController): Promise<void> {
    await Promise.resolve(); // first it is noted as running
    const limit = number(m, "Waybill-Timeout-Ms");
    const timer = limit > 0 ? setTimeout(() => abort.abort(new Error(`the time limit of ${limit} ms has passed`)), Math.min(limit, 2 ** 31 - 1)) : undefined;
    try {
      await s.handler(deliveryOf(m, abort.signal));
      this.finish(reply, "acknowledged", "");
    } catch (e) {
      const text = e instanceof Error ? e.message : String(e);
      this.finish(reply, e instanceof Reject ? "rejected" : abort.signal.reason === shutdown ? "cancelled" : "failed", text);
    } finally {
      clearTimeout(timer);
    }
  }

  private finish(reply: string, outcome: string, text: string) {
    this.running.delete(reply);
    if (this.finished.get(reply)?.outcome === "cancelled") return; // handed back before it ended
    const end = { outcome, text: cut(text), at: Date.now(), sent: false };
    this.finished.set(reply, end);
    this.tell(reply, end);
  }

  private tell(reply: string, end: Finished) {
    if (end.outcome === "acknowledged") return this.nc.publish(reply);
    const h = newHeaders();
    h.set("Waybill-Outcome", end.outcome);
    this.nc.publish(reply, end.text, { headers: h });
  }

  private answerClaims(m: Msg) {
    const question = m.json<{ lane: string; epoch: number }>();
    this.isFormer(question.lane, question.epoch);
    this.forgetOld();
    const running = [...this.running.keys()].map(laneAndToken).filter((r) => r.lane === question.lane).map((r) => r.token);
    const finished = [...this.finished].map(([reply, end]) => ({ ...laneAndToken(reply), outcome: end.outcome, error: end.text }))
      .filter((f) => f.lane === question.lane).map(({ token, outcome, error }) => ({ token, outcome, error }));
    m.respond(JSON.stringify({ running, finished: finished.slice(-1000) }));
  }

  // Stop

  // stop lets handlers finish, hands back what they do not finish within so many
  // milliseconds, and disconnects.
  async stop(window = 25_000): Promise<void> {
    this.draining = true;
    if (this.inbox) {
      await this.hello().catch(() => undefined); // the registry finds out by itself
      const ended = () => Promise.allSettled([...this.running.values()].map((r) => r.done));
      await Promise.race([ended(), pause(window)]);
      for (const r of this.running.values()) r.abort.abort(shutdown);
      await Promise.race([ended(), pause(1000)]);
      for (const reply of [...this.running.keys()]) this.finish(reply, "cancelled", shutdown.message);
      clearInterval(this.beat);
      await this.nc.flush();
      await this.request("wb.v1.registry.bye", JSON.stringify({ worker_id: this.workerId })).catch(() => undefined);
    }
    await this.nc.close();
  }
}

const shutdown = new Error("the worker is shutting down");

// laneAndToken are the last two parts of wb.v1.outcome.<lane>.<token>; empty for
// anything else.
function laneAndToken(reply: string): { lane: string; token: string } {
  const [, lane = "", token = ""] = /^wb\.v1\.outcome\.([^.]+)\.([^.]+)$/.exec(reply) ?? [];
  return { lane, token };
}

function number(m: Msg, name: string): number {
  return Number(m.headers?.get(name) || 0);
}

function deliveryOf(m: Msg, signal: AbortSignal): Delivery {
  return {
    id: m.headers!.get("Waybill-Message-Id"), attempt: number(m, "x-delivery-attempt"), maxRetries: number(m, "Waybill-Max-Retries"),
    generation: number(m, "Waybill-Generation"), headers: m.headers!, data: m.data, text: m.string(), signal,
  };
}

// cut is a text's beginning that the mesh keeps.
function cut(text: string): string {
  return new TextDecoder().decode(new TextEncoder().encode(text).slice(0, maxError));
}
