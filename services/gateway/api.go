package gateway

import (
	"context"
	"net/http"
	"path"
	"reflect"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/swaggest/swgui"
	"github.com/swaggest/swgui/v5emb"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// apiPrefix begins the path of every operation.
const apiPrefix = "/api/v1"

// tagMesh is of operations that are about the mesh as a whole.
const tagMesh = "mesh"

// operationTimeout bounds an operation, the time of the services included.
const operationTimeout = 30 * time.Second

// nouns are what there are operations on, each with a file of its own: this is
// the one place where a noun comes in.
var nouns = []func(*Service, huma.API){
	(*Service).messages,
	(*Service).batch,
	(*Service).queues,
	(*Service).jobs,
	(*Service).subscriptions,
	(*Service).workers,
	(*Service).observers,
	(*Service).executions,
	(*Service).functions,
	(*Service).deadLetters,
	(*Service).waiting,
	(*Service).webhookOperations,
	(*Service).brokers,
	(*Service).health,
	(*Service).diagnostic,
	(*Service).reconciliation,
	(*Service).why,
}

// addAPI adds every operation to mux, and what describes them: /openapi.json,
// /openapi.yaml and /docs/.
func (s *Service) addAPI(mux *http.ServeMux) {
	replaceErrors()
	config := huma.DefaultConfig("Waybill", s.o.Version)
	config.Info.Description = "Publish to a mesh, and operate it. Errors are problems (RFC 9457) with the mesh's code."
	config.DocsPath, config.SchemasPath = "", ""
	config.CreateHooks = nil // no links to schemas in answers
	config.RejectUnknownQueryParameters = true
	api := humago.New(mux, config)
	api.UseMiddleware(s.connected(api))
	for _, add := range nouns {
		add(s, api)
	}
	ui := v5emb.NewWithConfig(swgui.Config{SettingsUI: map[string]string{"validatorUrl": "null"}})
	mux.Handle("GET /docs/", ui("Waybill", "/openapi.json", "/docs/"))
}

// patient are the operations that know by themselves what to do without NATS:
// a publish and a call wait for it, the others tell of it.
var patient = map[string]bool{
	"publish-to-queue": true, "publish-to-topic": true, "publish-batch": true, "enqueue-job": true, "call-function": true,
	"mq-diagnostic": true, "ready": true,
}

// connected refuses an operation at once while NATS is away, instead of letting
// it wait for services that cannot be asked.
func (s *Service) connected(api huma.API) func(huma.Context, func(huma.Context)) {
	away := problemOf(protocol.Errorf(protocol.CodeUnavailable, "NATS cannot be reached: see whether it is running; the gateway connects again by itself"))
	return func(ctx huma.Context, next func(huma.Context)) {
		if s.nc.IsConnected() || patient[ctx.Operation().OperationID] {
			next(ctx)
			return
		}
		// It fails if the asker has gone; there is nobody to tell.
		_ = huma.WriteErr(api, ctx, away.Status, away.Detail, away)
	}
}

// operation adds an operation whose errors, coded as everywhere in the mesh,
// are answered as problems.
func operation[I, O any](api huma.API, op huma.Operation, do func(context.Context, *I) (*O, error)) {
	op.Path = apiPrefix + op.Path
	if op.Responses == nil {
		op.Responses = map[string]*huma.Response{}
	}
	op.Responses["default"] = &huma.Response{
		Description: "A problem, whose code says which.",
		Content:     map[string]*huma.MediaType{problemJSON: {Schema: api.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[Problem](), true, "")}},
	}
	huma.Register(api, op, func(ctx context.Context, in *I) (*O, error) {
		ctx, cancel := context.WithTimeout(ctx, operationTimeout)
		defer cancel()
		out, err := do(ctx, in)
		if err != nil {
			return nil, problemOf(err)
		}
		return out, nil
	})
}

// answer is the document that an operation answers with.
type answer[T any] struct{ Body T }

// answered is do's value as an answer.
func answered[T any](value T, err error) (*answer[T], error) {
	if err != nil {
		return nil, err
	}
	return &answer[T]{value}, nil
}

// orProblem serves next, and what it has no path or method for as problems;
// OPTIONS says which methods a path has.
func orProblem(next *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isPlain(r.URL.EscapedPath()) {
			answerError(w, noPath(r))
			return
		}
		h, pattern := next.Handler(r)
		if pattern != "" {
			next.ServeHTTP(w, r)
			return
		}
		var said header
		h.ServeHTTP(&said, r)
		allow := said.Header().Get("Allow")
		switch {
		case allow == "":
			answerError(w, noPath(r))
		case r.Method == http.MethodOptions:
			w.Header().Set("Allow", allow)
			w.WriteHeader(http.StatusNoContent)
		default:
			w.Header().Set("Allow", allow)
			p := problemOf(protocol.Errorf(protocol.CodeInvalidArgs, "%s has no %s: it has %s", r.URL.Path, r.Method, allow))
			p.Status, p.Title = http.StatusMethodNotAllowed, http.StatusText(http.StatusMethodNotAllowed)
			answerProblem(w, p)
		}
	})
}

func noPath(r *http.Request) error {
	return protocol.Errorf(protocol.CodeNotFound, "there is nothing at %s: /openapi.json and /docs/ say what there is", r.URL.Path)
}

// isPlain is false for a path that the mux would redirect to another way to
// write it.
func isPlain(p string) bool { return p == "/" || path.Clean(p) == strings.TrimSuffix(p, "/") }

// header is a response of which only the headers matter.
type header struct{ h http.Header }

func (a *header) Header() http.Header {
	if a.h == nil {
		a.h = http.Header{}
	}
	return a.h
}

func (a *header) Write(b []byte) (int, error) { return len(b), nil }

func (a *header) WriteHeader(int) {}
