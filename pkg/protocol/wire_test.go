package protocol_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// The fixtures under testdata/wire/v1 are what some version wrote, one file a
// document: <document>.json and <document>.<n>.json hold every field there was
// when they were written, <document>.minimal.json the fewest that another
// language may send, <document>.future.json fields and values that this version
// does not know. A file is never changed or removed once it is released.
const fixtures = "testdata/wire/v1"

var newFixtures = flag.Bool("wire.new", false, "write a fixture for each document with fields that no fixture has")

// documents are all JSON documents of the wire.
var documents = []any{
	protocol.BrokerActRequest{}, protocol.BrokerLetters{}, protocol.BrokerLettersRequest{}, protocol.BrokerTrail{}, protocol.BrokerWaitingAct{}, protocol.AuditOnBroker{}, protocol.Effective{}, protocol.GrantRequest{}, protocol.Granted{}, protocol.Bye{}, protocol.Claims{}, protocol.ClaimsRequest{}, protocol.DeadActReply{}, protocol.DeadActRequest{},
	protocol.DeadLetter{}, protocol.DeadListRequest{}, protocol.DeadPage{}, protocol.DeadPresentRequest{}, protocol.DeadPresentReply{}, protocol.LetterName{}, protocol.DeadShowRequest{}, protocol.DecideItem{},
	protocol.DecideReply{}, protocol.DecideRequest{}, protocol.Decision{}, protocol.Empty{}, protocol.Error{},
	protocol.CloseReply{}, protocol.CloseRequest{}, protocol.Execution{}, protocol.ExecutionCloseRequest{}, protocol.ExecutionCounts{},
	protocol.ExecutionCountsPage{}, protocol.ExecutionReopenRequest{}, protocol.ExecutionsPage{}, protocol.ExecutionsRequest{},
	protocol.FinishedWork{}, protocol.FunctionInfo{}, protocol.FunctionSpec{}, protocol.FunctionsPage{}, protocol.FunctionsRequest{},
	protocol.Hello{}, protocol.Keepalive{}, protocol.KeepaliveReply{}, protocol.Load{}, protocol.Space{}, protocol.PublishAck{},
	protocol.Policy{}, protocol.PolicyRequest{},
	protocol.QueueInfo{}, protocol.QueuesPage{}, protocol.QueuesRequest{}, protocol.Ready{}, protocol.Registered{},
	protocol.RefusedSubscription{}, protocol.ObserversRequest{}, protocol.ObserversPage{}, protocol.ObserverInfo{}, protocol.ObserverOwner{}, protocol.ObserverRemoveRequest{}, protocol.ObserverRemoved{}, protocol.ForgetRequest{}, protocol.ForgetReply{},
	protocol.Settings{}, protocol.ObserverSettings{}, protocol.SettingsChange{}, protocol.ObserverSettingsChange{}, protocol.RegisteredSubscription{}, protocol.Stats{}, protocol.LedgerAudit{}, protocol.TrailRequest{}, protocol.TrailReply{}, protocol.LeftOut{}, protocol.Trail{}, protocol.StoryEvent{}, protocol.EntryRequest{}, protocol.EntryState{}, protocol.AuditGap{}, protocol.AuditRoute{}, protocol.AuditHandovers{}, protocol.AuditSpan{}, protocol.Subscription{}, protocol.SubscriptionInfo{},
	protocol.SubscriptionSpec{}, protocol.Tuning{}, protocol.SubscriptionsPage{}, protocol.SubscriptionsRequest{}, protocol.Worker{},
	protocol.WaitingActReply{}, protocol.WaitingActRequest{}, protocol.WaitingListRequest{}, protocol.WaitingMessage{}, protocol.WaitingPage{},
	protocol.WorkerChanged{}, protocol.WorkersPage{}, protocol.WorkersRequest{},
	protocol.Webhook{}, protocol.WebhookRequest{}, protocol.WebhookRotateRequest{}, protocol.WebhookSecret{}, protocol.WebhookSetRequest{}, protocol.WebhookSpec{},
	protocol.QueueDefinition{}, protocol.EnqueueRequest{}, protocol.EnqueueReply{}, protocol.DefineRequest{}, protocol.DefineReply{}, protocol.QueueRemoveRequest{},
	protocol.QueueRemoved{}, protocol.DefinitionsRequest{}, protocol.DefinitionsPage{}, protocol.DefinedQueue{}, protocol.ConfigChanged{}, protocol.LaneDefinition{},
	protocol.LaneDefined{}, protocol.UnservedFunction{}, protocol.ServedFunction{}, protocol.DeclaredFunction{},
	protocol.WebhooksPage{}, protocol.WebhooksRequest{},
	protocol.TargetRequest{}, protocol.DataRequest{}, protocol.RedriveReply{}, protocol.MessageRequest{}, protocol.MessageReply{}, protocol.TopicSummary{}, protocol.TopicStats{},
	protocol.DeadTopicsRequest{}, protocol.DeadTopic{}, protocol.DeadMessagesRequest{}, protocol.DeadMessage{}, protocol.FunctionInfoRequest{}, protocol.FunctionDetail{},
	protocol.WorkersListRequest{}, protocol.WorkersList{}, protocol.ListedWorker{}, protocol.WorkerName{}, protocol.WorkersEvent{}, protocol.FunctionsEvent{},
	protocol.Config{}, protocol.Adapter{}, protocol.ConfigRequest{}, protocol.StoredConfig{}, protocol.ConfigRevision{}, protocol.ConfigDifference{}, protocol.ConfigEdit{}, protocol.ConfigEdited{},
	protocol.ConfigHistoryRequest{}, protocol.ConfigHistory{},
	protocol.Broker{}, protocol.Route{}, protocol.Placement{}, protocol.PlacedBroker{}, protocol.Prepared{}, protocol.SameBroker{}, protocol.Share{}, protocol.BrokersRequest{}, protocol.BrokersPage{}, protocol.BrokerInfo{}, protocol.BrokerStats{},
}

// nameOf is a document's name in file names: publish_ack for PublishAck.
func nameOf(document any) string {
	var b strings.Builder
	for i, r := range reflect.TypeOf(document).Name() {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

func TestEveryDocumentIsKnownToTheTests(t *testing.T) {
	known := map[string]bool{}
	for _, document := range documents {
		known[reflect.TypeOf(document).Name()] = true
	}
	sources, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, source := range sources {
		if strings.HasSuffix(source, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), source, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			if _, isStruct := spec.Type.(*ast.StructType); isStruct && spec.Name.IsExported() && !known[spec.Name.Name] {
				t.Errorf("%s: add %s to the documents of wire_test.go", source, spec.Name.Name)
			}
			return false
		})
	}
}

func TestFixturesReadAndKeepTheirMeaning(t *testing.T) {
	byName := map[string]reflect.Type{}
	for _, document := range documents {
		byName[nameOf(document)] = reflect.TypeOf(document)
	}
	files, err := os.ReadDir(fixtures)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		t.Run(file.Name(), func(t *testing.T) {
			name, _, _ := strings.Cut(file.Name(), ".")
			document, ok := byName[name]
			if !ok {
				t.Fatalf("no document is called %s: a document that was on the wire once is read for ever", name)
			}
			wire := readFixture(t, file.Name())
			first := decode(t, document, wire)
			again := encode(t, first)
			if diff := cmp.Diff(first, decode(t, document, again)); diff != "" {
				t.Errorf("decoding what was encoded differs (-first +again):\n%s", diff)
			}
			if !strings.HasSuffix(file.Name(), ".future.json") {
				requireWithin(t, name, generic(t, wire), generic(t, again))
			}
		})
	}
}

func readFixture(t *testing.T, name string) []byte {
	t.Helper()
	wire, err := os.ReadFile(filepath.Join(fixtures, name))
	if err != nil {
		t.Fatal(err)
	}
	return wire
}

func decode(t *testing.T, document reflect.Type, wire []byte) any {
	t.Helper()
	value := reflect.New(document)
	if err := json.Unmarshal(wire, value.Interface()); err != nil {
		t.Fatalf("%s does not decode: %v\n%s", document, err, wire)
	}
	return value.Elem().Interface()
}

func encode(t *testing.T, document any) []byte {
	t.Helper()
	wire, err := json.Marshal(document)
	if err != nil {
		t.Fatal(err)
	}
	return wire
}

func generic(t *testing.T, wire []byte) any {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(string(wire)))
	decoder.UseNumber() // 64-bit numbers stay what they are
	var value any
	if err := decoder.Decode(&value); err != nil {
		t.Fatal(err)
	}
	return value
}

// requireWithin fails unless everything in want is in got as well.
func requireWithin(t *testing.T, at string, want, got any) {
	t.Helper()
	switch want := want.(type) {
	case map[string]any:
		object, ok := got.(map[string]any)
		if !ok {
			t.Errorf("%s was an object and is %v", at, got)
		}
		for key, value := range want {
			if _, there := object[key]; !there {
				t.Errorf("%s.%s is lost", at, key)
				continue
			}
			requireWithin(t, at+"."+key, value, object[key])
		}
	case []any:
		array, ok := got.([]any)
		if !ok || len(array) != len(want) {
			t.Errorf("%s was %v and is %v", at, want, got)
			return
		}
		for i := range want {
			requireWithin(t, fmt.Sprintf("%s[%d]", at, i), want[i], array[i])
		}
	default:
		if want != got {
			t.Errorf("%s was %v and is %v", at, want, got)
		}
	}
}

// A field that is added needs a fixture that has it: what is not recorded may
// be renamed unnoticed.
func TestEveryFieldIsInAFixture(t *testing.T) {
	for _, document := range documents {
		t.Run(nameOf(document), func(t *testing.T) {
			value := reflect.New(reflect.TypeOf(document)).Elem()
			fill(value, "")
			wanted := encode(t, value.Interface())
			missing := fields("", generic(t, wanted))
			files, err := filepath.Glob(filepath.Join(fixtures, nameOf(document)+".*"))
			if err != nil {
				t.Fatal(err)
			}
			for _, file := range files {
				if strings.HasSuffix(file, ".future.json") {
					continue
				}
				for field := range fields("", generic(t, readFixture(t, filepath.Base(file)))) {
					delete(missing, field)
				}
			}
			switch {
			case len(missing) == 0 && len(files) > 0:
			case *newFixtures:
				writeFixture(t, nameOf(document), wanted)
			default:
				t.Errorf("no fixture has %v: go test ./protocol -run %s -wire.new writes it, then commit it", missing, t.Name())
			}
		})
	}
}

func writeFixture(t *testing.T, name string, wire []byte) {
	t.Helper()
	pretty, err := json.MarshalIndent(json.RawMessage(wire), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(fixtures, name+".json")
	for n := 2; ; n++ {
		file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if os.IsExist(err) {
			path = filepath.Join(fixtures, fmt.Sprintf("%s.%d.json", name, n))
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.Write(append(pretty, '\n')); err != nil {
			t.Fatal(err)
		}
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
		return
	}
}

// fields are the paths of all fields in a document; the keys of a map of
// headers, counters or gauges are not fields.
func fields(at string, value any) map[string]bool {
	found := map[string]bool{}
	switch value := value.(type) {
	case map[string]any:
		for key, inner := range value {
			found[at+"."+key] = true
			if key == "headers" || key == "counters" || key == "gauges" {
				continue
			}
			for field := range fields(at+"."+key, inner) {
				found[field] = true
			}
		}
	case []any:
		for _, inner := range value {
			for field := range fields(at, inner) {
				found[field] = true
			}
		}
	}
	return found
}

// samples are what a field of that name may look like.
var samples = map[string]string{
	"code": "NOT_FOUND", "deliver": "wb.v1.deliver.local.s7Hq2Vd0Kc5mWz1XbN9fRt", "durability": "fsync", "broker": "builtin",
	"execution": "019ce6d0-7b1c-7000-8000-0123456789ab", "headers": "x-tenant", "counters": "published", "gauges": "queues",
	"message_id": "019ce6d1-0000-7abc-8def-0123456789ab", "name": "web-scraper:019ce6d0", "outcome": "failed", "outcomes": "acknowledged", "kind": "observe", "topic": "orders.created", "observer_id": "billing-1", "group": "billing",
	"queue": "/queue/019ce6d0-7b1c-7000-8000-0123456789ab/scraping.tasks", "reason": "failed", "route": "scraping.tasks",
	"stream": "WAYBILL_builtin", "verdict": "retry_at", "verdicts": "dead_letter", "user": "local", "lane": "router-03", "service": "router",
}

// fill gives every field a value that is not its zero.
func fill(value reflect.Value, name string) {
	sample := samples[name]
	if sample == "" {
		sample = name
	}
	switch {
	case value.Type() == reflect.TypeFor[time.Time]():
		value.Set(reflect.ValueOf(time.Date(2026, 3, 4, 5, 6, 7, 891_000_000, time.UTC)))
	case value.Type() == reflect.TypeFor[json.RawMessage]():
		value.SetBytes([]byte("{}"))
	case value.Type() == reflect.TypeFor[[]byte]():
		value.SetBytes([]byte{0, 'a', 0xff})
	case value.Kind() == reflect.Struct:
		for i := range value.NumField() {
			tag, _, _ := strings.Cut(value.Type().Field(i).Tag.Get("json"), ",")
			fill(value.Field(i), tag)
		}
	case value.Kind() == reflect.Pointer:
		value.Set(reflect.New(value.Type().Elem()))
		fill(value.Elem(), name)
	case value.Kind() == reflect.Slice:
		value.Set(reflect.MakeSlice(value.Type(), 1, 1))
		fill(value.Index(0), name)
	case value.Kind() == reflect.Map:
		value.Set(reflect.MakeMap(value.Type()))
		inner := reflect.New(value.Type().Elem()).Elem()
		fill(inner, "value")
		value.SetMapIndex(reflect.ValueOf(sample), inner)
	case value.Kind() == reflect.String:
		value.SetString(sample)
	case value.Kind() == reflect.Bool:
		value.SetBool(true)
	case value.CanInt():
		value.SetInt(int64(len(name)))
	case value.CanUint():
		value.SetUint(uint64(len(name)))
	case value.CanFloat():
		value.SetFloat(float64(len(name)) + 0.5)
	default:
		panic("a field of a kind that the wire has not had: " + value.Type().String())
	}
}
