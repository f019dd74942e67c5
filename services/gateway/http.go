package gateway

import (
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/waybill-mq/waybill/internal/bind"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

const (
	readTimeout  = 30 * time.Second
	writeTimeout = operationTimeout + 10*time.Second
	idleTimeout  = 2 * time.Minute
	maxHeaders   = 2 * protocol.MaxHeaderBytes // those of a message, and HTTP's own
)

func (s *Service) server() *http.Server {
	return &http.Server{
		Handler:           inTrace(guarded(s.routes())),
		ReadHeaderTimeout: readTimeout / 3,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaders,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
}

func (s *Service) routes() http.Handler {
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(
		newCollector(s.nc, s.log, &s.books),
		s.webhooks.calls,
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answerText(w, http.StatusOK, "ok\n") })
	mux.HandleFunc("GET /readyz", s.readyz)
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{
		MaxRequestsInFlight: maxScrapes,
		ErrorHandling:       promhttp.ContinueOnError, // one odd series hides no others
		ErrorLog:            slog.NewLogLogger(s.log.Handler(), slog.LevelWarn),
	}))
	s.addAPI(mux)
	return orProblem(mux)
}

// maxScrapes at a time; what is more is told to come again.
const maxScrapes = 8

// guarded refuses requests whose Host is not this machine's loopback: without
// it any web page could read what is served here, by a name of its own that
// resolves to 127.0.0.1. And it refuses those that change something and come
// from another page than one served here (Sec-Fetch-Site, Origin).
func guarded(next http.Handler) http.Handler {
	origin := http.NewCrossOriginProtection()
	origin.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		answerError(w, protocol.Errorf(protocol.CodeForbidden, "the request comes from a web page that this gateway did not serve, and those may change nothing here"))
	}))
	same := origin.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("X-Frame-Options", "DENY")
		w.Header().Set("Cache-Control", "no-store")
		if !bind.Loopback(hostOf(r.Host)) {
			answerError(w, protocol.Errorf(protocol.CodeForbidden, "this gateway answers to localhost and loopback addresses only, not to the Host that was asked for"))
			return
		}
		same.ServeHTTP(w, r)
	})
}

// hostOf is the host of a Host header, without its port and brackets.
func hostOf(header string) string {
	if host, _, err := net.SplitHostPort(header); err == nil {
		return host
	}
	return strings.TrimSuffix(strings.TrimPrefix(header, "["), "]")
}

func answerText(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text)) // the asker has gone; there is nobody to tell
}

func answerJSON(w http.ResponseWriter, status int, document any) {
	body, err := json.Marshal(document)
	if err != nil {
		answerText(w, http.StatusInternalServerError, "the answer could not be encoded\n")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // as above
}
