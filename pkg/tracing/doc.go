// Package tracing is what the mesh and its SDK say of a message in
// OpenTelemetry: one span for each thing that is done to it, by the messaging
// conventions, all in the trace of its publish.
//
//	publish       who published it: the SDK, the gateway, or, for a publisher without a span, the router
//	├ deliver     an attempt, from its dispatch to its outcome, by the router
//	│ ├ process   the handler, by the SDK
//	│ ├ wait      between a failure and the next attempt, by the service that holds it
//	│ └ dead_letter
//	└ deliver     the next attempt, linked to publish and to the attempt before
//	              and, after a redrive, to the redrive, which is in the operator's trace
//
// The message's own traceparent is never changed. Whether it is traced is its
// publisher's decision: nothing is done for one that is not sampled.
package tracing
