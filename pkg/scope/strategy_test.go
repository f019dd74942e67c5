package scope_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
)

func strategies(t testing.TB) map[string]scope.Strategy {
	t.Helper()
	amqp, err := scope.NewAMQP("")
	if err != nil {
		t.Fatal(err)
	}
	pulsar, err := scope.NewPulsar("", "")
	if err != nil {
		t.Fatal(err)
	}
	return map[string]scope.Strategy{"ledger": scope.Ledger{}, "amqp": amqp, "stomp": scope.STOMP{}, "pulsar": pulsar}
}

// The names as they are on each broker; what stands here never changes.
func TestGoldenNames(t *testing.T) {
	queue := scope.QueueName("019ce6d0", "scraping.tasks")
	topic := scope.TopicName("orders.created")
	observer := scope.ObserverName("orders.created", "orders-process")
	group := scope.GroupName("orders.created", "billing")
	listener := scope.ListenerName("orders.created", "s7Hq2Vd0Kc5mWz1XbN9f_-")
	jobs := scope.JobsName("harness-turn")
	golden := map[string]map[scope.Name]string{
		"ledger": {
			queue:    "/queue/019ce6d0/scraping.tasks",
			topic:    "/topic/orders.created",
			observer: "orders.created::observer:orders-process",
			group:    "orders.created::@billing",
			listener: "orders.created::listen:s7Hq2Vd0Kc5mWz1XbN9f_-",
			jobs:     "/jobs/harness-turn",
		},
		"amqp": {
			queue:                  "queue:019ce6d0:scraping.tasks",
			queue.DeadLetters():    "queue:019ce6d0:scraping.tasks.dlq",
			queue.Delayed(1000):    "queue:019ce6d0:scraping.tasks.retry.1000",
			topic:                  "topic:orders.created",
			observer:               "iii.orders.created.observer:orders-process.queue",
			observer.DeadLetters(): "iii.orders.created.observer:orders-process.dlq",
			observer.Delayed(2000): "iii.orders.created.observer:orders-process.queue.retry.2000",
			group:                  "iii.orders.created.@billing.queue",
			group.DeadLetters():    "iii.orders.created.@billing.dlq",
			group.Delayed(4000):    "iii.orders.created.@billing.queue.retry.4000",
			jobs:                   "iii.__fn_queue::harness-turn.queue",
			jobs.DeadLetters():     "iii.__fn_queue::harness-turn::dlq.queue",
			jobs.Delayed(1000):     "iii.__fn_queue::harness-turn.queue.retry.1000",
		},
		"stomp": {
			queue:                  "/queue/019ce6d0/scraping.tasks",
			queue.DeadLetters():    "/queue/019ce6d0/scraping.tasks.dlq",
			topic:                  "/topic/orders.created",
			observer:               "/queue/@observer/orders.created/orders-process",
			observer.DeadLetters(): "/queue/@observer/orders.created/orders-process.dlq",
			group:                  "/queue/@group/orders.created/billing",
			group.DeadLetters():    "/queue/@group/orders.created/billing.dlq",
			jobs:                   "/queue/@jobs/harness-turn",
			jobs.DeadLetters():     "/queue/@jobs/harness-turn.dlq",
		},
		"pulsar": {
			queue:                  "persistent://public/default/queue:019ce6d0:scraping.tasks",
			queue.DeadLetters():    "persistent://public/default/queue:019ce6d0:scraping.tasks-dlq",
			topic:                  "persistent://public/default/topic:orders.created",
			observer:               "persistent://public/default/observer:orders.created@orders-process",
			observer.DeadLetters(): "persistent://public/default/observer:orders.created@orders-process-dlq",
			group:                  "persistent://public/default/group:orders.created@billing",
			group.DeadLetters():    "persistent://public/default/group:orders.created@billing-dlq",
			jobs:                   "persistent://public/default/jobs:harness-turn",
			jobs.DeadLetters():     "persistent://public/default/jobs:harness-turn-dlq",
		},
	}
	for broker, strategy := range strategies(t) {
		for name, want := range golden[broker] {
			if got, err := strategy.Format(name); err != nil || got != want {
				t.Errorf("%s: %+v is %q, %v; want %q", broker, name, got, err, want)
			}
			if got, err := strategy.Parse(want); err != nil || got != name {
				t.Errorf("%s: %q parses as %+v, %v; want %+v", broker, want, got, err, name)
			}
		}
	}
}

func token() *rapid.Generator[string] { return rapid.StringMatching(`[A-Za-z0-9_-]{1,12}`) }

// valid names are made to be valid, out of words that look like marks.
func valid() *rapid.Generator[scope.Name] {
	words := []string{"a", "b-1", "dlq", "retry", "5", "queue", "topic", "observer", "group", "iii", "partition-0", "E_"}
	ends := rapid.SampledFrom([]string{"end", "queue", "retry", "observer", "x-dlq-y"})
	joined := func(words []string) *rapid.Generator[string] {
		return rapid.Custom(func(t *rapid.T) string {
			tokens := rapid.SliceOfN(rapid.SampledFrom(words), 0, 4).Draw(t, "tokens")
			return strings.Join(append(tokens, ends.Draw(t, "end")), ".")
		})
	}
	dotted, coloned := joined(words), joined(append(words, "x:y", "z:", ":w"))
	return rapid.Custom(func(t *rapid.T) scope.Name {
		return rapid.SampledFrom([]func() scope.Name{
			func() scope.Name { return scope.QueueName(token().Draw(t, "execution"), dotted.Draw(t, "route")) },
			func() scope.Name { return scope.TopicName(coloned.Draw(t, "topic")) },
			func() scope.Name { return scope.ObserverName(coloned.Draw(t, "topic"), coloned.Draw(t, "id")) },
			func() scope.Name { return scope.GroupName(coloned.Draw(t, "topic"), coloned.Draw(t, "group")) },
			func() scope.Name { return scope.JobsName(dotted.Draw(t, "named")) },
		}).Draw(t, "kind")()
	})
}

// wild names are put together from anything at all.
func wild() *rapid.Generator[scope.Name] {
	part := rapid.OneOf(rapid.Just(""), hostile())
	return rapid.Custom(func(t *rapid.T) scope.Name {
		return scope.Name{
			Kind:      rapid.SampledFrom([]scope.Kind{scope.KindQueue, scope.KindTopic, scope.KindObserver, scope.KindGroup, scope.KindListener, scope.KindJobs, "other", ""}).Draw(t, "kind"),
			Execution: part.Draw(t, "execution"), Route: part.Draw(t, "route"),
			Topic: part.Draw(t, "topic"), Member: part.Draw(t, "member"),
			Dead: rapid.Bool().Draw(t, "dead"), DelayMs: rapid.SampledFrom([]int64{0, 0, 0, 1, -1, 1<<63 - 1}).Draw(t, "delay"),
		}
	})
}

func TestEveryValidNameHasAPlaceOnEveryBroker(t *testing.T) {
	for broker, strategy := range strategies(t) {
		t.Run(broker, rapid.MakeCheck(func(t *rapid.T) {
			name := valid().Draw(t, "name")
			text, err := strategy.Format(name)
			if err != nil {
				t.Fatalf("%+v: %v", name, err)
			}
			if back, err := strategy.Parse(text); err != nil || back != name {
				t.Fatalf("%+v is %q, which is %+v, %v", name, text, back, err)
			}
		}))
	}
}

// What is formatted is parsed to the same name: so no two names share a place,
// and no user's name is another's place for dead letters or retries.
func TestFormatAndParseAreInverse(t *testing.T) {
	for broker, strategy := range strategies(t) {
		t.Run(broker, rapid.MakeCheck(func(t *rapid.T) {
			name := rapid.OneOf(wild(), valid(),
				rapid.Map(valid(), scope.Name.DeadLetters),
				rapid.Map(valid(), func(n scope.Name) scope.Name { return n.Delayed(1500) }),
			).Draw(t, "name")
			text, err := strategy.Format(name)
			if err != nil {
				if code := protocol.CodeOf(err); code != protocol.CodeInvalidName && code != protocol.CodeUnsupported {
					t.Fatalf("%+v is refused with %q", name, code)
				}
				return
			}
			if back, err := strategy.Parse(text); err != nil || back != name {
				t.Fatalf("%+v is %q, which is %+v, %v", name, text, back, err)
			}
		}))
	}
}

func TestParseTakesOneSpelling(t *testing.T) {
	for broker, strategy := range strategies(t) {
		t.Run(broker, rapid.MakeCheck(func(t *rapid.T) {
			start := rapid.SampledFrom([]string{"", "/queue/", "/topic/", "/queue/@group/", "/queue/@observer/", "queue:", "topic:", "iii.",
				"persistent://public/default/", "persistent://public/default/queue:", "persistent://public/default/group:",
				"/jobs/", "/queue/@jobs/", "iii.__fn_queue::", "persistent://public/default/jobs:"}).Draw(t, "start")
			text := start + hostile().Draw(t, "rest")
			checkParse(t, strategy, text)
		}))
	}
}

func checkParse(t interface {
	Fatalf(format string, args ...any)
}, strategy scope.Strategy, text string) {
	name, err := strategy.Parse(text)
	if err != nil {
		if protocol.CodeOf(err) != protocol.CodeInvalidName || name != (scope.Name{}) {
			t.Fatalf("%q: %+v, %v", text, name, err)
		}
		return
	}
	if again, err := strategy.Format(name); err != nil || again != text {
		t.Fatalf("%q is %+v, which is %q, %v", text, name, again, err)
	}
}

func TestNamesThatCannotBe(t *testing.T) {
	queue := scope.QueueName("E", "r")
	mixed := queue
	mixed.Topic = "t"
	for what, name := range map[string]scope.Name{
		"no kind":                   {},
		"wildcard":                  scope.QueueName("*", "r"),
		"another's dead letters":    scope.QueueName("E", "r.dlq"),
		"another's retries":         scope.QueueName("E", "r.retry.1000"),
		"hash":                      scope.QueueName("E", "a#"),
		"umlaut":                    scope.TopicName("ä"),
		"mark in a topic":           scope.TopicName("a@b"),
		"parts of two kinds":        mixed,
		"dead and delayed":          queue.DeadLetters().Delayed(1),
		"negative delay":            queue.Delayed(-1),
		"dead letters of a topic":   scope.TopicName("t").DeadLetters(),
		"observer in the topic":     scope.ObserverName("t.observer:x", "y"),
		"an observer without an id": scope.ObserverName("t", ""),
		"a named queue's place":     scope.JobsName("q.dlq"),
		"a listener with a topic":   scope.ListenerName("t", "x::y"),
	} {
		for broker, strategy := range strategies(t) {
			if text, err := strategy.Format(name); protocol.CodeOf(err) != protocol.CodeInvalidName {
				t.Errorf("%s on %s: %q, %v", what, broker, text, err)
			}
		}
	}
}

func TestPlacesABrokerHasNot(t *testing.T) {
	queue, all := scope.QueueName("E", "r"), strategies(t)
	listener := scope.ListenerName("t", "id")
	for broker, names := range map[string][]scope.Name{
		"ledger": {queue.DeadLetters(), queue.Delayed(1)},
		"amqp":   {listener},
		"stomp":  {queue.Delayed(1), listener},
		"pulsar": {queue.Delayed(1), listener},
	} {
		for _, name := range names {
			if text, err := all[broker].Format(name); protocol.CodeOf(err) != protocol.CodeUnsupported {
				t.Errorf("%+v on %s: %q, %v", name, broker, text, err)
			}
		}
	}
}

func TestAMQPLength(t *testing.T) {
	amqp := strategies(t)["amqp"]
	for _, n := range []int{158, 159} {
		name := scope.QueueName(strings.Repeat("e", 64), strings.Repeat("r", n))
		_, err := amqp.Format(name)
		longest, delayErr := amqp.Format(name.Delayed(1<<63 - 1))
		if fits := n == 158; fits != (err == nil) || fits != (delayErr == nil) || len(longest) > 255 {
			t.Errorf("a route of %d bytes: %v; delayed: %d bytes, %v", n, err, len(longest), delayErr)
		}
	}
}

func TestPulsarPartitions(t *testing.T) {
	pulsar := strategies(t)["pulsar"]
	for _, name := range []scope.Name{
		scope.QueueName("E", "a-partition-0"), scope.TopicName("t-partition-12"), scope.ObserverName("t", "x-partition-3"),
		scope.QueueName("E", "a-partition-0").DeadLetters(),
	} {
		if text, err := pulsar.Format(name); protocol.CodeOf(err) != protocol.CodeInvalidName {
			t.Errorf("%+v: %q, %v", name, text, err)
		}
	}
}

func TestStrategiesRefuseABadPrefix(t *testing.T) {
	for _, prefix := range []string{"a b", "queue:", "iii.", "ä", "a.dlq"} {
		if _, err := scope.NewAMQP(prefix); protocol.CodeOf(err) != protocol.CodeInvalidName {
			t.Errorf("AMQP prefix %q: %v", prefix, err)
		}
		if _, err := scope.NewPulsar(prefix, ""); protocol.CodeOf(err) != protocol.CodeInvalidName {
			t.Errorf("Pulsar tenant %q: %v", prefix, err)
		}
		if _, err := scope.NewPulsar("", prefix); protocol.CodeOf(err) != protocol.CodeInvalidName {
			t.Errorf("Pulsar namespace %q: %v", prefix, err)
		}
	}
	own, err := scope.NewAMQP("acme.eu")
	if err != nil {
		t.Fatal(err)
	}
	if text, err := own.Format(scope.GroupName("t", "g")); err != nil || text != "acme.eu.t.@g.queue" {
		t.Errorf("with a prefix of its own: %q, %v", text, err)
	}
}

// The queues of a topic's subscribers, and no others, lead back to the topic.
func TestSubscribedTopic(t *testing.T) {
	for queue, topic := range map[string]string{
		"orders.created::observer:billing": "orders.created", "t::@g": "t", "t:::@:g": "t:", "t::listen:x-dlq": "t",
		"t::observer:a:b.c": "t", "/queue/E/r": "", "/topic/t": "", "t": "", "": "", "t::x": "", "t::observer:": "",
	} {
		if got := scope.SubscribedTopic(queue); got != topic {
			t.Errorf("%q receives %q, want %q", queue, got, topic)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"/queue/E/r", "/topic/t", "t::observer:i", "t::@g", "queue:E:r", "queue:E:r.retry.10", "topic:t", "iii.t.observer:i.queue",
		"iii.t.@g.dlq", "/queue/@group/t/g.dlq", "persistent://public/default/queue:E:r-dlq", "persistent://public/default/observer:t@i",
	} {
		f.Add(seed)
	}
	all := strategies(f)
	f.Fuzz(func(t *testing.T, text string) {
		for _, strategy := range all {
			checkParse(t, strategy, text)
		}
	})
}
