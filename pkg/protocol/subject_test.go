package protocol_test

import (
	"strings"
	"testing"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// Subjects are what other programs were written against: they never change.
func TestSubjects(t *testing.T) {
	for got, want := range map[string]string{
		protocol.PublishQueueSubject("E1", "scraping.tasks"):           "wb.v1.pub.queue.E1.scraping.tasks",
		protocol.PublishTopicSubject("orders.created"):                 "wb.v1.pub.topic.orders.created",
		protocol.FunctionSubject("default", "iii::queue::redrive"):     "wb.v1.fn.default.iii::queue::redrive",
		protocol.DeliverSubject("local", "s1"):                         "wb.v1.deliver.local.s1",
		protocol.WorkerSubject("w1", protocol.VerbProbe):               "wb.v1.worker.w1.probe",
		protocol.WorkerSubject("w1", protocol.VerbClaims):              "wb.v1.worker.w1.claims",
		protocol.SubjectOutcome + "router-03.token":                    "wb.v1.outcome.router-03.token",
		protocol.SubjectKeepalive + "w1":                               "wb.v1.keepalive.w1",
		protocol.SubjectHello:                                          "wb.v1.registry.hello",
		protocol.SubjectBye:                                            "wb.v1.registry.bye",
		protocol.SubjectWorkers:                                        "wb.v1.registry.workers",
		protocol.SubjectSubscription:                                   "wb.v1.registry.subscriptions",
		protocol.SubjectFunctions:                                      "wb.v1.registry.functions",
		protocol.SubjectQueues:                                         "wb.v1.router.queues",
		protocol.SubjectDecide:                                         "wb.v1.retry.decide",
		protocol.SubjectWaitingQueues:                                  "wb.v1.retry.queues",
		protocol.SubjectDeadQueues:                                     "wb.v1.dlq.queues",
		protocol.SubjectDeadList:                                       "wb.v1.dlq.list",
		protocol.SubjectDeadShow:                                       "wb.v1.dlq.show",
		protocol.SubjectDeadRedrive:                                    "wb.v1.dlq.redrive",
		protocol.SubjectDeadDiscard:                                    "wb.v1.dlq.discard",
		protocol.SubjectStats:                                          "wb.v1.stats",
		protocol.SubjectReady:                                          "wb.v1.ready",
		protocol.SubjectLane + "router-03.pub.queue.E1.scraping.tasks": "wb.v1.lane.router-03.pub.queue.E1.scraping.tasks",
		protocol.SubjectHandover + "retry-01":                          "wb.v1.handover.retry-01",
		protocol.SubjectWorkerChanged:                                  "wb.v1.event.registry.worker",
		protocol.SubjectSpace:                                          "wb.v1.nats.space",
		protocol.SubjectLoad:                                           "wb.v1.event.mesh.load",
	} {
		if got != want {
			t.Errorf("%s is now %s", want, got)
		}
	}
}

func TestSplitOutcome(t *testing.T) {
	lane, token, ok := protocol.SplitOutcome("wb.v1.outcome.router-03.AbC_-9")
	if !ok || lane != "router-03" || token != "AbC_-9" {
		t.Errorf("got %q, %q, %t", lane, token, ok)
	}
	for _, subject := range []string{
		"", "wb.v1.outcome", "wb.v1.outcome.", "wb.v1.outcome.router-03", "wb.v1.outcome.router-03.", "wb.v1.outcome..token",
		"wb.v1.outcome.router-03.a.b", "wb.v2.outcome.router-03.token", "wb.v1.deliver.router-03.token", "x.wb.v1.outcome.router-03.token",
	} {
		if lane, token, ok := protocol.SplitOutcome(subject); ok {
			t.Errorf("%q is taken for an outcome of %q, %q", subject, lane, token)
		}
	}
}

func FuzzSplitOutcome(f *testing.F) {
	f.Add("wb.v1.outcome.router-03.token")
	f.Add("wb.v1.outcome..")
	f.Fuzz(func(t *testing.T, subject string) {
		lane, token, ok := protocol.SplitOutcome(subject)
		if !ok {
			return
		}
		if lane == "" || token == "" || strings.Contains(lane+token, ".") || protocol.SubjectOutcome+lane+"."+token != subject {
			t.Errorf("%q is split into %q and %q", subject, lane, token)
		}
	})
}
