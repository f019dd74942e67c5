// Package ledger is the durable, fenced, group-committed log that the router,
// retry and dlq services stand on.
//
// A ledger is an append-only log of records, kept on one subject of a JetStream
// stream, and a pure state machine over them. Several ledgers share a stream.
//
// A commit is one frame of all records that wait, published as one message:
// atomic because it is one message, synced once, and fenced by the log itself,
// since it names the sequence it must follow. So a ledger has one writer.
// Another takes over by writing a record with a higher epoch; from then on the
// older one's commits are refused.
//
// What became of a commit whose answer was lost is found out before anything
// else is written (resolve.go). A message leaves for another ledger in three
// steps: decided here, accepted there, done here. The steps are numbered per
// pair of ledgers, so that repeating one has no effect (courier.go,
// receiver.go). Messages still live in old frames are written forward, so that
// the log behind them can be purged (forward.go, janitor.go).
//
// The goroutine of Running is the only one that touches a ledger. Everything
// slow (reading, handing over, resolving) is done outside of it and its result
// brought back in.
package ledger
