// Package telemetry exports the spans of a binary by OTLP over HTTP. The environment alone says
// whether and where to, in the variables that OpenTelemetry names
// (https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/). Spans,
// batches, samplers and resources are the SDK's. OpenTelemetry's own exporter brings gRPC with it,
// so this package makes the request itself (client.go).
package telemetry

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/queuepump/queuepump/internal/logs"
)

// flushFor is how long the last spans may take at the end of the process.
const flushFor = 5 * time.Second

// Traces makes the provider that the environment asks for, nil if it asks for none. End exports the
// rest within five seconds; it is never nil. An error names the variable.
func Traces(
	binary, version string, log *slog.Logger,
) (provider trace.TracerProvider, end func(), err error) {
	end = func() {}
	if !wanted() {
		return nil, end, nil
	}
	c, err := newClient()
	if err != nil {
		return nil, end, err
	}
	if err := checkSampler(); err != nil {
		return nil, end, err
	}
	ctx := context.Background()
	exporter, err := otlptrace.New(ctx, c)
	if err != nil {
		return nil, end, err
	}
	// What the environment says of the resource comes last, so it wins.
	about, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithHost(),
		resource.WithAttributes(
			attribute.String("service.name", "queuepump-"+binary),
			attribute.String("service.version", version)), resource.WithFromEnv())
	if err != nil {
		return nil, end, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	say := &limited{log: log, to: c.shown}
	otel.SetErrorHandler(say)
	c.refused = say.refused
	p := sdk.NewTracerProvider(sdk.WithBatcher(exporter), sdk.WithResource(about))
	log.Info("spans are exported", "to", c.shown)
	return p, sync.OnceFunc(func() {
		limited, cancel := context.WithTimeout(ctx, flushFor)
		defer cancel()
		if err := p.Shutdown(limited); err != nil {
			log.Warn("the last spans were not exported", "to", c.shown, "error", err)
		}
		say.refuses.Flush()
	}), nil
}

// wanted is whether spans are to be exported: an endpoint is named, or the exporter.
func wanted() bool {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") {
		return false
	}
	switch exporter := os.Getenv("OTEL_TRACES_EXPORTER"); exporter {
	case "none":
		return false
	case "":
		return first("ENDPOINT") != ""
	}
	return true
}

// checkSampler refuses what the SDK would only log before it samples every task.
func checkSampler() error {
	name := strings.ToLower(strings.TrimSpace(os.Getenv("OTEL_TRACES_SAMPLER")))
	switch name {
	case "", "always_on", "always_off", "parentbased_always_on", "parentbased_always_off":
		return nil
	case "traceidratio", "parentbased_traceidratio":
	default:
		return fmt.Errorf("OTEL_TRACES_SAMPLER: %q is not known; use always_on, always_off, "+
			"traceidratio, or one of them behind parentbased_", name)
	}
	arg := strings.TrimSpace(os.Getenv("OTEL_TRACES_SAMPLER_ARG"))
	if arg == "" {
		return nil // the SDK's: all
	}
	if part, err := strconv.ParseFloat(arg, 64); err != nil || !(part >= 0 && part <= 1) {
		return fmt.Errorf("OTEL_TRACES_SAMPLER_ARG: %q is not a number from 0 to 1", arg)
	}
	return nil
}

// first is a variable of the exporter: that of traces, or else that of all signals.
func first(name string) string {
	return cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_"+name), os.Getenv("OTEL_EXPORTER_OTLP_"+name))
}

// limited logs the errors of the exporter and the refusals of the collector, each at most once a
// minute.
type limited struct {
	log              *slog.Logger
	to               string
	failing, refuses logs.Limited
}

// Handle is otel.ErrorHandler's.
func (l *limited) Handle(err error) {
	l.failing.Add(0, func(errors, _ int) {
		l.log.Warn("spans cannot be exported", "to", l.to, "error", err, "more", errors-1)
	})
}

// refused counts spans that the collector refused, and logs them with its last answer.
func (l *limited) refused(spans int64, says string) {
	l.refuses.Add(int(spans), func(_, spans int) {
		l.log.Warn("the collector does not take all spans", "to", l.to, "refused", spans, "says", says)
	})
}
