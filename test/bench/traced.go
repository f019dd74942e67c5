package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/waybill-mq/waybill/internal/telemetry"
)

// traceShare has client and server make spans of that share of the messages,
// such as 0.1, until stop. They go to a collector in this process that takes
// all and keeps nothing. An empty share makes none.
func traceShare(ctx context.Context, share string) (stop func() error, err error) {
	if share == "" {
		return func() error { return nil }, nil
	}
	address, closeSink, err := startSink(ctx)
	if err != nil {
		return nil, err
	}
	environment := map[string]string{ // of this process, and so of its server
		"OTEL_EXPORTER_OTLP_ENDPOINT": "http://" + address, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
		"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": share,
	}
	for name, value := range environment {
		if err := os.Setenv(name, value); err != nil {
			return nil, errors.Join(err, closeSink())
		}
	}
	flush, err := telemetry.Start(ctx, "bench", "", version, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, errors.Join(err, closeSink())
	}
	return func() error {
		flush()
		otel.SetTracerProvider(noop.NewTracerProvider())
		for name := range environment {
			_ = os.Unsetenv(name)
		}
		return closeSink()
	}, nil
}

// startSink serves what takes all spans.
func startSink(ctx context.Context) (address string, stop func() error, err error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	sink := &http.Server{ReadHeaderTimeout: closeIn, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
	})}
	var serving sync.WaitGroup
	serving.Go(func() { _ = sink.Serve(listener) })
	return listener.Addr().String(), func() error {
		err := sink.Close()
		serving.Wait()
		return err
	}, nil
}
