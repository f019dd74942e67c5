// Package telemetry sets OpenTelemetry up in a program, as the OTEL_ variables
// of its environment say: the exporter, the sampler, the batches, the resource.
// Without them there is no SDK, and nothing is spent on traces.
package telemetry

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/contrib/exporters/autoexport"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// Asked says whether the environment asks for traces: an exporter or the
// address of a collector is set, and the SDK is not disabled.
func Asked(getenv func(string) string) bool {
	if strings.EqualFold(getenv("OTEL_SDK_DISABLED"), "true") {
		return false
	}
	if exporter := getenv("OTEL_TRACES_EXPORTER"); exporter != "" {
		return exporter != "none"
	}
	return cmp.Or(getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), getenv("OTEL_EXPORTER_OTLP_ENDPOINT")) != ""
}

// flushing bounds how long a program's end waits for its last spans to be taken.
const flushing = 5 * time.Second

// Start makes the program's spans go where the environment says. The function
// it returns sends those that wait, within 5 s, and is called at the program's
// end. INVALID_ARGS: a variable has a value that is none.
//
// service is the program's name and instance its own, for OTEL_SERVICE_NAME and
// OTEL_RESOURCE_ATTRIBUTES to override; empty ones are left out.
func Start(ctx context.Context, service, instance, version string, log *slog.Logger) (flush func(), err error) {
	if !Asked(os.Getenv) {
		return nothing, nil
	}
	if err := cmp.Or(checkSampler(os.Getenv), checkBatches(os.Getenv)); err != nil {
		return nil, err
	}
	exporter, err := autoexport.NewSpanExporter(ctx)
	if err != nil {
		return nil, protocol.Errorf(protocol.CodeInvalidArgs, "the OTEL_ variables say how traces are exported: %v", err)
	}
	about, err := describe(ctx, service, instance, version)
	if err != nil {
		return nil, errors.Join(err, exporter.Shutdown(ctx))
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("traces could not be exported", "error", err) }))
	otel.SetTextMapPropagator(propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{}))
	provider := sdk.NewTracerProvider(sdk.WithBatcher(exporter, batches(os.Getenv)...), sdk.WithResource(about))
	otel.SetTracerProvider(provider)
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), flushing)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil {
			log.Warn("the last traces could not be exported", "error", err)
		}
	}, nil
}

func nothing() {}

// Batches hold a second's spans of a busy program, and few requests carry them.
const (
	queuedSpans = 16384
	batchSpans  = 2048
	mostSpans   = 1_000_000 // that either may be set to: the SDK makes room for them at once
)

// checkBatches refuses a size of batches at which the SDK panics.
func checkBatches(getenv func(string) string) error {
	for _, name := range []string{"OTEL_BSP_MAX_QUEUE_SIZE", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE"} {
		n, err := strconv.Atoi(cmp.Or(getenv(name), "1"))
		if err != nil || n < 1 || n > mostSpans {
			return protocol.Errorf(protocol.CodeInvalidArgs, "%s is %q: it is a number of spans, 1 to %d", name, getenv(name), mostSpans)
		}
	}
	return nil
}

// batches are larger than the SDK's own, unless the environment says how large.
func batches(getenv func(string) string) []sdk.BatchSpanProcessorOption {
	if getenv("OTEL_BSP_MAX_QUEUE_SIZE") != "" || getenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE") != "" {
		return nil
	}
	return []sdk.BatchSpanProcessorOption{sdk.WithMaxQueueSize(queuedSpans), sdk.WithMaxExportBatchSize(batchSpans)}
}

// describe is what is said of the program with all its spans.
func describe(ctx context.Context, service, instance, version string) (*resource.Resource, error) {
	attributes := []resource.Option{
		resource.WithTelemetrySDK(),
		resource.WithAttributes(semconv.ServiceName(service), semconv.ServiceVersion(version)),
	}
	if instance != "" {
		attributes = append(attributes, resource.WithAttributes(semconv.ServiceInstanceID(instance)))
	}
	about, err := resource.New(ctx, append(attributes, resource.WithFromEnv())...)
	if err != nil {
		return nil, protocol.Errorf(protocol.CodeInvalidArgs, "OTEL_RESOURCE_ATTRIBUTES: %v", err)
	}
	return about, nil
}

// checkSampler refuses a sampler that the SDK would replace by one that samples
// all.
func checkSampler(getenv func(string) string) error {
	name, arg := strings.ToLower(strings.TrimSpace(getenv("OTEL_TRACES_SAMPLER"))), getenv("OTEL_TRACES_SAMPLER_ARG")
	switch name {
	case "", "always_on", "always_off", "parentbased_always_on", "parentbased_always_off":
		return nil
	case "traceidratio", "parentbased_traceidratio":
		ratio, err := strconv.ParseFloat(arg, 64)
		if arg != "" && (err != nil || !(ratio >= 0 && ratio <= 1)) {
			return protocol.Errorf(protocol.CodeInvalidArgs, "OTEL_TRACES_SAMPLER_ARG is %q: it is the share that is sampled, 0 to 1", arg)
		}
		return nil
	default:
		return protocol.Errorf(protocol.CodeInvalidArgs, "OTEL_TRACES_SAMPLER is %q: it is one of always_on, always_off, traceidratio, parentbased_always_on, parentbased_always_off, parentbased_traceidratio", name)
	}
}
