// Package ledger is the durable, fenced, group-committed log that the router,
// retry and dlq services stand on.
package ledger
