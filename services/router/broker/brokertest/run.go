// Package brokertest is the conformance suite of brokers: what a program sees
// of a mesh must not depend on where its messages are kept. It speaks the wire
// only, as a program in any language would.
package brokertest

import (
	"slices"
	"strings"
	"testing"

	"github.com/waybill-mq/waybill/services/router/broker"
)

// Target is a running mesh, one of each service, whose queues are on the broker under
// test.
type Target struct {
	// URL of its NATS.
	URL string
	// Broker is the name that publish answers carry.
	Broker       string
	Capabilities broker.Capabilities
	// Restart stops the mesh, NATS included, and starts it again on the same
	// data and address.
	Restart func(t *testing.T)
	// Sever cuts every connection between the running mesh and what keeps its
	// messages, and lets it connect again.
	Sever func(t *testing.T)
	// Undecided stops the retry service, which decides what becomes of a delivery that
	// was not acknowledged, until decide is called.
	Undecided func(t *testing.T) (decide func())
	// Put puts a message straight into a queue, as another program would that
	// knows the broker and not the mesh. queue is as in Subscription. nil for a
	// broker that is not Open.
	Put func(t *testing.T, queue string, headers map[string]any, body []byte)
}

type testCase struct {
	name string
	test func(*suite)
}

// together are the tests that share the mesh and run side by side.
var together = []testCase{
	{"PublishAnswer", (*suite).publishAnswer},
	{"PublishRefused", (*suite).publishRefused},
	{"ReservedHeaders", (*suite).reservedHeaders},
	{"PublishBursts", (*suite).publishBursts},
	{"Dedup", (*suite).dedup},
	{"EitherForm", (*suite).eitherForm},
	{"OneConsumerPerMessage", (*suite).oneConsumer},
	{"Acknowledged", (*suite).acknowledged},
	{"PlainReplies", (*suite).plainReplies},
	{"Failed", (*suite).failed},
	{"Budget", (*suite).budget},
	{"Backoff", (*suite).backoff},
	{"RetryAfter", (*suite).retryAfter},
	{"Rejected", (*suite).rejected},
	{"Incomplete", (*suite).incomplete},
	{"NotForWorkers", (*suite).notForWorkers},
	{"IncompleteForEver", (*suite).incompleteForEver},
	{"Cancelled", (*suite).cancelled},
	{"Timeout", (*suite).timeout},
	{"NobodyThere", (*suite).nobodyThere},
	{"LateListener", (*suite).lateListener},
	{"Vanished", (*suite).vanished},
	{"FirstOutcomeCounts", (*suite).firstOutcome},
	{"DeadLetter", (*suite).deadLetter},
	{"Redrive", (*suite).redrive},
	{"Discard", (*suite).discard},
	{"Headers", (*suite).headers},
	{"Names", (*suite).names},
	{"TopicNames", (*suite).topicNames},
	{"LongNames", (*suite).longNames},
	{"Counters", (*suite).counters},
	{"Largest", (*suite).largest},
	{"ShortPassesLong", (*suite).shortPassesLong},
	{"Superseded", (*suite).superseded},
	{"Foreign", (*suite).foreign},
	{"FreshFlowPastFailing", (*suite).freshFlow},
	{"Isolation", (*suite).isolation},
	{"Concurrency", (*suite).concurrency},
	{"Paused", (*suite).paused},
	{"Fairness", (*suite).fairness},
	{"Order", (*suite).order},
	{"FIFOHolds", (*suite).fifoHolds},
	{"FIFOGroups", (*suite).fifoGroups},
	{"FIFOKeepsPlace", (*suite).fifoKeepsPlace},
	{"FIFOWorkersComeAndGo", (*suite).fifoComings},
	{"FIFOTimeout", (*suite).fifoTimeout},
	{"FIFOVanished", (*suite).fifoVanished},
	{"FIFOObserved", (*suite).fifoObserved},
	{"FIFOObservedBlocks", (*suite).fifoObservedBlocks},
	{"Blocked", (*suite).blocked},
	{"FIFORandom", (*suite).fifoRandom},
	{"Priority", (*suite).priority},
	{"PriorityIgnored", (*suite).priorityIgnored},
	{"OrderRefused", (*suite).orderRefused},
	{"Topic", (*suite).topicCopies},
	{"TopicNobody", (*suite).topicNobody},
	{"TopicRefused", (*suite).topicRefused},
	{"TopicDedup", (*suite).topicDedup},
	{"ObserverRetries", (*suite).observerRetries},
	{"ObserverReturns", (*suite).observerReturns},
	{"ObserverRemoved", (*suite).observerRemoved},
	{"ObserverConflict", (*suite).observerConflict},
	{"Group", (*suite).group},
	{"GroupMemberKilled", (*suite).groupMemberKilled},
	{"Listener", (*suite).listener},
	{"ListenerGone", (*suite).listenerGone},
	{"FanOut", (*suite).fanOut},
	{"TopicDeadLetters", (*suite).topicDeadLetters},
	{"Filters", (*suite).filters},
	{"FiltersOnly", (*suite).filtersOnly},
	{"FiltersChange", (*suite).filtersChange},
	{"FiltersRetry", (*suite).filtersRetry},
	{"FiltersOfGroup", (*suite).filtersOfGroup},
	{"FiltersPaused", (*suite).filtersPaused},
	{"FiltersOfMany", (*suite).filtersOfMany},
	{"FiltersOrder", (*suite).filtersOrder},
	{"FilterRefused", (*suite).filterRefused},
	{"Serial", (*suite).serial},
	{"GroupField", (*suite).groupField},
	{"GroupFieldKept", (*suite).groupFieldKept},
	{"InitialDelay", (*suite).initialDelay},
	{"DelayedOrder", (*suite).delayedOrder},
	{"BackoffTypes", (*suite).backoffTypes},
	{"Visibility", (*suite).visibility},
	{"PausedObserver", (*suite).pausedObserver},
	{"ObservedPriority", (*suite).observedPriority},
	{"JobRuns", (*suite).jobRuns},
	{"JobDefined", (*suite).jobDefined},
	{"JobRefused", (*suite).jobRefused},
	{"JobIsJSON", (*suite).jobIsJSON},
	{"JobWaits", (*suite).jobWaits},
	{"JobConcurrency", (*suite).jobConcurrency},
	{"JobOrder", (*suite).jobOrder},
	{"JobTimeout", (*suite).jobTimeout},
	{"JobBudget", (*suite).jobBudget},
	{"JobPriority", (*suite).jobPriority},
	{"JobNamespaces", (*suite).jobNamespaces},
	{"JobQueueRemoved", (*suite).jobQueueRemoved},
	{"Scheduled", (*suite).scheduled},
	{"ScheduledPast", (*suite).scheduledPast},
	{"ScheduleRefused", (*suite).scheduleRefused},
	{"ScheduledOperated", (*suite).scheduledOperated},
	{"WaitingOperated", (*suite).waitingOperated},
	{"Wishes", (*suite).wishes},
	{"ExecutionClosed", (*suite).executionClosed},
	{"ExecutionPurged", (*suite).executionPurged},
	{"ExecutionReopened", (*suite).executionReopened},
	{"ExecutionNeighbours", (*suite).executionNeighbours},
}

// alone are those that restart the mesh or cut it off, and one that looks at the order
// of dead letters: a broker that ends a connection because of one test's queue has what
// another was looking at back later, and behind the rest.
var alone = []testCase{
	{"Diverted", (*suite).diverted},
	{"Severed", (*suite).severed},
	{"HeldWhileSevered", (*suite).heldWhileSevered},
	{"EndedWhileSevered", (*suite).endedWhileSevered},
	{"BudgetOverRestart", (*suite).budgetOverRestart},
	{"BacklogOverRestart", (*suite).backlogOverRestart},
	{"AcknowledgedOverRestart", (*suite).acknowledgedOverRestart},
	{"LongHandlerOverRestart", (*suite).longHandlerOverRestart},
	{"TopicOverRestart", (*suite).topicOverRestart},
	{"JobsOverRestart", (*suite).jobsOverRestart},
	{"ScheduledOverRestart", (*suite).scheduledOverRestart},
	{"FIFOOverRestart", (*suite).fifoOverRestart},
	{"BlockedOverRestart", (*suite).blockedOverRestart},
	{"FiltersOverRestart", (*suite).filtersOverRestart},
	{"ClosedOverRestart", (*suite).closedOverRestart},
}

// Run runs the suite. Its tests share the mesh and run side by side, each in
// executions of its own; those that restart it come last, alone.
func Run(t *testing.T, target Target) {
	if target.Restart == nil || target.Sever == nil || target.Undecided == nil || target.Capabilities.Open != (target.Put != nil) {
		t.Fatal("the target lacks Restart, Sever, Undecided, or Put for a broker that is Open: no row may be left out")
	}
	run(t, target, together, alone)
}

func run(t *testing.T, target Target, together, alone []testCase) {
	t.Run("Together", func(t *testing.T) {
		for _, c := range together {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				c.test(newSuite(t, target))
			})
		}
	})
	for _, c := range alone {
		t.Run(c.name, func(t *testing.T) { c.test(newSuite(t, target)) })
	}
}

// waiting are the tests in which messages wait, or what waits elsewhere might be met.
var waiting = []string{
	"Failed", "Budget", "Backoff", "Redrive", "Headers", "Counters", "Largest", "ShortPassesLong", "FreshFlowPastFailing", "FIFOKeepsPlace",
	"ObserverRetries", "FiltersRetry", "InitialDelay", "DelayedOrder", "JobBudget", "WaitingOperated", "Wishes", "ExecutionClosed", "ExecutionPurged",
	"Severed", "BudgetOverRestart",
}

// RunWaiting runs those of the suite in which messages wait, for a broker that passes
// the whole of it and may have them wait elsewhere.
func RunWaiting(t *testing.T, target Target) {
	run(t, target, whereWaiting(together), whereWaiting(alone))
}

func whereWaiting(all []testCase) []testCase {
	return slices.DeleteFunc(slices.Clone(all), func(c testCase) bool { return !slices.Contains(waiting, c.name) })
}

// sixtyFour is the longest execution id.
var sixtyFour = strings.Repeat("x", 64)
