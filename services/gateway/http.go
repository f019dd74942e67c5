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
)

const (
	readTimeout  = 30 * time.Second
	writeTimeout = 30 * time.Second
	idleTimeout  = 2 * time.Minute
	maxHeaders   = 64 << 10 // bytes
)

func (s *Service) server() *http.Server {
	return &http.Server{
		Handler:           guarded(s.routes()),
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
		newCollector(s.nc, s.log),
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answerText(w, http.StatusOK, "ok\n") })
	mux.HandleFunc("GET /readyz", s.readyz)
	mux.HandleFunc("POST "+diagnosticPath, s.diagnostic)
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{
		MaxRequestsInFlight: maxScrapes,
		ErrorHandling:       promhttp.ContinueOnError, // one odd series hides no others
		ErrorLog:            slog.NewLogLogger(s.log.Handler(), slog.LevelWarn),
	}))
	return mux
}

// maxScrapes at a time; what is more is told to come again.
const maxScrapes = 8

// guarded refuses requests whose Host is not this machine's loopback. Without
// it any web page could read what is served here, by a name of its own that
// resolves to 127.0.0.1.
func guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		if !bind.Loopback(hostOf(r.Host)) {
			answerText(w, http.StatusForbidden, "this gateway answers to localhost and loopback addresses only, not to the Host that was asked for\n")
			return
		}
		next.ServeHTTP(w, r)
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
