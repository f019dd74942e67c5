//go:build !no_pulsar

package pulsar

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/apache/pulsar-client-go/pulsar/log"
)

// quiet is what the broker's client logs: for whoever looks for a fault of it, as
// all that matters of it is told here. Of that what may have a message in it is left
// out.
type quiet struct{ log *slog.Logger }

func (q quiet) say(text string) { q.log.Debug("the client of Pulsar says", "text", text) }

func (q quiet) on() bool { return q.log.Enabled(context.Background(), slog.LevelDebug) }

func (q quiet) args(args []any) {
	if q.on() {
		q.say(fmt.Sprint(args...))
	}
}

func (q quiet) format(format string, args []any) {
	if q.on() {
		q.say(fmt.Sprintf(format, args...))
	}
}

// SubLogger implements log.Logger, as all of these do.
func (q quiet) SubLogger(f log.Fields) log.Logger { return q.with(f) }

// WithFields adds fields.
func (q quiet) WithFields(f log.Fields) log.Entry { return q.with(f) }

// WithField adds one.
func (q quiet) WithField(name string, value any) log.Entry { return q.with(log.Fields{name: value}) }

// WithError adds an error.
func (q quiet) WithError(err error) log.Entry { return q.with(log.Fields{"error": err}) }

func (q quiet) with(f log.Fields) quiet {
	if !q.on() {
		return q
	}
	all := make([]any, 0, 2*len(f))
	for name, value := range f {
		if name != "properties" {
			all = append(all, name, value)
		}
	}
	return quiet{q.log.With(all...)}
}

// Debug has whole messages.
func (quiet) Debug(...any) {}

// Info tells something.
func (q quiet) Info(args ...any) { q.args(args) }

// Warn tells something.
func (q quiet) Warn(args ...any) { q.args(args) }

// Error tells something.
func (q quiet) Error(args ...any) { q.args(args) }

// Debugf has them too.
func (quiet) Debugf(string, ...any) {}

// Infof tells something.
func (q quiet) Infof(format string, args ...any) { q.format(format, args) }

// Warnf tells something.
func (q quiet) Warnf(format string, args ...any) { q.format(format, args) }

// Errorf tells something.
func (q quiet) Errorf(format string, args ...any) { q.format(format, args) }
