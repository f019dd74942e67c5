package cli

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
)

// plain shows what a client of the mesh logs between what a command says: as a line for
// people.
type plain struct {
	a     *app
	attrs []slog.Attr
}

// Enabled implements slog.Handler.
func (plain) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

// Handle implements slog.Handler.
func (p plain) Handle(_ context.Context, r slog.Record) error {
	var line strings.Builder
	line.WriteString(r.Message)
	add := func(x slog.Attr) bool {
		fmt.Fprintf(&line, "; %s: %s", x.Key, printable(x.Value.String()))
		return true
	}
	for _, x := range p.attrs {
		add(x)
	}
	r.Attrs(add)
	p.a.hintf("%s", line.String())
	return nil
}

// WithAttrs implements slog.Handler.
func (p plain) WithAttrs(attrs []slog.Attr) slog.Handler {
	p.attrs = append(slices.Clip(p.attrs), attrs...)
	return p
}

// WithGroup implements slog.Handler: lines have none.
func (p plain) WithGroup(string) slog.Handler { return p }
