// Package protocol_test checks that the documents of the wire say what
// pkg/protocol does.
package protocol_test

import (
	"bytes"
	"context"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

const (
	docs     = "../../docs/"
	source   = "../../pkg/protocol/"
	fixtures = source + "testdata/wire/v1/"
)

// internal are subjects between services, which programs have no business with.
var internal = map[string]bool{
	"SubjectDecide": true, "SubjectLane": true, "SubjectHandover": true, "SubjectDeadLedger": true, "SubjectWaitingLedger": true,
	"SubjectEvent": true, "SubjectLeases": true, "SubjectLoad": true, "SubjectSpace": true,
}

// described are the documents that programs exchange with the mesh: each has a
// schema of its name.
var described = []any{
	protocol.Bye{}, protocol.Claims{}, protocol.ClaimsRequest{}, protocol.Empty{}, protocol.Error{}, protocol.FinishedWork{}, protocol.FunctionSpec{},
	protocol.Hello{}, protocol.Keepalive{}, protocol.KeepaliveReply{}, protocol.PublishAck{}, protocol.RefusedSubscription{},
	protocol.Registered{}, protocol.RegisteredSubscription{}, protocol.SubscriptionSpec{},
	protocol.DeclaredFunction{}, protocol.ServedFunction{}, protocol.EnqueueRequest{}, protocol.EnqueueReply{}, protocol.DefineRequest{}, protocol.DefineReply{}, protocol.QueueDefinition{},
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// asyncAPI is the document as JSON has it.
func asyncAPI(t *testing.T) map[string]any {
	t.Helper()
	var document map[string]any
	if err := yaml.Unmarshal([]byte(read(t, docs+"asyncapi.yaml")), &document); err != nil {
		t.Fatal(err)
	}
	return document
}

func object(t *testing.T, document map[string]any, path ...string) map[string]any {
	t.Helper()
	for i, key := range path {
		next, ok := document[key].(map[string]any)
		if !ok {
			t.Fatalf("asyncapi.yaml has no %s", strings.Join(path[:i+1], "."))
		}
		document = next
	}
	return document
}

// constants are pkg/protocol's constants of text with that prefix, by name.
func constants(t *testing.T, prefix string) map[string]string {
	t.Helper()
	text := map[string]string{}
	files, err := filepath.Glob(source + "*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			for i := 0; ok && i < len(spec.Values); i++ {
				if value, isText := textOf(spec.Values[i], text); isText {
					text[spec.Names[i].Name] = value
				}
			}
			return true
		})
	}
	named := map[string]string{}
	for name, value := range text {
		if strings.HasPrefix(name, prefix) {
			named[name] = value
		}
	}
	if len(named) < 5 {
		t.Fatalf("found only %v of %s…", named, prefix)
	}
	return named
}

// textOf is the value of an expression of texts and of constants seen before.
func textOf(e ast.Expr, known map[string]string) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		s, err := strconv.Unquote(e.Value)
		return s, err == nil && e.Kind == token.STRING
	case *ast.Ident:
		s, ok := known[e.Name]
		return s, ok
	case *ast.BinaryExpr:
		left, ok1 := textOf(e.X, known)
		right, ok2 := textOf(e.Y, known)
		return left + right, ok1 && ok2
	default:
		return "", false
	}
}

// Every subject that programs or operators use is in protocol.md, every one that
// programs use is a channel, and no channel is of anything else.
func TestSubjectsAgree(t *testing.T) {
	known := constants(t, "Subject")
	page := read(t, docs+"protocol.md")
	for name, subject := range known {
		if !internal[name] && !names(page, subject) {
			t.Errorf("protocol.md does not name %s, %s: add it, or say in this test that it is internal", subject, name)
		}
	}
	program := []string{
		"SubjectPublishQueue", "SubjectPublishTopic", "SubjectPublishJob", "SubjectDefine", "SubjectFunction", "SubjectDeliver", "SubjectOutcome", "SubjectKeepalive", "SubjectWorker", "SubjectHello", "SubjectBye",
	}
	used := map[string]bool{}
	for _, channel := range object(t, asyncAPI(t), "channels") {
		address := channel.(map[string]any)["address"].(string)
		fixed, _, _ := strings.Cut(address, "{")
		i := slices.IndexFunc(program, func(name string) bool { return known[name] == fixed })
		if i < 0 {
			t.Errorf("asyncapi.yaml has the channel %s, and pkg/protocol no subject %s for programs", address, fixed)
			continue
		}
		used[program[i]] = true
	}
	for _, name := range program {
		if !used[name] {
			t.Errorf("asyncapi.yaml has no channel for %s, %s", known[name], name)
		}
	}
}

// names says whether a page has the subject, or its beginning followed by "…".
func names(page, subject string) bool {
	family := subject[:strings.LastIndexByte(strings.TrimSuffix(subject, "."), '.')+1]
	return strings.Contains(page, "`"+subject) || strings.Contains(page, "`"+family+"…`")
}

func TestHeadersAgree(t *testing.T) {
	page := read(t, docs+"protocol.md")
	schemas := object(t, asyncAPI(t), "components", "schemas")
	listed := map[string]bool{}
	for name := range schemas {
		if strings.HasSuffix(name, "Headers") {
			for header := range object(t, schemas, name, "properties") {
				listed[header] = true
			}
		}
	}
	for name, header := range constants(t, "Header") {
		if !strings.Contains(page, "`"+header) {
			t.Errorf("protocol.md does not name the header %s, %s", header, name)
		}
		if !listed[header] {
			t.Errorf("no …Headers schema of asyncapi.yaml has %s, %s", header, name)
		}
		delete(listed, header)
	}
	for header := range listed {
		t.Errorf("asyncapi.yaml has the header %s, and pkg/protocol has not", header)
	}
}

func TestCodesAndOutcomesAgree(t *testing.T) {
	schemas := object(t, asyncAPI(t), "components", "schemas")
	var codes []string
	for _, code := range object(t, schemas, "Code")["examples"].([]any) {
		codes = append(codes, code.(string))
	}
	var want []string
	for _, code := range protocol.Codes() {
		want = append(want, string(code))
	}
	if !slices.Equal(codes, want) {
		t.Errorf("asyncapi.yaml has the codes %v, want %v", codes, want)
	}
	page := read(t, docs+"protocol.md")
	outcomes := object(t, schemas, "Outcome")["examples"].([]any)
	for _, outcome := range []protocol.Outcome{
		protocol.Acknowledged, protocol.Failed, protocol.Rejected, protocol.Cancelled, protocol.Pending, protocol.Delivered, protocol.Expired,
	} {
		if !slices.Contains(outcomes, any(string(outcome))) || !strings.Contains(page, "`"+string(outcome)+"`") {
			t.Errorf("the outcome %s is not in both documents", outcome)
		}
	}
}

// A document has a schema with exactly its fields, and each golden example of it
// keeps to the schema.
func TestSchemasAgree(t *testing.T) {
	document := asyncAPI(t)
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft7) // AsyncAPI's
	if err := compiler.AddResource("asyncapi.json", plain(t, document)); err != nil {
		t.Fatal(err)
	}
	for _, example := range described {
		name := reflect.TypeOf(example).Name()
		t.Run(name, func(t *testing.T) {
			schema := object(t, document, "components", "schemas", name)
			properties, _ := schema["properties"].(map[string]any)
			got := make([]string, 0, len(properties))
			for field := range properties {
				got = append(got, field)
			}
			slices.Sort(got)
			if want := fieldsOf(reflect.TypeOf(example)); !slices.Equal(got, want) {
				t.Errorf("asyncapi.yaml describes %v of %s, which has %v: bring docs/asyncapi.yaml up to date, and docs/protocol.md", got, name, want)
			}
			compiled, err := compiler.Compile("asyncapi.json#/components/schemas/" + name)
			if err != nil {
				t.Fatal(err)
			}
			validateFixtures(t, compiled, name)
		})
	}
}

// plain is value as encoding/json has it, which the validator wants.
func plain(t *testing.T, value any) any {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return document
}

func fieldsOf(document reflect.Type) []string {
	names := []string{}
	for _, field := range reflect.VisibleFields(document) {
		if field.Anonymous {
			continue
		}
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func validateFixtures(t *testing.T, schema *jsonschema.Schema, name string) {
	t.Helper()
	files, err := filepath.Glob(fixtures + snake(name) + ".*json")
	if err != nil {
		t.Fatal(err)
	}
	if single, err := filepath.Glob(fixtures + snake(name) + ".json"); err != nil || len(files)+len(single) == 0 {
		t.Fatalf("%s has no golden example (%v)", name, err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, ".empty.json") {
			continue
		}
		value, err := jsonschema.UnmarshalJSON(strings.NewReader(read(t, file)))
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if err := schema.Validate(value); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// snake is publish_ack for PublishAck.
func snake(name string) string {
	var b strings.Builder
	for i, r := range name {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// The JSON examples of protocol.md are JSON, and those of known documents have
// only fields that there are.
func TestExamplesOfThePageAgree(t *testing.T) {
	blocks := regexp.MustCompile("(?s)```json\n(.*?)```").FindAllStringSubmatch(read(t, docs+"protocol.md"), -1)
	if len(blocks) < 5 {
		t.Fatalf("found only %d examples", len(blocks))
	}
	for _, block := range blocks {
		understood := slices.ContainsFunc(append(slices.Clone(described), errorBody{}), func(document any) bool {
			d := json.NewDecoder(strings.NewReader(block[1]))
			d.DisallowUnknownFields()
			return d.Decode(reflect.New(reflect.TypeOf(document)).Interface()) == nil
		})
		if !understood {
			t.Errorf("no document of the wire reads\n%s", block[1])
		}
	}
}

type errorBody struct {
	protocol.Error

	JetStream struct {
		Code        int    `json:"code"`
		Description string `json:"description"`
	} `json:"error"`
}

// check is what AsyncAPI's own parser finds wrong, one line each.
const check = `
import { Parser, fromFile } from '@asyncapi/parser';
const { document, diagnostics } = await fromFile(new Parser(), process.argv[2]).parse();
for (const d of diagnostics) if (d.severity < 2) console.log(d.code, d.path.join('.'), d.message);
if (!document) console.log('it cannot be read');
`

func TestAsyncAPIIsValid(t *testing.T) {
	modules := harness.NodeModules(t, "@asyncapi/parser@3.6.6")
	script := filepath.Join(modules, "check.mjs")
	if err := os.WriteFile(script, []byte(check), 0o600); err != nil {
		t.Fatal(err)
	}
	path, err := filepath.Abs(docs + "asyncapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), harness.Guard)
	defer cancel()
	out, err := exec.CommandContext(ctx, "node", script, path).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("%v:\n%s", err, out)
	}
}
