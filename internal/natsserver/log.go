package natsserver

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
)

// logger is the server's log as ours. The server's notices are debug messages
// here: who embeds it reports what matters. A fatal message, which the server
// expects to end the process, is kept for Start to return.
type logger struct {
	log *slog.Logger

	mu    sync.Mutex
	first string // fatal message

	unwritable atomic.Bool // a stream cannot be written any more
}

// unwritable is in the message that a stream's file could not be written, on a
// full disk for example. The server goes on, and that stream takes nothing until
// the server is started again.
const unwritable = "critical write error"

func newLogger(log *slog.Logger) *logger {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &logger{log: log}
}

func (l *logger) Noticef(format string, v ...any) { l.say(slog.LevelDebug, format, v) }
func (l *logger) Debugf(format string, v ...any)  { l.say(slog.LevelDebug, format, v) }
func (l *logger) Tracef(format string, v ...any)  { l.say(slog.LevelDebug, format, v) }
func (l *logger) Warnf(format string, v ...any)   { l.say(slog.LevelWarn, format, v) }

func (l *logger) Errorf(format string, v ...any) {
	if strings.Contains(format, unwritable) {
		l.unwritable.Store(true)
	}
	l.say(slog.LevelError, format, v)
}

func (l *logger) Fatalf(format string, v ...any) {
	l.say(slog.LevelError, format, v)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.first == "" {
		l.first = fmt.Sprintf(format, v...)
	}
}

func (l *logger) say(level slog.Level, format string, v []any) {
	if l.log.Enabled(context.Background(), level) {
		l.log.Log(context.Background(), level, "nats-server says", "text", fmt.Sprintf(format, v...))
	}
}

// fatal is the first fatal message, "" if there was none.
func (l *logger) fatal() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.first
}
