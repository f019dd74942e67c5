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

// Delivery is one attempt at one message, or a call of a function, without id. Its signal aborts at the time limit,
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
// else: failed. What a function's handler returns is the answer of a call, as
// JSON, and nobody's after a job.
export type Handler = (d: Delivery) => Promise<unknown>;

// FunctionName says which function, by default in the namespace default.
export interface FunctionName { id: string; namespace?: string }

// QueueConfig is the definition of a named queue, as it stands on the wire.
export interface QueueConfig {
  type?: "standard" | "fifo";
  message_group_field?: string;
  concurrency?: number;
  max_retries?: number;
  backoff_ms?: number;
  timeout_ms?: number;
  max_priority?: number;
  priority_field?: string;
}

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
  functions?: { namespace: string; id: string; deliver?: string }[];
  refused?: Refused[];
  warnings?: string[];
}
interface Subscription { spec: Record<string, unknown>; handler: Handler; room: number; deliver: string; refused?: Refused["error"] }
interface Running { done: Promise<void>; abort: AbortController; handedBack: boolean }
interface Finished { outcome: string; text: string; at: number; sent: boolean }

const pause = (ms: number) => new Promise<void>((done) => setTimeout(done, ms).unref());

// connect connects, and reconnects for ever.
export async function connect(servers = "nats://127.0.0.1:4222", options: NodeConnectionOptions = {}): Promise<Mesh> {
  const name = options.name ?? `${hostname()}/${process.argv[1]?.split("/").pop() ?? "node"}`;
  const nc = await connectNats({ ...options, servers, name, maxReconnectAttempts: -1, reconnectTimeWait: 100 });
  return new Mesh(nc, name);
}

// Mesh is a connection: publish, enqueue and call; work, observe, listen and serve
// followed by start.
export class Mesh {
  private readonly workerId = Array.from({ length: 22 }, () =>
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"[randomInt(62)]).join("");
  private readonly subscriptions = new Map<string, Subscription>(); // by ref
  private readonly functions = new Map<string, Subscription>(); // by <namespace>.<id>
  private readonly calls = new Set<Promise<void>>();
  private callSubscriptions: { unsubscribe(): void }[] = [];
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

  // enqueue leaves a job in a named queue until somebody who serves the function
  // takes it. data is any JSON value, and its input.
  enqueue(queue: string, f: FunctionName, data: unknown, o: PublishOptions & { receipt?: string } = {}): Promise<PublishAck> {
    const h = newHeaders();
    h.set("Waybill-Function", f.id);
    h.set("Waybill-Namespace", f.namespace ?? "default");
    if (o.receipt !== undefined) h.set("Waybill-Receipt", o.receipt);
    return this.publish(`wb.v1.pub.job.${queue}`, JSON.stringify(data), o, h);
  }

  // define defines a named queue, or changes it, and says whether it was another
  // before.
  async define(queue: string, config: QueueConfig): Promise<boolean> {
    const r = await this.request<{ changed: boolean; warnings?: string[] }>("wb.v1.registry.define", JSON.stringify({ queue, config }));
    for (const warning of r.warnings ?? []) console.error("the registry warns:", warning);
    return r.changed;
  }

  // call is a function's answer to any JSON value.
  call<T>(f: FunctionName, data: unknown): Promise<T> {
    return this.request(`wb.v1.fn.${f.namespace ?? "default"}.${f.id}`, JSON.stringify(data));
  }

  private publish(subject: string, data: string | Uint8Array, o: PublishOptions, h = newHeaders()): Promise<PublishAck> {
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
    if (body?.error && body.code) throw new WaybillError(body.code, body.message);
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

  // serve answers calls of a function, and takes jobs for it: so many at once of
  // each queue that has some.
  serve(f: FunctionName, handler: Handler, concurrency = 10) {
    const spec = { namespace: f.namespace ?? "default", id: f.id, concurrency };
    // How many queues have jobs for it only the mesh knows.
    this.functions.set(`${spec.namespace}.${spec.id}`, { spec, handler, room: Infinity, deliver: "" });
  }

  private add(spec: Record<string, unknown>, handler: Handler) {
    const ref = String(this.subscriptions.size + 1);
    this.subscriptions.set(ref, { spec: { ref, ...spec }, handler, room: Number(spec.concurrency ?? 10), deliver: "" });
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
    for (const [name, f] of this.functions) {
      const callback = (_e: unknown, m: Msg) => {
        const answered = this.answerCall(f, m).finally(() => this.calls.delete(answered));
        this.calls.add(answered);
      };
      this.callSubscriptions.push(this.nc.subscribe(`wb.v1.fn.${name}`, { queue: "fn", callback }));
    }
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
      functions: this.draining ? [] : [...this.functions.values()].map((f) => f.spec), jobs: !this.draining,
    }));
    this.keepaliveMs = r.keepalive_ms;
    for (const warning of r.warnings ?? []) console.error("the registry warns:", warning);
    for (const { ref, error } of r.refused ?? []) this.subscriptions.get(ref)!.refused = error;
    for (const { ref, deliver } of r.subscriptions ?? []) {
      const s = this.subscriptions.get(ref)!;
      s.refused = undefined;
      this.arriveOn(s, deliver);
    }
    for (const { namespace, id, deliver } of r.functions ?? []) {
      if (deliver) this.arriveOn(this.functions.get(`${namespace}.${id}`)!, deliver); // a mesh that knows of no jobs gives none
    }
    await this.sayAlive();
  }

  private arriveOn(s: Subscription, deliver: string) {
    if (s.deliver === deliver) return;
    s.deliver = deliver;
    this.nc.subscribe(deliver, { callback: (_e, m) => this.receive(s, m) });
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
      if (end.sent) this.finished.delete(reply); // else it may have been lost with the connection
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
    // The mesh keeps to the concurrency, but does not count handlers that outstay
    // their time limit: we do. What they leave no room for is handed back.
    if (this.draining || s.room <= 0) return this.finish(reply, "cancelled", this.draining ? shutdown.message : "the worker has no room");
    s.room--;
    this.finished.delete(reply);
    const run: Running = { abort: new AbortController(), done: Promise.resolve(), handedBack: false };
    this.running.set(reply, run);
    run.done = this.run(s, m, reply, run);
  }

  // isFormer says whether a lane's owner is a former one; otherwise it notes the epoch.
  private isFormer(lane: string, epoch: number): boolean {
    if (epoch < (this.epochs.get(lane) ?? 0)) return true;
    this.epochs.set(lane, epoch);
    return false;
  }

  private async run(s: Subscription, m: Msg, reply: string, run: Running): Promise<void> {
    const { signal } = run.abort;
    const timer = timeLimit(m, run.abort);
    let outcome = "acknowledged", text = "";
    try {
      await s.handler(deliveryOf(m, signal));
    } catch (e) {
      text = textOf(e);
      outcome = e instanceof Reject ? "rejected" : signal.reason === shutdown ? "cancelled" : "failed";
    } finally {
      clearTimeout(timer);
    }
    s.room++; // before the outcome is said, since that brings the next delivery
    if (!run.handedBack) this.finish(reply, outcome, text);
  }

  private finish(reply: string, outcome: string, text: string) {
    this.running.delete(reply);
    const end = { outcome, text: cut(text), at: Date.now(), sent: false };
    this.finished.delete(reply); // so that it is the newest
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
    let room = this.nc.info!.max_payload / 2 - 64; // the answer is to be under half of that
    const fits = (item: unknown) => (room -= Buffer.byteLength(JSON.stringify(item)) + 1) >= 0;
    const ofLane = (reply: string) => laneAndToken(reply).lane === question.lane;
    const running = [...this.running.keys()].filter(ofLane).map((reply) => laneAndToken(reply).token).filter(fits);
    const finished = [...this.finished].reverse().filter(([reply]) => ofLane(reply)) // the latest are the likeliest to be lost
      .map(([reply, end]) => ({ token: laneAndToken(reply).token, outcome: end.outcome, error: end.text })).filter(fits);
    m.respond(JSON.stringify({ running, finished }));
  }

  // Answer calls

  private async answerCall(f: Subscription, m: Msg): Promise<void> {
    const abort = new AbortController();
    const timer = timeLimit(m, abort);
    try {
      m.respond(JSON.stringify((await f.handler(deliveryOf(m, abort.signal))) ?? null));
    } catch (e) {
      const code = e instanceof WaybillError ? e.code : "FUNCTION_FAILED";
      const h = newHeaders();
      h.set("Nats-Service-Error", code);
      h.set("Nats-Service-Error-Code", "502");
      m.respond(JSON.stringify({ code, message: textOf(e), error: { code: 502, description: `${code}: ${textOf(e)}` } }), { headers: h });
    } finally {
      clearTimeout(timer);
    }
  }

  // Stop

  // stop lets handlers finish, hands back what they do not finish within so many
  // milliseconds, and disconnects.
  async stop(window = 25_000): Promise<void> {
    this.draining = true;
    if (this.inbox) {
      await this.hello().catch(() => undefined); // the registry finds out by itself
      for (const s of this.callSubscriptions) s.unsubscribe();
      const ended = () => Promise.allSettled([...[...this.running.values()].map((r) => r.done), ...this.calls]);
      await Promise.race([ended(), pause(window)]);
      for (const r of this.running.values()) r.abort.abort(shutdown);
      await Promise.race([ended(), pause(1000)]);
      for (const [reply, run] of this.running) {
        run.handedBack = true; // what its handler says after that is nobody's
        this.finish(reply, "cancelled", shutdown.message);
      }
      clearInterval(this.beat);
      await this.nc.flush();
      await this.request("wb.v1.registry.bye", JSON.stringify({ worker_id: this.workerId, revision: this.revision })).catch(() => undefined);
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
    id: m.headers?.get("Waybill-Message-Id") ?? "", attempt: number(m, "x-delivery-attempt"), maxRetries: number(m, "Waybill-Max-Retries"),
    generation: number(m, "Waybill-Generation"), headers: m.headers ?? newHeaders(), data: m.data, text: m.string(), signal,
  };
}

// timeLimit aborts when the time limit of a delivery or a call is over.
function timeLimit(m: Msg, abort: AbortController): NodeJS.Timeout | undefined {
  const limit = number(m, "Waybill-Timeout-Ms");
  if (limit <= 0) return undefined;
  return setTimeout(() => abort.abort(new Error(`the time limit of ${limit} ms has passed`)), Math.min(limit, 2 ** 31 - 1));
}

function textOf(e: unknown): string {
  return e instanceof Error ? e.message : String(e);
}

// cut is a text's beginning that the mesh keeps.
function cut(text: string): string {
  return new TextDecoder().decode(new TextEncoder().encode(text).slice(0, maxError));
}
